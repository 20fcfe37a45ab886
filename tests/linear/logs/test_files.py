"""Logs in files: what is written is what is read, in memory and out of it."""

from __future__ import annotations

import gzip
import os
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_tables import NAMES, assert_same_blocks, flat, table

from cramerl.linear import Log
from cramerl.linear.logs import files
from cramerl.linear.logs import log as log_module

ARROW = pa.table(table())


def written(folder, kind: str) -> Any:
    """Files of a kind, to be read by `Log.read`."""
    if kind == "parquet":
        pq.write_table(ARROW, folder / "log.parquet", row_group_size=17)
        return folder / "log.parquet"
    if kind in ("parquet folder", "parquet pattern", "parquet list", "parquet url"):
        for i, first in enumerate(range(0, ARROW.num_rows, 37)):
            pq.write_table(ARROW.slice(first, 37), folder / f"part{i}.parquet")
        entries = sorted(str(file) for file in folder.iterdir())
        return {
            "folder": str(folder),
            "pattern": f"{folder}/part*.parquet",
            "list": entries,
            "url": f"file://{folder}",
        }[kind.partition(" ")[2]]
    if kind == "csv folder":
        for i, first in enumerate(range(0, ARROW.num_rows, 37)):
            pc.write_csv(ARROW.slice(first, 37), folder / f"part{i}.csv")
        return folder
    ending = kind.replace("; ", "")
    text = pa.BufferOutputStream()
    pc.write_csv(ARROW, text, pc.WriteOptions(delimiter=";" if kind == "; csv" else "\t" if kind == "tsv" else ","))
    data = text.getvalue().to_pybytes()
    (folder / f"log.{ending}").write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    return folder / f"log.{ending}"


KINDS = [
    *("parquet", "parquet folder", "parquet pattern", "parquet list", "parquet url"),
    *("csv", "csv.gz", "; csv", "tsv", "csv folder"),
]


@pytest.fixture(params=["memory", "files"])
def place(request, monkeypatch):
    """Where the log is kept: in memory, or in its files."""
    monkeypatch.setattr(files, "_BATCH_ROWS", 23)
    monkeypatch.setattr(files, "_BLOCK_BYTES", 1500)
    if request.param == "files":
        monkeypatch.setattr(log_module, "_MOST_BYTES", 10)
        monkeypatch.setattr(log_module, "_SURVEY_ROWS", 31)
    return request.param


@pytest.mark.parametrize("kind", KINDS)
def test_files_give_the_log_of_the_table(tmp_path, place, kind):
    log, expected = Log.read(written(tmp_path, kind), **NAMES), Log.read(ARROW, **NAMES)
    for rows in (1, 8, 30, 10_000):
        assert_same_blocks(log.blocks(rows), expected.blocks(rows))
    assert log.schema == expected.schema
    assert log.action_levels == expected.action_levels
    assert log.notes == expected.notes
    assert log.counts._replace(weight_removed=0) == expected.counts._replace(weight_removed=0)
    assert type(log._store).__name__ == {"memory": "RecordsInMemory", "files": "RecordsInFiles"}[place]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 20), st.lists(st.integers(1, 150), max_size=4), st.integers(1, 60))
def test_splitting_into_files_gives_the_same_blocks(tmp_path_factory, place, seed, cuts, rows):
    folder, whole = tmp_path_factory.mktemp("split"), pa.table(table(30, seed))
    bounds = sorted({0, whole.num_rows, *(min(cut, whole.num_rows) for cut in cuts)})
    for i, (first, stop) in enumerate(pairwise(bounds)):
        pq.write_table(whole.slice(first, stop - first), folder / f"{i}.parquet")
    assert_same_blocks(Log.read(folder, **NAMES).blocks(rows), Log.read(whole, **NAMES).blocks(rows))


def test_some_episodes_and_pickling(tmp_path, place):
    log, expected = Log.read(written(tmp_path, "parquet"), **NAMES), Log.read(ARROW, **NAMES)
    mask = np.arange(40) % 3 != 0
    some = log.take(mask)
    assert_same_blocks(some.blocks(20), expected.take(mask).blocks(20))
    assert some.counts == expected.take(mask).counts
    fewer = np.arange(some.num_episodes) % 2 == 0
    assert_same_blocks(some.take(fewer).blocks(20), expected.take(mask).take(fewer).blocks(20))
    assert_same_blocks(pickle.loads(pickle.dumps(some)).blocks(20), some.blocks(20))
    if place == "files":
        with pytest.raises(
            ValueError, match="episodes must be a mask or increasing numbers where the log is too large"
        ):
            log.take([3, 1])
    new = {"x0": [1.0, 2], "x1": [0.0, 1], "ward": ["icu", "roof"]}
    np.testing.assert_array_equal(log.encode(new).codes, expected.encode(new).codes)


