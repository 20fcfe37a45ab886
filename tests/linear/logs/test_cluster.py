"""A log on a Ray cluster: its parts are the log, and its numbers are those of one machine, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_tables import NAMES as ALL_NAMES
from log_tables import flat, table
from small_worlds import LOGGED, NAMES, TARGET, WORLD

from cramerl import _ray
from cramerl.linear import Log, PolicyEvaluation, evaluate_policy
from cramerl.linear.logs import cluster

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
MORE: dict[str, Any] = NAMES | {"terminated": "died", "propensity": "p"}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 20), st.integers(1, 40), st.integers(1, 60), st.integers(1, 50), st.booleans())
def test_the_parts_of_a_log_are_the_log(tmp_path_factory, seed, group, rows, block, some):
    """Row groups that end anywhere, episodes longer than a group, files without rows, and a part of the episodes."""
    folder, whole = tmp_path_factory.mktemp("log"), pa.table(table(30, seed))
    half = whole.num_rows // 2
    for i, part in enumerate((whole.slice(0, half), whole.slice(0, 0), whole.slice(half))):
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=group)
    log = Log.read(folder, **ALL_NAMES, ray="nowhere")
    if some:
        log = log.take(np.arange(30) % 3 != 1)
    found = flat(piece for part in log.spans(rows) for piece in part.blocks(block))
    expected = flat(log.blocks(10_000))
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)


def test_only_parquet_files_in_order_are_read_on_ray(tmp_path):
    columns = WORLD.play(LOGGED, 10)
    columns["t"] = np.arange(len(columns["r"]))
    names = MORE | {"time": "t"}
    with pytest.raises(ValueError, match="source must name Parquet files to be read on Ray, got dict"):
        Log.read(columns, **names, ray="auto")
    mixed = pa.table(columns).take(pa.array(np.argsort(columns["r"], kind="stable")))
    pq.write_table(mixed, tmp_path / "log.parquet")
    with pytest.raises(
        ValueError, match="source must be in order of 'who' and 't' if it is too large for memory or read on R"
    ):
        Log.read(tmp_path, **names, ray="auto")
    assert Log.read(tmp_path, **names).num_episodes == 10  # without Ray it is put in order


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(WORLD.play(LOGGED, 400)), folder / "log.parquet", row_group_size=100)
    return folder


@pytest.fixture(scope="module")
def nodes():
    pytest.importorskip("ray")
    with _ray.connect("local", num_cpus=2, object_store_memory=80 * 2**20) as ray:
        yield ray


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(cluster, "_SPAN_ROWS", 300)
    monkeypatch.setattr("cramerl.linear.logs.log._FEW_ROWS", 100)


def tabular() -> Callable[[np.ndarray], np.ndarray]:
    """Functions that travel are those that were made here: workers do not have the modules of tests."""
    return lambda states: np.column_stack([np.ones(len(states)), np.eye(3)[states[:, 0].astype(int), 1:]])


def assert_same(found: PolicyEvaluation, expected: PolicyEvaluation) -> None:
    np.testing.assert_allclose(found.model.support_.atoms, expected.model.support_.atoms, atol=1e-12)
    np.testing.assert_allclose(found.distribution.masses, expected.distribution.masses, atol=1e-7)
    for one, other in ((found.mean, expected.mean), (found.cvar(0.2), expected.cvar(0.2))):
        assert one == pytest.approx(other, abs=1e-6)
    parts = [side.distribution.influence for side in (found, expected)]
    np.testing.assert_allclose(parts[0].influences, parts[1].influences, atol=1e-6)  # pyright: ignore
    assert found.trust[:2] == expected.trust[:2]
    for name in ("radius", "negative_mass", "largest_mass", "means_outside", "held_out_crps", "unseen_action_share"):
        assert getattr(found.trust, name) == pytest.approx(getattr(expected.trust, name), abs=1e-6, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["episodes", "rows"])
def test_the_numbers_are_those_of_one_machine(nodes, small_parts, folder, start):
    here, there = Log.read(folder, **MORE), Log.read(folder, **MORE, ray="auto")
    assert len(cluster._spans(there)) > 3
    policies = {"log": None, "new": TARGET}
    one, other = (evaluate_policy(log, policies, discount=0.9, start=start) for log in (there, here))
    for name in policies:
        assert_same(one[name], other[name])
    assert one.difference("new", "log") == pytest.approx(other.difference("new", "log"), abs=1e-6)


def lethal(marker: Path, target: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A policy that kills its worker once."""
    driver = os.getpid()

    def policy(states: np.ndarray) -> np.ndarray:
        if os.getpid() != driver and marker.exists():
            marker.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return target[states[:, 0].astype(int)]

    return policy


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(nodes, small_parts, folder, tmp_path):
    log, marker = Log.read(folder, **MORE, ray="auto"), tmp_path / "alive"
    calm = evaluate_policy(log, TARGET, discount=0.9, features=tabular())
    marker.touch()
    found = evaluate_policy(log, lethal(marker, TARGET), discount=0.9, features=tabular())
    assert not marker.exists()
    np.testing.assert_array_equal(found.model.weights_, calm.model.weights_)
    assert found.mean == calm.mean
