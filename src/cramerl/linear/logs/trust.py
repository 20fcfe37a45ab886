"""Whether an answer from a log should be used: numbers, a verdict and the sentences behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.log_certificates import MOST_MASS, is_drifting
from cramerl.linear.logs.calibration import Calibration
from cramerl.linear.logs.checks import held_out_calibration, probabilities_taken, row_checks
from cramerl.linear.logs.comparators import Comparison, doubly_robust, importance_sampling, monte_carlo
from cramerl.linear.logs.coverage import start_coverage, unseen_action_share
from cramerl.linear.logs.episodes import Episodes
from cramerl.measures import variance

if TYPE_CHECKING:
    from cramerl.linear.logs.policy_evaluation import PolicyEvaluation

Verdict = Literal["use", "care", "do not use"]
_RANKS: dict[Verdict, int] = {"use": 0, "care": 1, "do not use": 2}

UNKNOWABLE = (
    "No log can show whether something that is not in it moved both the actions and the rewards (confounding), or "
    "whether the discount is the one you mean."
)


class Trust(NamedTuple):
    """Whether to use an answer, why, and the numbers behind that. A number is NaN where the log does not allow it.

    Attributes:
        verdict: "use", "care" or "do not use".
        reasons: a sentence for everything that speaks against the answer, and for what cannot be known.
        radius: spectral radius of one step of LSTD's iteration.
        discount: the discount, which the radius should not exceed by much.
        negative_mass: mean negative mass of the distributions of the log's next states.
        largest_mass: largest mass, by absolute value, of any of them.
        means_outside: share of these states whose mean return lies outside the support.
        rows_per_feature: transitions for each feature.
        episodes_per_feature: episodes for each feature.
        lstd_gap: difference between the mean and that of ordinary LSTD, in standard deviations of the return.
        reward_beyond_support: share of transitions whose return can leave the support, and what that moves mean
            returns by.
        variance_ratio: variance of the distributions against LSTD's: how much the grid widens them.
        held_out_crps: of the features' predictions on held-out episodes, for the policy that made the log.
        pooled_crps: the same of one distribution for all states.
        calibration: of predictions for complete held-out episodes, for the policy that made the log; or None.
        monte_carlo_gap: difference from the mean of complete episodes, in standard errors, and in standard deviations.
        truncated_share: share of episodes that are cut.
        effective_sample_size: number of episodes that importance sampling is left with.
        unseen_action_share: share of the policy's probability on actions that the log never took in such states.
        start_coverage: share of the given start states that are like states of the log.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    radius: float
    discount: float
    negative_mass: float
    largest_mass: float
    means_outside: float
    rows_per_feature: float
    episodes_per_feature: float
    lstd_gap: float
    reward_beyond_support: tuple[float, float]
    variance_ratio: float
    held_out_crps: float
    pooled_crps: float
    calibration: Calibration | None
    monte_carlo_gap: tuple[float, float]
    truncated_share: float
    effective_sample_size: float
    unseen_action_share: float
    start_coverage: float


def compare(found: PolicyEvaluation) -> tuple[Comparison, ...]:
    """Other estimates of the mean return: complete episodes, importance sampling, doubly robust."""
    log, discount, policy = found.log, found.discount, found.policy
    if policy is None:
        return tuple(c for c in (monte_carlo(log, discount),) if c is not None)
    values = _ActionValues(found)

    def taken(block: Episodes) -> Floats:
        return probabilities_taken(policy, block)

    tried = importance_sampling(log, discount, taken), doubly_robust(log, discount, taken, values)
    return tuple(c for c in tried if c is not None)


def judge(found: PolicyEvaluation) -> Trust:
    """The numbers, the sentences and the verdict for an evaluation."""
    numbers = _numbers(found)
    judged: list[tuple[Verdict, str]] = list(_findings(found, numbers))
    ordered = sorted(judged, key=lambda item: -_RANKS[item[0]])
    verdict: Verdict = ordered[0][0] if ordered else "use"
    reasons = tuple(dict.fromkeys(sentence for _, sentence in ordered))
    return numbers._replace(verdict=verdict, reasons=(*reasons, UNKNOWABLE))


