"""Least squares from transitions: against `evaluate`, a twin that keeps every sample, and returns that were played."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from oracles import SUPPORTS, project_by_loop
from scipy import sparse
from sklearn.base import clone

from cramerl import Support, cvar, nearest_distribution, quantile
from cramerl.linear import MarkovRewardProcess, evaluate, features, lstd, transition_sums, transitions
from cramerl.linear.lstd import DistributionalLSTD, NotFittedError
from cramerl.linear.problem import Normalisation

NORMALISATIONS: tuple[Normalisation, ...] = ("before", "after", "affine")
UNEVEN, EVEN = SUPPORTS["uneven"], SUPPORTS["even"]


def logged(seed: int, n: int = 300, d: int = 3, *, scale: float = 3.0, ended: float = 0.15, bias: bool = True):
    """Transitions with continuous rewards, some of them far beyond any support here."""
    rng = np.random.default_rng(seed)
    x, following = rng.normal(size=(2, n, d))
    following = 0.5 * x + 0.5 * following
    if bias:
        x[:, 0] = following[:, 0] = 1.0
    return x, scale * rng.normal(size=n), following, rng.random(n) < ended


def closed_walk(seed: int, n: int = 400, states: int = 5):
    """A walk that ends where it began: its visits are exactly stationary for its own transition counts."""
    rng = np.random.default_rng(seed)
    distribution = rng.dirichlet(np.ones(states), states)
    path = [0]
    while len(path) < n:
        path.append(int(rng.choice(states, p=distribution[path[-1]])))
    x, following = np.array(path), np.roll(path, -1)
    return x, rng.choice([-0.3, 0.0, 0.2, 0.45], n), following, rng.random(n) < 0.1


def empirical_process(x, rewards, following, ended, discount: float) -> MarkovRewardProcess:
    share = 1.0 / np.bincount(x)[x]
    return MarkovRewardProcess._from_entries(int(x.max()) + 1, x, following, rewards, share, discount, ended)


def dense_twin(support: Support, discount: float, data, normalisation: str, regularisation: float) -> np.ndarray:
    """Every sample's own backup matrix, entry by entry, in one Kronecker system in the features as they are."""
    x, rewards, following, ended = data
    n, d, k = len(x), x.shape[1], support.num_atoms
    even, keep = np.full(k, 1 / k), np.eye(k) - 1 / k
    # Columns of ones have no variance, so they are free.
    penalty = regularisation * np.diag(x.var(axis=0) / (x != 0).mean(axis=0))
    gram = np.kron(x.T @ x / n + penalty, np.eye(k))
    right = np.zeros((d, k))
    for phi, r, phi_next, last in zip(x, rewards, following, ended, strict=True):
        if last:
            point = project_by_loop(support, np.array([r]), np.ones(1))
            right += np.outer(phi, keep @ point + even if normalisation == "after" else point) / n
            right -= np.outer(phi, even) / n if normalisation == "affine" else 0.0
            continue
        moved = [project_by_loop(support, np.array([r + discount * z]), np.ones(1)) for z in support.atoms]
        matrix = np.column_stack(moved)
        turn = keep @ matrix if normalisation == "after" else matrix @ keep
        gram -= np.kron(np.outer(phi, phi_next), turn) / n
        start = {"before": matrix @ even, "after": even, "affine": matrix @ even - even}[normalisation]
        right += np.outer(phi, start) / n
    return np.linalg.solve(gram, right.ravel()).reshape(d, k)


def plain_lstd(x, rewards, following, ended, discount: float) -> np.ndarray:
    return np.linalg.solve(x.T @ (x - discount * following * ~ended[:, None]), x.T @ rewards)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("kind", ["tabular", "bias", "no bias"])
