"""Whether an answer from a log should be used: numbers, a verdict and the sentences behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.log_certificates import MOST_MASS, is_drifting
from cramerl.linear.logs import thresholds as limits
from cramerl.linear.logs.calibration import Calibration
from cramerl.linear.logs.checks import held_out_calibration, probabilities_taken, row_checks
from cramerl.linear.logs.comparators import Comparison, doubly_robust, importance_sampling, monte_carlo
from cramerl.linear.logs.coverage import start_coverage, unseen_action_share
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.layout import listed
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.reach import beyond_log, determined_features, regularisation_shift
from cramerl.linear.logs.thresholds import Verdict
from cramerl.measures import variance

if TYPE_CHECKING:
    from cramerl.linear.logs.policy_evaluation import PolicyEvaluation

_RANKS: dict[Verdict, int] = {"use": 0, "care": 1, "do not use": 2}

UNKNOWABLE = (
    "No log can show whether something that is not in it moved both the actions and the rewards (confounding), whether "
    "episodes were left out because of how they went, whether those that end were actually cut, or whether the "
    "discount is the one you mean."
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
        rows_per_feature: transitions for each feature that they determine; regularisation sets the others.
        episodes_per_feature: episodes for each of these.
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
        unseen_in_episode: how many such actions an average episode holds, while discounts leave it weight.
        start_coverage: share of the given start states that are like states of the log.
        regularisation_shift: how much the mean moves where regularisation is thirty times weaker, in standard errors.
        beyond_cuts: share of the discounted weight of an average return that comes after the cut of its episode.
        drifting: numeric columns of the state that only grow, or only shrink, along episodes.
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
    unseen_in_episode: float
    start_coverage: float
    regularisation_shift: float
    beyond_cuts: float
    drifting: tuple[str, ...]


class Finding(NamedTuple):
    """What speaks against an answer: how much, in a sentence, and about what: a number of `Trust`, or another word."""

    verdict: Verdict
    sentence: str
    about: str


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
    said = findings(found, numbers)
    reasons = dict.fromkeys(finding.sentence for finding in said)
    return numbers._replace(verdict=said[0].verdict if said else "use", reasons=(*reasons, UNKNOWABLE))


def _numbers(found: PolicyEvaluation) -> Trust:
    model, log, policy = found.model, found.log, found.policy
    certificate, checks = model.certificate_, row_checks(found.model, found._rows)
    starts: Any = found._starts
    size, beyond = determined_features(model), beyond_log(log, found.discount, from_all=starts.kind == "rows")
    spread = float(np.sqrt(max(0.0, float(variance(model.support_, found.distribution.probs)))))
    selection = found.selection
    by_name = {comparison.name: comparison for comparison in found.comparisons_of_episodes}
    sampling = by_name.get("importance sampling")
    unseen = np.nan if policy is None else max(policy.unknown, unseen_action_share(log, policy))
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
        unseen_action_share=unseen,
        unseen_in_episode=unseen * _length(log, found.discount),
        start_coverage=cover,
        regularisation_shift=_in_errors(found, regularisation_shift(model, starts), spread),
        beyond_cuts=beyond.share,
        drifting=beyond.drifting,
    )


def _length(log: Log, discount: float) -> float:
    """Rows of an average episode, or of one as long as the discount looks ahead."""
    rows = log.num_transitions / max(1, log.num_episodes)
    return rows if discount == 1 else min(rows, 1 / (1 - discount))


def _rounding(found: PolicyEvaluation) -> float:
    """Returns that differ by less are the same."""
    atoms = found.model.support_.atoms
    return 1e-9 * float(atoms[-1] - atoms[0])


def _in_errors(found: PolicyEvaluation, shift: float, spread: float) -> float:
    """A shift of the mean in standard errors; where these are tiny beside the return's deviation, in a part of that."""
    unit = max(found.mean.se, limits.LEAST_ERROR * spread)
    return abs(shift) / max(unit, _rounding(found)) if found.mean.se > 0 else np.nan


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


def findings(found: PolicyEvaluation, n: Trust) -> list[Finding]:
    """What speaks against the answer, the most serious first, once each."""
    said = [*_about_equations(found, n), *_about_features(found, n), *_about_episodes(found, n)]
    if found.policy is not None:
        said += _about_policy(n)
    return list(dict.fromkeys(sorted(said, key=lambda finding: -_RANKS[finding.verdict])))


