"""Statistics of scores over runs and games: aggregates, bootstrap intervals, profiles, comparisons.

Scores are a (runs, games) array, or one list of runs per game if games have different numbers of runs. Every game has
the same weight, whatever its number of runs. The definitions are those of Agarwal et al. 2021 (rliable).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cramerl._arrays import Floats

# One array per game; the runs are the last axis, resamples are leading axes.
Games = list[Floats]
Scores = ArrayLike | Sequence[ArrayLike]

REPS = 2000
_ENDS = (2.5, 97.5)  # percentiles: every interval is a 95 % interval


class Interval(NamedTuple):
    """An estimate with the ends of its interval, which are NaN if a game has a single run."""

    estimate: float
    low: float
    high: float


class Band(NamedTuple):
    """A mean over runs at each point with a pointwise interval; NaN where there are too few runs."""

    mean: Floats
    low: Floats
    high: Floats


def games_of(scores: Scores) -> Games:
    """Scores as one array of runs per game, checked."""
    columns: list[Any] = []
    if isinstance(scores, np.ndarray):
        columns = list(scores.T) if scores.ndim == 2 else [scores]
    elif isinstance(scores, Sequence) and not isinstance(scores, str) and len(scores):
        columns = [scores] if np.ndim(scores[0]) == 0 else list(scores)
    if not columns:
        raise ValueError(f"scores must be a (runs, games) array or a list of runs per game, got {scores!r}")
    found = []
    for i, column in enumerate(columns):
        try:
            runs = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"scores must be real numbers, game {i} has {column!r}") from None
        if runs.ndim != 1 or not runs.size:
            raise ValueError(f"scores must have at least one run of each game, game {i} has shape {runs.shape}")
        if not np.isfinite(runs).all():
            raise ValueError(f"scores must be finite, game {i} has {runs[~np.isfinite(runs)][0]}")
        found.append(runs)
    return found


def normalise(scores: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Scores on the scale where ``low`` is 0 and ``high`` is 1: (scores - low) / (high - low).

    Example:
        >>> normalise([1.7, 30.5], 1.7, 30.5).tolist()
        [0.0, 1.0]
    """
    below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if not (np.isfinite(below).all() and np.isfinite(above).all() and (above != below).all()):
        raise ValueError(f"low and high must be finite and differ, got {low!r} and {high!r}")
    return (np.asarray(scores, np.float64) - below) / (above - below)