def test_fixed_point_is_that_of_the_empirical_process(normalisation, kind):
    x, rewards, following, ended = closed_walk(3)
    phi = {
        "tabular": features.tabular(5),
        "bias": features.with_bias(features.random_features(5, 2, seed=1)),
        "no bias": features.random_features(5, 3, seed=2),
    }[kind]
    support, process = Support.uniform(-2, 3, 12), empirical_process(x, rewards, following, ended, 0.8)
    expected = evaluate(process, phi, support, normalisation=normalisation)
    model = DistributionalLSTD(support, 0.8, normalisation=normalisation)
    model.fit(phi[x], rewards, phi[following], ended)
    np.testing.assert_allclose(model.predict_masses(phi), expected.masses, atol=1e-8)
    np.testing.assert_allclose(model.predict(phi), expected.values, atol=1e-8)
    assert model.residual_ < 1e-10
    assert (model.support_report_.can_clip > 0) == expected.certificate.can_clip


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("support", [EVEN, UNEVEN, SUPPORTS["pair"]], ids=["even", "uneven", "pair"])
@pytest.mark.parametrize(("bias", "regularisation"), [(True, 0.0), (False, 0.0), (True, 0.3), (False, 0.3)])
def test_compressed_rewards_say_what_every_sample_says(normalisation, support, bias, regularisation):
    data = logged(5, bias=bias)
    kinks = (support.atoms[:, None] - 0.7 * support.atoms).ravel()
    data[1][: kinks.size] = kinks  # rewards on the kinks themselves
    data[1][-3:] = [-1e3, 1e3, 0.0]  # and far beyond them
    model = DistributionalLSTD(support, 0.7, normalisation=normalisation, regularisation=regularisation).fit(*data)
    expected = dense_twin(support, 0.7, data, normalisation, regularisation)
    np.testing.assert_allclose(model.weights_, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["direct", "krylov", "iteration"])
@pytest.mark.parametrize("scale", [0.0, 3.0], ids=["one reward", "many rewards"])
def test_methods_agree(method, scale):
    data = logged(6, scale=scale)
    model = DistributionalLSTD(EVEN, 0.5, method=method).fit(*data)
    expected = dense_twin(EVEN, 0.5, data, "before", 0.0)
    np.testing.assert_allclose(model.weights_, expected, atol=1e-9)


@pytest.mark.parametrize("first", ["continuous", "discrete"])
def test_chunks_of_any_size_give_the_same(first):
    rng = np.random.default_rng(0)
    x, rewards, following, ended = logged(7, n=700)
    if first == "discrete":
        rewards[:300] = np.round(rewards[:300])  # few values at first: groups by value must turn into kinks
    whole = DistributionalLSTD(UNEVEN, 0.9).fit(x, rewards, following, ended)
    chunked, places = DistributionalLSTD(UNEVEN, 0.9), np.sort(rng.choice(700, 9, replace=False))
    for part in np.split(np.arange(700), places):
        chunked.partial_fit(x[part], rewards[part], following[part], ended[part])
    assert "weights_" not in vars(chunked)  # nothing is solved before it is asked for
    np.testing.assert_allclose(chunked.weights_, whole.weights_, atol=1e-10)
    assert chunked.n_samples_ == whole.n_samples_ == 700
    assert chunked.support_report_.sentence == whole.support_report_.sentence
    np.testing.assert_allclose(chunked.support_report_[:3], whole.support_report_[:3], atol=1e-12)
    # More data after an answer: the answer changes.
    chunked.partial_fit(x[:50], rewards[:50], following[:50], ended[:50])
    again = [np.concatenate([a, a[:50]]) for a in (x, rewards, following, ended)]
    np.testing.assert_allclose(chunked.weights_, DistributionalLSTD(UNEVEN, 0.9).fit(*again).weights_, atol=1e-10)


def test_rows_are_cut_into_pieces_without_effect(monkeypatch):
    data, ask = logged(8), logged(9)
    plain = DistributionalLSTD(EVEN, 0.9).fit(*data)
    expected = plain.predict_cvar(ask[0], [0.1, 0.5]), plain.score(*ask[:2])
    monkeypatch.setattr(transitions, "_CHUNK_NUMBERS", 200)
    model = DistributionalLSTD(EVEN, 0.9).fit(*data)
    np.testing.assert_allclose(model.predict_cvar(ask[0], [0.1, 0.5]), expected[0], atol=1e-9)
    assert model.score(*ask[:2]) == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_means_are_those_of_plain_lstd_where_nothing_clips(normalisation):
    x, rewards, following, ended = logged(10, n=2000, scale=1.0)
    width = 10 * np.abs(rewards).max()
    for support in (Support.uniform(-width, width, 51), Support(width * np.linspace(-1, 1.1, 9) ** 3)):
        model = DistributionalLSTD(support, 0.9, normalisation=normalisation).fit(x, rewards, following, ended)
        assert model.support_report_.can_clip == 0
        assert "nothing clips" in model.support_report_.sentence
        expected = x @ plain_lstd(x, rewards, following, ended, 0.9)
        np.testing.assert_allclose(model.predict(x), expected, atol=1e-10)


