"""A log's transitions with features, under a policy, as rows that can be added up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl.linear.logs.action_features import ActionFeatures
from cramerl.linear.logs.basis import StateFeatures
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.policies import Policy
from cramerl.linear.transition_sums import MOST_DENSE
from cramerl.linear.transitions import Rows, S

# Numbers of a log's features that are kept in memory instead of being made again in every pass: 400 megabytes.
_KEPT_NUMBERS = 50_000_000
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

    def resampled(self, multiplicity: Floats) -> LogRows:
        """The same rows, with each episode as often as the array (episodes,) says."""
        twin = LogRows(self.log, self.features, self.actions, self.policy, multiplicity)
        twin._kept = self._kept
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
        for _, rows in self.blocks():
            sums = rows.total(sums)
        return sums

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
        keep: list[tuple[Episodes, Rows]] | None = []
        if 2 * self.log.num_transitions * width > _KEPT_NUMBERS:
            keep = None
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
            x, following = table[block.current], table[block.following]
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


class Starts:
    """Features of the states whose returns are asked for, and the episode that each belongs to (-1: to none).

    Args:
        table: (m, D).
        weights: (m,) how much each counts, summing to one.
        episode: (m,).
        words: what they are.
        observations: the states, if they were given.
        index: (m,) their numbers among the log's distinct states, where the rows tell these apart.
    """

    def __init__(
        self,
        table: Any,
        weights: Floats,
        episode: NDArray[np.intp],
        words: str,
        observations: Observations | None = None,
        index: NDArray[np.intp] | None = None,
    ):
        self.table, self.weights, self.episode = table, weights, episode
        self.words, self.observations, self.index = words, observations, index

    @property
    def of_episodes(self) -> bool:
        """Whether they are the first states of the log's episodes."""
        return self.words == FIRST_STATES

    @property
    def mean(self) -> Floats:
        """(D,) mean features."""
        return np.asarray(self.table.T @ self.weights).ravel()


def starts_of(rows: LogRows, start: Any) -> Starts:
    """The states that `evaluate_policy` is asked about: "episodes", "rows", or a table of states."""
    reduced = rows.num_features > MOST_DENSE and rows.distinct is not None
    if not isinstance(start, str):
        observations = start if isinstance(start, Observations) else rows.log.encode(start)
        count = len(observations)
        even, nobody = np.full(count, 1.0 / count), np.full(count, -1)
        words = "the given state" if count == 1 else f"the {count:,} given states"
        number = rows.index_of(observations) if reduced else None
        return Starts(rows.of_states(observations), even, nobody, words, observations, number)
    if start == "episodes" and rows.log.rows_are_episodes:
        start = "rows"
    if start not in ("episodes", "rows"):
        raise ValueError(f"start must be 'episodes', 'rows' or a table of states, got {start!r}")
    tables, weights, episodes, numbers = [], [], [], []
    for block, made in rows.blocks():
        index = np.flatnonzero(block.step == 0) if start == "episodes" else np.arange(len(block.rewards))
        known = rows.actions is None or rows.policy is None
        tables.append(made.features[index] if known else rows.of_states(block.observations.take(block.current[index])))
        counts = made.mass if rows.log.has_weights else np.ones(len(block.rewards))
        if rows.multiplicity is not None and not rows.log.has_weights:
            counts = rows.multiplicity[block.episode]
        weights.append(counts[index])
        episodes.append(block.episode[index])
        if reduced:
            numbers.append(rows.index_of(block.observations)[block.current[index]])
    stack = sparse.vstack if sparse.issparse(tables[0]) else np.concatenate
    mass = np.concatenate(weights)
    table: Any = stack(tables)
    table = sparse.csr_array(table) if sparse.issparse(table) else table
    words = FIRST_STATES if start == "episodes" else "all states of the log"
    places = np.concatenate(numbers) if reduced else None
    return Starts(table, mass / mass.sum(), np.concatenate(episodes), words, None, places)
