"""Policies to evaluate: tables, functions and columns, brought to probabilities of the log's actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.basis import state_table
from cramerl.linear.logs.layout import listed
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations, ObservationSchema

_SUM_TOLERANCE = 1e-6


class ColumnsOf(NamedTuple):
    """A policy whose probabilities are columns of the log, from one place among all such columns to another."""

    names: tuple[str, ...]
    first: int

    def __call__(self, observations: Observations) -> Floats:
        """(m, A) probabilities."""
        if observations.probs is None:
            raise ValueError(f"policy must be known in every state: there the columns {listed(self.names)} are missing")
        found = observations.probs[:, self.first : self.first + len(self.names)]
        if np.isnan(found).any():
            raise ValueError(f"policy must not have missing values, got some in {listed(self.names)}")
        return found


class Policy:
    """Probabilities of the log's actions in observed states.

    Actions that the log never took have no features. Their probability is given to the others in proportion, and
    ``unknown`` says how much that was.
    """

    def __init__(
        self, probabilities: Callable[[Observations], Any], levels: tuple[Any, ...], columns: Any, by_row: bool = False
    ):
        self.probabilities, self._levels, self._columns, self.by_row = probabilities, levels, columns, by_row
        self.unknown = 0.0  # largest mean probability, over the states of a call, of actions that the log never took

    def __call__(self, observations: Observations) -> Floats:
        """(m, A) probabilities."""
        given = np.asarray(self.probabilities(observations))
        if given.ndim == 1:
            return self._chosen(given, len(observations))
        if given.ndim != 2 or len(given) != len(observations) or given.dtype.kind not in "biuf":
            allowed = f"({len(observations)}, A) probabilities or ({len(observations)},) actions"
            raise ValueError(f"policy must give {allowed}, got shape {given.shape} of {given.dtype}")
        probs = given.astype(np.float64)
        if not np.isfinite(probs).all() or (probs < 0).any() or (np.abs(probs.sum(axis=1) - 1) > _SUM_TOLERANCE).any():
            raise ValueError("policy must give probabilities: >= 0, each row summing to 1")
        return self._known(probs[:, self._places(probs.shape[1])])

    @property
    def sources(self) -> str:
        """Which column holds the probability of which action, in words; empty for other policies."""
        if self.by_row or not isinstance(self.probabilities, ColumnsOf):
            return ""
        return listed(
            [f"{level} from {name}" for level, name in zip(self._levels, self.probabilities.names, strict=True)]
        )

    def _places(self, count: int) -> Any:
        """Which columns of a table belong to the log's actions."""
        if self._columns is not None:
            return self._columns
        if count == len(self._levels):
            return slice(None)
        whole = all(isinstance(level, int | np.integer) for level in self._levels)
        if whole and min(self._levels) >= 0 and max(self._levels) < count:
            return np.array(self._levels, dtype=np.intp)
        raise ValueError(
            f"policy must have a probability for each of the log's {len(self._levels)} actions, got {count} columns"
        )

    def _chosen(self, actions: NDArray[Any], count: int) -> Floats:
        if len(actions) != count:
            raise ValueError(f"policy must give an action for each of {count} states, got {len(actions)}")
        codes = {level: code for code, level in enumerate(self._levels)}
        found = np.array([codes.get(action, -1) for action in actions.tolist()], dtype=np.intp)
        probs = np.zeros((count, len(self._levels)))
        known = found >= 0
        probs[np.flatnonzero(known), found[known]] = 1.0
        return self._known(probs)

    def _known(self, probs: Floats) -> Floats:
        """The probabilities of known actions, brought to a sum of one."""
        total = probs.sum(axis=1, keepdims=True)
        self.unknown = max(self.unknown, 1.0 - float(total.mean())) if len(total) else self.unknown
        even = np.full_like(probs, 1.0 / probs.shape[1])
        return np.where(total > _SUM_TOLERANCE, probs / np.maximum(total, _SUM_TOLERANCE), even)


