"""Influence of episodes against what happens when episodes count a little more, are left out, or are drawn again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, read

from cramerl import Support
from cramerl.linear import DistributionalLSTD, Log
from cramerl.linear.logs import influence
from cramerl.linear.logs.action_features import action_features
from cramerl.linear.logs.basis import state_features
from cramerl.linear.logs.influence import bootstrap_influence, height_influence
from cramerl.linear.logs.policies import make_policy
from cramerl.linear.logs.rows import LogRows, Starts, starts_of
from cramerl.linear.logs.selection import some_observations
from cramerl.measures import with_unit_mass

SUPPORT = Support([-6.0, -3.0, -1.5, -0.5, 0.5, 1.5, 3.0, 6.0, 12.0])


def tabular(states: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(states)), np.eye(3)[states[:, 0].astype(int), 1:]])


def tabular_pairs(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(states)), np.eye(6)[(2 * states[:, 0] + actions).astype(int), 1:]])


def rows_of(log: Log, policy: Any, features: Any = tabular, pairs: Any = tabular_pairs) -> LogRows:
    built = state_features(features, some_observations(log), log.schema)
    if policy is None:
        return LogRows(log, built)
    return LogRows(log, built, action_features(pairs, built, log.action_levels, 0), make_policy(policy, log))


def fitted(rows: LogRows, support: Support = SUPPORT, rho: float = 0.0) -> DistributionalLSTD:
    return DistributionalLSTD(support, 0.9, regularisation=rho).fit_source(rows)


def heights(model: DistributionalLSTD, starts: Starts) -> np.ndarray:
    return np.cumsum(with_unit_mass(model.support_, starts.mean @ model.weights_))[:-1]


def refitted(rows: LogRows, start: Any, counts: np.ndarray, rho: float = 0.0) -> np.ndarray:
    again = rows.resampled(counts)
    return heights(fitted(again, rho=rho), starts_of(again, start))


def logs() -> dict[str, Log]:
    columns = WORLD.play(LOGGED, 30, seed=2)
    rng = np.random.default_rng(0)
    weights = {"w": rng.uniform(0.5, 2, len(columns["r"])), "g": rng.choice([0.5, 0.9], len(columns["r"]))}
    cut = WORLD.play(LOGGED, 30, seed=2, most=3)
    return {"plain": read(columns), "weights": read(columns | weights, weight="w", discount="g"), "cut": read(cut)}


@pytest.mark.parametrize("name", ["plain", "weights", "cut"])
@pytest.mark.parametrize("policy", [None, TARGET])
@pytest.mark.parametrize("start", ["episodes", "rows", {"x": [1]}])
def test_an_episode_that_counts_a_little_more(name, policy, start):
    """The influence is the derivative of the heights in how often an episode counts."""
    rows = rows_of(logs()[name], policy)
    count = rows.log.num_episodes
    starts = starts_of(rows, start)
    found = height_influence(fitted(rows), rows, starts)
    step = 1e-5
    for episode in (0, 7, 19):
        more, less = np.ones((2, count))
        more[episode] += step
        less[episode] -= step
        slope = (refitted(rows, start, more) - refitted(rows, start, less)) / (2 * step)
        assert found.influences is not None
        expected = slope * np.sqrt(count / (count - 1))
        np.testing.assert_allclose(found.influences[episode], expected, atol=1e-6)


def test_regularisation_is_a_part_of_the_equations():
    """Its penalty follows the data too, which changes influences in second order only."""
    rows = rows_of(logs()["plain"], None)
    starts, rho = starts_of(rows, "episodes"), 0.03
    found = height_influence(fitted(rows, rho=rho), rows, starts)
    step, slopes = 1e-5, []
    for episode in range(rows.log.num_episodes):
        counts = np.ones(rows.log.num_episodes)
        counts[episode] += step
        slopes.append((refitted(rows, "episodes", counts, rho) - heights(fitted(rows, rho=rho), starts)) / step)
    assert found.influences is not None
    np.testing.assert_allclose(found.influences, slopes, atol=0.004)
    assert np.abs(slopes).max() > 0.02


@pytest.mark.parametrize("policy", [None, TARGET])
def test_standard_errors_are_those_of_the_jackknife_and_of_the_bootstrap(policy):
    log = read(WORLD.play(LOGGED, 80, seed=4))
    rows = rows_of(log, policy)
    model, count = fitted(rows), log.num_episodes
    found = height_influence(model, rows, starts_of(rows, "episodes"))
    left_out = np.array([refitted(rows, "episodes", 1.0 - np.eye(count)[e]) for e in range(count)])
    jackknife = (count - 1) * np.cov(left_out, rowvar=False, bias=True)
    drawn = bootstrap_influence(model, rows, "episodes", 150, 0, starts_of)
    gradients = {
        "mean": -SUPPORT.spacings,
        "height": np.eye(8)[3],
        "cvar": -SUPPORT.spacings * (np.arange(8) < 3) / 0.25,
    }
    for gradient in gradients.values():
        se = np.sqrt(gradient @ found.covariance @ gradient)
        assert se == pytest.approx(np.sqrt(gradient @ jackknife @ gradient), rel=0.1)
        assert se == pytest.approx(np.sqrt(gradient @ drawn.covariance @ gradient), rel=0.3)
    for one in (found, drawn):
        assert one.influences is not None
        np.testing.assert_allclose(one.influences.T @ one.influences, one.covariance, atol=1e-12)


def levels_world(levels: int = 80, episodes: int = 60) -> Log:
    """Steps through many labelled states, so that features are many and mostly zero."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 8, episodes)
    last = np.cumsum(lengths) - 1
    died = np.isin(np.arange(lengths.sum()), last)
    labels = np.append(np.arange(levels), rng.integers(levels, size=lengths.sum() - levels))
    return Log.read(
        {"who": np.repeat(np.arange(episodes), lengths), "x": labels, "r": rng.normal(size=len(labels)), "died": died},
        episode="who",
        state="x",
        categorical="x",
        reward="r",
        terminated="died",
    )


