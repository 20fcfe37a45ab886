"""Parquet files: what is written is what is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cramerl import Support
from cramerl.linear import fit_logs, fit_parquet, read_minari, read_parquet, transition_sums, with_bias
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.transitions import Rows

ROOT = Path(__file__).parents[3]
NAMES: dict[str, Any] = {"features": ["a", "b"], "reward": "r", "next_features": ["a2", "b2"], "terminated": "end"}


def transitions(n: int = 50) -> Rows:
    rng = np.random.default_rng(0)
    return Rows(rng.normal(size=(n, 2)), rng.normal(size=n), rng.normal(size=(n, 2)), rng.random(n) < 0.2)


def as_columns(data: Rows) -> dict:
    (a, b), (a2, b2) = data.features.T, data.next_features.T
    return {"a": a, "b": b, "r": data.rewards, "a2": a2, "b2": b2, "end": data.terminated, "time": np.arange(len(a))}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(as_columns(transitions())), path, row_group_size=20)
    return path


def assert_same(chunks, expected: Rows) -> None:
    together = [np.concatenate(arrays) for arrays in zip(*chunks, strict=True)]
    for found, wanted in zip(together, expected[:4], strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("chunk_rows", [1, 7, 50, 1000])
def test_columns_of_numbers_come_back(log, chunk_rows):
    chunks = list(read_parquet(log, **NAMES, chunk_rows=chunk_rows))
    assert max(len(rewards) for _, rewards, _, _ in chunks) <= chunk_rows
    assert_same(chunks, transitions())


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)])
def test_a_column_of_lists_comes_back(tmp_path, kind):
    data, path = transitions(), tmp_path / "lists.parquet"
    table = {name: pa.array(list(a), type=kind) for name, a in (("x", data.features), ("y", data.next_features))}
    pq.write_table(pa.table({**table, "r": data.rewards, "end": data.terminated.astype(np.int8)}), path)
    chunks = list(read_parquet(path, features="x", reward="r", next_features="y", terminated="end", chunk_rows=9))
    assert_same(chunks, data)


def test_folders_and_lists_of_files_and_other_numbers(tmp_path):
    data, whole = transitions(), as_columns(transitions())
    for i, rows in enumerate(np.array_split(np.arange(50), 3)):
        (tmp_path / f"part{i}").mkdir()
        part = {name: column[rows] for name, column in whole.items()}
        pq.write_table(pa.table(part), tmp_path / f"part{i}" / "rows.parquet")
    assert_same(read_parquet(tmp_path, **NAMES), data)
    files = [tmp_path / f"part{i}" / "rows.parquet" for i in range(3)]
    assert_same(read_parquet([str(file) for file in files], **NAMES), data)
    pq.write_table(pa.table({name: column[:0] for name, column in whole.items()}), tmp_path / "a.parquet")
    assert_same(read_parquet(tmp_path, **NAMES), data)  # a file without rows has nothing to say
    integers = {**whole, "a": np.arange(50, dtype=np.int8), "r": data.rewards.astype(np.float32)}
    pq.write_table(pa.table(integers), tmp_path / "mixed.parquet")
    names: dict[str, Any] = NAMES | {"terminated": None}
    ((x, rewards, _, terminated),) = read_parquet(tmp_path / "mixed.parquet", **names)
    np.testing.assert_array_equal(x[:, 0], np.arange(50))
    np.testing.assert_allclose(rewards, data.rewards, rtol=1e-7)
    assert not terminated.any()


def test_patterns_and_urls(tmp_path, log):
    pytest.importorskip("fsspec")
    for path in (f"{tmp_path}/*.parquet", [f"{tmp_path}/l?g.parquet"], f"file://{log}", f"file://{tmp_path}"):
        assert_same(read_parquet(path, **NAMES), transitions())
    assert_same(read_parquet(f"file://{tmp_path}/*.parquet", **NAMES), transitions())
    for nothing in (f"{tmp_path}/*.csv", f"file://{tmp_path}/other.parquet"):
        with pytest.raises(ValueError, match=r"path must name a Parquet file, .* got .*(csv|other)"):
            read_parquet(nothing, **NAMES)


def test_features_made_while_reading(log):
    data = transitions()
    chunks = list(read_parquet(log, **NAMES, feature_function=with_bias, chunk_rows=30))
    assert_same(chunks, data._replace(features=with_bias(data.features), next_features=with_bias(data.next_features)))
    with pytest.raises(ValueError, match=r"feature_function must return one row of features for each of \d+ rows, got"):
        list(read_parquet(log, **NAMES, feature_function=np.sum))


@pytest.mark.parametrize("most_numbers", [10**6, 12], ids=["moments", "passes"])
def test_fit_parquet_is_the_fit_of_all_rows(log, monkeypatch, most_numbers):
    """All rows choose the support, and moments that are too large are replaced by passes over the file."""
    expected = DistributionalLSTD(discount=0.5, num_atoms=5).fit(*transitions()[:4])
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", most_numbers)
    model = fit_parquet(DistributionalLSTD(discount=0.5, num_atoms=5), log, **NAMES, chunk_rows=8)
    np.testing.assert_allclose(model.support_.atoms, expected.support_.atoms, atol=1e-12)
    np.testing.assert_allclose(model.weights_, expected.weights_, atol=1e-10)
    assert model.certificate_.sentences == expected.certificate_.sentences


def test_fit_logs_is_the_fit_of_all_rows(log):
    support = Support.uniform(-3, 3, 7)
    model = fit_logs(DistributionalLSTD(support, 0.9), read_parquet(log, **NAMES, chunk_rows=8))
    expected = DistributionalLSTD(support, 0.9).fit(*transitions()[:4])
    np.testing.assert_allclose(model.weights_, expected.weights_, atol=1e-10)
    assert model.n_samples_ == 50
    with pytest.raises(ValueError, match="chunks must hold at least one chunk"):
        fit_logs(DistributionalLSTD(), [])


def test_fit_logs_says_which_chunk_was_bad():
    good, bad = transitions()[:4], transitions()[:4]
    bad[0][3, 1] = np.nan
    with pytest.raises(ValueError, match="X must be finite, got nan") as caught:
        fit_logs(DistributionalLSTD(), [good, good, bad])
    assert caught.value.__notes__ == ["This was chunk 3 of the log; the 2 before it were added."]


BAD_COLUMNS = {
    "missing": (
        {"features": ["a", "c"]},
        "features must name columns of .*log.parquet, got 'c'; its columns are a, b, r",
    ),
    "missing reward": ({"reward": "cost"}, "reward must name columns of .*, got 'cost'"),
    "text": ({"reward": "word"}, "reward must name columns of numbers, got 'word' of type string"),
    "list among numbers": (
        {"features": ["a", "ragged"]},
        "features must name columns of numbers, got 'ragged' of type list",
    ),
    "number as list": (
        {"next_features": "a2"},
        "next_features must name a column of lists of numbers, or be a list of",
    ),
    "no names": ({"features": []}, r"features must be one column name, or several,, got \[\]"),
    "two rewards": ({"reward": ["r", "a"]}, r"reward must be one column name, got \['r', 'a'\]"),
    "ragged": (
        {"features": "ragged"},
        "features must name a column of lists of one length, got 'ragged' with lengths 1 to 3",
    ),
    "hole": ({"reward": "holes"}, "reward must not have missing values, got 2 in column 'holes'"),
    "hole in lists": ({"features": "holed"}, "features must not have missing values, got 2 in column 'holed'"),
    "not boolean": ({"terminated": "time"}, "terminated must name a column of booleans, got 2.0 among them"),
}


@pytest.mark.parametrize(("bad", "sentence"), BAD_COLUMNS.values(), ids=list(BAD_COLUMNS))
def test_bad_columns_are_named(tmp_path, bad, sentence):
    lists = [[1.0] * (1 + 2 * (i % 2)) for i in range(50)]
    extra = {
        "word": ["x"] * 50,
        "ragged": lists,
        "holes": [None, None] + [1.0] * 48,
        "holed": [None, [1.0, None]] + [[1.0, 2.0]] * 48,
    }
    pq.write_table(pa.table(as_columns(transitions()) | extra), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=sentence):
        list(read_parquet(tmp_path / "log.parquet", **(NAMES | bad)))


def test_bad_files_are_named(tmp_path, log):
    with pytest.raises(ValueError, match=r"path must name a Parquet file, .* got .*nowhere.parquet"):
        read_parquet(tmp_path / "nowhere.parquet", **NAMES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"path must name .* got .*empty, which has none"):
        read_parquet(tmp_path / "empty", **NAMES)
    (tmp_path / "text.parquet").write_text("not Parquet")
    with pytest.raises(ValueError, match=r"path must name Parquet files, got .*text.parquet"):
        read_parquet(tmp_path / "text.parquet", **NAMES)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "other.parquet")
    chunks = read_parquet([log, tmp_path / "other.parquet"], **NAMES)
    with pytest.raises(ValueError, match=r"features must name columns of .*other.parquet, got 'b'"):
        list(chunks)
    with pytest.raises(ValueError, match="chunk_rows must be an integer >= 1, got 0"):
        read_parquet(log, **NAMES, chunk_rows=0)


@pytest.mark.parametrize(("module", "call"), [("pyarrow.parquet", read_parquet), ("minari", read_minari)])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"{module} is not installed; .*'cramerl\[data\]'"):
        call("x", **NAMES) if call is read_parquet else call("x", np.asarray)
