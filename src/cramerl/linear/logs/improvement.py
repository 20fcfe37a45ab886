"""A better policy from a log: least-squares policy iteration on return distributions, checked on held-out episodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl._checks import require_count
from cramerl.linear.logs.action_features import ActionFeatures, action_features
from cramerl.linear.logs.basis import state_features
from cramerl.linear.logs.cells import Cells
from cramerl.linear.logs.estimates import Estimate, ReturnDistribution
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.policies import Policy
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation, chosen_discount, evaluate_policy
from cramerl.linear.logs.rows import LogRows, starts_of
from cramerl.linear.logs.selection import (
    STRENGTH_OF_OTHERS,
    Selection,
    choose_features,
    score_features,
    some_observations,
)
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.support_choice import support_from_data
from cramerl.measures import cvar, mean, nearest_distribution, variance

Risk = Literal["mean"] | tuple[str, float]

_ATOMS = 51


class GreedyPolicy:
    """In each state the action with the best pessimistic score, among those taken there often enough.

    An action's score is its mean return, or CVaR, less the standard error that a mean of as many returns as the log has
    of it would have. A state of a kind that the log never had gets the action that is most frequent in the whole log.
    """

    takes_observations = True

    def __init__(self, cells: Cells, counts: dict[int, NDArray[np.intp]], most_frequent: int, min_count: int):
        self._cells, self._counts, self._most_frequent = cells, counts, most_frequent
        self._min_count = min_count
        self._score: Callable[[Observations, NDArray[np.intp]], Floats] | None = None
        self.num_actions = len(next(iter(counts.values())))

    def counts(self, observations: Observations) -> NDArray[np.intp]:
        """(m, A) how often the log took each action in such states."""
        centre, _ = self._cells.nearest(observations)
        empty = np.zeros(self.num_actions, dtype=np.intp)
        keys = self._cells.keys(observations, centre).tolist()
        return np.array([self._counts.get(key, empty) for key in keys]).reshape(-1, self.num_actions)

    def improved(self, score: Callable[[Observations, NDArray[np.intp]], Floats]) -> GreedyPolicy:
        """The same restrictions with other scores (m, A) of states and counts."""
        following = GreedyPolicy(self._cells, self._counts, self._most_frequent, self._min_count)
        following._score = score
        return following

    def __call__(self, observations: Observations) -> Floats:
        """(m, A) probabilities: those of the log at first, then one for the best action."""
        counts = self.counts(observations)
        seen = counts.sum(axis=1) > 0
        counts[~seen, self._most_frequent] = 1
        if self._score is None:
            return counts / counts.sum(axis=1, keepdims=True)
        # The most frequent action is always allowed: a state where all are rare still needs one.
        allowed = (counts >= self._min_count) | (counts == counts.max(axis=1, keepdims=True))
        best = np.where(allowed, self._score(observations, counts), -np.inf).argmax(axis=1)
        return np.eye(self.num_actions)[best]


class ImprovedPolicy:
    """A policy that was found in a log, and what it is worth on episodes that did not take part in finding it.

    Attributes:
        evaluation: of the policy, on held-out episodes; its verdict says whether to trust it.
        logged: of the policy that made the log, on the same episodes.
        promised: what the episodes that it was found in say: too much, because it was chosen for that.
        gain: how much better than the log's policy, in the risk measure that was asked for, on held-out episodes.
        risk: the risk measure.
        steps: of policy iteration.
    """

    def __init__(
        self,
        policy: Policy,
        log: Log,
        evaluation: PolicyEvaluation,
        logged: PolicyEvaluation,
        promised: float,
        gain: Estimate,
        risk: Risk,
        steps: int,
    ):
        self._policy, self._log, self.evaluation, self.logged = policy, log, evaluation, logged
        self.promised, self.gain, self.steps = promised, gain, steps
        self.risk: Risk = risk

    @property
    def value(self) -> Estimate:
        """What the policy is worth on held-out episodes, in the risk measure."""
        return _measured(self.evaluation.distribution, self.risk)

    @property
    def optimism(self) -> float:
        """How much more was promised than held-out episodes show."""
        return self.promised - self.value.value

    def probabilities(self, states: Any) -> Floats:
        """(m, A) probabilities of the log's actions in states, a table with the log's state columns."""
        return self._policy(self._log.encode(states))

    def act(self, states: Any) -> list[Any]:
        """The action in each of these states, as the log calls it."""
        levels: Any = self._log.action_levels
        return [levels[code] for code in self.probabilities(states).argmax(axis=1)]

    def summary(self) -> str:
        """What was found and what to think of it."""
        proven = "is better than the log's policy" if self.gain.low > 0 else "is not shown to be better than the log's"
        return "\n".join(
            [
                f"Policy after {self.steps} steps of policy iteration; all figures are of {_named(self.risk)}.",
                f"  promised by the episodes it was found in {self.promised:>11.4g}",
                f"  on held-out episodes                     {self.value}",
                f"  the log's policy on the same episodes    {_measured(self.logged.distribution, self.risk)}",
                f"  gain                                     {self.gain}",
                f"  optimism of the promise                  {self.optimism:>11.4g}",
                f"On held-out episodes it {proven} (verdict on that evaluation: {self.evaluation.trust.verdict}).",
            ]
        )

    def __repr__(self) -> str:
        return f"ImprovedPolicy({_named(self.risk)} {self.value}, promised {self.promised:.4g}, gain {self.gain})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def improve_policy(
    log: Log,
    *,
    features: Any = None,
    features_action: Any = None,
    discount: float | None = None,
    risk: Risk = "mean",
    min_count: int = 5,
    iterations: int = 5,
    held_out: float = 0.5,
    level: float = 0.95,
    regularisation: float | None = None,
    seed: int = 0,
    on_progress: Callable[[str], None] | None = None,
) -> ImprovedPolicy:
    """A policy that does better than the log's, by policy iteration on distributions, with an honest value.

    It takes only actions that the log took at least ``min_count`` times in such states, and of these the one with the
    best mean or CVaR less its standard error. Because it is chosen by the episodes it was found in, these promise too
    much. So its value is measured on other episodes.

    Args:
        log: from `Log.read`, with discrete actions.
        features: of states, as in `evaluate_policy`.
        features_action: of states and actions, as in `evaluate_policy`.
        discount: in [0, 1]; None: the log's, or 0.99 if it has none.
        risk: "mean", or ("cvar", fraction) for the mean of the worst fraction of returns.
        min_count: how often the log must have taken an action in such states.
        iterations: of policy iteration, at most.
        held_out: the share of episodes that measure the value.
        level: of the intervals.
        regularisation: as in `evaluate_policy`.
        seed: of the division of the episodes.
        on_progress: called with a line of text as the work advances.
    """
    _require(log, risk, held_out)
    require_count("min_count", min_count)
    require_count("iterations", iterations)
    say = on_progress or (lambda text: None)
    gamma = chosen_discount(log, discount)
    fitted, checked = _divided(log, held_out, seed)
    selection = _selection(fitted, features, gamma, seed, regularisation)
    actions = action_features(features_action, selection.features, log.action_levels, 0)
    greedy, promised, steps = _first(fitted, min_count, seed), float("nan"), 0
    before = None
    for step in range(1, iterations + 1):
        say(f"step {step} of policy iteration ...")
        rows = LogRows(fitted, selection.features, actions, _as_policy(greedy, log))
        model = _model(rows, gamma, selection)
        greedy = greedy.improved(_Score(model, actions, risk))
        steps, chosen = step, _chosen(fitted, greedy)
        if before is not None and np.array_equal(chosen, before):
            break
        before = chosen
    say("evaluating on held-out episodes ...")
    policy = _as_policy(greedy, log)
    rows = LogRows(fitted, selection.features, actions, policy)
    promise = ReturnDistribution(*_start_masses(_model(rows, gamma, selection), rows), level, None)
    promised = _measured(promise, risk).value
    found = evaluate_policy(
        checked,
        {"improved": greedy, "logged": None},
        features=selection.features,
        features_action=features_action,
        discount=discount,
        level=level,
        regularisation=regularisation,
        seed=seed,
    )
    what, at = ("mean", None) if risk == "mean" else risk
    gain = found.difference("improved", "logged", what, at)  # pyright: ignore[reportArgumentType]
    return ImprovedPolicy(policy, log, found["improved"], found["logged"], promised, gain, risk, steps)


class _Score:
    """(m, A) pessimistic score of every action."""

    def __init__(self, model: DistributionalLSTD, actions: ActionFeatures, risk: Risk):
        self._model, self._actions, self._risk = model, actions, risk

    def __call__(self, observations: Observations, counts: NDArray[np.intp]) -> Floats:
        support, num_actions = self._model.support_, counts.shape[1]
        scores = np.empty(counts.shape)
        for a in range(num_actions):
            alone = np.zeros(counts.shape)
            alone[:, a] = 1.0
            masses = nearest_distribution(support, self._actions.expected(observations, alone) @ self._model.weights_)
            value = mean(support, masses) if self._risk == "mean" else cvar(support, masses, float(self._risk[1]))
            error = np.sqrt(np.maximum(variance(support, masses), 0.0) / np.maximum(counts[:, a], 1))
            scores[:, a] = value - error
        return scores


def _require(log: Any, risk: Any, held_out: Any) -> None:
    if not isinstance(log, Log):
        raise ValueError(f"log must be a Log (see Log.read), got {type(log).__name__}")
    if log.action_levels is None:
        raise ValueError("log must have discrete actions, got none: name them with action=")
    known = risk == "mean" or (isinstance(risk, tuple) and len(risk) == 2 and risk[0] == "cvar" and 0 < risk[1] <= 1)
    if not known:
        raise ValueError(f"risk must be 'mean' or ('cvar', fraction in (0, 1]), got {risk!r}")
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie in (0, 1), got {held_out!r}")
    if log.num_episodes < 4:
        raise ValueError(
            f"log must have at least 4 episodes, two to find a policy and two to check it, got {log.num_episodes}"
        )


def _divided(log: Log, held_out: float, seed: int) -> tuple[Log, Log]:
    order = np.random.default_rng(seed).permutation(log.num_episodes)
    cut = min(max(2, int(held_out * len(order))), len(order) - 2)
    return log.take(np.sort(order[cut:])), log.take(np.sort(order[:cut]))


def _selection(log: Log, features: Any, discount: float, seed: int, regularisation: float | None) -> Selection:
    if features is None:
        found = choose_features(log, discount, seed, 1 + len(log.action_levels or ()))
    else:
        built = state_features(features, some_observations(log), log.schema, seed)
        found = score_features(log, built, discount, seed)
    if regularisation is None:
        return found._replace(strength=min(found.strength, STRENGTH_OF_OTHERS))
    return found._replace(strength=regularisation * log.num_transitions)


def _first(log: Log, min_count: int, seed: int) -> GreedyPolicy:
    """The log's own policy, as far as counts in cells show it."""
    cells, num_actions = Cells.of(log, seed), len(log.action_levels or ())
    counts: dict[int, NDArray[np.intp]] = {}
    whole = np.zeros(num_actions, dtype=np.intp)
    for block in log.blocks():
        states = block.observations.take(block.current)
        keys = cells.keys(states, cells.nearest(states)[0])
        values, place = np.unique(keys, return_inverse=True)
        taken: Any = block.actions
        table = np.zeros((len(values), num_actions), dtype=np.intp)
        np.add.at(table, (place, taken), 1)
        for key, row in zip(values.tolist(), table, strict=True):
            counts[key] = counts[key] + row if key in counts else row
        whole += table.sum(axis=0)
    return GreedyPolicy(cells, counts, int(whole.argmax()), min_count)


def _as_policy(greedy: GreedyPolicy, log: Log) -> Policy:
    levels: Any = log.action_levels
    return Policy(greedy, levels, None)


def _chosen(log: Log, greedy: GreedyPolicy) -> Floats:
    """The policy's actions in all states of the log."""
    return np.concatenate([greedy(block.observations).argmax(axis=1) for block in log.blocks()])


def _model(rows: LogRows, discount: float, selection: Selection) -> DistributionalLSTD:
    rho = selection.strength / rows.log.num_transitions
    support = support_from_data(rows, discount, _ATOMS, rho)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps on the way; the evaluation on held-out episodes says what it thinks
        return DistributionalLSTD(support, discount, regularisation=rho, tol=1e-8).fit_source(rows)


def _start_masses(model: DistributionalLSTD, rows: LogRows) -> tuple[Any, Floats]:
    return model.support_, starts_of(rows, "episodes").mean @ model.weights_


def _measured(distribution: ReturnDistribution, risk: Risk) -> Estimate:
    return distribution.mean if risk == "mean" else distribution.cvar(float(risk[1]))


def _named(risk: Risk) -> str:
    return "the mean return" if risk == "mean" else f"the mean of the worst {100 * float(risk[1]):g}% of returns"
