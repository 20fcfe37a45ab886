"""From a log to the distribution of a policy's returns, with intervals and a verdict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl._checks import require_choice, require_count, require_log_discount
from cramerl.linear.logs.action_features import action_features
from cramerl.linear.logs.atoms import lie_on_atoms, support_for_returns
from cramerl.linear.logs.basis import state_features
from cramerl.linear.logs.cluster import connected
from cramerl.linear.logs.comparators import Comparison
from cramerl.linear.logs.estimates import Estimate, ReturnDistribution
from cramerl.linear.logs.influence import HeightInfluence, bootstrap_influence, height_influence
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.policies import Policy, make_policy, read_policy_columns
from cramerl.linear.logs.returns import SeenReturns, seen_returns
from cramerl.linear.logs.rows import LogRows, Starts, starts_of
from cramerl.linear.logs.selection import (
    STRENGTH_OF_OTHERS,
    Selection,
    choose_features,
    score_features,
    some_observations,
)
from cramerl.linear.logs.thresholds import CONSTRAINED_RESIDUAL
from cramerl.linear.logs.trust import Trust, compare, judge
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.support_choice import support_from_data
from cramerl.supports import Support

Intervals = Literal["influence", "bootstrap", "none"]
INTERVALS = ("influence", "bootstrap", "none")

# Atoms that a support starts with and may grow to while the grid widens distributions, and unknowns it may grow to.
_ATOMS, _MOST_ATOMS, _MOST_UNKNOWNS = 51, 201, 60_000
# Unknowns times rows up to which they may grow where every product is a pass over the rows.
_MOST_PASSED = 30_000_000
# Where proper next distributions leave no influence: transitions up to which episodes are drawn again so often instead.
_MOST_REFITTED, _FEW_RESAMPLES = 5000, 30
# How much wider the grid may make the variance before more atoms are tried.
_WIDENED = 1.05


class Settings(NamedTuple):
    """What `evaluate_policy` was asked, checked."""

    discount: float
    level: float
    support: Support | None
    num_atoms: int | None
    regularisation: float | None
    intervals: Intervals
    resamples: int
    seed: int


class PolicyEvaluation:
    """The distribution of a policy's returns from the start states of a log.

    Attributes:
        distribution: of the return from the start states; `mean`, `quantile`, `cvar`, `cdf` and `below` are its.
        model: the fitted `DistributionalLSTD`.
        log: the log.
        discount: the discount; the largest one where a column of the log holds discounts.
        selection: the features, and the candidates they were chosen from.
        lstd_mean: mean return by ordinary LSTD with the same features, where distributions play no part.
        messages: what was warned about on the way.
    """

    def __init__(
        self,
        rows: LogRows,
        model: DistributionalLSTD,
        starts: Starts,
        distribution: ReturnDistribution,
        selection: Selection,
        settings: Settings,
        messages: tuple[str, ...],
    ):
        self.model, self.distribution, self.selection, self.settings = model, distribution, selection, settings
        self.log, self.messages = rows.log, messages
        sums: Any = model._sums  # the model is fitted
        self.discount = sums.largest_discount if rows.log.has_discounts else settings.discount
        self._rows, self._starts = rows, starts
        self.lstd_mean = float(starts.mean @ model.means_.weights)
        self._trust: Trust | None = None
        self._comparisons: tuple[Comparison, ...] | None = None

    @property
    def settings_start(self) -> str:
        """The start states, in words."""
        return self._starts.words

    @property
    def policy(self) -> Policy | None:
        """The policy; None for the one that made the log."""
        return self._rows.policy

    @property
    def mean(self) -> Estimate:
        """The mean return from the start states."""
        return self.distribution.mean

    def quantile(self, level: float) -> Estimate:
        """A quantile of the return."""
        return self.distribution.quantile(level)

    def cvar(self, level: float) -> Estimate:
        """The mean of the worst fraction ``level`` of returns."""
        return self.distribution.cvar(level)

    def cdf(self, z: float) -> Estimate:
        """The probability of a return of z or less."""
        return self.distribution.cdf(z)

    def below(self, z: float) -> Estimate:
        """The probability of a return less than z."""
        return self.distribution.below(z)

    @property
    def trust(self) -> Trust:
        """Whether to use the answer, why, and the numbers behind that; computed on first use."""
        if self._trust is None:
            self._trust = judge(self)
        return self._trust

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Other estimates of the same return, where the log allows them; computed on first use."""
        return self.comparisons_of_episodes if self._starts.of_episodes else ()

    @property
    def comparisons_of_episodes(self) -> tuple[Comparison, ...]:
        """Other estimates of the return from the first states of episodes, which may not be what was asked for."""
        if self._comparisons is None:
            self._comparisons = compare(self)
        return self._comparisons

    def at(self, states: Any) -> list[ReturnDistribution]:
        """The distribution of the return from each of these states, with intervals.

        Args:
            states: a table with the log's state columns, or (m, C) numbers in their order.
        """
        observations = self.log.encode(states)
        each = (starts_of(self._rows, observations.take([i])) for i in range(len(observations)))
        on_atoms = self.distribution.on_atoms
        return [_distribution(self._rows, self.model, starts, None, self.settings, on_atoms) for starts in each]

    def predict(self, states: Any) -> Floats:
        """(m, K) probabilities of the return on ``model.support_`` from each of these states, without intervals."""
        return self.model.predict_proba(self._rows.of_states(self.log.encode(states)))

    def summary(self) -> str:
        """The answer, the verdict and the details, to read."""
        from cramerl.linear.logs.wording import summary

        return summary(self)

    def __repr__(self) -> str:
        whose = "the log's policy" if self.policy is None else "a policy"
        return f"PolicyEvaluation({whose}: mean {self.mean}, verdict {self.trust.verdict!r})"

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>{self.distribution._repr_html_()}"


