"""Logs in memory: transitions are those of a slow reader, whatever the table, and what is wrong is named."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_tables import NAMES, assert_same_blocks, flat, table

from cramerl.linear import Log
from cramerl.linear.logs.log import Observations


def by_hand(columns: dict[str, np.ndarray]) -> list[tuple]:
    """Of each transition: state, action, reward, next state (None: ended), episode and step, by a loop."""
    found = []
    for number, who in enumerate(dict.fromkeys(columns["who"].tolist())):
        rows = np.flatnonzero(columns["who"] == who)
        state = [(columns["x0"][i], columns["x1"][i], columns["ward"][i]) for i in rows]
        for step, i in enumerate(rows):
            ended = columns["died"][i] or columns["left"][i]
            if ended or step + 1 < len(rows):
                following = None if ended else state[step + 1]
                found.append((state[step], columns["a"][i], columns["r"][i], following, number, step))
    return found


def as_tuples(log: Log, rows: int = 200_000) -> list[tuple]:
    found = flat(log.blocks(rows))
    (wards,), levels = log.schema.levels, log.action_levels or ()
    state = [(*x, wards[c]) for x, (c,) in zip(found["numbers"], found["codes"], strict=True)]
    following = [(*x, wards[c]) for x, (c,) in zip(found["next_numbers"], found["next_codes"], strict=True)]
    following = [None if end else x for x, end in zip(following, found["terminated"], strict=True)]
    actions = [levels[code] for code in found["actions"]]
    return list(zip(state, actions, found["rewards"], following, found["episode"], found["step"], strict=True))


@pytest.mark.parametrize("rows", [1, 7, 50, 200_000])
def test_transitions_are_those_of_a_slow_reader(rows):
    columns = table()
    log = Log.read(columns, **NAMES)
    assert as_tuples(log, rows) == by_hand(columns)
    assert log.schema.number_names == ("x0", "x1")
    assert log.schema.category_names == ("ward",)
    assert log.schema.levels == (("emergency", "icu", "surgery"),)
    assert log.action_levels == (0, 10, 20, 30)
    assert (log.num_rows, log.num_episodes) == (len(columns["r"]), 40)
    assert log.num_transitions == len(by_hand(columns)) == log.num_rows - log.counts.dropped
    assert log.has_termination
    assert not log.has_next_state
    assert log.discount is None


@pytest.mark.parametrize("rows", [1, 7, 50])
def test_blocks_hold_whole_episodes_and_are_the_same_in_every_pass(rows):
    log = Log.read(table(), **NAMES)
    seen: set[int] = set()
    for block in log.blocks(rows):
        episodes = set(block.episode.tolist())
        assert not episodes & seen
        assert len(block.observations) <= rows or len(episodes) <= 1
        seen |= episodes
    assert_same_blocks(log.blocks(rows), log.blocks(rows))
    with pytest.raises(ValueError, match="rows must be an integer >= 1, got 0"):
        next(log.blocks(0))


def test_other_columns_come_with_their_rows():
    columns = table()
    found = flat(Log.read(columns, **NAMES).blocks())
    last = np.append(columns["who"][1:] != columns["who"][:-1], True)
    ended = columns["died"] | columns["left"]
    kept = ~last | ended
    np.testing.assert_array_equal(found["discounts"], columns["g"][kept])
    np.testing.assert_array_equal(found["propensities"], columns["p"][kept])
    np.testing.assert_array_equal(found["weights"][~ended[kept]], columns["w"][kept & ~ended])
    assert (found["weights"][ended[kept]] < columns["w"][kept & ended]).all()
    complete = {who for who, end in zip(columns["who"], ended, strict=True) if end}
    np.testing.assert_array_equal(found["complete"], [who in complete for who in columns["who"][kept]])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_shuffled_rows_give_the_same_log(seed, num_episodes):
    columns = table(num_episodes, seed % 7)
    columns["died"][-1], columns["cut"][-1] = True, False
    order = np.random.default_rng(seed).permutation(len(columns["r"]))
    shuffled = Log.read({name: column[order] for name, column in columns.items()}, **NAMES)
    log = Log.read(columns, **NAMES)
    assert_same_blocks(shuffled.blocks(20), log.blocks(20))
    assert shuffled.counts == log.counts
    assert shuffled.notes == log.notes


def test_rows_in_order_are_not_copied():
    columns = table()
    log = Log.read(columns, **NAMES)
    first, again = next(log.blocks()), next(log.blocks())
    assert np.shares_memory(first.observations.numbers, again.observations.numbers)
    columns["x0"][:] = 0  # the caller's arrays are not kept
    assert first.observations.numbers[:, 0].any()


def test_the_order_of_the_rows_without_a_time():
    columns = table()
    names = NAMES | {"time": None}
    log = Log.read(columns, **names)
    mixed = np.argsort(columns["t"], kind="stable")  # episodes lie across one another, each in its order
    assert_same_blocks(Log.read({n: c[mixed] for n, c in columns.items()}, **names).blocks(), log.blocks())
    assert log.notes[0] == "The next state is that of the next row of the same who, in the order of the rows."


def test_episodes_by_name_and_times_as_dates():
    columns = table()
    columns["who"] = np.array([f"patient {who}" for who in columns["who"]])
    columns["t"] = np.datetime64("2024-01-01T00:00:00", "ns") + columns["t"].astype("m8[ns]")
    assert as_tuples(Log.read(columns, **NAMES)) == by_hand(columns)


def frames() -> dict[str, Any]:
    import pandas
    import polars
    import pyarrow

    columns = table()
    structured = np.empty(len(columns["r"]), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        structured[name] = column
    frame = pandas.DataFrame(columns)
    return {
        "pandas": frame,
        "pandas, categories": frame.astype({"ward": "category"}),
        "pandas, objects": frame.astype({"ward": object, "r": object}),
        "pandas, index": frame.set_index(["who", "t"]),
        "polars": polars.DataFrame(columns),
        "polars, categories": polars.DataFrame(columns).with_columns(polars.col("ward").cast(polars.Categorical)),
        "pyarrow": pyarrow.table(columns),
        "pyarrow, chunks": pyarrow.concat_tables([pyarrow.table(columns).slice(i, 17) for i in range(0, 200, 17)]),
        "structured": structured,
        "lists": {name: column.tolist() for name, column in columns.items()},
    }


FRAMES = frames()


@pytest.mark.parametrize("kind", FRAMES)
def test_all_tables_give_the_same_log(kind):
    log, expected = Log.read(FRAMES[kind], **NAMES), Log.read(table(), **NAMES)
    assert_same_blocks(log.blocks(30), expected.blocks(30))
    assert log.schema == expected.schema
    assert log.notes == expected.notes


def test_columns_of_lists_are_columns_of_their_own():
    pandas, columns = pytest.importorskip("pandas"), table()
    both = np.stack([columns.pop("x0"), columns.pop("x1")], axis=1)
    expected = [*Log.read(table(), **NAMES).blocks()]
    for source in (columns | {"x": both}, pandas.DataFrame(columns | {"x": list(both)})):
        for state in (["x", "ward"], "x, ward", "x0,x1,ward", ["x*", "ward"], ["x?", "ward"]):
            assert_same_blocks(Log.read(source, **NAMES | {"state": state}).blocks(), expected)


def test_wildcards_leave_out_columns_that_other_arguments_name():
    columns = table()
    log = Log.read(columns, **NAMES | {"state": "*"})
    assert log.schema.number_names == ("x0", "x1")
    following = {f"x{j}_next": columns[f"x{j}"] for j in range(2)}
    names = NAMES | {"state": "x*", "next_state": "x*_next"}
    assert Log.read(columns | following, **names).schema.number_names == ("x0", "x1")


KINDS = {
    "booleans": (np.array([True, False, True]), [1, 0, 1]),
    "decimals": ([Decimal("1.5"), Decimal("-2"), Decimal("0")], [1.5, -2, 0]),
    "dates": (np.array(["1970-01-02", "1970-01-01", "1969-12-31"], dtype="M8[D]"), [86400, 0, -86400]),
    "times": (np.array(["1970-01-01T00:00:00.5", "1970-01-02", "1970-01-03"], dtype="M8[ms]"), [0.5, 86400, 172800]),
    "durations": (np.array([500, 1500, 0], dtype="m8[us]"), [0.0005, 0.0015, 0]),
    "bytes": (np.array([200, 3, 255], dtype=np.uint8), [200, 3, 255]),
}


@pytest.mark.parametrize("arrow", [False, True], ids=["arrays", "arrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_numbers(kind, arrow):
    values, expected = KINDS[kind]
    source: Any = {"x": values, "reward": [1.0, 2.0, 3.0]}
    source = pytest.importorskip("pyarrow").table(source) if arrow else source
    (block,) = Log.read(source, state="x").blocks()
    np.testing.assert_array_equal(block.observations.numbers[:, 0], expected)


def test_columns_that_are_not_used_may_hold_anything():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rows = len(table()["r"])
    odd = {"notes": ["a", 1] * (rows // 2) + [None] * (rows % 2), "tags": [None] + [["a"]] * (rows - 1)}
    expected = [*Log.read(table(), **NAMES).blocks()]
    frame = pandas.DataFrame(table() | odd | {7: range(rows), "span": pandas.interval_range(0, rows)})
    for source in (table() | odd, frame, pyarrow.table(table() | {"tags": odd["tags"]})):
        assert_same_blocks(Log.read(source, **NAMES).blocks(), expected)
    with pytest.raises(ValueError, match=r"source must be a table with columns of one type each: .* notes"):
        Log.read(frame, **NAMES | {"state": "notes"})
    with pytest.raises(ValueError, match="column 'tags' must hold lists of numbers, got type list"):
        Log.read(frame, **NAMES | {"state": "tags"})
    with pytest.raises(ValueError, match="source must have columns of different names, got 'x0' more than once"):
        Log.read(pandas.concat([frame, frame[["x0"]]], axis=1), **NAMES)
    assert Log.read(frame, **NAMES | {"state": "7"}).schema.number_names == ("7",)


def zoned(hours: np.ndarray) -> list[datetime]:
    """Times in a zone of their own each, an hour apart."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return [(start + timedelta(hours=int(k))).astimezone(timezone(timedelta(hours=int(k) % 5))) for k in hours]


