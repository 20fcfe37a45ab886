"""Features are chosen by returns of held-out episodes."""

from __future__ import annotations

import numpy as np
import pytest
from small_worlds import LOGGED, WORLD, read

from cramerl.linear import Log
from cramerl.linear.logs.basis import state_features
from cramerl.linear.logs.returns import realised_returns
from cramerl.linear.logs.rows import LogRows
from cramerl.linear.logs.selection import (
    STRENGTHS,
    choose_features,
    held_out_crps,
    score_features,
    some_observations,
    split_log,
)
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.scores import crps


def walks(episodes: int, seed: int = 0, most: int = 30) -> Log:
    """A walk on [0, 1] whose last reward, at each step with a chance of 0.3, is 5 in a band in the middle."""
    rng, rows = np.random.default_rng(seed), []
    for who in range(episodes):
        x = rng.random()
        for _ in range(most):
            died = rng.random() < 0.3
            rows.append((who, x, 5.0 * (0.4 < x < 0.6) * died, died))
            x = np.clip(x + rng.normal(scale=0.05), 0, 1)
            if died:
                break
    columns = dict(zip(("who", "x", "r", "died"), map(np.array, zip(*rows, strict=True)), strict=True))
    return Log.read(columns, episode="who", state="x", reward="r", terminated="died")


def test_what_is_not_linear_is_not_fitted_with_lines():
    log = walks(800)
    found = choose_features(log, 0.9, 0)
    assert found.features.name.partition(":")[0] in ("splines", "bins", "fourier")
    best = min(found.tried, key=lambda candidate: candidate.crps)
    assert (found.features.name, found.strength) == (best.name, best.strength)
    assert best.crps < 0.8 * found.pooled
    lines = score_features(log, state_features("columns", some_observations(log), log.schema), 0.9, 0)
    assert [candidate.name for candidate in lines.tried] == ["columns"] * len(STRENGTHS)
    assert lines.tried[0].crps > 0.95 * lines.pooled
    assert {candidate.strength for candidate in found.tried} == set(STRENGTHS)


def test_candidates_have_fewer_features_where_each_action_has_its_own():
    log = walks(400)
    alone, copies = (choose_features(log, 0.9, 0, number) for number in (1, 10))
    assert copies.features.num_features < alone.features.num_features


def test_scores_are_those_of_a_model_that_is_fitted_by_hand():
    log = walks(200)
    parts = split_log(log, 0.9, 3)
    assert parts is not None
    features = state_features("bins:5", some_observations(log), log.schema)
    model = DistributionalLSTD(parts.support, 0.9, regularisation=30.0 / parts.fitted.num_transitions)
    model.fit_source(LogRows(parts.fitted, features))
    (block,) = parts.scored.blocks()
    returns, whole = realised_returns(block, 0.9)
    assert whole.all()
    np.testing.assert_allclose(parts.returns, returns)
    probs = model.predict_proba(features(block.observations)[block.current])
    expected = float(crps(parts.support, probs, returns).mean())
    assert held_out_crps(parts, features, 30.0, 0.9) == pytest.approx(expected, rel=1e-6)


def states(log: Log) -> set[float]:
    """No two rows of these logs have the same state."""
    return {float(x) for block in log.blocks() for x in block.observations.numbers[:, 0] if 0 < x < 1}


def test_no_episode_is_both_fitted_and_scored():
    log = walks(100)
    parts, again, other = (split_log(log, 0.9, seed) for seed in (0, 0, 1))
    assert parts is not None
    assert not states(parts.fitted) & states(parts.scored)
    assert states(parts.fitted) | states(parts.scored) == states(log)
    assert parts.scored.num_episodes == 30
    assert states(again.scored) == states(parts.scored)
    assert states(other.scored) != states(parts.scored)


def test_cut_returns_are_completed_with_those_that_were_seen():
    log = walks(400, most=3)
    parts = split_log(log, 0.9, 0)
    assert parts is not None
    assert 0.2 < parts.completed < 0.9
    seen = np.concatenate([realised_returns(block, 0.9)[0] for block in parts.scored.blocks()])
    whole = np.concatenate([block.complete for block in parts.scored.blocks()])
    np.testing.assert_array_equal(parts.returns[whole], seen[whole])
    assert (parts.returns[~whole] > seen[~whole]).any()
    assert choose_features(log, 0.9, 0).completed == parts.completed
    assert split_log(walks(100), 0.9, 0).completed == 0


def test_small_logs_are_not_divided():
    log = walks(9)
    assert split_log(log, 0.9, 0) is None
    found = choose_features(log, 0.9, 0)
    assert (found.tried, found.strength) == ((), STRENGTHS[0])
    assert np.isnan([found.pooled, found.completed]).all()
    given = score_features(log, state_features("bins:3", some_observations(log), log.schema), 0.9, 0)
    assert (given.features.name, given.tried) == ("bins:3", ())


def test_features_that_cannot_be_fitted_have_an_infinite_score():
    log = read(WORLD.play(LOGGED, 60))
    parts = split_log(log, 0.9, 0)
    assert parts is not None
    zeros = state_features(lambda s: np.column_stack([np.ones(len(s)), 0 * s]), some_observations(log), log.schema)
    assert np.isinf(held_out_crps(parts, zeros, 0.0, 0.9))


def test_the_same_seed_chooses_the_same():
    log = walks(100)
    one, other = (choose_features(log, 0.9, 5) for _ in range(2))
    assert one.tried == other.tried


def test_large_logs_are_compared_on_a_part(monkeypatch):
    log = walks(300)
    monkeypatch.setattr("cramerl.linear.logs.selection._MOST_ROWS", 300)
    parts = split_log(log, 0.9, 0)
    assert parts is not None
    assert parts.fitted.num_transitions + parts.scored.num_transitions < 500
    monkeypatch.setattr("cramerl.linear.logs.selection._MOST_OBSERVATIONS", 50)
    assert 50 <= len(some_observations(log)) < 200


def test_long_episodes_of_many_groups_need_less_regularisation():
    """Fifty steps, each in a state of its own: a little of other returns at each step would be much in the end."""
    rng, steps = np.random.default_rng(0), np.tile(np.arange(50), 60)
    columns = {"who": np.repeat(np.arange(60), 50), "x": steps, "died": steps == 49}
    log = Log.read(
        columns | {"r": -1 + 0.3 * rng.normal(size=3000)},
        episode="who",
        state="x",
        categorical="x",
        reward="r",
        terminated="died",
    )
    assert choose_features(log, 0.99, 0).strength < STRENGTHS[0]
    assert score_features(log, state_features("bins:10", some_observations(log), log.schema, 0), 0.99, 0).strength < 1


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_choice_does_not_depend_on_the_unit_of_rewards(size):
    played = WORLD.play(LOGGED, 60)
    found = [choose_features(read(played | {"r": unit * np.array(played["r"])}), 0.9, 0).tried for unit in (1.0, size)]
    np.testing.assert_allclose([c.crps / size for c in found[1]], [c.crps for c in found[0]], rtol=1e-4)
