"""Aggregates, intervals, profiles and comparisons, against SciPy and against loops."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from scipy import stats

from cramerl.evidence import statistics
from cramerl.evidence.statistics import (
    STATISTICS,
    bootstrap_interval,
    games_of,
    mean_band,
    normalise,
    performance_profile,
)


def statistic(name):
    """A statistic without its interval."""
    return lambda *scores: float(STATISTICS[name](*map(games_of, scores)))


iqm, mean, median, optimality_gap, difference_of_means, difference_of_iqms, probability_of_improvement = map(
    statistic, STATISTICS
)
NUMBERS = st.floats(-100, 100, allow_nan=False, width=32)
TABLES = st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=NUMBERS)
)
AGGREGATES = [iqm, mean, median]


def slow_iqm(games):
    """Every score is cut into small parts of equal weight; the middle half of all parts is averaged."""
    runs = [len(game) for game in games]
    parts = 4 * np.lcm.reduce(runs)
    pooled = sorted(x for game in games for x in np.repeat(game, parts // len(game)))
    quarter = len(pooled) // 4
    return np.mean(pooled[quarter:-quarter])


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (4, 1), (2, 2), (8, 3), (10, 5), (7, 3), (20, 5)])
def test_iqm_is_scipys_trimmed_mean_where_games_have_the_same_number_of_runs(shape, rng):
    scores = rng.normal(size=shape)
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), abs=1e-13)


def test_the_difference_of_iqms(rng):
    first, second = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    expected = stats.trim_mean(first, 0.25, axis=None) - stats.trim_mean(second, 0.25, axis=None)
    assert difference_of_iqms(first, second) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("runs", [(4,), (5, 2), (1, 3), (3, 4, 7)])
def test_iqm_of_any_number_of_runs(runs, rng):
    games = [rng.normal(size=n) for n in runs]
    assert iqm(games) == pytest.approx(slow_iqm(games), abs=1e-12)


def test_every_game_counts_the_same(rng):
    games = [rng.normal(size=3), rng.normal(size=12) + 5]
    twice = [games[0], np.repeat(games[1], 2)]
    for compute in (*AGGREGATES, optimality_gap):
        assert compute(games) == pytest.approx(compute(twice))
    assert mean(games) == pytest.approx((np.mean(games[0]) + np.mean(games[1])) / 2)


def test_aggregates_by_hand():
    scores = np.array([[0.0, 1.0, 10.0], [2.0, 1.0, 0.0]])
    assert mean(scores) == pytest.approx(7 / 3)
    assert median(scores) == 1.0
    assert optimality_gap(scores) == pytest.approx(1 - (0.5 + 1.0 + 0.5) / 3)
    assert normalise(scores, 1.0, 3.0).tolist() == [[-0.5, 0.0, 4.5], [0.5, 0.0, -0.5]]


@given(TABLES, st.randoms(use_true_random=False))
def test_order_of_runs_and_games_does_not_matter(scores, random):
    games = [list(game) for game in scores.T]
    for game in games:
        random.shuffle(game)
    random.shuffle(games)
    for compute in (*AGGREGATES, optimality_gap):
        assert compute(games) == pytest.approx(compute(scores), abs=1e-9)


@given(TABLES)
def test_aggregates_are_between_the_extremes(scores):
    for compute in AGGREGATES:
        assert scores.min() - 1e-9 <= compute(scores) <= scores.max() + 1e-9


@given(TABLES, st.integers(0, 23), st.floats(0, 50))
def test_a_better_run_never_lowers_an_aggregate(scores, place, gain):
    better = scores.copy()
    better.flat[place % scores.size] += gain
    for compute in AGGREGATES:
        assert compute(better) >= compute(scores) - 1e-9
    assert optimality_gap(better) <= optimality_gap(scores) + 1e-9
    assert probability_of_improvement(better, scores) >= probability_of_improvement(scores, scores) - 1e-12


@given(TABLES, st.floats(0.1, 10), st.floats(-50, 50))
def test_aggregates_follow_the_scale(scores, factor, shift):
    for compute in AGGREGATES:
        assert compute(factor * scores + shift) == pytest.approx(factor * compute(scores) + shift, abs=1e-6)


@given(TABLES, st.data())
def test_probability_of_improvement_is_mann_whitneys(first, data):
    rows = data.draw(st.integers(1, 5))
    second = data.draw(arrays(np.float64, (rows, first.shape[1]), elements=NUMBERS))
    found = probability_of_improvement(first, second)
    wins = [
        np.mean([(a > b) + (a == b) / 2 for a, b in itertools.product(ours, theirs)])
        for ours, theirs in zip(first.T, second.T, strict=True)
    ]
    assert found == pytest.approx(np.mean(wins), abs=1e-12)
    scipys = [
        stats.mannwhitneyu(ours, theirs, method="asymptotic", alternative="greater").statistic / (len(ours) * rows)
        for ours, theirs in zip(first.T, second.T, strict=True)
    ]
    assert found == pytest.approx(np.mean(scipys), abs=1e-12)
    assert probability_of_improvement(second, first) == pytest.approx(1 - found, abs=1e-12)
    assert difference_of_means(first, second) == pytest.approx(mean(first) - mean(second), abs=1e-9)


def test_bootstrap_is_the_one_of_a_loop(rng):
    games = [rng.normal(size=5), rng.normal(size=3)]
    found = bootstrap_interval("iqm", games, reps=50, seed=4)
    draws = np.random.default_rng(4)
    picked = [game[draws.integers(len(game), size=(50, len(game)))] for game in games]
    values = [iqm([part[i] for part in picked]) for i in range(50)]
    assert found.estimate == iqm(games)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])), abs=1e-12)


@pytest.mark.parametrize("name", ["iqm", "mean", "median", "optimality_gap"])
def test_intervals_agree_with_scipys_bootstrap(name, rng):
    scores = rng.normal(size=40)
    found = bootstrap_interval(name, scores, reps=20_000)
    scipys = stats.bootstrap(
        (scores,),
        lambda x, axis: statistics.STATISTICS[name]([np.moveaxis(x, axis, -1)]),
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert found.low == pytest.approx(scipys.low, abs=0.02)
    assert found.high == pytest.approx(scipys.high, abs=0.02)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(3)
    inside = 0
    for seed in range(300):
        found = bootstrap_interval("mean", rng.normal(size=(30, 2)), reps=400, seed=seed)
        inside += found.low <= 0 <= found.high
    assert 0.90 <= inside / 300 <= 0.98  # three standard errors about 0.94, what 30 runs give


@given(TABLES, st.integers(0, 5))
def test_intervals_hold_together(scores, seed):
    found = bootstrap_interval("iqm", scores, reps=60, seed=seed)
    assert found == bootstrap_interval("iqm", scores, reps=60, seed=seed) or len(scores) == 1
    if len(scores) == 1:
        assert np.isnan([found.low, found.high]).all()
    else:
        assert scores.min() - 1e-9 <= found.low <= found.high <= scores.max() + 1e-9


def test_comparisons_have_intervals(rng):
    first, second = rng.normal(size=(10, 3)) + 3, rng.normal(size=(6, 3))
    found = bootstrap_interval("difference_of_means", first, second)
    assert 1.5 < found.low < found.estimate < found.high < 4
    found = bootstrap_interval("probability_of_improvement", first, second)
    assert found.low <= found.estimate <= found.high <= 1


@given(TABLES, arrays(np.float64, 7, elements=NUMBERS))
def test_profiles_are_shares_above(scores, thresholds):
    found = performance_profile(scores, thresholds, reps=40)
    for tau, share in zip(thresholds, found.mean, strict=True):
        assert share == pytest.approx(np.mean([np.mean([x > tau for x in game]) for game in scores.T]))
    order = np.argsort(thresholds)
    assert (np.diff(found.mean[order]) <= 1e-12).all()
    if len(scores) > 1:
        assert (found.low <= found.high).all()
        assert found.low.min() >= 0
        assert found.high.max() <= 1
    assert performance_profile(scores, [scores.min() - 1]).mean.tolist() == pytest.approx([1.0])
    assert performance_profile(scores, [scores.max()]).mean.tolist() == [0.0]


def test_bands_are_means_of_what_is_there(rng):
    values = rng.normal(size=(6, 4))
    values[:, 1] = np.nan
    values[1:, 2] = np.nan
    values[3, 0] = np.nan
    band = mean_band(values)
    assert band.mean[[0, 2, 3]] == pytest.approx([np.nanmean(values[:, 0]), values[0, 2], values[:, 3].mean()])
    assert np.isnan([band.mean[1], band.low[1], band.low[2], band.high[2]]).all()
    for i in (0, 3):
        there = values[np.isfinite(values[:, i]), i]
        alone = bootstrap_interval("mean", there, reps=20_000)
        wide = mean_band(values, reps=20_000)
        assert (wide.low[i], wide.high[i]) == pytest.approx((alone.low, alone.high), abs=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iqm([]), r"scores must be a \(runs, games\) array or a list of runs per game, got \[\]"),
        (lambda: iqm("abc"), "scores must be a .* got 'abc'"),
        (lambda: mean([[1.0], []]), r"scores must have at least one run of each game, game 1 has shape \(0,\)"),
        (lambda: mean(np.zeros((2, 2, 2))), r"game 0 has shape \(2, 2, 2\)"),
        (lambda: median([[1.0, np.nan]]), "scores must be finite, game 0 has nan"),
        (lambda: median([["x"]]), "scores must be real numbers, game 0 has"),
        (lambda: normalise([1.0], 2.0, 2.0), "low and high must be finite and differ, got 2.0 and 2.0"),
        (
            lambda: bootstrap_interval("difference_of_means", [[1.0]], [[1.0], [2.0]]),
            "the same games, got 1 and 2 games",
        ),
        (lambda: bootstrap_interval("mode", [1.0]), "name must be one of iqm, .*, got 'mode'"),
        (lambda: performance_profile([1.0], [np.inf]), "thresholds must be a list of finite numbers"),
        (lambda: mean_band([1.0]), r"values must be a \(runs, points\) array with at least one run, got shape \(1,\)"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