def _numbers(found: PolicyEvaluation) -> Trust:
    model, log, policy = found.model, found.log, found.policy
    certificate, checks = model.certificate_, row_checks(found.model, found._rows)
    size = max(1, model.n_features_in_)
    spread = float(np.sqrt(max(0.0, float(variance(model.support_, found.distribution.probs)))))
    selection = found.selection
    by_name = {comparison.name: comparison for comparison in found.comparisons_of_episodes}
    sampling = by_name.get("importance sampling")
    starts: Any = found._starts
    cover = np.nan if starts.observations is None else start_coverage(log, starts.observations)
    return Trust(
        verdict="use",
        reasons=(),
        radius=certificate.radius,
        discount=found.discount,
        negative_mass=checks.negative_mass,
        largest_mass=max(checks.largest_mass, float(np.abs(starts.mean @ model.weights_).max())),
        means_outside=checks.means_outside,
        rows_per_feature=log.num_transitions / size,
        episodes_per_feature=log.num_episodes / size,
        lstd_gap=abs(found.mean.value - found.lstd_mean) / spread if spread > 0 else 0.0,
        reward_beyond_support=(model.support_report_.can_clip, model.support_report_.worth),
        variance_ratio=certificate.variance_ratio,
        held_out_crps=min((c.crps for c in selection.tried if c.name == selection.features.name), default=np.nan),
        pooled_crps=selection.pooled,
        calibration=held_out_calibration(found) if policy is None else None,
        monte_carlo_gap=_monte_carlo_gap(found, by_name.get("complete episodes"), spread),
        truncated_share=1.0 - log.counts.complete / max(1, log.num_episodes),
        effective_sample_size=sampling.episodes if sampling is not None else np.nan,
        unseen_action_share=np.nan if policy is None else max(policy.unknown, unseen_action_share(log, policy)),
        start_coverage=cover,
    )


def _monte_carlo_gap(found: PolicyEvaluation, seen: Comparison | None, spread: float) -> tuple[float, float]:
    if seen is None or not found._starts.of_episodes:
        return np.nan, np.nan
    gap = abs(found.mean.value - seen.mean)
    return gap / seen.se if seen.se > 0 else np.nan, gap / spread if spread > 0 else 0.0


class _ActionValues:
    """Mean returns of the logged actions, of what the policy would do, and of the next states."""

    def __init__(self, found: PolicyEvaluation):
        self._rows, self._weights = found._rows, found.model.weights_ @ found.model.support_.atoms

    def __call__(self, block: Episodes) -> tuple[Floats, Floats, Floats]:
        rows, states = self._rows, block.observations
        assert rows.actions is not None
        taken = rows.actions.taken(states.take(block.current), block.actions)
        values = rows.of_states(states) @ self._weights
        return taken @ self._weights, values[block.current], np.where(block.terminated, 0.0, values[block.following])


def _findings(found: PolicyEvaluation, n: Trust) -> Iterator[tuple[Verdict, str]]:
    """What speaks against the answer: how much, and in a sentence."""
    yield from _about_equations(found, n)
    yield from _about_features(found, n)
    yield from _about_episodes(found, n)
    if found.policy is not None:
        yield from _about_policy(n)


def _about_equations(found: PolicyEvaluation, n: Trust) -> Iterator[tuple[Verdict, str]]:
    if n.largest_mass > 10 or found.model.certificate_.mass_size > MOST_MASS:
        yield (
            "do not use",
            f"Masses reach {n.largest_mass:.2g}, where probabilities reach 1: the equations are unstable.",
        )
    if found.model.method_ == "constrained":
        yield (
            "do not use" if found.model.residual_ > 1e-3 else "care",
            "The linear equations are unstable on this log and were solved with proper next distributions instead.",
        )
    if is_drifting(n.radius, n.discount):
        yield (
            "do not use",
            f"Values are carried from row to row with a factor of {n.radius:.4f}, well above the discount "
            f"{n.discount:g}: columns that only grow, such as an age, or rows that were selected do this.",
        )
    if n.negative_mass > 0.05:
        kind: Verdict = "do not use" if n.negative_mass > 0.5 else "care"
        yield kind, f"The fitted masses are negative for {n.negative_mass:.2f} in total in a typical state."
    if n.means_outside > 0.02:
        kind = "do not use" if n.means_outside > 0.2 else "care"
        yield kind, f"In {100 * n.means_outside:.0f}% of the states the fitted mean lies outside all possible returns."
    if n.lstd_gap > 0.1:
        kind = "do not use" if n.lstd_gap > 0.5 else "care"
        yield (
            kind,
            (
                f"The mean differs from that of ordinary LSTD, {found.lstd_mean:.4g}, by {n.lstd_gap:.2f} standard "
                "deviations of the return."
            ),
        )
    if n.variance_ratio > 1.2:
        yield (
            "care",
            (
                f"The grid of {found.model.support_.num_atoms} atoms widens distributions: their variance is "
                f"{n.variance_ratio:.2f} times that of the returns. Set num_atoms higher."
            ),
        )
    _, worth = n.reward_beyond_support
    if worth > 0.02 * (found.model.support_.v_max - found.model.support_.v_min):
        yield "do not use", f"The support cuts off returns that are worth {worth:.3g} on average: take a wider one."