class PolicyEvaluations(dict[str, PolicyEvaluation]):
    """Evaluations of several policies on one log, by name."""

    @property
    def baseline(self) -> str:
        """The policy that others are compared with: the one that made the log if it is there, or else the first."""
        return next((name for name, each in self.items() if each.policy is None), next(iter(self)))

    def difference(self, first: str, second: str, what: str = "mean", at: float | None = None) -> Estimate:
        """How much more the first policy has than the second, with an interval that knows both saw the same episodes.

        Where the parts of single episodes were too many to keep, or the two were found in different ways, the interval
        is as wide as it can be.

        Args:
            first: a policy's name.
            second: another one's.
            what: "mean", "cvar", "cdf" or "below".
            at: the fraction of CVaR, or the return of the CDF.
        """
        a, b = self[first].distribution, self[second].distribution
        if what not in ("mean", "cvar", "cdf", "below"):
            raise ValueError(f"what must be 'mean', 'cvar', 'cdf' or 'below', got {what!r}")
        one, other = (side.mean if what == "mean" else getattr(side, what)(at) for side in (a, b))
        moved = [side.moved(side.gradient(what, at)) for side in (a, b)]
        value = one.value - other.value
        if moved[0] is not None and moved[1] is not None and len(moved[0]) == len(moved[1]):
            se = float(np.sqrt(np.sum((moved[0] - moved[1]) ** 2)))
        else:
            se = one.se + other.se  # the most it can be
        margin = a._quantile_of_t() * se + a.rise(what, at) + b.rise(what, at)
        return Estimate(value, value - margin, value + margin, se)