def test_clipped_mass_is_counted_exactly():
    """Against the masses of every transition, moved one by one."""
    x, rewards, following, ended = logged(11, scale=2.0, bias=False)
    z = UNEVEN.atoms
    for normalisation in NORMALISATIONS:
        model = DistributionalLSTD(UNEVEN, 0.9, normalisation=normalisation).fit(x, rewards, following, ended)
        masses = model.predict_masses(following)
        if normalisation == "before":
            masses += (1 - masses.sum(axis=1, keepdims=True)) / len(z)
        moved = np.where(ended[:, None], rewards[:, None], rewards[:, None] + 0.9 * z)
        masses = np.where(ended[:, None], 1 / len(z), masses)
        report = model.support_report_
        assert report.clipped_below == pytest.approx((masses * (moved < z[0])).sum() / len(x), abs=1e-10)
        assert report.clipped_above == pytest.approx((masses * (moved > z[-1])).sum() / len(x), abs=1e-10)
        assert report.can_clip == pytest.approx(((moved < z[0]) | (moved > z[-1])).any(axis=1).mean())


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_moments_too_large_to_keep_are_replaced_by_passes(monkeypatch, normalisation):
    data = logged(12)
    kept = DistributionalLSTD(UNEVEN, 0.9, normalisation=normalisation).fit(*data)
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 30 * 9)  # of up to 49 groups
    passed = DistributionalLSTD(UNEVEN, 0.9, normalisation=normalisation).fit(*data)
    np.testing.assert_allclose(passed.weights_, kept.weights_, atol=1e-10)
    np.testing.assert_allclose(passed.support_report_[:3], kept.support_report_[:3], atol=1e-10)
    with pytest.raises(ValueError, match="solve needs moments, which were too large to keep"):
        passed.solve()
    with pytest.raises(ValueError, match=r"partial_fit must hold its moments in .* GB"):
        passed.partial_fit(*data)


def test_chunks_too_large_to_keep_leave_nothing_behind(monkeypatch):
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 30 * 9)
    data, model = logged(12), DistributionalLSTD(UNEVEN, 0.9)
    few = (data[0], np.round(data[1]), *data[2:])  # fewer than 30 distinct rewards: these fit
    weights = model.partial_fit(*few).weights_
    with pytest.raises(ValueError, match="7 atoms and 3 features"):
        model.partial_fit(*data)
    assert model.n_samples_ == 300
    np.testing.assert_array_equal(model.solve().weights_, weights)


def test_dependent_features_need_regularisation():
    x, rewards, following, ended = logged(13)
    twice, after = np.hstack([x, x[:, 1:2]]), np.hstack([following, following[:, 1:2]])
    with pytest.raises(ValueError, match=r"X must have linearly independent columns, got rank 3 of 4.*regularisation"):
        DistributionalLSTD(EVEN).fit(twice, rewards, after, ended)
    with pytest.raises(ValueError, match=r"X must not have a column of zeros, got column 1.*regularisation"):
        DistributionalLSTD(EVEN).fit(x * [1, 0, 1], rewards, following, ended)
    model = DistributionalLSTD(EVEN, regularisation=1e-3).fit(twice, rewards, after, ended)
    np.testing.assert_allclose(model.weights_[1], model.weights_[3], atol=1e-9)  # shared evenly
    chunks = DistributionalLSTD(EVEN).partial_fit(x[:2], rewards[:2], following[:2], ended[:2])  # rank 2 so far
    with pytest.raises(ValueError, match="got rank 2 of 3"):
        chunks.predict(x)
    chunks.partial_fit(x[2:], rewards[2:], following[2:], ended[2:])
    np.testing.assert_allclose(chunks.predict(x), DistributionalLSTD(EVEN).fit(*logged(13)).predict(x), atol=1e-9)