def _about_equations(found: PolicyEvaluation, n: Trust) -> Iterator[Finding]:
    model, support = found.model, found.model.support_
    if limits.LARGEST_MASS.verdict(n.largest_mass) or model.certificate_.mass_size > MOST_MASS:
        sentence = f"Masses reach {n.largest_mass:.2g}, where probabilities reach 1: the equations are unstable."
        yield Finding("do not use", sentence, "largest_mass")
    if model.method_ == "constrained" and (kind := limits.CONSTRAINED_RESIDUAL.verdict(model.residual_)):
        sentence = (
            "The linear equations are unstable on this log and were solved with proper next distributions instead."
        )
        yield Finding(kind, sentence, "method")
    if is_drifting(n.radius, n.discount):
        sentence = (
            f"Values are carried from row to row with a factor of {n.radius:.4f}, well above the discount "
            f"{n.discount:g}: columns that only grow, such as an age, or rows that were selected do this."
        )
        yield Finding("do not use", sentence, "radius")
    if kind := limits.NEGATIVE_MASS.verdict(n.negative_mass):
        sentence = f"The fitted masses are negative for {n.negative_mass:.2f} in total in a typical state."
        yield Finding(kind, sentence, "negative_mass")
    if kind := limits.MEANS_OUTSIDE.verdict(n.means_outside):
        share = f"{100 * n.means_outside:.0f}% of the states"
        yield Finding(kind, f"In {share} the fitted mean lies outside all possible returns.", "means_outside")
    if kind := limits.LSTD_GAP.verdict(n.lstd_gap):
        sentence = (
            f"The mean differs from that of ordinary LSTD, {found.lstd_mean:.4g}, by {n.lstd_gap:.2f} standard "
            "deviations of the return."
        )
        yield Finding(kind, sentence, "lstd_gap")
    if kind := limits.VARIANCE_RATIO.verdict(n.variance_ratio):
        sentence = (
            f"The grid of {support.num_atoms} atoms widens distributions: their variance is {n.variance_ratio:.2f} "
            "times that of the returns. Set num_atoms higher."
        )
        yield Finding(kind, sentence, "variance_ratio")
    _, worth = n.reward_beyond_support
    if kind := limits.CUT_OFF.verdict(worth, support.v_max - support.v_min):
        sentence = f"The support cuts off returns that are worth {worth:.3g} on average: take a wider one."
        yield Finding(kind, sentence, "reward_beyond_support")


def _about_features(found: PolicyEvaluation, n: Trust) -> Iterator[Finding]:
    support = found.model.support_
    alike = n.pooled_crps <= _rounding(found) and n.held_out_crps < 1e-3 * (support.v_max - support.v_min)
    if n.held_out_crps <= _rounding(found) or alike:
        pass  # every return is known exactly, or all are the same
    elif kind := limits.HELD_OUT_CRPS.verdict(n.held_out_crps, n.pooled_crps):
        sentence = (
            f"On held-out episodes the features predict worse (CRPS {n.held_out_crps:.3g}) than one distribution for "
            f"all states ({n.pooled_crps:.3g})."
        )
        yield Finding(kind, sentence, "held_out_crps")
    elif n.held_out_crps > limits.NO_BETTER_CRPS * n.pooled_crps:
        sentence = "On held-out episodes the features predict no better than one distribution for all states."
        yield Finding("care", sentence, "held_out_crps")
    if kind := limits.REGULARISATION.verdict(n.regularisation_shift):
        sentence = (
            f"The mean moves by {n.regularisation_shift:.1f} standard errors where regularisation is thirty times "
            "weaker: regularisation sets a part of it, which intervals do not show."
        )
        yield Finding(kind, sentence, "regularisation_shift")
    if found.selection.features.name == "columns" and found.log.schema.number_names:
        sentence = (
            "Raw columns were asked for as features: distributions are rarely linear in them. Leave features out, and "
            "a basis is chosen by held-out episodes."
        )
        yield Finding("care", sentence, "features")
    seen = n.calibration
    if seen is None or not seen.p_value < limits.CALIBRATION_P:
        return
    if kind := limits.CALIBRATION.verdict(seen.statistic):
        sentence = (
            "Returns of held-out episodes do not fall where the distributions put them (largest difference "
            f"{seen.statistic:.2f}, p = {seen.p_value:.1g})."
        )
        yield Finding(kind, sentence, "calibration")