KEYS = {
    "identifiers": lambda who, t: ([UUID(int=int(k)) for k in who], t),
    "bytes of identifiers": lambda who, t: ([UUID(int=int(k)).bytes for k in who], t),
    "small integers": lambda who, t: (who.astype(np.int16), (t + 30).astype(np.uint8)),
    "large integers": lambda who, t: (who + 2**62, t + 2**60),
    "days": lambda who, t: (who, np.datetime64("2024-01-01", "D") + t),
    "zones": lambda who, t: (who, zoned(t)),
}


@pytest.mark.parametrize("arrow", [False, True], ids=["arrays", "arrow"])
@pytest.mark.parametrize("kind", KEYS)
def test_all_kinds_of_episodes_and_times(kind, arrow):
    columns: dict[str, Any] = table()
    columns["who"], columns["t"] = KEYS[kind](columns["who"], columns["t"])
    order = np.random.default_rng(0).permutation(len(columns["r"]))
    source = {name: [column[i] for i in order] for name, column in columns.items()}
    source = {name: np.array(column) if hasattr(column[0], "dtype") else column for name, column in source.items()}
    source = pytest.importorskip("pandas").DataFrame(source) if arrow else source
    assert_same_blocks(Log.read(source, **NAMES).blocks(), Log.read(table(), **NAMES).blocks())


