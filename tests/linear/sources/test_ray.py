"""Fits on a Ray cluster of several nodes: those of one machine, whatever is killed while they run."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import ArrayLike

from cramerl import Support, _ray, evaluations
from cramerl.linear import DistributionalLSTD, fit_parquet, fit_ray, transition_sums, with_bias
from cramerl.linear.sources.parquet import ParquetRows, Span
from cramerl.linear.sources.ray import cut_blocks

ray: Any = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.slow,  # clusters of several nodes take most of a minute to start
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

NAMES: dict[str, Any] = {"features": ["a", "b"], "reward": "r", "next_features": ["a2", "b2"], "terminated": "end"}
WIDE = Support.uniform(-60, 60, 21)
SMALL_STORE = 80 * 2**20
CHUNK_ROWS = 60


class Log(NamedTuple):
    """Transitions in memory, with a constant among the features, and the folder that has them without."""

    rows: tuple[Any, ...]
    folder: Path


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Log:
    """Files of very different sizes in row groups of odd sizes; one has no rows, one has few rewards."""
    folder, rng, n = tmp_path_factory.mktemp("log"), np.random.default_rng(0), 3000
    x, y = rng.normal(size=(2, n, 2))
    y = 0.5 * x + 0.5 * y
    rewards, ended = rng.normal(size=n), rng.random(n) < 0.1
    rewards[:250] = np.round(rewards[:250])
    table = {"a": x[:, 0], "b": x[:, 1], "r": rewards, "a2": y[:, 0], "b2": y[:, 1], "end": ended}
    for i, part in enumerate(np.split(np.arange(n), [3, 250, 250, 1100])):
        columns = pa.table({name: column[part] for name, column in table.items()})
        pq.write_table(columns, folder / f"part{i}.parquet", row_group_size=130 + 17 * i)
    return Log((with_bias(x), rewards, with_bias(y), ended), folder)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each, and this process connected to them."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": SMALL_STORE}
    head["_system_config"] = {"health_check_period_ms": 1000, "health_check_failure_threshold": 4}
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1, object_store_memory=SMALL_STORE)
    with _ray.connect(nodes.address):
        yield nodes
    nodes.shutdown()


def on_ray(model: DistributionalLSTD, data: Any, **settings: Any) -> DistributionalLSTD:
    """Many small blocks."""
    return fit_ray(model, data, **({"chunk_rows": CHUNK_ROWS, "feature_function": with_bias} | NAMES | settings))


def assert_same(found: DistributionalLSTD, expected: DistributionalLSTD) -> None:
    np.testing.assert_allclose(found.support_.atoms, expected.support_.atoms, atol=1e-10)
    np.testing.assert_allclose(found.weights_, expected.weights_, atol=1e-10)
    np.testing.assert_allclose(found.support_report_[:3], expected.support_report_[:3], atol=1e-10)
    assert found.n_samples_ == expected.n_samples_
    np.testing.assert_allclose(found.certificate_[:5], expected.certificate_[:5], rtol=1e-6, atol=1e-8)


@pytest.fixture(scope="module")
def calm(cluster, log) -> DistributionalLSTD:
    """A fit that nothing disturbed, on a support that all rows chose."""
    return on_ray(DistributionalLSTD(None, 0.9, num_atoms=11), log.folder)


def test_the_fit_is_that_of_one_machine(calm, log):
    """The support is chosen by all rows, continuous rewards are shared between kinks."""
    files = [log.folder / f"part{i}.parquet" for i in range(5)]
    alone = DistributionalLSTD(None, 0.9, num_atoms=11)
    alone = fit_parquet(alone, files, **NAMES, feature_function=with_bias, chunk_rows=70)
    expected = DistributionalLSTD(None, 0.9, num_atoms=11).fit(*log.rows)
    (collector,) = expected._sums.collector._collectors.values()
    assert collector.by_kinks
    for normalisation in ("before", "after", "affine"):
        models = [copy.deepcopy(model).set_params(normalisation=normalisation).solve() for model in (calm, alone)]
        for model in models:
            assert_same(model, expected.set_params(normalisation=normalisation).solve())


def test_means_are_those_of_plain_lstd(cluster, log):
    x, rewards, y, ended = log.rows
    model = on_ray(DistributionalLSTD(WIDE, 0.9), [log.folder / f"part{i}.parquet" for i in range(5)], chunk_rows=400)
    expected = np.linalg.solve(x.T @ (x - 0.9 * y * ~ended[:, None]), x.T @ rewards)
    assert model.support_report_.can_clip == 0
    np.testing.assert_allclose(model.predict(x), x @ expected, atol=1e-10)


def test_moments_too_large_to_keep_are_replaced_by_passes(cluster, log, monkeypatch):
    kept = DistributionalLSTD(Support.uniform(-9, 9, 7), 0.5).fit(*log.rows)
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 4 * 9)  # four groups
    words: list[str] = []
    model = DistributionalLSTD(Support.uniform(-9, 9, 7), 0.5, tol=1e-11)
    passed = on_ray(model, f"{log.folder}/*.parquet", chunk_rows=400, on_progress=words.append)
    assert passed._sums.collector is None
    np.testing.assert_allclose(passed.weights_, kept.weights_, atol=1e-10)
    assert int(words[-1].partition("pass ")[2].partition(":")[0]) > 5


def lethal(folder: Path) -> Callable[[np.ndarray], ArrayLike]:
    """Features that kill the worker in the middle of its block, as often as there are files in a folder."""
    calls = []

    def function(x: np.ndarray) -> ArrayLike:
        calls.append(len(x))
        if len(calls) == 4:
            for marker in folder.iterdir():
                try:
                    marker.unlink()
                except FileNotFoundError:
                    continue  # another worker took it
                os.kill(os.getpid(), signal.SIGKILL)
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    return function


def test_workers_killed_in_the_middle_change_nothing(calm, log, tmp_path):
    for i in range(2):
        (tmp_path / f"{i}").touch()
    model = on_ray(DistributionalLSTD(None, 0.9, num_atoms=11), log.folder, feature_function=lethal(tmp_path))
    assert not list(tmp_path.iterdir())  # two workers died
    np.testing.assert_array_equal(model.weights_, calm.weights_)
    np.testing.assert_array_equal(model.support_.atoms, calm.support_.atoms)


CALLS = 30  # several blocks, and a part of one


def doomed(folder: Path, node_id: str) -> Callable[[np.ndarray], ArrayLike]:
    """Features that leave a file for each call on a node, which after some never goes on; the others wait for that."""

    def function(x: np.ndarray) -> ArrayLike:
        here = ray.get_runtime_context().get_node_id() == node_id
        if here:
            (folder / f"{time.time_ns()}").touch()
        while len(x) == CHUNK_ROWS and (len(list(folder.iterdir())) >= CALLS) == here:  # in a pass, in its middle
            time.sleep(0.02)
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    return function


@pytest.mark.slow
def test_a_node_lost_in_the_middle_changes_nothing(cluster, calm, log, tmp_path):
    """Its work, and the sums that it kept for others, are computed again elsewhere."""
    node = cluster.add_node(num_cpus=1, object_store_memory=SMALL_STORE)

    def remove() -> None:
        while len(list(tmp_path.iterdir())) < CALLS:
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=remove, daemon=True)
    killer.start()
    model = DistributionalLSTD(calm.support_, 0.9)
    on_ray(model, log.folder, feature_function=doomed(tmp_path, node.node_id))
    killer.join()
    np.testing.assert_array_equal(model.weights_, calm.weights_)


BAD = {
    "no column": (
        {"reward": "cost"},
        "reward must name columns of .*, got 'cost'; its columns are a, b, r, a2, b2, end",
    ),
    "not lists": ({"features": "a"}, "features must name a column of lists of numbers, .* got 'a' of type double"),
    "not boolean": ({"terminated": "r"}, "terminated must name a column of booleans, got .* among them"),
    "function": ({"feature_function": np.ravel}, "feature_function must return one row of features for each of"),
    "not a number": ({"feature_function": np.log}, "X must be finite, got nan"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("bad", "sentence"), BAD.values(), ids=list(BAD))
def test_errors_of_workers_are_those_of_one_machine(cluster, log, bad, sentence):
    for fit in (on_ray, lambda model, path, **bad: fit_parquet(model, path, **(NAMES | bad))):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            fit(DistributionalLSTD(WIDE, 0.9), log.folder, **bad)


def test_no_rows_and_missing_values(cluster, tmp_path):
    table = {
        "a": [1.0, None],
        "b": [1.0, 2.0],
        "r": [0.0, 0.0],
        "a2": [1.0, 1.0],
        "b2": [1.0, 1.0],
        "end": [True, False],
    }
    pq.write_table(pa.table(table), tmp_path / "holes.parquet")
    with pytest.raises(ValueError, match=r"^features must not have missing values, got 1 in column 'a' \(.*holes"):
        on_ray(DistributionalLSTD(WIDE, 0.9), tmp_path)
    pq.write_table(pa.table(table).slice(0, 0), tmp_path / "holes.parquet")
    with pytest.raises(
        ValueError, match=r"^path must hold at least one transition, got files with none, such as .*holes"
    ):
        on_ray(DistributionalLSTD(WIDE, 0.9), tmp_path)
    with pytest.raises(ValueError, match="chunk_rows must be an integer >= 1, got 0"):
        on_ray(DistributionalLSTD(WIDE, 0.9), tmp_path, chunk_rows=0)


def test_blocks_hold_every_row_group_once():
    sizes = [[3, 3, 3], [], [0], [10], [1, 1]]
    blocks = cut_blocks(list("abcde"), sizes, 6)
    assert blocks == [[Span("a", 0, 2)], [Span("a", 2, 3), Span("d", 0, 1)], [Span("e", 0, 2)]]
    assert cut_blocks(["a"], [[0, 0]], 6) == []


def evaluate(*arguments: str, cwd: Path, code: str = "") -> subprocess.CompletedProcess[str]:
    words = ["evaluate", "--state", "a,b", "--next-state", "a2,b2", "--reward", "r", "--terminated", "end", *arguments]
    run = f"import sys\n{code}\nfrom cramerl.cli.main import main\nsys.exit(main({words!r}))"
    return subprocess.run(
        [sys.executable, "-P", "-c", run], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_command_writes_the_same_record(cluster, log, tmp_path):
    data = str(log.folder)
    result = evaluate("--data", data, "--atoms", "11", "--ray", cluster.address, "--out", "there", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "3,000 transitions, 3 features" in result.stdout
    assert not result.stderr  # Ray prints nothing
    layout = evaluations.cluster_layout(data, "a, b", "a2,b2", "r", "end")
    rows = ParquetRows(data, layout, None, lambda text: None)
    alone = DistributionalLSTD(None, 0.95, num_atoms=11).fit_source(rows)
    found = evaluations.ClusterEvaluation(alone, layout, rows.head.features)
    evaluations.write_cluster_evaluation(found, tmp_path / "here")
    here, there = (json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("here", "there"))
    for name in ("weights", "support"):
        np.testing.assert_allclose(there[name], here[name], atol=1e-10)
    close = ("weights", "support", "residual", "certificate", "support_report", "distributions")
    assert [value for name, value in there.items() if name not in close] == [
        value for name, value in here.items() if name not in close
    ]


def test_workers_of_the_command_import_nothing_from_the_current_folder(cluster, log, tmp_path):
    for name in ("numpy", "pyarrow", "cramerl"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    data = os.path.relpath(log.folder, tmp_path)
    result = evaluate("--data", data, "--atoms", "11", "--ray", cluster.address, "--out", "there", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_command_says_what_is_wrong(log, tmp_path):
    data = ["--data", str(log.folder)]
    missing = evaluate(*data, "--ray", cwd=tmp_path, code="sys.modules['ray'] = None")
    assert missing.returncode == 2
    assert "pip install 'cramerl[ray]'" in missing.stderr
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nobody = evaluate(*data, "--ray", f"127.0.0.1:{port}", cwd=tmp_path)
    assert nobody.returncode == 2
    assert f"'127.0.0.1:{port}': Connection refused" in nobody.stderr
    assert nobody.stderr.count("\n") == 1


def test_addresses(cluster, monkeypatch):
    with pytest.raises(ValueError, match=r"to which this process is connected, got '127\.0\.0\.1:1'"):
        _ray.connect("127.0.0.1:1").__enter__()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ValueError, match="got 'cluster': that is not an address"):
        _ray.connect("cluster").__enter__()

    def silent(*_, **__):
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(ValueError, match=r"got '10\.0\.0\.1:6379': no answer in 10 seconds"):
        _ray.connect("10.0.0.1:6379").__enter__()
