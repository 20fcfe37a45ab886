"""A log as people have it, read as transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._checks import require_count
from cramerl.linear.logs.clocks import Shares
from cramerl.linear.logs.episodes import Episodes, episodes_of, outline
from cramerl.linear.logs.files import ParquetTable
from cramerl.linear.logs.layout import LogLayout, Names, Table, listed, resolve
from cramerl.linear.logs.memory import RecordsInMemory, in_order
from cramerl.linear.logs.observations import Observations, ObservationSchema
from cramerl.linear.logs.opening import encode_table, open_table
from cramerl.linear.logs.records import Decoder, Records
from cramerl.linear.logs.stream import RecordsInFiles
from cramerl.linear.logs.survey import LogCounts, Survey, sentences
from cramerl.linear.logs.tables import Tables, WithArrays

# A log whose columns need more bytes stays in its files.
_MOST_BYTES = 1 << 30
# A part of a log on a cluster that has no more rows is read here.
_FEW_ROWS = 200_000
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

    tables: Tables
    decoder: Decoder
    schema: ObservationSchema
    action_levels: tuple[Any, ...] | None
    discount: float | None
    shares: Shares | None
    ray: str | None = None

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
        self._taken: NDArray[np.intp] | None = None  # the episodes of the whole log that this part of it has

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
        ray: str | None = None,
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
                of these; a Minari dataset, or "minari:" and the name of one, or "example:machines", whose columns need
                not be named. A log too large for memory is read again in every pass, for which its rows must be in
                order.
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
            ray: address of a Ray cluster on which passes that need features run, for Parquet files in order that every
                machine of it can read: "host:port", "auto" for one on this machine, "local" to start one (see
                ``ray.init``). It is used while an evaluation runs, unless this process is connected to one already.
                None: passes run here.
        """
        tables = open_table(source)
        named: dict[str, Any] = {"episode": episode, "time": time, "state": state, "action": action}
        named |= {"terminated": terminated, "truncated": truncated, "discount": discount, "propensity": propensity}
        defaults: dict[str, Any] = getattr(tables, "NAMES", {})
        named = {argument: defaults.get(argument) if name is None else name for argument, name in named.items()}
        others = {"categorical": categorical, "reward": reward, "weight": weight, "next_state": next_state}
        decoder, number = Decoder(resolve(tables.table, **named, **others)), _discount(named["discount"])  # pyright: ignore[reportArgumentType]
        if ray is not None and not isinstance(tables, ParquetTable):
            raise ValueError(f"source must name Parquet files to be read on Ray, got {type(source).__name__}")
        return cls._of(tables, decoder, number, ray)

    @classmethod
    def _of(cls, tables: Tables, decoder: Decoder, discount: float | None, ray: str | None) -> Self:
        store = _store(tables, decoder, in_files=ray is not None)
        survey = _surveyed(store, decoder)
        layout = decoder.layout
        survey.require_transitions()
        decoder.seal()
        shares = survey.shares()
        schema = ObservationSchema(layout.number_names, layout.category_names, decoder.schema_levels)
        actions = None if decoder.action_coder is None else tuple(decoder.action_coder.codes)
        counts = survey.counted(shares)
        notes = [*sentences(layout, counts, shares), *decoder.notes, *decoder.integer_notes()]
        return cls(store, _Facts(tables, decoder, schema, actions, discount, shares, ray), counts, tuple(notes))

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

    @property
    def ray(self) -> str | None:
        """Address of the cluster on which passes run; None: they run here."""
        return self._facts.ray

    def spans(self, rows: int) -> list[Self]:
        """Logs that can be read apart, of at least so many rows each, with the numbers that episodes have in this one.

        What was counted is that of this log.
        """
        facts = self._facts._replace(ray=None)
        parts = self._store.spans(rows) if isinstance(self._store, RecordsInFiles) else [self._store]
        return [type(self)(part, facts, self.counts, self.notes) for part in parts]

    def take(self, episodes: Any) -> Self:
        """Some of the episodes, by number (in this order, and as often as named) or by a mask.

        They keep the levels of this log and the share of rows that are cut.
        """
        index = _episode_index(episodes, self.num_episodes)
        store = self._store.take(index)
        counts = _surveyed(store, self._facts.decoder).counted(self._facts.shares)
        small = counts.rows <= _FEW_ROWS
        part = type(self)(store, self._facts._replace(ray=None) if small else self._facts, counts, self.notes)
        part._taken = index if self._taken is None else self._taken[index]
        return part

    def with_policies(
        self, present: Sequence[str], following: Sequence[str], arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> Self:
        """The same log, read again with columns of the probabilities that policies give to actions.

        Args:
            present: columns for the state.
            following: columns for the next state, where the log has columns of it.
            arrays: (n,) of the columns that the log's source does not have, in the order of its rows.
        """
        layout, tables = self._facts.layout, self._facts.tables
        if arrays:
            if self._taken is not None or self.has_next_state or isinstance(self._store, RecordsInFiles):
                what = "is a part of another one, has columns of next states, or stays in its files"
                raise ValueError(
                    f"policy must be a function or names of columns for a log that {what}, got an array with a row "
                    "for each of its rows"
                )
            tables = WithArrays(tables, arrays)
        layout = layout._replace(policy=tuple(present), next_policy=tuple(following))
        whole = type(self)._of(tables, Decoder(layout), self.discount, self.ray)
        return whole if self._taken is None else whole.take(self._taken)

    @property
    def table(self) -> Table:
        """The columns that there are."""
        return self._facts.tables.table

    @property
    def layout(self) -> LogLayout:
        """Which columns hold what."""
        return self._facts.layout

    @property
    def rows_are_episodes(self) -> bool:
        """Whether each row is an episode of its own, because none are named and next states have columns."""
        return self.has_next_state and self.layout.episode is None

    def encode(self, table: Any) -> Observations:
        """Other states, in a table with the columns of this log's state, as observations."""
        return encode_table(self._facts.decoder, table)

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


def _in_memory(tables: Tables, decoder: Decoder) -> RecordsInMemory:
    """All rows, decoded and in order."""
    parts = [decoder.decode(chunk) for chunk in tables.chunks(decoder.layout.names())]
    if not sum(part.num_rows for part in parts):
        raise ValueError("source must hold at least one row, got none")
    records = Records.join(parts)
    parts.clear()
    return RecordsInMemory(in_order(decoder.seal().apply(records), decoder.layout))


def _store(tables: Tables, decoder: Decoder, *, in_files: bool) -> Store:
    """The rows in memory if they fit and may, else in their files."""
    names = decoder.layout.names()
    if (size := tables.size(names)) <= _MOST_BYTES and not in_files:
        return _in_memory(tables, decoder)
    if decoder.layout.episode is None and not decoder.layout.next_state:
        raise ValueError(
            f"episode must name a column if the log is too large for memory ({size / 2**30:.1f} GB) or read on Ray, "
            "got None"
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
