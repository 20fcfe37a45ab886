"""The charts of one evaluation: its distribution, and how predictions compare with returns that were seen."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cramerl import plots
from cramerl._arrays import Floats
from cramerl.evaluations.charts import Axis, Chart, Line, Shape, band, box, pointed, steps, upright
from cramerl.evaluations.numerals import decimals_of, fixed, interval_of, percent, percent_estimate, plain, value_of
from cramerl.linear.logs.calibration import Calibration
from cramerl.linear.logs.checks import MOST_COMPLETED
from cramerl.linear.logs.estimates import Estimate, ReturnDistribution
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation
from cramerl.linear.logs.selection import LEAST_EPISODES
from cramerl.linear.logs.wording import CVARS, QUANTILES
from cramerl.measures import quantile

# Charts end where so little lies beyond, on each side, or so many widths of the central returns from these.
_LEFT_OUT, _WIDTHS = 1e-3, 1.0
# Bars of the chart of masses are at least so many times narrower than the axis.
_BARS = 45
_HEIGHTS = Axis(0.0, 1.0)
# The band around the line of a calibrated model holds that of a finite sample so often.
_CALIBRATED = 0.95


class Figure(NamedTuple):
    """A number read off a distribution; ``kind`` is the class of its line in the charts, if it has one."""

    name: str
    estimate: Estimate
    kind: str = ""

    @property
    def value(self) -> str:
        """The number."""
        return value_of(self.estimate)

    @property
    def interval(self) -> str:
        """The ends of its interval."""
        return interval_of(self.estimate)


def figures(found: ReturnDistribution) -> list[Figure]:
    """The mean, the worst returns and the quantiles."""
    tails = [Figure(f"mean of the worst {100 * a:g}%", found.cvar(a), "worst" if a == CVARS[0] else "") for a in CVARS]
    levels = [_quantile_figure(found, level) for level in QUANTILES]
    return [Figure("mean", found.mean, "mean"), *tails, *levels]


def distribution_charts(found: ReturnDistribution) -> list[Chart]:
    """The masses, and the CDF with its band."""
    marks = [figure for figure in figures(found) if figure.kind]
    axis = _axis_of_returns(found, marks)
    lines = [Shape(f"mark {figure.kind}", upright(axis, figure.estimate.value)) for figure in marks]
    return [_masses(found, axis, lines), _cdf(found, axis, lines)]


def left_out(found: ReturnDistribution) -> str:
    """What the charts do not show."""
    axis, atoms = _axis_of_returns(found, [figure for figure in figures(found) if figure.kind]), found.support.atoms
    beyond = [
        f"{percent(mass, 2)} of returns, {which} {plain(float(found.support.atoms[end]))}"
        for side, which, end in ((atoms < axis.low, "down to", 0), (atoms > axis.high, "up to", -1))
        if (mass := float(found.probs[side].sum())) >= _LEFT_OUT / 10
    ]
    return f"Not shown: {' and '.join(beyond)}." if beyond else ""


def calibration_chart(seen: Calibration) -> Chart:
    """How often returns were below what the predictions say, against how often they should be."""
    from scipy import stats  # slow to import

    at = np.linspace(0.0, 1.0, 101)
    share = np.searchsorted(np.sort(seen.firsts), at, side="right") / len(seen.firsts)
    margin = float(stats.kstwo.ppf(_CALIBRATED, len(seen.firsts)))
    x, y = at, 100 - 100 * share
    low, high = np.maximum(at - margin, 0.0), np.minimum(at + margin, 1.0)
    edge = zip(np.concatenate([at, at[::-1]]), np.concatenate([high, low[::-1]]), strict=True)
    around = [f"{100 * a:.2f} {100 - 100 * b:.2f}" for a, b in edge]
    line = "L".join(f"{100 * a:.2f} {b:.2f}" for a, b in zip(x, y, strict=True))
    shapes = [Shape("band", f"M{'L'.join(around)}Z"), Shape("even", "M0 100L100 0"), Shape("line", f"M{line}")]
    stops = slice(0, None, 5)
    told = Line("of the returns seen", plots.POSITIVE, 100 * share[stops], [percent(one, 0) for one in share[stops]])
    below = [f"below the predicted {100 * level:.0f}% quantile" for level in at[stops]]
    values = pointed("Calibration", _HEIGHTS, at[stops], below, [told])
    shares = _percent_ticks()
    return Chart(
        "calibration", "Calibration", shapes, shares, shares, "predicted quantile", "returns seen below it", values
    )


def calibration_words(seen: Calibration) -> str:
    """The test of uniformity, and how many returns lie in central intervals."""
    inside = [f"{percent(share, 0)} lie in the central {100 * level:g}%" for level, share in seen.coverage.items()]
    chance = "less than 0.001" if seen.p_value < 1e-3 else f"{seen.p_value:.2g}"
    return (
        f"{len(seen.firsts):,} complete episodes were held out, and their returns compared with what a model of the "
        f"other episodes predicts. The largest difference from the diagonal is {seen.statistic:.3f}. If the "
        f"predictions were right, chance would make one as large with probability {chance} (Kolmogorov-Smirnov test). "
        f"Of the returns of all held-out rows, {', '.join(inside)} of what was predicted."
    )


def no_calibration(found: PolicyEvaluation) -> str:
    """Why there is no comparison with held-out episodes."""
    if found.policy is not None:
        return (
            "This cannot be checked: the policy did not make the log, so the log holds no returns of its own to "
            "compare the predictions with."
        )
    counts = found.log.counts
    return (
        f"This cannot be checked: it takes at least {LEAST_EPISODES} episodes, of whose held-out returns at most "
        f"{percent(MOST_COMPLETED, 0)} are cut, and a model of the others. In this log, {counts.complete:,} of "
        f"{counts.episodes:,} episodes are complete."
    )


def _quantile_figure(found: ReturnDistribution, level: float) -> Figure:
    median = level == 0.5
    name = "median" if median else f"{100 * level:g}% quantile"
    return Figure(name, found.quantile(level), "median" if median else "tail")


def _axis_of_returns(found: ReturnDistribution, marks: list[Figure]) -> Axis:
    """Almost all of the mass without far tails, and the intervals of what is marked."""
    levels = (_LEFT_OUT, QUANTILES[0], QUANTILES[-1], 1 - _LEFT_OUT)
    least, low, high, most = (float(quantile(found.support, found.probs, level)) for level in levels)
    if high > low:
        room = _WIDTHS * (high - low)
        least, most = max(least, low - room), min(most, high + room)
    if least == most:
        place = int(np.searchsorted(found.support.atoms, least))
        around = found.support.atoms[max(place - 1, 0) : place + 2]
        least, most = float(around[0]), float(around[-1])
    return Axis.around([least, most, *(end for figure in marks for end in figure.estimate[:3])])


def _masses(found: ReturnDistribution, axis: Axis, lines: list[Shape]) -> Chart:
    """Bars whose areas are masses, each of one atom or of neighbours that are close together."""
    firsts, edges = _bars(found.support.atoms, (axis.high - axis.low) / _BARS)
    masses = np.add.reduceat(found.probs, firsts)
    heights = masses / np.diff(edges)
    shown = (edges[1:] > axis.low) & (edges[:-1] < axis.high)
    up = Axis(0.0, 1.04 * float(heights[shown].max()))
    bars = [
        box(axis, up, left, right, height)
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True)
        if height > 0
    ]
    decimals = decimals_of(Estimate(0.0, 0.0, 0.1 * (axis.high - axis.low), 0.0))
    ends = [fixed(edge, decimals) for edge in edges]
    stops = [f"returns from {left} to {right}" for left, right in pairwise(ends)]
    told = Line("probability", plots.POSITIVE, up.at(heights)[shown], [percent(mass, 2) for mass in masses[shown]])
    middles = 0.5 * (edges[:-1] + edges[1:])[shown]
    values = pointed("Distribution", axis, middles, np.array(stops)[shown].tolist(), [told])
    shapes = [Shape("bars", "".join(bars)), *lines]
    return Chart("masses", "How likely each return is", shapes, axis.ticks(), [], "return", "", values)


def _cdf(found: ReturnDistribution, axis: Axis, lines: list[Shape]) -> Chart:
    """The CDF at every atom, as steps, in its pointwise band."""
    atoms, heights = found.support.atoms, np.append(found.heights, 1.0)
    low, high = (np.append(side, 1.0) for side in found.band())
    places, shapes = np.concatenate([[axis.low], atoms]), []
    inside = np.concatenate([[True], atoms > axis.low]) & (places < axis.high)
    before = int(np.searchsorted(atoms, axis.low, side="right"))
    sides = [np.concatenate([[side[before - 1] if before else 0.0], side])[inside] for side in (heights, low, high)]
    if found.influence is not None:
        shapes.append(Shape("band", band(axis, _HEIGHTS, places[inside], sides[1], sides[2])))
    shapes += [Shape("line", steps(axis, _HEIGHTS, places[inside], sides[0])), *lines]
    shown = np.flatnonzero((atoms >= axis.low) & (atoms <= axis.high))
    told = Line(
        "probability",
        plots.POSITIVE,
        100 * heights[shown],
        [percent_estimate(Estimate(heights[i], low[i], high[i], np.nan)) for i in shown],
    )
    stops = [f"a return of {_atom_words(atoms, int(i))} or less" for i in shown]
    values = pointed("CDF", axis, atoms[shown], stops, [told])
    return Chart(
        "cdf", "Probability of a return this low or lower", shapes, axis.ticks(), _percent_ticks(), "return", "", values
    )


def _bars(atoms: Floats, least: float) -> tuple[np.ndarray, Floats]:
    """(B,) the first atom of each bar, and their edges (B + 1,): halfway between atoms, at least so far apart."""
    middle = 0.5 * (atoms[:-1] + atoms[1:])
    outer = [atoms[0] - (middle[0] - atoms[0])], [atoms[-1] + (atoms[-1] - middle[-1])]
    edges = np.concatenate([outer[0], middle, outer[1]])
    firsts, kept = [0], [edges[0]]
    for i in range(1, len(atoms)):
        if edges[i] - kept[-1] >= least * (1 - 1e-9):
            firsts.append(i)
            kept.append(edges[i])
    return np.array(firsts), np.array([*kept, edges[-1]])


def _atom_words(atoms: Floats, i: int) -> str:
    """An atom, told from its neighbours."""
    gap = float(np.diff(atoms[max(i - 1, 0) : i + 2]).min())
    return fixed(float(atoms[i]), max(0, 1 - int(np.floor(np.log10(gap)))))


def _percent_ticks() -> list:
    return [tick._replace(words=percent(tick.at / 100, 0)) for tick in _HEIGHTS.ticks()]