def evaluate_policy(
    log: Log,
    policy: Any = None,
    *,
    features: Any = None,
    features_action: Any = None,
    discount: float | None = None,
    start: Any = "episodes",
    level: float = 0.95,
    support: Support | None = None,
    num_atoms: int | None = None,
    regularisation: float | None = None,
    intervals: Intervals = "influence",
    resamples: int = 200,
    seed: int = 0,
    on_progress: Callable[[str], None] | None = None,
) -> Any:
    """The distribution of the returns that a policy would have, from a log that this or another policy made.

    With features of states and actions the distribution of a policy that never acted solves the same linear equations:
    the next state's features are those of what the policy would do there. No propensities are needed.

    Args:
        log: from `Log.read`.
        policy: None: the policy that made the log. A function of the table of states (m, C), numbers first and then
            codes, to (m, A) probabilities or (m,) actions; names of A columns of the log that hold the probabilities
            of its actions, matched by name where each ends or begins with its action and in order otherwise (and of A
            more for the next state, where the log has columns of it); (A,)
            probabilities for every state; a table (S, A) of probabilities or (S,) of actions, where the state is one
            column; the same with a row for each of the log's rows, in the order of its source; or a dictionary of
            several of these by name.
        features: of states. None: chosen from a short list by the CRPS of held-out returns. Or "columns", "bins:10",
            "splines:8", "cells:100", "rbf:100", "fourier:3", "random:200"; a function of the table of states; a
            scikit-learn transformer.
        features_action: of states and actions, for another policy. None: the state's features, also for each action. Or
            a function of the table of states and the actions (m,).
        discount: in [0, 1]; None: the log's, or 0.99 if it has none. None where a column of the log holds discounts.
        start: "episodes" (the first states of episodes), "rows" (all states), or a table of states.
        level: of the intervals.
        support: atoms; None: chosen from the log.
        num_atoms: how many, if chosen; None: 51, and more where the grid would widen distributions.
        regularisation: as in `DistributionalLSTD`; None: chosen with the features.
        intervals: "influence" (one adjoint solution), "bootstrap" (episodes drawn again) or "none". Equations that are
            unstable, and are solved with proper next distributions, have no influence: small logs are drawn again
            instead, and large ones have intervals only if the bootstrap is asked for.
        resamples: of the bootstrap.
        seed: of held-out episodes and of the bootstrap.
        on_progress: called with a line of text as the work advances.

    Returns:
        A `PolicyEvaluation`; `PolicyEvaluations` for a dictionary of policies.
    """
    if not isinstance(log, Log):
        raise ValueError(f"log must be a Log (see Log.read), got {type(log).__name__}")
    say = on_progress or (lambda text: None)
    settings = _settings(log, discount, level, support, num_atoms, regularisation, intervals, resamples, seed)
    policies = policy if isinstance(policy, Mapping) else {"": policy}
    if not policies:
        raise ValueError("policy must have at least one policy, got an empty dictionary")
    log, policies = read_policy_columns(policies, log)
    made = [make_policy(given, log) for given in policies.values()]
    copies = 1 + len(log.action_levels or ()) if features_action is None and any(made) else 1
    found = PolicyEvaluations()
    with connected(log):
        say("choosing features ...")
        selection = _selection(log, features, settings, copies)
        for name, target in zip(policies, made, strict=True):
            say(f"evaluating {name or 'the policy'} ...")
            rows = LogRows(log, selection.features)
            if target is not None:
                actions = action_features(features_action, selection.features, log.action_levels, 0)
                rows = LogRows(log, selection.features, actions, target)
            found[name] = _evaluated(rows, start, selection, settings)
    return found if isinstance(policy, Mapping) else found[""]


def _settings(
    log: Log,
    discount: float | None,
    level: float,
    support: Support | None,
    num_atoms: int | None,
    regularisation: float | None,
    intervals: Intervals,
    resamples: int,
    seed: int,
) -> Settings:
    chosen = chosen_discount(log, discount)
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
    require_choice("intervals", intervals, INTERVALS)
    require_count("resamples", resamples, least=2)
    if num_atoms is not None:
        require_count("num_atoms", num_atoms, least=2)
    if require_log_discount(chosen) == 1 and not log.has_termination:
        raise ValueError("discount must be less than 1 for a log that does not say where returns end, got 1")
    return Settings(float(chosen), float(level), support, num_atoms, regularisation, intervals, resamples, seed)


def chosen_discount(log: Log, discount: float | None) -> float:
    """The discount that was asked for, the log's, or 0.99; rows of a log with a column of discounts do not need it."""
    if discount is None:
        return 0.99 if log.discount is None else log.discount
    if log.has_discounts:
        raise ValueError(f"discount must be None for a log that has a column of discounts, got {discount!r}")
    return discount