def make_policy(policy: Any, log: Log) -> Policy | None:
    """A policy from what `evaluate_policy` takes; None for the policy that made the log."""
    if policy is None:
        return None
    if log.action_levels is None:
        held = f" as integers or labels ({listed(log.layout.action)} holds other numbers)" if log.layout.action else ""
        raise ValueError(f"policy needs the log's actions, which must be discrete: name them with action={held}")
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, ColumnsOf):
        return Policy(policy, log.action_levels, None)
    if callable(policy):
        own = getattr(policy, "takes_observations", False)  # a policy that was found in a log
        return Policy(policy if own else _OfTable(policy), log.action_levels, None)
    table = np.asarray(policy)
    if table.dtype.kind not in "iufbUSO" or table.ndim not in (1, 2):
        allowed = "a function, names of columns, (A,) or (S, A) probabilities, or (S,) actions"
        raise ValueError(f"policy must be {allowed}, got {type(policy).__name__}")
    if table.ndim == 1 and table.dtype.kind == "f" and not (_are_whole(table) and table.sum() != 1):
        return Policy(_Repeated(table), log.action_levels, None)
    return Policy(_OfState(table, log.schema), log.action_levels, None)


def read_policy_columns(policies: Mapping[str, Any], log: Log) -> tuple[Log, dict[str, Any]]:
    """The log with the columns of policies that name some, or that are arrays with a row for each of the log's rows."""
    count, made = len(log.action_levels or ()), dict(policies)
    present: list[str] = []
    following: list[str] = []
    arrays: dict[str, Floats] = {}
    for number, (name, given) in enumerate(policies.items()):
        if (columns := _columns(given, log)) is not None:
            made[name] = ColumnsOf(columns[:count], len(present))
            present, following = [*present, *columns[:count]], [*following, *columns[count:]]
        elif (probs := _probs_by_row(given, log)) is not None:
            own = {f"policy {number} of row, action {j}": column for j, column in enumerate(probs.T)}
            places = np.arange(count) if probs.shape[1] == count + 1 and np.ndim(given) == 1 else None
            made[name] = Policy(ColumnsOf(tuple(own), len(present)), log.action_levels or (), places, by_row=True)
            present, arrays = [*present, *own], arrays | own
    return (log.with_policies(present, following, arrays) if present else log), made


def _probs_by_row(given: Any, log: Log) -> Floats | None:
    """(n, W) probabilities of an array with a row for each of the log's n rows; None of other policies.

    Of an array of actions the last column is for actions that the log never took.
    """
    if log.action_levels is None or not isinstance(given, np.ndarray | list):
        return None
    table = np.asarray(given)
    if table.ndim not in (1, 2) or table.dtype.kind not in ("iufbUSO" if table.ndim == 1 else "iufb"):
        return None
    if table.ndim == 1 and table.dtype.kind == "f" and not _are_whole(table):
        return None
    if len(table) not in (log.num_rows, log.num_transitions) or len(table) == _num_states(log):
        return None
    if len(table) != log.num_rows:
        raise ValueError(
            f"policy must have a row for each state, or for each of the log's {log.num_rows} rows, in their order, "
            f"got {len(table)}"
        )
    if table.ndim == 2:
        return table.astype(np.float64)
    codes = {level: code for code, level in enumerate(log.action_levels)}
    return np.eye(len(codes) + 1)[[codes.get(action, len(codes)) for action in table.tolist()]]


def _num_states(log: Log) -> int | None:
    """How many rows a table needs that has one for each value of the log's only state column; None if it has others."""
    schema = log.schema
    if len(schema.number_names) + len(schema.category_names) != 1:
        return None
    if schema.category_names:
        levels: tuple[Any, ...] = schema.levels[0]
        return max(levels) + 1 if all(isinstance(level, int | np.integer) for level in levels) else len(levels)
    largest = -1.0
    for block in log.blocks():
        numbers = block.observations.numbers
        if (numbers != np.floor(numbers)).any() or numbers.min(initial=0.0) < 0:
            return None
        largest = max(largest, float(numbers.max(initial=-1.0)))
    return int(largest) + 1


def _columns(given: Any, log: Log) -> tuple[str, ...] | None:
    """The columns that a policy names; None for a policy of another kind, such as a list of actions."""
    texts = isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given)
    if not isinstance(given, str) and (not texts or set(given) <= set(log.action_levels or ())):
        return None
    names, levels = log.table.find("policy", given), log.action_levels or ()
    wanted = len(levels) * (1 + log.has_next_state)
    if levels and len(names) != wanted:
        what = f"a column for each of the actions {listed(map(str, levels))}, in this order"
        what += ", and then one for each of them in the next state" if log.has_next_state else ""
        raise ValueError(f"policy must name {what}, got {len(names)} ({listed(names)})")
    if not levels:
        return names
    count = len(levels)
    return (*_by_action(names[:count], levels), *_by_action(names[count:], levels))