# Features up to which matrices are dense: 81 features are many, and 80 distinct states are many or not.
MANY = {"many": 50, "reduced": 80}


def most_dense(patch: pytest.MonkeyPatch, number: int) -> None:
    for module in ("transition_sums", "reduced", "support_choice", "log_variances", "logs.rows"):
        patch.setattr(f"cramerl.linear.{module}.MOST_DENSE", number)


def test_dense_sparse_and_many_features_give_the_same(monkeypatch):
    log, found = levels_world(), {}
    bases = {"dense": "Whitening", "sparse": "Whitening", "many": "SparseGram", "reduced": "ReducedBasis"}
    for kind, basis in bases.items():
        with monkeypatch.context() as patch:
            if kind == "dense":
                patch.setattr("cramerl.linear.logs.feature_tables._MOST_DENSE", 1000)
            if kind in MANY:
                most_dense(patch, MANY[kind])
            rows = rows_of(log, None, "bins:10")
            model = fitted(rows, rho=1e-3)
            assert type(model._basis_).__name__ == basis
            found[kind] = height_influence(model, rows, starts_of(rows, "episodes"))
    scale = np.abs(found["dense"].influences).max()
    np.testing.assert_allclose(found["sparse"].influences, found["dense"].influences, atol=1e-8 * scale)
    # Many features: the adjoint is found with products, to four digits, and weights to as many as their equations.
    for kind in MANY:
        np.testing.assert_allclose(found[kind].influences, found["dense"].influences, atol=1e-3 * scale)


@pytest.mark.parametrize("policy", [None, TARGET])
def test_products_and_factors_find_the_same_adjoint(monkeypatch, policy):
    rows = rows_of(logs()["plain"], policy)
    model, starts = fitted(rows), starts_of(rows, "episodes")
    direct = height_influence(model, rows, starts)
    monkeypatch.setattr(influence, "_DIRECT_UNKNOWNS", 0)
    krylov = height_influence(model, rows, starts)
    assert direct.influences is not None
    assert krylov.influences is not None
    scale = np.abs(direct.influences).max()
    np.testing.assert_allclose(krylov.influences, direct.influences, atol=1e-3 * scale)


def test_heights_between_knots_are_close(monkeypatch):
    rows = rows_of(read(WORLD.play(LOGGED, 100, seed=1)), None)
    support = Support.uniform(-6, 14, 51)
    model, starts = fitted(rows, support), starts_of(rows, "episodes")
    whole = height_influence(model, rows, starts).covariance
    monkeypatch.setattr(influence, "_DIRECT_UNKNOWNS", 100)
    some = height_influence(model, rows, starts).covariance
    mean = np.full(50, -0.4)
    assert np.sqrt(mean @ some @ mean) == pytest.approx(np.sqrt(mean @ whole @ mean), rel=0.05)
    errors = np.sqrt(np.diag(whole))
    np.testing.assert_allclose(np.sqrt(np.diag(some)), errors, rtol=0.1, atol=0.02 * errors.max())


def test_rows_of_an_episode_may_be_cut_apart(monkeypatch):
    rows = rows_of(logs()["plain"], TARGET)
    model, starts = fitted(rows), starts_of(rows, "episodes")
    whole = height_influence(model, rows, starts)
    monkeypatch.setattr(influence, "few_rows", lambda width: 3)
    np.testing.assert_allclose(height_influence(model, rows, starts).covariance, whole.covariance, atol=1e-12)
    monkeypatch.setattr(influence, "_KEPT_NUMBERS", 10)
    assert height_influence(model, rows, starts).influences is None


def test_starts_that_the_log_never_had_have_no_influence_where_features_are_many(monkeypatch):
    most_dense(monkeypatch, MANY["reduced"])
    rows = rows_of(levels_world(), None, "bins:10")
    model = fitted(rows, rho=1e-3)
    with pytest.raises(ValueError, match="start must hold states of the log where intervals are wanted"):
        height_influence(model, rows, starts_of(rows, {"x": [999]}))
