"""A log as people have it, read as transitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._checks import require_count
from cramerl.linear.logs import minari
from cramerl.linear.logs.clocks import Shares
from cramerl.linear.logs.episodes import Episodes, episodes_of, outline
from cramerl.linear.logs.files import open_files
from cramerl.linear.logs.layout import LogLayout, Names, listed, resolve
from cramerl.linear.logs.memory import RecordsInMemory, in_order
from cramerl.linear.logs.minari import MinariTable, open_minari
from cramerl.linear.logs.observations import Observations, ObservationSchema
from cramerl.linear.logs.records import Decoder, Records, require_present
from cramerl.linear.logs.stream import RecordsInFiles
from cramerl.linear.logs.survey import LogCounts, Survey, sentences
from cramerl.linear.logs.tables import Tables, open_frame

# A log whose columns need more bytes stays in its files.
_MOST_BYTES = 1 << 30
# Rows that are looked at together when a log is read.
_SURVEY_ROWS = 50_000


class Store(Protocol):
    """Rows in order, with the numbers of their episodes."""

    def parts(self, rows: int) -> Iterator[Records]:
        """As many whole episodes at a time as have at most so many rows, or one that has more."""
        ...

    def take(self, episodes: NDArray[np.intp]) -> Store:
        """Some episodes."""
        ...


class _Facts(NamedTuple):
    """What holds for a log and for any part of it."""

    decoder: Decoder
    schema: ObservationSchema
    action_levels: tuple[Any, ...] | None
    discount: float | None
    shares: Shares | None

    @property
    def layout(self) -> LogLayout:
        return self.decoder.layout


class Log:
    """Recorded episodes of a policy; see `Log.read`.

    Attributes:
        schema: the columns of the state.
        action_levels: the labels of discrete actions, sorted; None if there are no actions or they are numbers.
        discount: the number given; None if a column holds discounts, or none was given.
        counts: what was counted.
        notes: what was decided, in sentences.
    """

    def __init__(self, store: Store, facts: _Facts, counts: LogCounts, notes: tuple[str, ...]):
        self._store, self._facts, self.counts, self.notes = store, facts, counts, notes
        self.schema, self.action_levels, self.discount = facts.schema, facts.action_levels, facts.discount

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        episode: str | None = None,
        time: str | None = None,
        state: Names | None = None,
        categorical: Names = (),
        action: Names | None = None,
        reward: str = "reward",
        terminated: Names | None = None,
        truncated: Names | None = None,
        discount: float | str | None = None,
        weight: str | None = None,
        propensity: str | None = None,
        next_state: Names | None = None,
    ) -> Self:
        """Read a log that has one row for each step of an episode.

        Column names may be wildcards (``x*``) where several columns are allowed, and several may stand in one text with
        commas between them. A column of lists of k numbers is k columns, ``x0`` to ``x{k-1}`` for a column ``x``.

        The next state of a row is the state of the next row of its episode. The last row of an episode has none: the
        return ended there (``terminated``), or the row is the last observation (its reward or action is missing), or it
        is left out. If it is left out, last rows where returns ended weigh less, so that they are not too many:
        ``notes`` say by which rule.

        Args:
            source: a data frame (pandas, polars, pyarrow or anything with the Arrow interface), a dictionary of arrays
                (n,) or (n, k), a structured array; a Parquet or CSV file, a folder of them, a pattern, a URL or a list
                of these; a Minari dataset, or "minari:" and the name of one, whose columns need not be named. A log too
                large for memory is read again in every pass, for which its rows must be in order.
            episode: column that tells episodes apart; None: the log is one episode, or, with ``next_state``, each row
                is one.
            time: column that orders the rows of an episode; None: they are in order.
            state: columns of the state. Numbers, truth values and times are numbers; strings and categories are
                categorical.
            categorical: columns of the state that hold codes; those that ``state`` does not name are added to it.
            action: column of discrete actions (integers, strings, truth values, categories), or columns of numbers.
            reward: column of the reward of the action.
            terminated: column of truth values: the return ended after this row. Several columns, as a list or with bars
                between them (``died|discharged``): any of them.
            truncated: column of truth values: the episode was cut after this row, but the return did not end.
            discount: a number in [0, 1], or a column of them: the discount of what follows a row.
            weight: column of the weights of rows, >= 0.
            propensity: column of the probability that the logging policy gave the action, in (0, 1].
            next_state: columns of the next state, in the order of ``state``, if the log has them; they may be missing
                where the return ended.
        """
        tables = _open(source)
        named: dict[str, Any] = {"episode": episode, "time": time, "state": state, "action": action}
        named |= {"terminated": terminated, "truncated": truncated}
        if isinstance(tables, MinariTable):
            named = {argument: minari.NAMES[argument] if name is None else name for argument, name in named.items()}
        layout = resolve(
            tables.table,
            **named,
            categorical=categorical,
            reward=reward,
            discount=discount,
            weight=weight,
            propensity=propensity,
            next_state=next_state,
        )
        decoder, number = Decoder(layout), _discount(discount)
        return cls._of(_store(tables, decoder), decoder, number)

    @classmethod
    def _of(cls, store: Store, decoder: Decoder, discount: float | None) -> Self:
        survey = _surveyed(store, decoder)
        layout = decoder.layout
        survey.require_transitions()
        decoder.seal()
        shares = survey.shares()
        schema = ObservationSchema(layout.number_names, layout.category_names, decoder.schema_levels)
        actions = None if decoder.action_coder is None else tuple(decoder.action_coder.codes)
        counts = survey.counted(shares)
        notes = [*sentences(layout, counts, shares), *decoder.notes, *decoder.integer_notes()]
        return cls(store, _Facts(decoder, schema, actions, discount, shares), counts, tuple(notes))

    @property
    def num_rows(self) -> int:
        """Rows that were read."""
        return self.counts.rows

    @property
    def num_transitions(self) -> int:
        """Rows of all blocks."""
        return self.counts.transitions

    @property
    def num_episodes(self) -> int:
        """Episodes, also those that are too short to have a transition."""
        return self.counts.episodes

    @property
    def has_termination(self) -> bool:
        """Whether the log says where returns end."""
        return bool(self._facts.layout.terminated)

    @property
    def has_next_state(self) -> bool:
        """Whether next states come from columns of their own."""
        return bool(self._facts.layout.next_state)

    @property
    def has_weights(self) -> bool:
        """Whether a column weighs the rows."""
        return bool(self._facts.layout.weight)

    @property
    def has_discounts(self) -> bool:
        """Whether a column holds the discount of each row."""
        return bool(self._facts.layout.discount)

    def blocks(self, rows: int = 200_000) -> Iterator[Episodes]:
        """The episodes, as many whole ones at a time as have at most so many rows, or one that has more.

        Every pass gives the same blocks.
        """
        size, facts = require_count("rows", rows), self._facts
        for records in self._store.parts(size):
            yield episodes_of(records, outline(records, facts.layout), facts.shares)

    def take(self, episodes: Any) -> Self:
        """Some of the episodes, by number (in this order, and as often as named) or by a mask.

        They keep the levels of this log and the share of rows that are cut.
        """
        index = _episode_index(episodes, self.num_episodes)
        store = self._store.take(index)
        survey = _surveyed(store, self._facts.decoder)
        return type(self)(store, self._facts, survey.counted(self._facts.shares), self.notes)

    def encode(self, table: Any) -> Observations:
        """Other states, in a table with the columns of this log's state, as observations."""
        decoder, columns = self._facts.decoder, self._facts.layout.state
        if isinstance(table, np.ndarray) and not table.dtype.names and table.ndim == 2:
            table = _named(table, columns)
        tables = _open(table, "table")
        if lost := [name for name in columns if name not in tables.table.names]:
            raise ValueError(f"table must have the columns of the state, {lost[0]!r} is missing; it has {tables.table}")
        parts = []
        for chunk in tables.chunks(columns):
            for name, column in chunk.items():
                require_present("table", name, column)
            parts.append(decoder.encode(chunk))
        if not parts:
            raise ValueError("table must have at least one row")
        return Observations.join(parts)

    def __repr__(self) -> str:
        layout, counts = self._facts.layout, self.counts
        parts = [
            f"{counts.episodes:,} episodes",
            f"{counts.transitions:,} transitions",
            f"state: {listed(layout.state)}",
        ]
        if self.action_levels is not None:
            parts.append(f"{len(self.action_levels)} actions in {layout.action[0]}")
        elif layout.action:
            parts.append(f"actions: {listed(layout.action)}")
        return f"Log({'; '.join([*parts, f'reward: {layout.reward}'])})"