def test_codes_are_asked_about_unless_they_are_named():
    columns = table(200)
    columns["floor"] = np.arange(len(columns["r"])) % 5
    log = Log.read(columns, **NAMES | {"state": ["x0", "floor"]})
    note = "floor holds integers 0 to 4 and is treated as a number; name it in categorical= if they are codes."
    assert note in log.notes
    assert log.schema.number_names == ("x0", "floor")
    named = Log.read(columns, **NAMES | {"state": ["x0"], "categorical": "floor"})
    assert note not in named.notes
    assert named.schema[1:] == (("floor",), ((0, 1, 2, 3, 4),))


def test_actions_are_codes_or_numbers():
    columns = table()
    kept = Log.read(columns, **NAMES).num_transitions
    (block,) = Log.read(columns, **NAMES | {"action": ["x0", "x1"], "state": "ward"}).blocks()
    assert block.actions.shape == (kept, 2)
    (block,) = Log.read(columns, **NAMES | {"action": "x0", "state": "ward"}).blocks()
    assert block.actions.shape == (kept, 1)
    log = Log.read(columns, **NAMES | {"action": "ward", "state": "x0"})
    assert log.action_levels == ("emergency", "icu", "surgery")
    assert Log.read(columns, **NAMES | {"action": None}).action_levels is None