def _about_features(found: PolicyEvaluation, n: Trust) -> Iterator[tuple[Verdict, str]]:
    if n.held_out_crps > 1.02 * n.pooled_crps:
        kind: Verdict = "do not use" if n.held_out_crps > 1.2 * n.pooled_crps else "care"
        yield (
            kind,
            (
                f"On held-out episodes the features predict worse (CRPS {n.held_out_crps:.3g}) than one "
                f"distribution for "
                f"all states ({n.pooled_crps:.3g})."
            ),
        )
    elif n.held_out_crps > 0.998 * n.pooled_crps:
        yield "care", "On held-out episodes the features predict no better than one distribution for all states."
    if found.selection.features.name == "columns" and found.log.schema.number_names:
        yield (
            "care",
            (
                "Raw columns were asked for as features: distributions are rarely linear in them. Leave "
                "features out, and "
                "a basis is chosen by held-out episodes."
            ),
        )
    if n.calibration is not None and n.calibration.p_value < 1e-3 and n.calibration.statistic > 0.1:
        kind = "do not use" if n.calibration.statistic > 0.25 else "care"
        yield (
            kind,
            (
                f"Returns of held-out episodes do not fall where the distributions put them (largest difference "
                f"{n.calibration.statistic:.2f}, p = {n.calibration.p_value:.1g})."
            ),
        )


def _about_episodes(found: PolicyEvaluation, n: Trust) -> Iterator[tuple[Verdict, str]]:
    count = found.log.num_episodes
    if count < 30:
        kind: Verdict = "do not use" if count < 5 else "care"
        yield kind, f"There are {count} episodes: intervals from so few are not reliable."
    if n.rows_per_feature < 10:
        kind = "do not use" if n.rows_per_feature < 2 else "care"
        yield kind, f"There are {n.rows_per_feature:.1f} rows for each feature."
    if found.log.rows_are_episodes:
        yield (
            "care",
            "No column says which rows belong to one episode, so intervals are too narrow, and predictions could not "
            "be compared with returns that were seen.",
        )
    if not found.log.has_termination:
        yield "care", "No column says where returns end, so every return is taken to go on after the log."
    errors, deviations = n.monte_carlo_gap
    if n.truncated_share < 0.05 and errors > 4 and deviations > 0.1:
        kind = "do not use" if deviations > 0.25 else "care"
        yield kind, f"The mean is {errors:.1f} standard errors from that of the complete episodes."
    if n.truncated_share > 0.5 and not found.log.has_next_state:
        yield "care", f"{100 * n.truncated_share:.0f}% of the episodes are cut, and what followed is not in the log."
    values = found.distribution.probs
    if float(values.max()) > 1 - 1e-9:
        yield (
            "care",
            (
                f"Every return of the log is the same. What was never seen in {count} episodes may still happen "
                f"to up to "
                f"{min(1.0, 3 / max(1, count)):.1g} of them."
            ),
        )
    if n.start_coverage < 0.9:
        kind = "do not use" if n.start_coverage < 0.5 else "care"
        yield kind, f"Only {100 * n.start_coverage:.0f}% of the start states are like states of the log."


def _about_policy(n: Trust) -> Iterator[tuple[Verdict, str]]:
    if n.unseen_action_share > 0.05:
        kind: Verdict = "do not use" if n.unseen_action_share > 0.3 else "care"
        yield (
            kind,
            (
                f"{100 * n.unseen_action_share:.0f}% of the policy's actions were never taken in such states: "
                f"what they "
                "lead to is a guess of the features."
            ),
        )
    if n.effective_sample_size < 30:
        yield (
            "care",
            (
                f"The log has about {n.effective_sample_size:.0f} episodes that look like this policy's, so the "
                f"bias of "
                "the features, which intervals do not show, cannot be checked."
            ),
        )