def _by_action(names: tuple[str, ...], levels: tuple[Any, ...]) -> tuple[str, ...]:
    """The names in the order of the actions, if each ends or begins with an action; otherwise as they are given.

    Names that fit only some of the actions are an error: whichever order is meant, it would be a guess.
    """
    texts = [str(level).casefold() for level in levels]
    places = {name.casefold(): name for name in names}
    if not names or len(set(texts)) < len(texts) or len(places) < len(names):
        return names
    for name in places:
        for text in texts:
            rest = name.removesuffix(text), name.removeprefix(text)
            for wanted in ([rest[0] + other for other in texts], [other + rest[1] for other in texts]):
                if set(wanted) == set(places):
                    return tuple(places[one] for one in wanted)
    for name, own in zip(names, texts, strict=True):
        parts = set(re.split(r"[^\w]|_", name.casefold()))
        if own not in parts and (others := [text for text in texts if text in parts and not text.isdigit()]):
            raise ValueError(
                f"policy must name columns in the order of the actions {listed(map(str, levels))}, but {name} stands "
                f"where {own} is expected, and reads like {others[0]}: rename the columns, or give them in order"
            )
    return names


def _are_whole(table: NDArray[Any]) -> bool:
    """Whether floats are whole numbers, as actions are that were kept as floats."""
    return bool(np.isfinite(table).all() and (table == np.floor(table)).all())


class _Repeated:
    """The same probabilities in every state."""

    def __init__(self, probs: Floats):
        self.probs = probs

    def __call__(self, observations: Observations) -> Floats:
        return np.tile(self.probs, (len(observations), 1))


class _OfTable:
    """A user's function of the table of states."""

    def __init__(self, function: Callable[[Floats], Any]):
        self._function = function

    def __call__(self, observations: Observations) -> Any:
        return self._function(state_table(observations))


class _OfState:
    """A table with a row for each value of the log's only state column."""

    def __init__(self, table: NDArray[Any], schema: ObservationSchema):
        if len(schema.number_names) + len(schema.category_names) != 1:
            count = len(schema.number_names) + len(schema.category_names)
            raise ValueError(f"policy must be a function where the state has several columns, got a table ({count})")
        self.table, self._rows = table, None
        if schema.category_names:
            levels = schema.levels[0]
            whole = all(isinstance(level, int | np.integer) and 0 <= level < len(table) for level in levels)
            if not whole and len(levels) != len(table):
                raise ValueError(f"policy must have a row for each of {len(levels)} states, got {len(table)}")
            self._rows = np.array(levels) if whole else np.arange(len(table))

    def __call__(self, observations: Observations) -> Any:
        if self._rows is not None:
            codes = observations.codes[:, 0]
            if (codes < 0).any():
                raise ValueError("policy must be a function for states that the log never had, got a table")
            return self.table[self._rows[codes]]
        states = observations.numbers[:, 0]
        if (states != np.floor(states)).any() or states.min() < 0 or states.max() >= len(self.table):
            raise ValueError(f"policy must be a function unless states are integers from 0 to {len(self.table) - 1}")
        return self.table[states.astype(np.intp)]


def pack_policy(policy: Policy, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """A policy as plain values, its arrays in ``arrays``; ValueError for functions."""
    inner = policy.probabilities
    if policy.by_row:
        raise ValueError(
            "policy must be a table by state or names of columns to be saved, got an array with a row for each row of "
            "the log: put it into columns of the log"
        )
    if isinstance(inner, ColumnsOf):
        return {"columns": list(inner.names)}
    if not isinstance(inner, _Repeated | _OfState):
        raise ValueError(f"policy must be arrays or names of columns to be saved, got {type(inner).__name__}")
    name = f"a{len(arrays)}"
    arrays[name] = inner.probs if isinstance(inner, _Repeated) else inner.table
    return {"everywhere" if isinstance(inner, _Repeated) else "by_state": name}


def unpack_policy(
    content: Any, arrays: Mapping[str, NDArray[Any]], levels: tuple[Any, ...], schema: ObservationSchema
) -> tuple[Policy, tuple[str, ...]]:
    """The policy that was packed, and the columns it needs."""
    if "columns" in content:
        names = tuple(map(str, content["columns"]))
        return Policy(ColumnsOf(names, 0), levels, None), names
    if "everywhere" in content:
        return Policy(_Repeated(arrays[content["everywhere"]]), levels, None), ()
    return Policy(_OfState(arrays[content["by_state"]], schema), levels, None), ()
