"""Scores of distributions for returns that were seen: by definition, and as a ranking of models."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import SUPPORTS

from cramerl import Support
from cramerl.linear import DistributionalLSTD
from cramerl.linear.scores import crps, pooled_crps


@pytest.mark.parametrize("name", ["even", "uneven", "pair"])
def test_crps_is_the_distance_to_the_return_less_half_of_that_to_itself(name):
    support, rng = SUPPORTS[name], np.random.default_rng(0)
    z = support.atoms
    probs, returns = rng.dirichlet(np.ones(len(z)), 40), rng.normal(scale=2 * (z[-1] - z[0]), size=40)
    own = np.einsum("nk,nl,kl->n", probs, probs, np.abs(z[:, None] - z)) / 2
    expected = (probs * np.abs(z - returns[:, None])).sum(axis=1) - own
    np.testing.assert_allclose(crps(support, probs, returns), expected, atol=1e-12)


def test_pooled_crps_is_half_the_mean_distance_of_two_returns():
    g, weights = np.random.default_rng(1).normal(size=(2, 30))
    weights = np.abs(weights)
    assert pooled_crps(g) == pytest.approx(np.abs(g[:, None] - g).mean() / 2)
    share = weights / weights.sum()
    assert pooled_crps(g, weights) == pytest.approx(share @ np.abs(g[:, None] - g) @ share / 2)


# Five states; a state moves up or down by one or stays, and ends with a reward that grows with the state.
def played(rng: np.random.Generator, episodes: int):
    """Rows (state, reward, next state, ended, cut) of episodes that are cut after six steps, and first of each."""
    rows = []
    for _ in range(episodes):
        state = int(rng.integers(5))
        for t in range(200):
            ended = bool(rng.random() < 0.1)
            following = int(np.clip(state + rng.integers(-1, 2), 0, 4))
            rows.append((state, ended * (state + rng.normal()), following, ended, t))
            state = following
            if ended:
                break
    return np.array(rows)


def test_score_ranks_models_as_they_are_good():
    """Good, before few episodes, before an episode that was cut taken for one that ended."""
    rng = np.random.default_rng(2)
    support = Support.uniform(-4, 9, 27)
    train, test = played(rng, 1500), played(rng, 1500)

    def fitted(rows, ended):
        states, following = rows[:, 0].astype(int), rows[:, 2].astype(int)
        return DistributionalLSTD(support, 0.95).fit(np.eye(5)[states], rows[:, 1], np.eye(5)[following], ended)

    short = train[train[:, 4] < 6]  # every episode cut at six steps, if it has not ended
    cut = short[:, 4] == 5
    few = train[: 1 + np.flatnonzero(train[:, 3])[24]]
    models = fitted(short, short[:, 3]), fitted(few, few[:, 3]), fitted(short, np.maximum(short[:, 3], cut))
    returns = np.zeros(len(test))
    for i in range(len(test) - 1, -1, -1):
        returns[i] = test[i, 1] + (0.0 if test[i, 3] else 0.95 * returns[i + 1] if i + 1 < len(test) else 0.0)
    scores = [model.score(np.eye(5)[test[:, 0].astype(int)], returns) for model in models]
    assert scores[0] > scores[1] + 0.003
    assert scores[1] > scores[2] + 0.003
    assert scores[0] > 0