def _columns_of_ends(log: Log) -> list[str]:
    """Columns that nobody named, and that are called as the ends of episodes often are."""
    used = {name for names in log.layout for name in (names if isinstance(names, tuple) else (names,))}
    return [name for name in log.table.names if name.casefold() in limits.CALLED_ENDS and name not in used]


def _about_episodes(found: PolicyEvaluation, n: Trust) -> Iterator[Finding]:
    count = found.log.num_episodes
    if kind := limits.EPISODES.verdict(count):
        yield Finding(kind, f"There are {count} episodes: intervals from so few are not reliable.", "episodes")
    if kind := limits.ROWS_PER_FEATURE.verdict(n.rows_per_feature):
        sentence = f"There are {n.rows_per_feature:.1f} rows for each feature that they determine."
        yield Finding(kind, sentence, "rows_per_feature")
    if found.log.rows_are_episodes:
        sentence = (
            "No column says which rows belong to one episode, so intervals are too narrow, and predictions could not "
            "be compared with returns that were seen."
        )
        yield Finding("care", sentence, "episodes")
    if not found.log.has_termination:
        sentence = "No column says where returns end, so every return is taken to go on after the log."
        if maybe := _columns_of_ends(found.log):
            named = "No column was named that says where returns end"
            sentence = (
                f"{named}: if {listed(maybe)} says it, name it (terminated). Until then returns go on after the log."
            )
        yield Finding("care", sentence, "termination")
        counts = found.log.counts
        if counts.errors_at_cuts > limits.ERRORS_AT_CUTS:
            sentence = (
                f"Of the last rows of episodes, which are left out, {100 * counts.paid_dropped / counts.dropped:.0f}% "
                f"have a reward, of all others {100 * counts.paid / counts.transitions:.0f}%: if returns end there, "
                "name a column that says so (terminated)."
            )
            yield Finding("do not use", sentence, "termination")
    errors, deviations = n.monte_carlo_gap
    known = n.truncated_share < limits.FEW_TRUNCATED and errors > limits.MONTE_CARLO_ERRORS
    if known and (kind := limits.MONTE_CARLO_GAP.verdict(deviations)):
        sentence = f"The mean is {errors:.1f} standard errors from that of the complete episodes."
        yield Finding(kind, sentence, "monte_carlo_gap")
    if not found.log.has_next_state and (kind := limits.TRUNCATED.verdict(n.truncated_share)):
        share = f"{100 * n.truncated_share:.0f}% of the episodes"
        yield Finding(kind, f"{share} are cut, and what followed is not in the log.", "truncated_share")
    if n.drifting and (kind := limits.BEYOND_CUTS.verdict(n.beyond_cuts)):
        move = "moves" if len(n.drifting) == 1 else "move"
        sentence = (
            f"Along episodes {listed(n.drifting)} only {move} one way, and {100 * n.beyond_cuts:.0f}% of the "
            "discounted weight of returns lies after the cuts, where the log never was."
        )
        yield Finding(kind, sentence, "beyond_cuts")
    if float(found.distribution.probs.max()) > 1 - 1e-9:
        sentence = (
            f"Every return of the log is the same. What was never seen in {count} episodes may still happen to up to "
            f"{min(1.0, 3 / max(1, count)):.1g} of them."
        )
        yield Finding("care", sentence, "distribution")
    if kind := limits.START_COVERAGE.verdict(n.start_coverage):
        share = f"{100 * n.start_coverage:.0f}% of the start states"
        yield Finding(kind, f"Only {share} are like states of the log.", "start_coverage")


def _about_policy(n: Trust) -> Iterator[Finding]:
    if kind := limits.UNSEEN_ACTIONS.verdict(n.unseen_action_share):
        sentence = (
            f"{100 * n.unseen_action_share:.0f}% of the policy's actions were never taken in such states: what they "
            "lead to is a guess of the features."
        )
        yield Finding(kind, sentence, "unseen_action_share")
    elif kind := limits.UNSEEN_IN_EPISODE.verdict(n.unseen_in_episode):
        sentence = (
            f"An average episode of the policy holds {n.unseen_in_episode:.2f} actions that were never taken in such "
            "states: what they lead to is a guess of the features, which intervals do not show."
        )
        yield Finding(kind, sentence, "unseen_in_episode")
    if kind := limits.EFFECTIVE_EPISODES.verdict(n.effective_sample_size):
        sentence = (
            f"The log has about {n.effective_sample_size:.0f} episodes that look like this policy's, so the bias of "
            "the features, which intervals do not show, cannot be checked."
        )
        yield Finding(kind, sentence, "effective_sample_size")
