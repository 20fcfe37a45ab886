"""The dot plots of a page: other estimates, features that were tried, policies and their differences."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from cramerl.evaluations.charts import DotPlot, Row, dot_plot
from cramerl.evaluations.numerals import plain, value_of
from cramerl.linear.logs.comparators import Comparison, monte_carlo
from cramerl.linear.logs.estimates import Estimate
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation, PolicyEvaluations
from cramerl.linear.logs.selection import Selection
from cramerl.linear.logs.wording import CVARS
from cramerl.measures import variance

_NAMES = {"weighted doubly robust": "doubly robust"}


def comparison_plot(found: PolicyEvaluation) -> DotPlot:
    """This estimate of the mean, and all others that the log allows."""
    rows = [
        Row("This estimate", found.mean, value_of(found.mean), main=True),
        _without_interval("Ordinary LSTD", found.lstd_mean, "The same features, without distributions."),
    ]
    rows += [_compared(found, other) for other in found.comparisons]
    if found.policy is not None and (seen := monte_carlo(found.log, found.discount)) is not None:
        rows.append(_compared(found, seen)._replace(name="The policy that made the log"))
    return dot_plot("Mean return", rows, _little(found))


def features_plot(selection: Selection) -> DotPlot:
    """The features that were tried, by the CRPS of their predictions for held-out episodes."""
    best: dict[str, float] = {}
    for candidate in selection.tried:
        best[candidate.name] = min(candidate.crps, best.get(candidate.name, math.inf))
    rows = []
    for name, score in sorted(best.items(), key=lambda item: item[1]):
        chosen = name == selection.features.name
        row = _without_interval(name, score, "chosen" if chosen else "")
        rows.append(row._replace(main=chosen, value=plain(score, 4) if math.isfinite(score) else "could not be fitted"))
    pooled = f"one distribution for all states: {plain(selection.pooled, 4)}"
    return dot_plot("CRPS on held-out episodes", rows, 0.1 * selection.pooled, (selection.pooled, pooled))


def policy_plots(found: PolicyEvaluations) -> list[DotPlot]:
    """The mean and the worst returns of all policies, with their verdicts."""
    plots, little = [], _little(next(iter(found.values())))
    for title, read in (
        ("Mean return", lambda one: one.mean),
        (f"Mean of the worst {100 * CVARS[0]:g}%", lambda one: one.cvar(CVARS[0])),
    ):
        rows = []
        for name, one in found.items():
            estimate = read(one)
            rows.append(Row(name, estimate, value_of(estimate), main=True, badge=one.trust.verdict))
        plots.append(dot_plot(title, rows, little))
    return plots


def difference_plots(found: PolicyEvaluations) -> list[DotPlot]:
    """How much more each policy has than the baseline."""
    first = found.baseline
    others = [name for name in found if name != first]
    plots, little = [], _little(found[first])
    for title, what, at in (
        ("Difference of the means", "mean", None),
        (f"Difference of the worst {100 * CVARS[0]:g}%", "cvar", CVARS[0]),
    ):
        rows = []
        for name in others:
            estimate = found.difference(name, first, what, at)
            rows.append(Row(name, estimate, value_of(estimate), main=True))
        plots.append(dot_plot(title, rows, little, (0.0, f"no difference from “{first}”")))
    return plots


def _little(found: PolicyEvaluation) -> float:
    """Differences of the mean that are not worth magnifying: a tenth of the standard deviation of the return."""
    return 0.1 * math.sqrt(max(0.0, float(variance(found.distribution.support, found.distribution.probs))))


def _compared(found: PolicyEvaluation, other: Comparison) -> Row:
    """A comparison with an interval like that of the evaluation: of the same level, from Student's distribution."""
    freedom = max(1, found.log.num_episodes - 1)
    margin = float(stdtrit(freedom, 0.5 + 0.5 * found.distribution.level)) * other.se
    estimate = Estimate(other.mean, other.mean - margin, other.mean + margin, other.se)
    return Row(_NAMES.get(other.name, other.name).capitalize(), estimate, value_of(estimate), other.note)


def _without_interval(name: str, value: float, note: str) -> Row:
    return Row(name, Estimate(value, np.nan, np.nan, np.nan), plain(value, 4), note)