# A chain of three states with normal rewards and a chance to end: easy to play, hard to solve on paper.
LAW = np.array([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2]])
MEANS, DEVIATION, END, DISCOUNT = np.array([1.0, -0.5, 0.2]), 0.5, 0.05, 0.8


def step(rng: np.random.Generator, states: np.ndarray):
    following = (rng.random(len(states))[:, None] > np.cumsum(LAW[states], axis=1)).sum(axis=1)
    return MEANS[states] + DEVIATION * rng.normal(size=len(states)), following, rng.random(len(states)) < END


def played_returns(state: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(100 + state)
    states, alive, total = np.full(count, state), np.ones(count), np.zeros(count)
    for t in range(80):  # 0.8^80 is 2e-8
        rewards, states, ended = step(rng, states)
        total += alive * DISCOUNT**t * rewards
        alive = alive * ~ended
    return total


@pytest.fixture(scope="module")
def chain_model():
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, 300_000)
    rewards, following, ended = step(rng, states)
    model = DistributionalLSTD(discount=DISCOUNT, num_atoms=101)
    for part in np.array_split(np.arange(len(states)), 4):
        model.partial_fit(np.eye(3)[states[part]], rewards[part], np.eye(3)[following[part]], ended[part])
    return model


@pytest.mark.parametrize("state", [0, 1, 2])
def test_quantiles_and_cvar_are_those_of_played_returns(chain_model, state):
    returns, row = np.sort(played_returns(state, 40_000)), np.eye(3)[[state]]
    spacing = chain_model.support_.spacings[0]
    n = len(returns)
    assert chain_model.predict(row)[0] == pytest.approx(returns.mean(), abs=6 * returns.std() / np.sqrt(n))
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    found = chain_model.predict_quantile(row, levels)[0]
    for level, value in zip(levels, found, strict=True):
        # Quantiles of samples: six standard errors in the level, and an atom to either side for the grid.
        error = 6 * np.sqrt(level * (1 - level) / n)
        low, high = np.quantile(returns, [max(0.0, level - error), min(1.0, level + error)])
        assert low - spacing <= value <= high + spacing
    for level, value in zip([0.05, 0.2], chain_model.predict_cvar(row, [0.05, 0.2])[0], strict=True):
        worst = returns[: int(level * n)]
        # Its error has two parts: within the tail, and of the quantile that bounds it.
        error = 6 * np.sqrt((worst.var() + (1 - level) * (worst[-1] - worst.mean()) ** 2) / len(worst))
        assert value == pytest.approx(worst.mean(), abs=error + spacing)


def test_the_chosen_support_covers_the_returns(chain_model):
    support, report = chain_model.support_, chain_model.support_report_
    played = np.concatenate([played_returns(state, 5000) for state in range(3)])
    assert np.mean((played < support.v_min) | (played > support.v_max)) < 1e-3
    assert support.v_max - support.v_min < 3 * (played.max() - played.min())
    assert abs(report.clipped_below) < 1e-3
    assert abs(report.clipped_above) < 1e-3
    assert "wider" not in report.sentence


def test_the_chosen_support_knows_what_is_possible():
    ones, none = np.ones((4, 1)), np.zeros(4, dtype=bool)
    constant = DistributionalLSTD(discount=0.5).fit(ones, np.full(4, 3.0), ones)
    assert constant.support_.v_min <= 3  # the reward itself is there too
    assert constant.support_.v_max >= 6
    assert constant.predict([[1.0]])[0] == pytest.approx(6)
    # Worst cases: two rewards in turn cannot give more than twice the larger one.
    limited = DistributionalLSTD(discount=0.5).fit(ones, np.array([0.0, 1.0, 0.0, 1.0]), ones, none)
    assert limited.support_.v_min == pytest.approx(0)
    assert limited.support_.v_max == pytest.approx(2)
    # A rare final reward that the linear estimate makes little of is still on the support.
    rewards, last = np.zeros(1000), np.arange(1000) == 7
    rewards[7] = -100.0
    rare = DistributionalLSTD(discount=0.5).fit(np.ones((1000, 1)), rewards, np.ones((1000, 1)), last)
    assert rare.support_.v_min <= -100
    first = DistributionalLSTD(discount=0.5, num_atoms=7)
    first.partial_fit(ones, [0.0, 1.0, 0.0, 1.0], ones).partial_fit(ones, [5.0, 5.0, 5.0, 5.0], ones)
    assert first.support_ == Support.uniform(0, 2, 7)  # the first chunk decides
    assert first.support_report_.clipped_above > 0.1


