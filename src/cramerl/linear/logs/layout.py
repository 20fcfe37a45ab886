"""Which columns of a table hold what: names, wildcards and columns of lists, resolved once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

Names = str | Sequence[str]


class LogLayout(NamedTuple):
    """The columns of a log by what they hold."""

    state: tuple[str, ...]
    categorical: frozenset[str]
    """Those of the state that hold codes or labels."""
    reward: str
    next_state: tuple[str, ...] = ()
    """In the order of the state; empty: the next row of the episode holds the next state."""
    episode: str | None = None
    time: str | None = None
    action: tuple[str, ...] = ()
    terminated: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    discount: str | None = None
    weight: str | None = None
    propensity: str | None = None
    policy: tuple[str, ...] = ()
    """Columns with the probabilities that policies to be evaluated give to actions in the state."""
    next_policy: tuple[str, ...] = ()
    """The same in the next state, where next states have columns of their own."""

    @property
    def number_names(self) -> tuple[str, ...]:
        """The columns of the state that hold numbers."""
        return tuple(name for name in self.state if name not in self.categorical)

    @property
    def category_names(self) -> tuple[str, ...]:
        """The columns of the state that hold codes or labels."""
        return tuple(name for name in self.state if name in self.categorical)

    def names(self) -> tuple[str, ...]:
        """All columns, each once."""
        parts = (self.action, self.terminated, self.truncated, self.state, self.next_state)
        parts += (self.policy, self.next_policy)
        alone = (self.reward, self.episode, self.time, self.discount, self.weight, self.propensity)
        return tuple(dict.fromkeys([*(name for part in parts for name in part), *filter(None, alone)]))


class Table(NamedTuple):
    """The columns that there are: plain ones, and lists whose parts have names of their own."""

    names: tuple[str, ...]
    lists: Mapping[str, tuple[str, ...]] = {}

    def find(self, argument: str, given: Names, taken: Iterable[str] = ()) -> tuple[str, ...]:
        """The columns that names, wildcards and comma-separated names name; wildcards leave out those ``taken``."""
        found: dict[str, None] = {}
        for entry in self._entries(argument, given):
            found |= dict.fromkeys(self._find_one(argument, entry, set(taken)))
        return tuple(found)

    def find_single(self, argument: str, given: Any) -> str:
        """The one column that a name names."""
        if not isinstance(given, str):
            raise ValueError(f"{argument} must be the name of one column, got {given!r}")
        found = self._find_one(argument, given, set())
        if len(found) != 1:
            raise ValueError(f"{argument} must be the name of one column, got {given!r}, which names {listed(found)}")
        return found[0]

    def _entries(self, argument: str, given: Names) -> list[str]:
        if isinstance(given, str):
            return [given] if self._has(given) else [part.strip() for part in given.split(",") if part.strip()]
        if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
            raise ValueError(f"{argument} must be a column name or several, got {given!r}")
        return [part for name in given for part in self._entries(argument, name)]

    def _has(self, name: str) -> bool:
        return name in self.names or name in self.lists

    def _find_one(self, argument: str, entry: str, taken: set[str]) -> tuple[str, ...]:
        if entry in self.lists:
            return self.lists[entry]
        if entry in self.names:
            return (entry,)
        found = tuple(name for name in self.names if fnmatchcase(name, entry) and name not in taken)
        if not found:
            raise ValueError(f"{argument} must name columns of the log, got {entry!r}; its columns are {self}")
        return found

    def __str__(self) -> str:
        """The names, for errors."""
        parts = {part for parts in self.lists.values() for part in parts}
        return listed((*self.lists, *(name for name in self.names if name not in parts)), most=60)


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names with commas between them, those in the middle of many left out."""
    names = list(names)
    if len(names) > most:
        names = [*names[: most - 1], "...", names[-1]]
    return ", ".join(names)


def resolve(
    table: Table,
    *,
    episode: str | None,
    time: str | None,
    state: Names | None,
    categorical: Names,
    action: Names | None,
    reward: str,
    terminated: Names | None,
    truncated: Names | None,
    discount: Any,
    weight: str | None,
    propensity: str | None,
    next_state: Names | None,
) -> LogLayout:
    """The layout that the arguments of `Log.read` name; ValueError for columns that are not there or named twice."""
    single = {"episode": episode, "time": time, "weight": weight, "propensity": propensity}
    single |= {"discount": discount if isinstance(discount, str) else None, "reward": reward}
    alone = {argument: None if name is None else table.find_single(argument, name) for argument, name in single.items()}
    groups = {
        "action": () if action is None else table.find("action", action),
        "terminated": _flags(table, "terminated", terminated),
        "truncated": _flags(table, "truncated", truncated),
    }
    taken = [*filter(None, alone.values()), *(name for names in groups.values() for name in names)]
    following = () if next_state is None else table.find("next_state", next_state, taken)
    taken += following
    coded = table.find("categorical", categorical, taken) if categorical else ()
    if state is None:
        raise ValueError(f"state must be a column name or several, got None; the columns are {table}")
    states = tuple(dict.fromkeys([*table.find("state", state, taken), *coded]))
    _require_apart(states, following)
    if not states:
        raise ValueError(f"state must name at least one column, got {state!r}; the columns are {table}")
    if not alone["reward"]:
        raise ValueError(f"reward must be the name of one column, got {reward!r}")
    return LogLayout(states, frozenset(coded), next_state=following, **groups, **alone)  # pyright: ignore[reportArgumentType]


def _flags(table: Table, argument: str, given: Names | None) -> tuple[str, ...]:
    """Columns of truth values, of which any may be true: names, or one text with names joined by a bar."""
    if given is None:
        return ()
    if isinstance(given, str) and "|" in given and given not in table.names:
        given = [part.strip() for part in given.split("|") if part.strip()]
    return table.find(argument, given)


def _require_apart(states: tuple[str, ...], following: tuple[str, ...]) -> None:
    if not following:
        return
    if shared := [name for name in states if name in following]:
        raise ValueError(f"next_state must name other columns than state, got {shared[0]!r} in both")
    if len(states) != len(following):
        raise ValueError(
            f"next_state must name one column for each of the {len(states)} columns of the state "
            f"({listed(states)}), got {len(following)} ({listed(following)})"
        )