def bootstrap_interval(name: str, *scores: Scores, reps: int = REPS, seed: int = 0, level: float = 0.95) -> Interval:
    """Percentile interval of a statistic: runs are resampled within each game (stratified bootstrap).

    Args:
        name: one of `STATISTICS`.
        scores: one or two agents' scores, resampled independently.
        reps: number of resamples.
        seed: seed of the resampling; the same seed gives the same interval.
        level: how often intervals should hold the true value.

    Example:
        >>> found = bootstrap_interval("mean", [1.0, 2.0, 3.0, 4.0])
        >>> found.estimate, found.low < 2.5 < found.high
        (2.5, True)
    """
    if name not in STATISTICS:
        raise ValueError(f"name must be one of {', '.join(STATISTICS)}, got {name!r}")
    compute, agents = STATISTICS[name], [games_of(one) for one in scores]
    if len({len(games) for games in agents}) > 1:
        numbers = " and ".join(str(len(games)) for games in agents)
        raise ValueError(f"both agents must have the same games, got {numbers} games")
    estimate = float(compute(*agents))
    if any(len(runs) < 2 for games in agents for runs in games):
        return Interval(estimate, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    draws = compute(*([runs[rng.integers(len(runs), size=(reps, len(runs)))] for runs in games] for games in agents))
    low, high = np.percentile(draws, [(100 - 100 * level) / 2, (100 + 100 * level) / 2])
    return Interval(estimate, float(low), float(high))


def performance_profile(scores: Scores, thresholds: ArrayLike, *, reps: int = REPS, seed: int = 0) -> Band:
    """Fraction of runs with a score above each threshold, averaged over games, with pointwise bootstrap bands."""
    games, taus = games_of(scores), np.atleast_1d(np.asarray(thresholds, np.float64))
    if taus.ndim != 1 or not taus.size or not np.isfinite(taus).all():
        raise ValueError(f"thresholds must be a list of finite numbers, got {thresholds!r}")
    above = [(runs[:, None] > taus).astype(np.float64) for runs in games]
    fraction = np.mean([part.mean(axis=0) for part in above], axis=0)
    if any(len(runs) < 2 for runs in games):
        return Band(fraction, *np.full((2, len(taus)), np.nan))
    rng = np.random.default_rng(seed)
    draws = np.mean([_counts(len(part), reps, rng) @ part / len(part) for part in above], axis=0)
    low, high = np.percentile(draws, _ENDS, axis=0)
    return Band(fraction, low, high)


def mean_band(values: ArrayLike, *, reps: int = REPS, seed: int = 0) -> Band:
    """Mean over runs of (runs, points) values with a pointwise bootstrap interval; NaN marks missing values."""
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not table.shape[0]:
        raise ValueError(f"values must be a (runs, points) array with at least one run, got shape {table.shape}")
    present = np.isfinite(table)
    runs = present.sum(axis=0)
    filled, weight = np.where(present, table, 0.0), present.astype(np.float64)
    average, low, high = np.full((3, table.shape[1]), np.nan)
    np.divide(filled.sum(axis=0), runs, out=average, where=runs > 0)
    known = runs >= 2
    if known.any():
        counts = _counts(len(table), reps, np.random.default_rng(seed))
        total, number = counts @ filled[:, known], counts @ weight[:, known]
        draws = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
        low[known], high[known] = np.nanpercentile(draws, _ENDS, axis=0)
    return Band(average, low, high)


def _iqm(games: Games) -> Floats:
    """Interquartile mean: the mean of the middle half of all scores.

    If games have the same number of runs, this is rliable's ``scipy.stats.trim_mean(scores, 0.25, axis=None)``, which
    drops whole scores. Otherwise a score at the edge of the middle half counts in proportion to the part of its weight
    that lies inside.
    """
    x = np.concatenate(games, axis=-1)
    # Games have equal weight, and so do the runs of a game.
    weights = np.concatenate([np.full(runs.shape[-1], 1 / (runs.shape[-1] * len(games))) for runs in games])
    order = np.argsort(x, axis=-1)
    weights = weights[order]
    until = np.cumsum(weights, axis=-1)
    edge = 0.25
    if len({runs.shape[-1] for runs in games}) == 1:
        edge = (x.shape[-1] // 4) / x.shape[-1]
    inside = np.clip(until, edge, 1 - edge) - np.clip(until - weights, edge, 1 - edge)
    return (inside * np.take_along_axis(x, order, axis=-1)).sum(axis=-1) / inside.sum(axis=-1)


def _mean(games: Games) -> Floats:
    """Mean over games of the mean over runs."""
    return np.mean([runs.mean(axis=-1) for runs in games], axis=0)


def _improvement(first: Games, second: Games) -> Floats:
    """Probability that a run of the first agent beats a run of the second, averaged over games.

    This is Mann-Whitney's U / (n m) in each game; ties count one half.
    """
    wins = []
    for ours, theirs in zip(first, second, strict=True):
        a, b = ours[..., :, None], theirs[..., None, :]
        wins.append(((a > b).mean(axis=(-2, -1)) + (a >= b).mean(axis=(-2, -1))) / 2)
    return np.mean(wins, axis=0)


STATISTICS: dict[str, Callable[..., Floats]] = {
    "iqm": _iqm,
    "mean": _mean,
    "median": lambda games: np.median([runs.mean(axis=-1) for runs in games], axis=0),
    # How far scores are below 1 on average; those above count as 1. Smaller is better.
    "optimality_gap": lambda games: 1.0 - _mean([np.minimum(runs, 1.0) for runs in games]),
    "difference_of_means": lambda first, second: _mean(first) - _mean(second),
    "difference_of_iqms": lambda first, second: _iqm(first) - _iqm(second),
    "probability_of_improvement": _improvement,
}
"""Functions of one or two agents' games. They reduce the runs, the last axis, and keep all leading axes."""


def _counts(runs: int, reps: int, rng: np.random.Generator) -> Floats:
    """How often each run is drawn in each resample, (reps, runs)."""
    return rng.multinomial(runs, np.full(runs, 1 / runs), size=reps).astype(np.float64)