def test_levels_and_risk_follow_the_nearest_distribution():
    data = logged(14)
    model = DistributionalLSTD(UNEVEN, 0.9).fit(*data)
    proper = nearest_distribution(UNEVEN, model.predict_masses(data[0]))
    np.testing.assert_array_equal(model.predict_quantile(data[0], 0.3), quantile(UNEVEN, proper, 0.3))
    several = model.predict_cvar(data[0], [0.1, 1.0])
    assert several.shape == (300, 2)
    np.testing.assert_allclose(several[:, 0], cvar(UNEVEN, proper, 0.1))
    np.testing.assert_allclose(several[:, 1], proper @ UNEVEN.atoms)


def test_score_is_a_crps_skill_where_every_return_ends():
    """CRPS is E|X - g| - E|X - X'| / 2, here with sums over pairs of atoms and of returns."""
    x, rewards, following, _ = logged(15, scale=1.0)
    rewards = 2 * x[:, 1] + 0.1 * rewards
    rewards[:2] = -5.0, 9.0  # beyond the support
    model = DistributionalLSTD(UNEVEN).fit(x, rewards, following, np.ones(300, dtype=bool))
    weights, z = np.arange(300) % 3 + 1.0, UNEVEN.atoms
    proper = model.predict_proba(x)
    own = np.einsum("nk,nl,kl->n", proper, proper, np.abs(z[:, None] - z)) / 2
    missed = (proper * np.abs(z - rewards[:, None])).sum(axis=1) - own
    pairs = np.abs(rewards[:, None] - rewards)
    one_distribution = weights @ pairs @ weights / weights.sum() / 2
    assert model.score(x, rewards, weights) == pytest.approx(1 - weights @ missed / one_distribution)
    assert 0.3 < model.score(x, rewards) < 1
    constant = DistributionalLSTD(EVEN, 0.5).fit(x[:, :1], np.full(300, 1.5), x[:, :1])
    assert constant.score(x[:, :1], np.full(300, 3.0)) == 1.0
    assert constant.score(x[:, :1], np.full(300, 2.0)) == 0.0


def test_parameters_clone_and_pickle():
    model = DistributionalLSTD(UNEVEN, 0.9, regularisation=0.1)
    assert list(model.get_params()) == [
        *("support", "discount", "num_atoms", "normalisation", "regularisation", "method", "tol", "next_distribution")
    ]
    twin: Any = clone(model)
    assert twin.get_params() == model.get_params()
    data = logged(16)
    model.fit(*data)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(data[0]), model.predict(data[0]))
    np.testing.assert_array_equal(copied.partial_fit(*data).weights_, model.partial_fit(*data).weights_)
    loose = model.weights_
    tight = model.set_params(regularisation=0.0).solve().weights_
    np.testing.assert_allclose(tight, DistributionalLSTD(UNEVEN, 0.9).fit(*data).weights_, atol=1e-10)
    assert np.abs(tight - loose).max() > 1e-3
    with pytest.raises(ValueError, match=r"params must be among support, .* got 'gamma'"):
        model.set_params(gamma=0.9)


def test_import_needs_no_extra():
    check = "import sys, cramerl.linear; print({'sklearn', 'pyarrow', 'minari'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_no_answer_before_data():
    model = DistributionalLSTD()
    for ask in (lambda: model.predict([[1.0]]), lambda: model.weights_, model.solve, lambda: model.support_report_):
        with pytest.raises(NotFittedError, match="fit or partial_fit"):
            ask()
    assert not hasattr(model, "residual_")
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        model.colour  # noqa: B018


