"""All numbers behind a verdict, each with its meaning and with what would change the verdict."""

from __future__ import annotations

import math
from typing import NamedTuple

from cramerl.evaluations.numerals import percent, plain
from cramerl.linear.log_certificates import MOST_MASS, most_radius
from cramerl.linear.logs import thresholds as limits
from cramerl.linear.logs.layout import listed
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation
from cramerl.linear.logs.thresholds import Limit
from cramerl.linear.logs.trust import Trust, findings

UNKNOWN = "not known from this log"


class TrustRow(NamedTuple):
    """A number of `Trust`: its field, its value in words, what it means, and what would change the verdict.

    ``verdict`` is what it says against this answer: "care", "do not use", or nothing.
    """

    field: str
    name: str
    value: str
    meaning: str
    threshold: str
    verdict: str = ""


def trust_rows(found: PolicyEvaluation) -> list[TrustRow]:
    """A row for each number."""
    n = found.trust
    against: dict[str, str] = {}
    for finding in findings(found, n):
        against.setdefault(finding.about, finding.verdict)
    rows = [*_equations(found, n), *_features(n), *_episodes(found, n), *_policy(n)]
    return [row._replace(verdict=against.get(row.field, "")) for row in rows]


def _equations(found: PolicyEvaluation, n: Trust) -> list[TrustRow]:
    support, certificate = found.model.support_, found.model.certificate_
    share, worth = n.reward_beyond_support
    return [
        TrustRow(
            "radius",
            "Factor from row to row",
            _number(n.radius, 4),
            "How strongly values are carried from one row to the next. A log that visits states as the policy does "
            "cannot have more than the discount.",
            f"do not use above {most_radius(n.discount):.6g}",
        ),
        TrustRow("discount", "Discount", f"{n.discount:g}", "What a reward is worth one step later.", ""),
        TrustRow(
            "negative_mass",
            "Negative mass",
            _number(n.negative_mass),
            "Probability below zero that the equations give to a typical state. A distribution has none.",
            _threshold(limits.NEGATIVE_MASS),
        ),
        TrustRow(
            "largest_mass",
            "Largest mass",
            _number(n.largest_mass),
            f"Largest probability, by absolute value, that the equations give. Their root mean square is "
            f"{plain(certificate.mass_size)}; a distribution has at most 1.",
            f"do not use above {limits.LARGEST_MASS.stop:g}, or above {MOST_MASS:g} in root mean square",
        ),
        TrustRow(
            "means_outside",
            "Means outside the possible returns",
            _share(n.means_outside),
            "Share of states whose mean return cannot be.",
            _threshold(limits.MEANS_OUTSIDE, share=True),
        ),
        TrustRow(
            "lstd_gap",
            "Difference from ordinary LSTD",
            _number(n.lstd_gap),
            "Between the two means, in standard deviations of the return.",
            _threshold(limits.LSTD_GAP),
        ),
        TrustRow(
            "variance_ratio",
            "Widening by the grid",
            _number(n.variance_ratio),
            "Variance of the distributions, over the variance of returns. At 1 the grid widens nothing.",
            _threshold(limits.VARIANCE_RATIO),
        ),
        TrustRow(
            "reward_beyond_support",
            "Returns beyond the support",
            f"{_number(worth)} ({_share(share)} of rows)",
            "What the returns that the support cuts off are worth on average, and how many rows can leave it.",
            _threshold(limits.CUT_OFF, support.v_max - support.v_min),
        ),
    ]


def _features(n: Trust) -> list[TrustRow]:
    pooled, seen = n.pooled_crps, n.calibration
    better = (
        "" if math.isnan(pooled) else f"take care above {plain(limits.NO_BETTER_CRPS * pooled, 4)}, do not use above "
    )
    p_value = f"where p is below {limits.CALIBRATION_P:g}: "
    return [
        TrustRow(
            "held_out_crps",
            "CRPS of held-out returns",
            _number(n.held_out_crps, 4),
            "Mean distance between the predictions and the returns of episodes that were held out. Smaller is better.",
            better + plain(limits.HELD_OUT_CRPS.stop * pooled, 4) if better else "",
        ),
        TrustRow(
            "pooled_crps",
            "The same of one distribution for all states",
            _number(pooled, 4),
            "What the features should beat.",
            "",
        ),
        TrustRow(
            "calibration",
            "Calibration",
            UNKNOWN if seen is None else f"{_number(seen.statistic)} (p = {seen.p_value:.2g})",
            "Largest difference between how often returns of held-out episodes lie below a level, and how often they "
            "should.",
            p_value + _threshold(limits.CALIBRATION),
        ),
        TrustRow(
            "regularisation_shift",
            "Shift by regularisation",
            _number(n.regularisation_shift),
            "How much the mean moves where regularisation is thirty times weaker, in standard errors.",
            _threshold(limits.REGULARISATION),
        ),
    ]