def test_next_states_in_columns_of_their_own():
    columns = table()
    rows = len(columns["r"])
    rng = np.random.default_rng(1)
    following = {"y0": rng.normal(size=rows), "y1": rng.normal(size=rows)}
    following["last_ward"] = rng.choice(np.array(["icu", "roof"]), size=rows)
    ended = columns["died"] | columns["left"]
    following["y0"][ended] = np.nan  # nothing follows
    names = NAMES | {"next_state": "y0, y1, last_ward", "state": ["x0", "x1", "ward"]}
    log = Log.read(columns | following, **names)
    found = flat(log.blocks(11))
    assert log.has_next_state
    assert log.num_transitions == rows
    assert log.counts.dropped == 0
    np.testing.assert_array_equal(found["next_numbers"][~ended, 0], following["y0"][~ended])
    np.testing.assert_array_equal(found["weights"], columns["w"])
    assert log.schema.levels == (("emergency", "icu", "roof", "surgery"),)
    alone = Log.read(columns | following, **names | {"episode": None, "time": None})
    assert alone.num_episodes == rows
    assert "every row is taken for an episode of its own" in alone.notes[0]


def test_a_last_observation_is_only_a_next_state():
    """A row without reward and action after the last transition, also after one where the return ended."""
    data = {
        "e": [0, 0, 0, 1, 1, 2, 2, 3],
        "x": [1.0, 2, 3, 4, np.nan, 6, 7, np.nan],  # missing where nobody needs it
        "a": [0, 1, None, 1, None, 0, 0, None],
        "reward": [1.0, 2, None, 3, None, 4, 5, None],
        "end": [False, False, None, True, None, False, False, None],
    }
    log = Log.read(data, episode="e", state="x", action="a", terminated="end")
    (block,) = log.blocks()
    np.testing.assert_array_equal(block.observations.numbers[block.current, 0], [1, 2, 4, 6])
    np.testing.assert_array_equal(block.observations.numbers[block.following, 0], [2, 3, 4, 7])
    np.testing.assert_array_equal(block.terminated, [False, False, True, False])
    assert (log.counts.final_observations, log.counts.dropped, log.counts.transitions) == (3, 1, 4)
    marked = Log.read(data | {"end": [0, 0, 1, 0, 1, 0, 0, 0]}, episode="e", state="x", action="a", terminated="end")
    np.testing.assert_array_equal(next(marked.blocks()).terminated, [False, True, True, False])


def test_a_log_of_one_episode():
    log = Log.read({"x": [1.0, 2, 3], "reward": [0.0, 1, 2]}, state="x", discount=1)
    (block,) = log.blocks()
    np.testing.assert_array_equal(block.following, [1, 2])
    assert log.discount == 1.0
    assert log.notes[0].startswith("No episode column is named: the whole log is one episode")
    assert "No terminated column is named: no return ends in this log." in log.notes


