"""A log's transitions with features, under a policy, as rows that can be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.logs import cluster
from cramerl.linear.logs.action_features import ActionFeatures
from cramerl.linear.logs.basis import StateFeatures
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.policies import Policy
from cramerl.linear.transition_sums import MOST_DENSE, MOST_NUMBERS
from cramerl.linear.transitions import Rows, S

T = TypeVar("T")

# Numbers of a log's features that are kept in memory instead of being made again in every pass: 400 megabytes.
_KEPT_NUMBERS = 50_000_000
# Moments with so many numbers are always worth it; and how many of them cost as much as the backup of a row.
_FEW_MOMENTS, _BACKUP = 5_000_000, 1500
# Numbers in the features of one block.
_BLOCK_NUMBERS = 10_000_000
FIRST_STATES = "the first states of episodes"


class _KnownStates(NamedTuple):
    keys: NDArray[Any]
    observations: Observations


class LogRows:
    """A log's transitions as a `Source`, with features of states or, under a policy, of states and actions.

    Args:
        log: the log.
        features: features of states.
        actions: features of states and actions; None: those of states, for the policy that made the log.
        policy: the policy that is evaluated; None: the one that made the log.
        multiplicity: (episodes,) how often each episode counts; None: once.
    """

    def __init__(
        self,
        log: Log,
        features: StateFeatures,
        actions: ActionFeatures | None = None,
        policy: Policy | None = None,
        multiplicity: Floats | None = None,
    ):
        self.log, self.features, self.actions, self.policy = log, features, actions, policy
        self.multiplicity = multiplicity
        self._kept: list[tuple[Episodes, Rows]] | None = None

    @property
    def num_features(self) -> int:
        """D."""
        return self.features.num_features if self.actions is None else self.actions.num_features

    @property
    def penalties(self) -> Floats | None:
        """(D,) how much of the regularisation each feature gets; None: all of it."""
        return None if self.actions is None else self.actions.penalties

    @property
    def most_moments(self) -> int:
        """Numbers in moments up to which these take less work than passes over the rows, which are kept in memory."""
        if not self._fits_in_memory:
            return MOST_NUMBERS
        return min(MOST_NUMBERS, max(_FEW_MOMENTS, self.log.num_transitions * (2 * self.num_features + _BACKUP)))

    @property
    def _fits_in_memory(self) -> bool:
        return 2 * self.log.num_transitions * min(self.num_features, 300) <= _KEPT_NUMBERS

    def resampled(self, multiplicity: Floats) -> LogRows:
        """The same rows, with each episode as often as the array (episodes,) says."""
        twin = LogRows(self.log, self.features, self.actions, self.policy, multiplicity)
        known = ("_kept", "_known_states", "distinct")  # the same for both, as far as they were needed
        vars(twin).update({name: vars(self)[name] for name in known if name in vars(self)})
        return twin

    def blocks(self) -> Iterator[tuple[Episodes, Rows]]:
        """Blocks of whole episodes with their rows."""
        for block, rows in self._made() if self._kept is None else self._kept:
            if self.multiplicity is None:
                yield block, rows
            else:
                yield block, rows._replace(weights=rows.mass * self.multiplicity[block.episode])

    def total(self, sums: S) -> S:
        """The sums over all rows."""
        if self.log.ray is not None:
            return cluster.total(self, sums)
        for _, rows in self.blocks():
            sums = rows.total(sums)
        return sums

    def mapped(self, function: Callable[[LogRows, Episodes, Rows], T]) -> Iterator[T]:
        """What a function makes of these rows' features and of each block, in order.

        It may travel to other machines, so what it refers to should be small.
        """
        if self.log.ray is not None:
            return cluster.mapped(self, function)
        return (function(self, block, rows) for block, rows in self.blocks())

    def of_log(self, log: Log) -> LogRows:
        """The same features of another log with the same columns."""
        return LogRows(log, self.features, self.actions, self.policy, self.multiplicity)

    @cached_property
    def distinct(self) -> Any:
        """(u, D) features of the distinct states of the log; None if there are too many for dense matrices."""
        found = self._known_states
        return None if found is None else sparse.csr_array(self.of_states(found.observations))

    def indexed(self) -> Iterator[tuple[Rows, NDArray[np.intp]]]:
        """Rows, and for each the number of its next state among the distinct ones."""
        for block, rows in self.blocks():
            yield rows, self.index_of(block.observations)[block.following]

    def index_of(self, observations: Observations) -> NDArray[np.intp]:
        """(m,) the number of each state among the distinct ones; -1 for one that the log never had."""
        found = self._known_states
        if found is None:
            return np.full(len(observations), -1)
        keys = _keys(observations)
        place = np.minimum(np.searchsorted(found.keys, keys), len(found.keys) - 1)
        return np.where(found.keys[place] == keys, place, -1)

    @cached_property
    def _known_states(self) -> _KnownStates | None:
        if self.log.ray is not None:
            return None  # a part of the log would number its own
        known: _KnownStates | None = None
        for block in self.log.blocks():
            keys, first = np.unique(_keys(block.observations), return_index=True)
            states = block.observations.take(first)
            if known is not None:
                states = Observations.join([known.observations, states])
                keys, first = np.unique(np.concatenate([known.keys, keys]), return_index=True)
                states = states.take(first)
            if len(keys) > MOST_DENSE:
                return None
            known = _KnownStates(keys, states)
        return known

    def of_states(self, observations: Observations) -> Any:
        """(m, D) features of states: of what the policy does there."""
        if self.actions is None or self.policy is None:
            return self.features(observations)
        return self.actions.expected(observations, self.policy(observations))

    def _made(self) -> Iterator[tuple[Episodes, Rows]]:
        width = min(self.num_features, 300)
        keep: list[tuple[Episodes, Rows]] | None = [] if self._fits_in_memory else None
        for block in self.log.blocks(max(1, _BLOCK_NUMBERS // width)):
            if not len(block.rewards):
                continue
            pair = block, self._rows(block)
            if keep is not None:
                keep.append(pair)
            yield pair
        self._kept = keep

    def _rows(self, block: Episodes) -> Rows:
        if self.actions is None or self.policy is None:
            table = self.features(block.observations)
            every = len(block.current) == len(block.observations)  # states in order, each of them a transition's
            x, following = table if every else table[block.current], table[block.following]
        else:
            x = self.actions.taken(block.observations.take(block.current), block.actions)
            following = self.of_states(block.observations.take(block.following))
        return Rows(x, block.rewards, following, block.terminated, block.discounts, block.weights)


def _keys(observations: Observations) -> NDArray[Any]:
    """(m,) the bytes of each state."""
    numbers = observations.numbers + 0.0  # makes zeros of both signs the same
    parts = [numbers, observations.codes, *([] if observations.probs is None else [observations.probs])]
    whole = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=1)
    return np.ascontiguousarray(whole).view(f"V{whole.shape[1]}").ravel()


class Starts(NamedTuple):
    """The states whose returns are asked for."""

    kind: str
    """"episodes", "rows" or "given"."""
    mean: Floats
    """(D,) mean features."""
    weight: float
    """Of all of them."""
    words: str
    """What they are."""
    observations: Observations | None
    """The states, if they were given."""
    shares: Floats | None
    """(u,) the share of each of the log's distinct states, where the rows tell these apart; NaN for others."""

    @property
    def of_episodes(self) -> bool:
        """Whether they are the first states of the log's episodes."""
        return self.kind == "episodes"


