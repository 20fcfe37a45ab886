"""The rows of a log, decoded: numbers, codes and flags under the names of what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.columns import Coder, Column, Digester
from cramerl.linear.logs.layout import LogLayout
from cramerl.linear.logs.observations import Observations, ObservationSchema

# A state column of integers with at most this many values, each in at least ten rows on average, may hold codes.
_FEW_VALUES = 30


class Records(NamedTuple):
    """The m rows of a part of a log. Missing numbers are NaN and missing codes -1."""

    observations: Observations
    following: Observations | None
    """Next states, where the log has columns for them."""
    episode: NDArray[Any]
    """What tells episodes apart; the number of the episode once rows are in order."""
    time: NDArray[Any] | None
    actions: NDArray[Any] | None
    """(m,) codes or (m, A) numbers."""
    rewards: Floats
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    discounts: Floats | None
    weights: Floats | None
    propensities: Floats | None

    @property
    def num_rows(self) -> int:
        """m."""
        return len(self.rewards)

    def take(self, index: Any) -> Self:
        """Some of the rows: by a slice, indices or a mask."""
        return _mapped(lambda array: array[index], self)

    @classmethod
    def join(cls, parts: Sequence[Records]) -> Records:
        """The parts as one."""
        return parts[0] if len(parts) == 1 else _mapped(lambda *arrays: np.concatenate(arrays), *parts)


class Decoder:
    """Makes records of columns, and learns while it does: levels, types, and which integers may be codes."""

    def __init__(self, layout: LogLayout):
        self.layout, self.streams = layout, False
        self.coders: dict[str, Coder] = {}
        self.action_coder: Coder | None = None
        self.episode_coder: Coder | Digester | None = None
        self.notes: list[str] = []
        self._kinds: dict[str, str] = {}
        self._integers: dict[str, set[float] | None] = {}
        self._rows, self._begun, self._sealed = 0, False, False

    def decode(self, columns: dict[str, Column]) -> Records:
        """The records of a chunk."""
        if not self._begun:
            self._begin(columns)
        layout = self.layout
        rewards = columns[layout.reward].numbers("reward", layout.reward)
        rows, done = len(rewards), ~np.isnan(rewards)
        self._rows += 0 if self._sealed else rows
        return Records(
            observations=self._states(columns),
            following=self._following(columns),
            episode=self._episode(columns, rows),
            time=self._time(columns),
            actions=self._actions(columns),
            rewards=rewards,
            terminated=_any_flag("terminated", layout.terminated, columns, done),
            truncated=_any_flag("truncated", layout.truncated, columns, done),
            **{
                field: None if (name := getattr(layout, argument)) is None else columns[name].numbers(argument, name)
                for field, argument in _NUMBERS.items()
            },
        )

    @classmethod
    def of_schema(cls, schema: ObservationSchema, state: tuple[str, ...], policy: tuple[str, ...]) -> Decoder:
        """A decoder that knows the levels of a log and only encodes other states."""
        made = cls(LogLayout(state, frozenset(schema.category_names), "", policy=policy))
        named = zip(schema.category_names, schema.levels, strict=True)
        made.coders = {name: Coder(levels, growing=False) for name, levels in named}
        made._begun = made._sealed = True
        return made

    def encode(self, columns: dict[str, Column]) -> Observations:
        """Observations of other states, by the levels met."""
        found = self._observations("table", columns, {name: name for name in self.layout.state})
        given = all(name in columns for name in self.layout.policy)
        return Observations(found.numbers, found.codes, _policy_columns(self.layout.policy, columns) if given else None)

    def seal(self) -> Recoding:
        """Sort the levels met; codes of later chunks are ranks among them, and earlier ones can be recoded."""
        self._sealed = True
        ranks = [self._sort(self.coders[name]) for name in self.layout.category_names]
        action_ranks = None if self.action_coder is None else self._sort(self.action_coder)
        return Recoding(
            ranks, action_ranks, self._sort(self.episode_coder) if isinstance(self.episode_coder, Coder) else None
        )

    def integer_notes(self) -> list[str]:
        """A sentence for each column of integers that may be codes."""
        return [
            f"{name} holds integers {min(values):g} to {max(values):g} and is treated as a number; "
            f"name it in categorical= if they are codes."
            for name, values in self._integers.items()
            if values and 2 < len(values) <= _FEW_VALUES and len(values) * 10 <= self._rows
        ]

    @property
    def schema_levels(self) -> tuple[tuple[Any, ...], ...]:
        """The levels of the categorical columns."""
        return tuple(tuple(self.coders[name].codes) for name in self.layout.category_names)

    def _begin(self, columns: dict[str, Column]) -> None:
        layout, self._begun = self.layout, True
        labels = {name for name in layout.state if columns[name].levels is not None}
        self.layout = layout._replace(categorical=layout.categorical | labels)
        self.coders = {name: Coder() for name in self.layout.category_names}
        integers = (name for name in self.layout.number_names if columns[name].values.dtype.kind in "iu")
        self._integers = {name: set() for name in integers}
        if len(layout.action) == 1 and self._discrete(columns[layout.action[0]]):
            self.action_coder = Coder()
        if layout.episode is not None and columns[layout.episode].levels is not None:
            self.episode_coder = Digester() if self.streams else Coder()

    def _discrete(self, column: Column) -> bool:
        """Whether a column of actions holds codes: no floats, or integers that missing values made floats."""
        if column.levels is not None or column.values.dtype.kind in "biu":
            return True
        if column.missing is None or column.missing.all() or column.whole() is column:
            return False
        name = self.layout.action[0]
        self.notes.append(f"{name} holds whole numbers and missing values and is treated as discrete actions.")
        return True

    def _observations(self, argument: str, columns: dict[str, Column], home: dict[str, str]) -> Observations:
        """Observations from the columns that ``home`` names for each column of the state."""
        rows = len(columns[next(iter(home.values()))].values)
        numbers = np.empty((rows, len(self.layout.number_names)))
        for j, name in enumerate(self.layout.number_names):
            numbers[:, j] = columns[home[name]].numbers(argument, home[name])
            if (few := self._integers.get(name)) is not None and argument == "state" and not self._sealed:
                few.update(np.unique(numbers[:, j][~np.isnan(numbers[:, j])])[: _FEW_VALUES + 1].tolist())
                if len(few) > _FEW_VALUES:
                    self._integers[name] = None
        codes = np.empty((rows, len(self.layout.category_names)), dtype=np.int32)
        for j, name in enumerate(self.layout.category_names):
            codes[:, j] = self.coders[name].encode(argument, home[name], columns[home[name]])
        return Observations(numbers, codes)

    def _states(self, columns: dict[str, Column]) -> Observations:
        found = self._observations("state", columns, {name: name for name in self.layout.state})
        return Observations(found.numbers, found.codes, _policy_columns(self.layout.policy, columns))

    def _following(self, columns: dict[str, Column]) -> Observations | None:
        names = self.layout.next_state
        if not names:
            return None
        found = self._observations("next_state", columns, dict(zip(self.layout.state, names, strict=True)))
        return Observations(found.numbers, found.codes, _policy_columns(self.layout.next_policy, columns))

    def _episode(self, columns: dict[str, Column], rows: int) -> NDArray[Any]:
        name = self.layout.episode
        if name is None:
            return np.zeros(rows, dtype=np.int64)
        require_present("episode", name, columns[name])
        if self.episode_coder is not None:
            return self.episode_coder.encode("episode", name, columns[name])
        return self._keys("episode", name, columns[name])

    def _time(self, columns: dict[str, Column]) -> NDArray[Any] | None:
        name = self.layout.time
        if name is None:
            return None
        require_present("time", name, columns[name])
        column = columns[name] if columns[name].levels is None else columns[name].times()
        if column is None:
            held = columns[name].describe()
            raise ValueError(f"time must name a column of numbers or times, got {name!r}, which holds {held}")
        return self._keys("time", name, column)

    def _keys(self, argument: str, name: str, column: Column) -> NDArray[Any]:
        """What tells rows apart and orders them; ValueError if earlier chunks hold something else."""
        held = {"labels": "labels", "times": "times", "durations": "durations"}.get(column.describe(), "numbers")
        held = "labels" if column.levels is not None else held
        if (before := self._kinds.setdefault(argument, held)) != held:
            raise ValueError(f"{argument} must name a column of one type, got {before} and {held} in column {name!r}")
        return column.keys()

    def _actions(self, columns: dict[str, Column]) -> NDArray[Any] | None:
        names = self.layout.action
        if self.action_coder is not None:
            return self.action_coder.encode("action", names[0], columns[names[0]])
        return np.stack([columns[name].numbers("action", name) for name in names], axis=1) if names else None

    @staticmethod
    def _sort(coder: Coder) -> NDArray[np.int32]:
        levels, ranks = coder.ranking()
        coder.codes, coder.growing = {level: rank for rank, level in enumerate(levels)}, False
        return ranks


class Recoding(NamedTuple):
    """From codes in the order of appearance to codes in the order of the levels."""

    ranks: list[NDArray[np.int32]]
    action_ranks: NDArray[np.int32] | None
    episode_ranks: NDArray[np.int32] | None

    def apply(self, records: Records) -> Records:
        """The records with the new codes."""
        following, actions = records.following, records.actions
        return records._replace(
            observations=self._observations(records.observations),
            following=None if following is None else self._observations(following),
            episode=records.episode if self.episode_ranks is None else self.episode_ranks[records.episode],
            actions=actions if actions is None or self.action_ranks is None else self.action_ranks[actions],
        )

    def _observations(self, given: Observations) -> Observations:
        codes = [rank[given.codes[:, j]] for j, rank in enumerate(self.ranks)]
        return Observations(given.numbers, np.stack(codes, axis=1), given.probs) if codes else given


_NUMBERS = {"discounts": "discount", "weights": "weight", "propensities": "propensity"}


def _mapped(function: Callable[..., Any], *values: Any) -> Any:
    """The function of the arrays in named tuples, where there are arrays."""
    first = values[0]
    if first is None:
        return None
    if isinstance(first, tuple):
        return type(first)(*(_mapped(function, *parts) for parts in zip(*map(tuple, values), strict=True)))
    return function(*values)


def _policy_columns(names: tuple[str, ...], columns: dict[str, Column]) -> Floats | None:
    """(m, P) probabilities, NaN where missing; None if no columns are named."""
    return np.stack([columns[name].numbers("policy", name) for name in names], axis=1) if names else None


def _any_flag(argument: str, names: tuple[str, ...], columns: dict[str, Column], done: NDArray[np.bool_]) -> Any:
    """(n,) whether one of the columns is true; values may be missing where nothing was done."""
    found = np.zeros(len(done), dtype=bool)
    for name in names:
        if missing := int((columns[name].missing_rows() & done).sum()):
            raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r}")
        found |= columns[name].flags(argument, name)
    return found


def require_present(argument: str, name: str, column: Column) -> None:
    """Raise ValueError if a value is missing."""
    if column.missing is not None and (missing := int(column.missing.sum())):
        raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r}")