def test_some_episodes():
    log = Log.read(table(), **NAMES)
    mask = np.arange(40) % 3 == 0
    whole, some = flat(log.blocks()), flat(log.take(mask).blocks())
    kept = mask[whole["episode"]]
    for name in whole:
        expected = (np.cumsum(mask) - 1)[whole[name][kept]] if name == "episode" else whole[name][kept]
        np.testing.assert_array_equal(some[name], expected)
    again = log.take([6, 2, 6])
    assert again.num_episodes == 3
    parts = [flat(log.take([n]).blocks())["rewards"] for n in (6, 2, 6)]
    np.testing.assert_array_equal(flat(again.blocks())["rewards"], np.concatenate(parts))
    assert 0 < len(parts[0]) != len(parts[1]) > 0
    assert again.counts.rows == sum(log.take([n]).counts.rows for n in (6, 2, 6))
    for bad in ([40], [-1], [0.5], [], mask[:3]):
        with pytest.raises(ValueError, match="episodes must be"):
            log.take(bad)


def test_other_states_are_encoded():
    log = Log.read(table(), **NAMES)
    found = log.encode({"ward": ["surgery", "roof", "icu"], "x1": [1, 2, 3], "x0": [4.0, 5, 6]})
    np.testing.assert_array_equal(found.numbers, [[4, 1], [5, 2], [6, 3]])
    np.testing.assert_array_equal(found.codes, [[2], [-1], [1]])
    assert found.codes.dtype == np.int32
    assert len(found) == 3
    assert isinstance(found.take([0]), Observations)
    numbers = Log.read(table(), **NAMES | {"state": "x*"})
    np.testing.assert_array_equal(numbers.encode(np.eye(2)).numbers, np.eye(2))
    for bad, match in (
        ({"x0": [1.0], "ward": ["icu"]}, "table must have the columns of the state, 'x1' is missing; it has x0, ward"),
        ({"x0": [1.0], "x1": [2.0], "ward": [7]}, "one type, got 'emergency' and 7 in column 'ward'"),
        ({"x0": ["a"], "x1": [2.0], "ward": ["icu"]}, "columns of numbers, got 'x0', which holds labels such as 'a'"),
        ({"x0": [np.nan], "x1": [2.0], "ward": ["icu"]}, "table must not have missing values, got 1 in column 'x0'"),
        ({"x0": [1.0], "x1": [2.0], "ward": [None]}, "table must not have missing values, got 1 in column 'ward'"),
        (np.eye(2), r"table must have 3 columns \(x0, x1, ward\), got 2"),
    ):
        with pytest.raises(ValueError, match=match):
            log.encode(bad)


def test_a_log_can_be_pickled():
    log = Log.read(table(), **NAMES)
    again = pickle.loads(pickle.dumps(log))
    assert_same_blocks(again.blocks(9), log.blocks(9))
    assert repr(again) == repr(log)
    assert repr(log).startswith("Log(40 episodes; ")
    assert "\n" not in repr(log)


def test_arrays_need_no_other_library():
    code = (
        "import sys; from cramerl.linear import Log; "
        "Log.read({'x': ['a', 'b'], 'reward': [1, 2]}, state='x'); "
        "assert not {'pyarrow', 'pandas', 'polars', 'minari'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_both_marks_count_as_an_end():
    columns = table()
    columns["cut"] = columns["cut"] | columns["died"]
    log = Log.read(columns, **NAMES)
    assert log.counts.marked_both == columns["died"].sum()
    assert as_tuples(log) == by_hand(columns)


def test_times_as_text_are_times():
    """As a data frame has them that was read from CSV."""
    columns = {"who": [1, 1, 0, 0], "x": [0.0, 1.0, 2.0, 3.0], "r": np.ones(4), "died": [False, True, False, True]}
    times = np.array(["2024-01-01 10:00:00", "2024-01-01 11:30:00", "2023-12-31 09:00:00", "2024-01-01 00:00:00"])
    names: dict[str, Any] = {"episode": "who", "time": "t", "state": "x", "reward": "r", "terminated": "died"}
    order = np.array([3, 1, 0, 2])
    mixed = {name: np.asarray(column)[order] for name, column in (columns | {"t": times}).items()}
    (block,) = Log.read(mixed, **names).blocks()
    np.testing.assert_array_equal(block.observations.numbers[:, 0], [2, 3, 0, 1])
    with pytest.raises(ValueError, match="time must name a column of numbers or times, got 't', which holds labels"):
        Log.read(mixed | {"t": np.array(["noon", "2024-01-01", "2024-01-02", "2024-01-03"])}, **names)