def _episodes(found: PolicyEvaluation, n: Trust) -> list[TrustRow]:
    errors, deviations = n.monte_carlo_gap
    few = f"where at most {percent(limits.FEW_TRUNCATED, 0)} of the episodes are cut, and more than "
    few += f"{limits.MONTE_CARLO_ERRORS} standard errors: "
    gap = UNKNOWN if math.isnan(deviations) else f"{plain(deviations)} ({plain(errors)} standard errors)"
    return [
        TrustRow("episodes", "Episodes", f"{found.log.num_episodes:,}", "In the log.", _threshold(limits.EPISODES)),
        TrustRow(
            "rows_per_feature",
            "Rows for each feature",
            _number(n.rows_per_feature),
            "How much there is to fit each feature with, of those that regularisation does not set.",
            _threshold(limits.ROWS_PER_FEATURE),
        ),
        TrustRow(
            "episodes_per_feature",
            "Episodes for each feature",
            _number(n.episodes_per_feature),
            "The same in episodes, whose rows are not independent.",
            "",
        ),
        TrustRow(
            "monte_carlo_gap",
            "Difference from complete episodes",
            gap,
            "Between the mean and that of the complete episodes, in standard deviations of the return.",
            few + _threshold(limits.MONTE_CARLO_GAP),
        ),
        TrustRow(
            "truncated_share",
            "Episodes that are cut",
            _share(n.truncated_share),
            "Their ends are not in the log.",
            _threshold(limits.TRUNCATED, share=True) + ", unless columns hold the next states",
        ),
        TrustRow(
            "beyond_cuts",
            "Weight of returns after the cuts",
            _share(n.beyond_cuts),
            "Of the discounted weight of an average return. The log never was there.",
            _threshold(limits.BEYOND_CUTS, share=True) + ", if columns only move one way",
        ),
        TrustRow(
            "drifting",
            "Columns that only move one way",
            listed(n.drifting) or "none",
            "Along episodes they only grow, or only shrink: what follows the cuts has values that were never seen.",
            "",
        ),
        TrustRow(
            "start_coverage",
            "Start states like those of the log",
            _share(n.start_coverage),
            "Of the states that were given as starts.",
            _threshold(limits.START_COVERAGE, share=True),
        ),
    ]


def _policy(n: Trust) -> list[TrustRow]:
    return [
        TrustRow(
            "effective_sample_size",
            "Effective number of episodes",
            _number(n.effective_sample_size),
            "Episodes of equal weight that importance sampling is left with: how many look like the policy's.",
            _threshold(limits.EFFECTIVE_EPISODES),
        ),
        TrustRow(
            "unseen_action_share",
            "Actions never seen",
            _share(n.unseen_action_share),
            "Share of the policy's actions that nobody took in such states.",
            _threshold(limits.UNSEEN_ACTIONS, share=True),
        ),
        TrustRow(
            "unseen_in_episode",
            "Such actions in an episode",
            _number(n.unseen_in_episode),
            "How many of them an average episode holds.",
            _threshold(limits.UNSEEN_IN_EPISODE),
        ),
    ]


def _threshold(limit: Limit, unit: float = 1.0, *, share: bool = False) -> str:
    """The limits in words."""
    side = "below" if limit.least else "above"
    said = []
    if math.isfinite(limit.care) and limit.care != limit.stop:
        said.append(f"take care {side} {_limit(limit.care * unit, share)}")
    if math.isfinite(limit.stop):
        said.append(f"do not use {side} {_limit(limit.stop * unit, share)}")
    return ", ".join(said)


def _limit(value: float, share: bool) -> str:
    if share:
        return percent(value, 0)
    return f"{value:.4g}" if value < 1e4 else plain(value, 4)


def _number(value: float, digits: int = 3) -> str:
    return UNKNOWN if math.isnan(value) else plain(value, digits)


def _share(value: float) -> str:
    return UNKNOWN if math.isnan(value) else percent(value)
