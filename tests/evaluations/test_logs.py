"""From words on a command line to logs, policies and files of predictions."""

import numpy as np
import pytest
from small_logs import wards, write_parquet

from cramerl.evaluations import data_source, named_policies, read_log


def test_paths_with_commas(tmp_path):
    path = tmp_path / "a,b.parquet"
    path.touch()
    assert data_source(str(path)) == str(path)
    assert data_source("a.csv, b.csv") == ["a.csv", "b.csv"]
    assert data_source("s3://bucket/a,b.parquet") == "s3://bucket/a,b.parquet"


def test_policies_by_name(tmp_path):
    np.save(tmp_path / "even.npy", np.array([0.5, 0.5]))
    file = str(tmp_path / "even.npy")
    assert named_policies(None) == named_policies(["log"]) == {"": None}
    assert named_policies(["new_*"]) == {"": "new_*"}
    found = named_policies(["a=x,y", "b=log", f"c={file}", file])
    assert list(found) == ["a", "b", "c", file]
    assert (found["a"], found["b"]) == ("x,y", None)
    np.testing.assert_array_equal(found["c"], [0.5, 0.5])
    with pytest.raises(ValueError, match="policy must have different names, got 'a' twice"):
        named_policies(["a=x", "a=y"])


def test_a_terminated_column_is_taken_if_none_is_named(tmp_path):
    table = wards()
    data = str(write_parquet(tmp_path / "log.parquet", table | {"terminated": table["died"]}))
    columns = {"episode": "who", "state": "x*", "action": None}
    assert read_log(data, columns).layout.terminated == ("terminated",)
    assert read_log(data, columns | {"terminated": "left"}).layout.terminated == ("left",)
    assert read_log("example:machines", {}).layout.terminated == ("scrapped", "sold")