def test_episodes_by_name_next_states_and_lists(tmp_path, place):
    columns: dict[str, Any] = table()
    columns["who"] = [f"patient {who}" for who in columns["who"]]
    columns["v"] = pa.array([[1.0, 2.0 + i] for i in range(len(columns["r"]))])
    columns["v_next"] = pa.array([[3.0, 4.0 - i] for i in range(len(columns["r"]))])
    whole = pa.table(columns)
    pq.write_table(whole, tmp_path / "log.parquet")
    plain = NAMES | {"state": "v"}
    following = plain | {"next_state": "v_next"}
    for names in (plain, following, following | {"episode": None, "time": None, "terminated": None, "truncated": None}):
        log, expected = Log.read(tmp_path / "log.parquet", **names), Log.read(whole, **names)
        assert_same_blocks(log.blocks(20), expected.blocks(20))
        assert log.schema.number_names == ("v0", "v1")
        assert log.counts == expected.counts


def test_files_may_differ_in_the_types_of_numbers_but_not_of_keys(tmp_path, place):
    first, rest = ARROW.slice(0, 100), ARROW.slice(100)
    for i, (part, unit) in enumerate(((first, "ms"), (rest, "ns"))):
        times = pa.array(part["t"].to_numpy() * (1 if unit == "ms" else 1_000_000)).cast(pa.timestamp(unit))
        part = part.set_column(part.schema.get_field_index("t"), "t", times)
        actions = part["a"].cast(pa.int8() if i else pa.int64())
        part = part.set_column(part.schema.get_field_index("a"), "a", actions)
        pq.write_table(part.set_column(part.schema.get_field_index("ward"), "ward", part["ward"].dictionary_encode())
                       if i else part, tmp_path / f"{i}.parquet")  # fmt: skip
    assert_same_blocks(Log.read(tmp_path, **NAMES).blocks(20), Log.read(ARROW, **NAMES).blocks(20))
    pq.write_table(rest.append_column("z", rest["x0"]), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="time must name a column of one type, got times and numbers in column 't'"):
        Log.read(tmp_path, **NAMES)


def test_a_log_out_of_memory_must_be_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "_MOST_BYTES", 10)
    order = np.random.default_rng(0).permutation(ARROW.num_rows)
    late = np.r_[1 : ARROW.num_rows, 0]  # one row of the first episode comes last
    for rows, names in ((order, NAMES), (late, NAMES), (late, NAMES | {"time": None, "truncated": None})):
        pq.write_table(ARROW.take(rows), tmp_path / "log.parquet", row_group_size=10)
        with pytest.raises(
            ValueError, match=r"source must be in order of 'who'.* sort the files first, or name next_st"
        ):
            Log.read(tmp_path / "log.parquet", **names | {"terminated": None})
    names = NAMES | {"episode": None, "terminated": None, "truncated": None}
    with pytest.raises(ValueError, match=r"episode must name a column if the log is too large for memory \(0\.0 GB\)"):
        Log.read(tmp_path / "log.parquet", **names)
    monkeypatch.setattr(files, "_BATCH_ROWS", 10)
    same = ARROW.slice(0, 20).set_column(0, "who", pa.array([1] * 20))
    back = pa.array([*range(10), *range(9, 19)])  # the time of the tenth row comes again in the next batch
    pq.write_table(same.set_column(1, "t", back), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="or whose times do not increase"):
        Log.read(tmp_path / "log.parquet", **names | {"episode": "who"})
    columns = table()
    columns["t"][1:3] = columns["t"][1]
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="or whose times do not increase"):
        Log.read(tmp_path / "log.parquet", **NAMES)