def starts_of(rows: LogRows, start: Any) -> Starts:
    """The states that `evaluate_policy` is asked about: "episodes", "rows", or a table of states."""
    states = rows.distinct.shape[0] if rows.num_features > MOST_DENSE and rows.distinct is not None else 0
    if not isinstance(start, str):
        observations = start if isinstance(start, Observations) else rows.log.encode(start)
        count = len(observations)
        words = "the given state" if count == 1 else f"the {count:,} given states"
        mean = np.asarray(rows.of_states(observations).sum(axis=0)).ravel() / count
        shares = _shares(rows, observations, np.full(count, 1.0 / count), states)
        return Starts("given", mean, float(count), words, observations, shares)
    if start == "episodes" and rows.log.rows_are_episodes:
        start = "rows"
    if start not in ("episodes", "rows"):
        raise ValueError(f"start must be 'episodes', 'rows' or a table of states, got {start!r}")

    def summed(rows: LogRows, block: Episodes, made: Rows) -> tuple[Floats, float, Floats | None]:
        index, table, mass = starts_of_block(rows, block, made, start)
        shares = _shares(rows, block.observations.take(block.current[index]), mass, states)
        return np.asarray(table.T @ mass).ravel(), float(mass.sum()), shares

    totals: list[Any] = list(zip(*rows.mapped(summed), strict=True))
    mean, weight = np.sum(totals[0], axis=0), float(sum(totals[1]))
    words = FIRST_STATES if start == "episodes" else "all states of the log"
    return Starts(start, mean / weight, weight, words, None, np.sum(totals[2], axis=0) / weight if states else None)


def starts_of_block(rows: LogRows, block: Episodes, made: Rows, kind: str) -> tuple[NDArray[np.intp], Any, Floats]:
    """Which rows of a block are starts, the features of their states, and how much each counts."""
    index = np.flatnonzero(block.step == 0) if kind == "episodes" else np.arange(len(block.rewards))
    known = rows.actions is None or rows.policy is None
    table = made.features[index] if known else rows.of_states(block.observations.take(block.current[index]))
    return index, table, made.mass[index]


def _shares(rows: LogRows, observations: Observations, mass: Floats, states: int) -> Floats | None:
    if not states:
        return None
    place = rows.index_of(observations)
    if (place < 0).any():
        return np.full(states, np.nan)
    return np.bincount(place, mass, states).astype(np.float64)