def _selection(log: Log, features: Any, settings: Settings, copies: int) -> Selection:
    if features is None:
        return choose_features(log, settings.discount, settings.seed, copies)
    built = state_features(features, some_observations(log), log.schema, settings.seed)
    if settings.regularisation is None:
        return score_features(log, built, settings.discount, settings.seed)
    return Selection(built, settings.regularisation * log.num_transitions, (), np.nan, np.nan)


def _evaluated(rows: LogRows, start: Any, selection: Selection, settings: Settings) -> PolicyEvaluation:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, on_atoms = _fitted(rows, selection, settings)
    messages = tuple(dict.fromkeys(str(entry.message) for entry in caught))
    starts = starts_of(rows, start)
    distribution = _distribution(rows, model, starts, start, settings, on_atoms)
    return PolicyEvaluation(rows, model, starts, distribution, selection, settings, messages)


def _fitted(rows: LogRows, selection: Selection, settings: Settings) -> tuple[DistributionalLSTD, bool]:
    """The model, and whether the returns that were seen lie on its atoms.

    It has as many atoms as it takes for the grid not to widen distributions, or as many as there may be.
    """
    rho = settings.regularisation
    if rho is None:
        strength = selection.strength if rows.policy is None else min(selection.strength, STRENGTH_OF_OTHERS)
        rho = strength / rows.log.num_transitions
    seen = None if rows.log.rows_are_episodes else seen_returns(rows.log, settings.discount)
    sample = np.empty(0) if seen is None else seen.sample
    atoms = _ATOMS
    while True:
        support = settings.support or _support(rows, settings, seen, atoms, rho)
        model = DistributionalLSTD(support, settings.discount, regularisation=rho, tol=1e-10).fit_source(rows)
        atoms = 2 * atoms - 1
        if settings.support is not None or settings.num_atoms is not None or atoms > _MOST_ATOMS:
            return model, lie_on_atoms(sample, support)
        if not model.certificate_.variance_ratio > _WIDENED or not _affordable(rows, atoms):
            return model, lie_on_atoms(sample, support)


def _affordable(rows: LogRows, atoms: int) -> bool:
    """Whether so many atoms take seconds rather than minutes."""
    unknowns = atoms * rows.num_features
    by_moments = unknowns**2 <= rows.most_moments
    return unknowns <= _MOST_UNKNOWNS and (by_moments or unknowns * rows.log.num_transitions <= _MOST_PASSED)


def _support(rows: LogRows, settings: Settings, seen: SeenReturns | None, atoms: int, rho: float) -> Support:
    ends = (seen.low, seen.high) if seen is not None and seen.count else None
    reach = support_from_data(rows, settings.discount, _ATOMS, rho, ends, tol=1e-4)
    sample = np.empty(0) if seen is None else seen.sample
    return support_for_returns(reach, sample, settings.num_atoms or atoms, exact=settings.num_atoms is not None)


def _distribution(
    rows: LogRows, model: DistributionalLSTD, starts: Starts, start: Any, settings: Settings, on_atoms: bool
) -> ReturnDistribution:
    masses = starts.mean @ model.weights_
    influence: HeightInfluence | None = None
    constrained = model.method_ == "constrained"
    if rows.log.num_episodes > 1 and settings.intervals != "none":
        resamples = settings.resamples if settings.intervals == "bootstrap" else 0
        settled = CONSTRAINED_RESIDUAL.verdict(model.residual_) != "do not use"
        if constrained and not resamples and rows.log.num_transitions <= _MOST_REFITTED and settled:
            resamples = min(settings.resamples, _FEW_RESAMPLES)
        if resamples:
            again = starts if start is None else start
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                influence = bootstrap_influence(model, rows, again, resamples, settings.seed, _starts_again)
        elif not constrained:
            influence = height_influence(model, rows, starts)
    return ReturnDistribution(model.support_, masses, settings.level, influence, on_atoms)


def _starts_again(rows: LogRows, start: Any) -> Starts:
    return start if isinstance(start, Starts) else starts_of(rows, start)