def test_types_of_text_are_those_of_all_rows(tmp_path, place):
    """Integers that become floats, numbers that become words, and a column that begins empty."""
    rows = 2000
    lines = [f"{i // 5},{i},{i if i < 1900 else i + 0.5},{i if i < 1900 else 'b'},{'' if i % 5 == 4 else 1}"
             for i in range(rows)]  # fmt: skip
    (tmp_path / "log.csv").write_bytes(("\ufeffe,t,x,c,reward\r\n" + "\r\n".join(lines)).encode())
    log = Log.read(tmp_path / "log.csv", episode="e", time="t", state="x,c")
    found = flat(log.blocks())
    assert log.schema.number_names == ("x",)
    assert found["next_numbers"].max() == 1999.5
    assert log.schema.levels[0][:3] == ("0", "1", "10")
    assert log.counts.final_observations == rows // 5
    assert log.counts.dropped == 0


BAD_FILES = {
    "none": (
        "nothing.parquet",
        None,
        "source must name a Parquet file, .* got .*nothing.parquet, where there are none",
    ),
    "no csv": ("nothing.csv", None, "source must name a CSV file, .* got .*nothing.csv, where there are none"),
    "no parquet": ("log.txt", b"some text", "source must name Parquet files, got .*log.txt"),
    "empty": ("log.csv", b"", "source must name CSV files with a header, got .*log.csv, whose first line is empty"),
    "ragged": ("log.csv", b"x,reward\n1,2\n3\n", "source must name CSV files with a header, got .*Expected 2 columns"),
    "latin": ("log.csv", "größe,reward\n1,2\n".encode("latin-1"), "source must name CSV files in UTF-8, got"),
    "twice": ("log.csv", b"x,x,reward\n1,2,3\n", "source must have columns of different names, got 'x' more than once"),
    "only a header": ("log.csv", b"x,reward\n", "source must hold at least one row"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_named(tmp_path, case):
    name, data, match = BAD_FILES[case]
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=match):
        Log.read(tmp_path / name, state="x")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz"])
@pytest.mark.parametrize("kind", ["pipe", "device", "link to nothing"])
def test_a_folder_with_what_is_no_regular_file(tmp_path, name, kind):
    """A pipe would be waited for, a device read for ever."""
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero" if kind == "device" else tmp_path / "nothing")
    with pytest.raises(ValueError, match=rf"source must name .* files, got .*{name}, which is not a regular file"):
        Log.read(tmp_path, state="x", episode="e")


def test_folders_with_names_of_files_are_searched(tmp_path):
    """As Spark writes them."""
    (tmp_path / "log.parquet").mkdir()
    pq.write_table(
        pa.table({"e": [1, 1], "x": [1.0, 2.0], "reward": [1.0, 2.0]}), tmp_path / "log.parquet/part.parquet"
    )
    assert Log.read(tmp_path, state="x", episode="e").num_transitions == 1
    (tmp_path / "csv/log.csv").mkdir(parents=True)
    (tmp_path / "csv/log.csv/part.csv").write_text("e,x,reward\n1,1,1\n1,2,2\n")
    assert Log.read(tmp_path / "csv", state="x", episode="e").num_transitions == 1


@pytest.mark.parametrize("head", [b"", b"e,x,reward\n1,1,1\n"])
def test_lines_that_would_fill_the_memory(tmp_path, head):
    """A small file, once it is decompressed."""
    with gzip.open(tmp_path / "log.csv.gz", "wb", 1) as file:
        file.write(head + b"1" * (40 << 20))
    assert (tmp_path / "log.csv.gz").stat().st_size < 1 << 20
    with pytest.raises(ValueError, match=r"got .*log\.csv\.gz, which has a line of more than 16,777,216 bytes"):
        Log.read(tmp_path / "log.csv.gz", state="x", episode="e")


def test_a_long_header(tmp_path):
    names = [f"column{'x' * 400}{i}" for i in range(3000)]  # their line is longer than a block of Arrow's
    lines = [",".join([*names, "e", "x", "reward"]), *[",".join(["1"] * 3003)] * 2]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert Log.read(tmp_path / "log.csv", state="x", episode="e").num_transitions == 1


def test_files_must_agree(tmp_path):
    pq.write_table(pa.table({"x": [1.0], "reward": [1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1.0], "reward": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=r"source must have the same columns in every file, got no 'x' in .*b\.parquet"
    ):
        Log.read(tmp_path, state="x")
    (tmp_path / "c.csv").write_text("x,reward\n1,2\n")
    with pytest.raises(ValueError, match="source must name Parquet files or CSV files, got both"):
        Log.read([tmp_path / "a.parquet", tmp_path / "c.csv"], state="x")
