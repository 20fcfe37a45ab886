"""What else says how much a policy returns from the starts of episodes: the answers to compare an evaluation with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl._checks import require_in_unit_interval
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.ratios import (
    ActionProbs,
    StepMasses,
    episode_log_masses,
    has_propensities,
    row_values,
    start_weights,
)
from cramerl.linear.logs.returns import last_rows, realised_returns, row_discounts, so_far

ActionValues = Callable[[Episodes], tuple[Floats, Floats, Floats]]
"""(n,) of each row: the value of its action, the value of its state, and that of its next state."""


class Comparison(NamedTuple):
    """Another estimate of the mean return from the starts of episodes, and where it has one, a weighted sample."""

    name: str
    mean: float
    se: float
    """Standard error, over episodes; NaN for a single one."""
    episodes: float
    """How many episodes with equal weights would say as much."""
    note: str
    values: Floats | None = None
    """Returns of episodes."""
    weights: Floats | None = None
    """Their weights, which sum to one."""

    def quantile(self, q: float) -> float:
        """Smallest return at which the weights of it and of smaller ones reach ``q``."""
        require_in_unit_interval(q=q)
        values, below = self._sorted()
        return float(values[min(int(np.searchsorted(below, q - 1e-12)), len(values) - 1)])

    def cvar(self, a: float) -> float:
        """Mean of the smallest returns that together have weight ``a``; at 0 the smallest."""
        require_in_unit_interval(a=a)
        values, below = self._sorted()
        if a == 0:
            return float(values[0])
        taken = np.diff(np.minimum(below, a), prepend=0.0)
        return float(values @ taken / taken.sum())

    def cdf(self, z: float) -> float:
        """Weight of the returns that are at most ``z``."""
        values, below = self._sorted()
        at_most = int(np.searchsorted(values, z, side="right"))
        return float(below[at_most - 1]) if at_most else 0.0

    def _sorted(self) -> tuple[Floats, Floats]:
        """Returns that have weight, in order, and the cumulative weights."""
        if self.values is None or self.weights is None:
            raise ValueError(f"{self.name} estimates only the mean: it has no quantiles, CVaR or CDF")
        used = np.flatnonzero(self.weights > 0)
        order = used[np.argsort(self.values[used], kind="stable")]
        below = np.cumsum(self.weights[order])
        return self.values[order], below / below[-1]


def monte_carlo(log: Log, discount: float | None) -> Comparison | None:
    """Mean return of the episodes whose end is in the log; None if there are none."""
    values, weights = _complete_episodes(log, discount, lambda block: start_weights(block))
    if not weights.sum() > 0:
        return None
    note = f"{len(values):,} complete episodes, of the policy that was logged."
    return _of_sample("complete episodes", values, weights, note + _left_out(log))


def importance_sampling(log: Log, discount: float | None, probs_of_block: ActionProbs) -> Comparison | None:
    r"""Returns of complete episodes, weighted by how much more likely the target policy makes their actions.

    Self-normalised: the weights :math:`\prod_t \pi(a_t | x_t) / \mu(a_t | x_t)` are divided by their sum, which makes
    them biased in small logs but bounded by the returns that were seen.

    Args:
        log: with propensities; without them the answer is None, as it is if no complete episode is possible under the
            target policy.
        discount: a number in [0, 1]; None where the log has a column of discounts.
        probs_of_block: gives (n,) probabilities of the logged actions under the target policy.
    """
    if not has_propensities(log):
        return None
    values, logs = _complete_episodes(log, discount, lambda block: episode_log_masses(block, probs_of_block))
    if not len(logs) or np.isneginf(logs.max()):
        return None
    weights = np.exp(logs - logs.max())
    number = f"{_effective(weights):,.1f} episodes of equal weight"
    note = f"{len(values):,} complete episodes, weighted by the target policy: as good as {number}."
    return _of_sample("importance sampling", values, weights, note + _left_out(log))


def doubly_robust(
    log: Log, discount: float | None, probs_of_block: ActionProbs, action_values: ActionValues
) -> Comparison | None:
    r"""A model's mean, corrected by weighted rewards (Thomas and Brunskill 2016, weighted doubly robust).

    .. math:: \sum_i w^i V(x^i_0) + \sum_t \sum_i \gamma^t w^i_t
              \big(r^i_t + \gamma V(x^i_{t+1}) - Q(x^i_t, a^i_t)\big)

    :math:`w^i_t` is the product of the ratios of episode i up to step t, over the sum of them at that step; an episode
    that is over keeps its last one. Where an episode is cut, the model's value stands for the rest.

    Args:
        log: with propensities; without them the answer is None.
        discount: a number in [0, 1]; None where the log has a column of discounts.
        probs_of_block: gives (n,) probabilities of the logged actions under the target policy.
        action_values: gives (n,) values of the logged actions, (n,) values of the states and (n,) values of the next
            states under the target policy; the last are not used where the return ended.
    """
    if not has_propensities(log):
        return None
    masses = StepMasses.of(log, probs_of_block)
    corrections = np.zeros(len(masses.total))
    own, starts, weights = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    for block in log.blocks():
        terms, values = _corrections(block, discount, masses, probs_of_block, action_values)
        corrections += np.bincount(block.step, weights=terms, minlength=len(corrections))
        own.append(_by_episode(block, terms))
        starts.append(values[block.step == 0])
        weights.append(block.weights[block.step == 0])
    value, weight = np.concatenate(starts), np.concatenate(weights)
    if not weight.sum() > 0:
        return None
    start = float(weight @ value / weight.sum())
    shares = [_shares_of(block, corrections, masses, probs_of_block) for block in log.blocks()]
    influence = weight * (value - start) / weight.sum() + np.concatenate(own) - np.concatenate(shares)
    least = float(masses.effective.min())
    note = (
        f"{len(value):,} episodes; the weights of the thinnest step are as good as {least:,.1f} episodes of equal "
        f"weight. Where an episode is cut, the evaluation's own values stand for the rest."
    )
    return Comparison("weighted doubly robust", start + float(corrections.sum()), _error(influence), least, note)


def _complete_episodes(log: Log, discount: float | None, weigh: Callable[[Episodes], Floats]) -> tuple[Floats, Floats]:
    """Returns of complete episodes, and the weights that their last rows have."""
    values, weights = [np.empty(0)], [np.empty(0)]
    for block in log.blocks():
        returns, whole = realised_returns(block, discount)
        lasts = last_rows(block.step)
        values.append(returns[(block.step == 0) & whole])
        weights.append(weigh(block)[lasts[whole[lasts]]])
    return np.concatenate(values), np.concatenate(weights)


def _of_sample(name: str, values: Floats, weights: Floats, note: str) -> Comparison:
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return Comparison(name, mean, _error(shares * (values - mean)), _effective(weights), note, values, shares)


def _error(influence: Floats) -> float:
    """Standard error from what each episode adds to an estimate."""
    n = len(influence)
    return float(np.sqrt(influence @ influence * n / (n - 1))) if n > 1 else float("nan")


def _effective(weights: Floats) -> float:
    return float(weights.sum() ** 2 / (weights @ weights))


def _left_out(log: Log) -> str:
    if not log.counts.truncated:
        return ""
    return (
        f" {log.counts.truncated:,} of {log.counts.episodes:,} episodes are cut and left out, which is biased if long "
        f"episodes are cut more often."
    )


def _corrections(
    block: Episodes,
    discount: float | None,
    masses: StepMasses,
    probs_of_block: ActionProbs,
    action_values: ActionValues,
) -> tuple[Floats, Floats]:
    """(n,) what each row adds to the model's mean, and (n,) the model's values of the states."""
    names = ("values of actions", "values of states", "values of next states")
    given = zip(names, action_values(block), strict=True)
    of_action, of_state, of_next = (row_values(f"action_values ({name})", values, block) for name, values in given)
    factors = row_discounts(block, discount)
    errors = block.rewards + factors * np.where(block.terminated, 0.0, of_next) - of_action
    before = np.where(block.step == 0, 1.0, np.roll(factors, 1))
    weights = _step_weights(block, episode_log_masses(block, probs_of_block), masses)
    # A row may weigh less than its episode: a row that ended makes up for rows that were left out.
    weights *= np.divide(block.weights, start_weights(block), out=np.zeros(len(weights)), where=weights > 0)
    return so_far(np.multiply, before, block.step) * weights * errors, of_state


def _step_weights(block: Episodes, logs: Floats, masses: StepMasses) -> Floats:
    """(n,) each row's share of the masses of its step; zero where no episode has any."""
    total = masses.total[block.step]
    return np.exp(logs - np.where(np.isneginf(total), 0.0, total))


def _shares_of(block: Episodes, corrections: Floats, masses: StepMasses, probs_of_block: ActionProbs) -> Floats:
    """(episodes,) the part of all corrections that is an episode's by its weights, those after its end included."""
    logs, lasts = episode_log_masses(block, probs_of_block), last_rows(block.step)
    during = _by_episode(block, corrections[block.step] * _step_weights(block, logs, masses))
    end = block.step[lasts] + 1
    gains, losses = (np.exp(logs[lasts] + _later(part, masses.total)[end]) for part in (corrections, -corrections))
    return during + gains - losses


def _later(corrections: Floats, log_masses: Floats) -> Floats:
    """(T + 1,) log of the sum of the positive corrections from each step on, each over the mass of its step."""
    kept = np.flatnonzero(corrections > 0)
    terms = np.full(len(corrections) + 1, -np.inf)
    terms[kept] = np.log(corrections[kept]) - log_masses[kept]
    return np.logaddexp.accumulate(terms[::-1])[::-1]


def _by_episode(block: Episodes, values: Floats) -> Floats:
    """(episodes,) sums over the rows of each episode."""
    firsts = np.flatnonzero(block.step == 0)
    return np.add.reduceat(values, firsts) if len(firsts) else np.zeros(0)