def _open(source: Any, argument: str = "source") -> Tables:
    tables = open_frame(source) or open_minari(source) or open_files(source)
    if tables is None:
        raise ValueError(
            f"{argument} must be a data frame, a dictionary of arrays, a structured array, a Minari dataset or paths "
            f"of Parquet or CSV files, got {type(source).__name__}"
        )
    return tables


def _in_memory(tables: Tables, decoder: Decoder) -> RecordsInMemory:
    """All rows, decoded and in order."""
    parts = [decoder.decode(chunk) for chunk in tables.chunks(decoder.layout.names())]
    if not sum(part.num_rows for part in parts):
        raise ValueError("source must hold at least one row, got none")
    records = Records.join(parts)
    parts.clear()
    return RecordsInMemory(in_order(decoder.seal().apply(records), decoder.layout))


def _store(tables: Tables, decoder: Decoder) -> Store:
    """The rows in memory if they fit, else in their files."""
    names = decoder.layout.names()
    if (size := tables.size(names)) <= _MOST_BYTES:
        return _in_memory(tables, decoder)
    if decoder.layout.episode is None and not decoder.layout.next_state:
        raise ValueError(
            f"episode must name a column if the log is too large for memory ({size / 2**30:.1f} GB), got None"
        )
    decoder.streams = True
    return RecordsInFiles(tables, decoder)


def _surveyed(store: Store, decoder: Decoder) -> Survey:
    survey = Survey(decoder.layout)
    for records in store.parts(_SURVEY_ROWS):
        survey.add(records, outline(records, decoder.layout))
    return survey


def _discount(given: Any) -> float | None:
    if given is None or isinstance(given, str):
        return None
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not 0 <= given <= 1:
        raise ValueError(f"discount must be a number in [0, 1] or a column name, got {given!r}")
    return float(given)


def _episode_index(given: Any, num_episodes: int) -> NDArray[np.intp]:
    index = np.asarray(given)
    if index.dtype == bool and index.shape == (num_episodes,):
        return np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
        allowed = f"a mask over {num_episodes} episodes or their numbers"
        raise ValueError(f"episodes must be {allowed}, got shape {index.shape} of {index.dtype}")
    if index.min() < 0 or index.max() >= num_episodes:
        allowed = f"numbers from 0 to {num_episodes - 1}"
        raise ValueError(f"episodes must be {allowed}, got {index.min()} to {index.max()}")
    return index.astype(np.intp)


def _named(array: NDArray[Any], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if array.shape[1] != len(names):
        raise ValueError(f"table must have {len(names)} columns ({listed(names)}), got {array.shape[1]}")
    return {name: array[:, j] for j, name in enumerate(names)}
