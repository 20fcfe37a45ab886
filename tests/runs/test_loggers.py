"""Where log lines go beside ``metrics.jsonl``: TensorBoard's files are read back record by record."""

import importlib
import importlib.util
import json
import shutil
import struct
import sys
import types
from typing import Any

import jax
import numpy as np
import pytest
from tensorboardX.record_writer import masked_crc32c

import cramerl
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.loggers import TensorBoard, Tracker
from cramerl.runs.presets import preset

PROTO: Any = importlib.import_module("tensorboardX.proto.event_pb2")
COLUMNS = {"step", "frames", "iteration", "seed"}
TINY = {"steps": 240, "iteration_steps": 120, "log_steps": 40, "min_replay_steps": 80, "num_atoms": 5, "batch_size": 4}
TINY |= {"network": "linear", "max_episode_steps": 20, "v_min": 0.0, "v_max": 20.0}
TINY |= {"eval_episodes": 2, "tensorboard": True}

pytestmark = pytest.mark.usefixtures("lenient_jax")


def events(folder):
    """Events of a folder's files, the oldest file first."""
    for path in sorted(folder.iterdir(), key=lambda path: int(path.name.split(".")[3])):
        data = path.read_bytes()
        while data:
            (size,), (crc,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
            assert masked_crc32c(data[:8]) == crc
            body, (crc,) = data[12 : 12 + size], struct.unpack("<I", data[12 + size : 16 + size])
            assert masked_crc32c(body) == crc
            yield PROTO.Event.FromString(body)
            data = data[16 + size :]


def shown(folder):
    """What TensorBoard shows, {(tag, step): values}: a session's start hides all that is at its step or later."""
    values: dict[tuple[str, int], list[float]] = {}
    for event in events(folder):
        if event.HasField("session_log") and event.session_log.status == PROTO.SessionLog.START:
            values = {key: value for key, value in values.items() if key[1] < event.step}
        for value in event.summary.value:
            values.setdefault((value.tag, event.step), []).append(value.simple_value)
    return values


def logged(rows, seed):
    """The same from lines of a log."""
    own = [row for row in rows if row.get("seed", seed) == seed]
    return {(tag, row["step"]): [value] for row in own for tag, value in row.items() if tag not in COLUMNS}


def assert_shown(run, seed=0):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ours, theirs = shown(run / "tensorboard" / f"seed-{seed}"), logged(rows, seed)
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        assert len(ours[key]) == 1, key
        np.testing.assert_allclose(ours[key], values, rtol=1e-6, err_msg=str(key))


def age(run):
    """Make a run's files older: they are named by the second in which they begin, and a test begins several in one."""
    for path in (run / "tensorboard").glob("*/*"):
        stem, second, host = path.name.split(".")[:3], int(path.name.split(".")[3]), path.name.split(".", 4)[4]
        path.rename(path.with_name(".".join([*stem, f"{second - 100:010d}", host])))


def config(**changes):
    return preset("smoke", "s51", "CartPole-v1", **{**TINY, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return cramerl.train(config(), out=tmp_path_factory.mktemp("runs") / "run").folder


def test_tensorboard_holds_what_the_log_holds(run):
    assert_shown(run)
    tags = {tag for tag, _ in shown(run / "tensorboard" / "seed-0")}
    assert tags >= {"charts/episodic_return", "charts/episodic_length", "charts/epsilon", "losses/loss"}
    assert tags >= {"losses/q_values", "dist/mass", "dist/negative_mass", "dist/clipped_mass", "eval/episodic_return"}
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    speed = {(tag, row["step"]): row[tag] for row in timing for tag in ("charts/SPS", "time/frames_per_second")}
    ours = shown(run / "tensorboard" / "time")
    assert ours.keys() == speed.keys()
    for key, value in speed.items():
        np.testing.assert_allclose(ours[key], [value], rtol=1e-6)


def test_a_run_made_longer_shows_each_line_once(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    age(folder)
    # Lines that a killed process wrote after its last checkpoint.
    late = TensorBoard(folder, 240)
    late.log({"step": 260, "seed": 0, "losses/loss": 123.0})
    late.log({"step": 280, "seed": 0, "losses/loss": 456.0})
    late.close()
    age(folder)
    assert ("losses/loss", 280) in shown(folder / "tensorboard" / "seed-0")
    assert cramerl.resume(folder, 360).finished
    assert_shown(folder)


def test_a_run_that_begins_anew_shows_each_line_once(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")  # killed before the first one
    age(folder)
    assert cramerl.resume(folder).finished
    assert_shown(folder)


def test_a_folder_for_each_seed(tmp_path):
    board = TensorBoard(tmp_path, 0)
    for seed in (3, 4):
        board.log({"step": 5, "frames": 20, "iteration": 0, "seed": seed, "losses/loss": 0.5 * seed})
    board.log({"step": 5, "charts/SPS": 7.0})
    board.close()
    found = {path.name: shown(path) for path in (tmp_path / "tensorboard").iterdir()}
    assert found == {
        "seed-3": {("losses/loss", 5): [1.5]},
        "seed-4": {("losses/loss", 5): [2.0]},
        "time": {("charts/SPS", 5): [7.0]},
    }


LANES = [
    {"mass_penalty": penalty, "learning_rate": rate, "seed": 3} for penalty in (0.0, 2.5) for rate in (1e-3, 1e-05)
]


def test_a_folder_for_each_lane(tmp_path):
    board = TensorBoard(tmp_path, 0)
    for number, lane in enumerate(LANES[:3]):
        board.log({"step": 5, "frames": 20, "iteration": 0, **lane, "losses/loss": float(number)})
    board.log({"step": 5, "frames": 20, "iteration": 0, **LANES[3], "diverged": True})
    board.log({"step": 5, "seed": 3, "eval/episodic_return": 8.0})  # of the first lane, whose other tags it lacks
    board.close()
    found = {path.name: shown(path) for path in (tmp_path / "tensorboard").iterdir()}
    assert found == {
        "mass_penalty-0.0_learning_rate-0.001_seed-3": {("losses/loss", 5): [0.0]},
        "mass_penalty-0.0_learning_rate-1e-05_seed-3": {("losses/loss", 5): [1.0]},
        "mass_penalty-2.5_learning_rate-0.001_seed-3": {("losses/loss", 5): [2.0]},
        "mass_penalty-2.5_learning_rate-1e-05_seed-3": {("diverged", 5): [1.0]},
        "seed-3": {("eval/episodic_return", 5): [8.0]},
    }


@pytest.mark.parametrize("many", [True, False])
def test_tags_of_lanes_in_a_tracker(many, monkeypatch):
    sent = []
    library = types.ModuleType("trackio")
    calls = {"init": lambda **_: None, "log": lambda row, step: sent.append((step, row)), "finish": lambda: None}
    for name, call in calls.items():
        setattr(library, name, call)
    monkeypatch.setitem(sys.modules, "trackio", library)
    group = RunGroup.of(config(seed=3), learning_rate=[1e-3, 1e-5] if many else [1e-3])
    tracker = Tracker("trackio", "run", group)
    tracker.log({"step": 5, **(LANES[0] if many else {"seed": 3}), "losses/loss": 1.0})
    tracker.log({"step": 5, "charts/SPS": 7.0})
    tracker.close()
    (_, row), speed = sent
    prefix = "mass_penalty-0.0_learning_rate-0.001_seed-3/" if many else ""
    assert row[f"{prefix}losses/loss"] == 1.0
    assert all(tag.startswith(prefix) for tag in row)
    assert speed == (5, {"charts/SPS": 7.0})


@pytest.mark.parametrize("library", ["wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_named_before_anything_is_made(library, tmp_path):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    words = rf"{library} is not installed; install it with: pip install 'cramerl\[{library}\]'"
    with pytest.raises(ValueError, match=words):
        cramerl.train(config(track=library), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=words):
        Tracker(library, "run", as_group(config()))


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    tracker = Tracker("wandb", "run", as_group(config()))
    tracker.log({"step": 5, "losses/loss": 1.0})
    tracker.close()
    assert list(tmp_path.rglob("*.wandb"))