def test_a_process_without_a_fixed_point_is_called_that():
    """One feature that doubles at each step, never ending: the value grows without bound."""
    x = np.array([[1.0], [1.0]])
    signed = DistributionalLSTD(EVEN, 0.9, method="iteration", next_distribution="signed")
    with pytest.warns(UserWarning, match="no fixed point was found") as caught:
        signed.fit(x, [0.3, 0.4], 3 * x)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="no fixed point was found"):
        DistributionalLSTD(EVEN, 0.9, method="iteration").partial_fit(x, [0.3, 0.4], 3 * x).solve()
    with pytest.warns(UserWarning, match="solved with proper next distributions"):
        model = DistributionalLSTD(EVEN, 0.9, method="iteration").fit(x, [0.3, 0.4], 3 * x)
    assert model.method_ == "constrained"


BAD_DATA = {
    "X nan": ({"X": [[1.0], [np.nan]]}, "X must be finite, got nan"),
    "next inf": ({"X_next": [[np.inf], [1.0]]}, "X_next must be finite, got inf"),
    "rewards nan": ({"rewards": [np.nan, 0.0]}, "rewards must be finite, got nan"),
    "terminated nan": ({"terminated": [np.nan, 0.0]}, "terminated must be finite, got nan"),
    "terminated two": ({"terminated": [0, 2]}, "terminated must hold True or False, got 2"),
    "text": ({"X": [["a"], ["b"]]}, "X must be an array of real numbers, got list"),
    "complex": ({"rewards": np.array([1j, 0])}, r"rewards must be .* real numbers, got ndarray \(complex128\)"),
    "sparse": ({"X": sparse.csr_array([[1.0], [2.0]])}, "X and X_next must both be sparse or both be dense"),
    "sparse complex": ({"X": sparse.eye_array(2) * 1j}, r"X must be an array of real numbers, got \w+ \(complex128\)"),
    "one axis": ({"X": [1.0, 2.0]}, r"X must have shape \(n, D\) with at least one row and column, got \(2,\)"),
    "empty": ({"X": np.zeros((0, 1))}, r"X must have shape \(n, D\) with at least one row and column, got \(0, 1\)"),
    "features": ({"X_next": [[1.0, 2.0]] * 2}, r"X_next must have shape \(n, 1\).* got \(2, 2\)"),
    "rows": ({"X_next": [[1.0]] * 3}, r"X_next must have one entry for each of the 2 rows of X, got \(3, 1\)"),
    "column": ({"rewards": [[1.0], [2.0]]}, r"rewards must have one entry for each of the 2 rows of X, got \(2, 1\)"),
    "number": ({"terminated": True}, "terminated must have one entry for each of the 2 rows"),
}


@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
def test_certificate(normalisation):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 300, 2))
    rewards, ended = rng.uniform(-1, 1, 300), rng.random(300) < 0.1
    wide, narrow = Support.uniform(-20, 20, 21), Support.uniform(-1, 1, 21)
    biased = [features.with_bias(a) for a in (X, Y)]
    good = lstd.DistributionalLSTD(wide, 0.8, normalisation=normalisation).fit(biased[0], rewards, biased[1], ended)
    assert good.certificate_.constant_distance < 1e-6
    assert good.certificate_.lstd_gap < 1e-10
    bare = lstd.DistributionalLSTD(wide, 0.8, normalisation=normalisation).fit(X, rewards, Y, ended)
    assert bare.certificate_.constant_distance > 0.5
    plain = np.linalg.solve(X.T @ (X - 0.8 * Y * ~ended[:, None]), X.T @ rewards)
    expected = np.sqrt(np.mean((bare.predict(X) - X @ plain) ** 2))  # the atoms are centred: the same model for affine
    assert bare.certificate_.lstd_gap == pytest.approx(expected, abs=1e-12)
    model = lstd.DistributionalLSTD(narrow, 0.8, normalisation=normalisation)
    clipped = model.fit(biased[0], rewards, biased[1], ended).certificate_
    assert clipped.lstd_gap > 1e-3
    assert any("clipped" in sentence for sentence in clipped.sentences)


def test_what_follows_the_end_does_not_count():
    X, rewards, ended = [[1.0], [2.0]], [0.0, 1.0], [False, True]
    known = lstd.DistributionalLSTD(discount=0.5).fit(X, rewards, [[2.0], [7.0]], ended)
    missing = lstd.DistributionalLSTD(discount=0.5).fit(X, rewards, [[2.0], [np.nan]], ended)
    np.testing.assert_array_equal(missing.weights_, known.weights_)


@pytest.mark.parametrize(("bad", "sentence"), BAD_DATA.values(), ids=list(BAD_DATA))
def test_bad_data_is_refused(bad, sentence):
    good = {"X": [[1.0], [2.0]], "rewards": [0.0, 1.0], "X_next": [[1.0], [1.0]], "terminated": [False, True]}
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=sentence):
            getattr(DistributionalLSTD(), method)(**(good | bad))


BAD_RETURNS = {
    "nan": ({"returns": [np.nan, 0.0]}, "returns must be finite, got nan"),
    "rows": ({"returns": [1.0]}, "returns must have one entry for each of the 2 rows"),
    "weights": ({"sample_weight": [1.0]}, "sample_weight must have one entry for each of the 2 rows"),
    "features": ({"X": [[1.0, 2.0]] * 2}, r"X must have shape \(n, 1\).* got \(2, 2\)"),
}


@pytest.mark.parametrize(("bad", "sentence"), BAD_RETURNS.values(), ids=list(BAD_RETURNS))
def test_bad_returns_are_refused(bad, sentence):
    fitted = DistributionalLSTD().fit([[1.0], [2.0]], [0.0, 1.0], [[1.0], [1.0]], [False, True])
    with pytest.raises(ValueError, match=sentence):
        fitted.score(**({"X": [[1.0], [2.0]], "returns": [0.0, 1.0]} | bad))


BAD_SETTINGS = {
    "support": ({"support": [0, 1]}, "support must be a Support or None, got list"),
    "discount": ({"discount": 1.1}, r"discount must lie in \[0, 1\], got 1.1"),
    "discount text": ({"discount": "0.9"}, r"discount must lie in \[0, 1\], got '0.9'"),
    "next_distribution": ({"next_distribution": "any"}, "next_distribution must be one of 'auto', 'signed', 'proper'"),
    "num_atoms": ({"num_atoms": 1}, "num_atoms must be an integer >= 2, got 1"),
    "normalisation": (
        {"normalisation": "never"},
        "normalisation must be one of 'before', 'after', 'affine', got 'never'",
    ),
    "regularisation": ({"regularisation": -1.0}, "regularisation must be a finite number >= 0, got -1.0"),
    "method": ({"method": "luck"}, "method must be one of 'auto', .* got 'luck'"),
    "tol": ({"tol": 0.0}, r"tol must lie in \(0, 1\), got 0.0"),
}


@pytest.mark.parametrize(("bad", "sentence"), BAD_SETTINGS.values(), ids=list(BAD_SETTINGS))
def test_bad_settings_are_refused_when_data_comes(bad, sentence):
    model = DistributionalLSTD(**bad)
    with pytest.raises(ValueError, match=sentence):
        model.fit(*logged(17))


def test_settings_of_the_moments_cannot_change_between_chunks():
    data = logged(18)
    model = DistributionalLSTD(EVEN, 0.9).partial_fit(*data)
    for change in ({"discount": 0.8}, {"support": UNEVEN, "discount": 0.9}):
        with pytest.raises(ValueError, match="support and discount must stay"):
            model.set_params(**change).partial_fit(*data)
    model.set_params(support=EVEN).partial_fit(*data)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\).* got \(300, 2\)"):
        model.partial_fit(data[0][:, :2], *data[1:])
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
        model.predict(data[0][:, :2])
    with pytest.raises(ValueError, match="level must be a number or one-dimensional"):
        model.predict_cvar(data[0], [[0.1]])
    with pytest.raises(ValueError, match=r"level must lie in \[0, 1\], got 1.5"):
        model.predict_quantile(data[0], 1.5)
