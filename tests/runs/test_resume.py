"""A resumed run is the run that was never stopped: the same log byte for byte, the same weights and replay bit for bit.

Runs are killed (SIGKILL), also while a checkpoint is written; paused; made longer; and go on after a damaged
checkpoint, a full disk or a lost log.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lenient import lenient

import cramerl
from cramerl.deep.checkpoint import CheckpointStore, Damaged
from cramerl.deep.env_group import EnvGroup
from cramerl.deep.host_loop import HostLoop
from cramerl.runs import evaluator
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.presets import preset
from cramerl.runs.trainer import Diverged, Run, Status, require_same_settings

# Four iterations of 160 steps, a line of the log every 40, blocks of 4; the replay holds less than half of the run, and
# learning starts in the second iteration. Most tests use these settings, so that few programs are compiled.
STEPS, ITERATION, LOG, ROWS = 640, 160, 40, 120
LEARNING = ITERATION + 80
TINY = {
    "steps": STEPS,
    "iteration_steps": ITERATION,
    "log_steps": LOG,
    "num_envs": 2,
    "replay_steps": 2 * ROWS,
    "min_replay_steps": LEARNING,
    "target_period_steps": 60,
    "batch_size": 4,
    "n_step": 3,
    "double_q": True,
    "eval_episodes": 2,
    "max_episode_steps": 40,
    "hidden_units": (8,),
}
ATARI = {"network": "mlp", "sticky": 0.25, "noop_max": 5, "clip_rewards": True}
ENVIRONMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cartpole": ("s51", "CartPole-v1", {}),
    "lanes": ("s51", "CartPole-v1", {"seed": [0, 1]}),
    "breakout": ("u51", "Breakout-MinAtar", {"q_lambda": 0.7, "q_lambda_greedy": 0.8, "mode_exponent": 0.5}),
    "pong": ("c51", "pong", ATARI),
    "pong on the host": ("qr", "pong", {**ATARI, "replay_on": "host"}),
    "gymnasium": ("dqn", "gym:CartPole-v1", {"optimiser": "rmsprop"}),
    "gymnasium on the host": ("hl_gauss", "gym:CartPole-v1", {"replay_on": "host"}),
}
FAMILIES = ["cartpole", "pong", "gymnasium"]


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def settings(name: str, **changes: Any) -> RunGroup:
    agent, env, own = ENVIRONMENTS[name]
    atoms = {} if agent == "dqn" else {"num_atoms": 11}
    # Supports that find themselves are resumed too, but not in every test: they are two more programs to compile.
    fixed = {"v_min": -50.0, "v_max": 50.0} if agent in ("c51", "u51", "hl_gauss") or name == "lanes" else {}
    values = {**TINY, **atoms, **fixed, **own, **changes}
    lanes = {name: values.pop(name) for name in ("seed", "learning_rate") if isinstance(values.get(name), list)}
    return RunGroup.of(preset("smoke", agent, env, **values), **lanes)


def train(config: RunGroup, folder: Path, on_progress: Callable[[Status], None] | None = None) -> Run:
    with lenient():
        return cramerl.train(config, out=folder, on_progress=on_progress)


def resume(folder: Path | Run, steps: int | None = None, on_progress: Callable[[Status], None] | None = None) -> Run:
    with lenient():
        return cramerl.resume(folder, steps, on_progress=on_progress)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[str], Path]:
    """Runs that nothing happened to."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp("whole") / "run"
            assert train(settings(name), folder).finished
            made[name] = folder
        return made[name]

    return run


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """Ctrl-C as in a terminal, also where this process was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# What a run left behind.


def log_of(run: Path) -> bytes:
    return (run / "metrics.jsonl").read_bytes()


def last_state(run: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the last checkpoint says, its arrays, and the live rows of the replay in one piece."""
    store = CheckpointStore(run / "checkpoints")
    saved = store.latest()
    assert saved is not None
    assert store.problems == []
    first, stop = saved.info["rows"]
    rows: dict[str, list[np.ndarray]] = {}
    for start, part in store.rows(saved):
        assert start == first
        first += len(part["flags"])
        for name, array in part.items():
            rows.setdefault(name, []).append(array)
    assert first == stop
    return saved.info, saved.arrays, {name: np.concatenate(parts) for name, parts in rows.items()}


def assert_same(run: Path, other: Path) -> None:
    assert log_of(run).decode().splitlines() == log_of(other).decode().splitlines()
    assert log_of(run) == log_of(other)
    episodes = [(folder / "episodes.jsonl").read_bytes() for folder in (run, other)]
    assert episodes[0].splitlines() == episodes[1].splitlines()
    assert episodes[0] == episodes[1] != b""
    (info, *arrays), (other_info, *other_arrays) = last_state(run), last_state(other)
    assert info == other_info
    for mine, theirs in zip(arrays, other_arrays, strict=True):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape)
            if array.tobytes() != theirs[name].tobytes():
                different = np.argwhere(np.atleast_1d(array != theirs[name]))
                pytest.fail(f"{name} differs, first at {different[:1]}, in {len(different)} places")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def checkpoints_of(run: Path) -> list[Path]:
    return sorted(path for path in (run / "checkpoints").iterdir() if re.fullmatch(r"\d{6}", path.name))


def lines_of(run: Path) -> int:
    return log_of(run).count(b"\n") if (run / "metrics.jsonl").exists() else 0


def test_the_runs_compared_here_have_something_to_compare(whole):
    for name in FAMILIES:
        info, arrays, rows = last_state(whole(name))
        assert info["step"] == STEPS
        first, stop = info["rows"]
        assert first > 0, "the replay must have been overwritten"
        assert stop - first == ROWS
        assert any("optimiser" in key for key in arrays)
        assert any("target_params" in key for key in arrays)
        assert all(len(np.unique(rows[key])) > 1 for key in ("frames", "actions", "flags"))
        lines = [json.loads(line) for line in log_of(whole(name)).splitlines()]
        assert len(lines) == STEPS // LOG + STEPS // ITERATION
        assert sum("eval/episodic_return" in line for line in lines) == STEPS // ITERATION
        assert len({line["losses/loss"] for line in lines if "losses/loss" in line}) == (STEPS - LEARNING) // LOG


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_settings_write_the_same_bytes_and_another_seed_does_not(name, whole, tmp_path):
    train(settings(name), tmp_path / "again")
    assert_same(tmp_path / "again", whole(name))
    train(settings(name, seed=1, steps=2 * ITERATION), tmp_path / "other")
    lines = lines_of(tmp_path / "other")
    mine, other = (log_of(run).splitlines()[:lines] for run in (whole(name), tmp_path / "other"))
    values = [[json.loads(line) | {"seed": None} for line in lines] for lines in (mine, other)]
    assert values[0] != values[1]


# Killed. The process kills itself at the n-th fsync, which is in the middle of a checkpoint, or is killed from here.

WORKER = """
import json, os, shutil, signal, sys, time
from pathlib import Path
import cramerl
from cramerl.runs.group import RunGroup
folder, settings, fatal, pause = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
real, calls = os.fsync, 0
def fsync(descriptor):
    global calls
    calls += 1
    if calls == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
on_progress = lambda status: time.sleep(pause)
if (folder / "config.json").exists():
    run = cramerl.resume(folder, on_progress=on_progress)
else:
    shutil.rmtree(folder, ignore_errors=True)
    run = cramerl.train(RunGroup.from_json(json.loads(settings)), out=folder, on_progress=on_progress)
assert run.finished
"""
# Calls in a checkpoint: two logs, shard, its folder, state, manifest, their folder, the folder of all; the first makes
# two more.
FIRST_SYNCS, SYNCS = 10, 8


class Worker:
    """A run in a process of its own, begun or resumed."""

    def __init__(
        self, folder: Path, config: RunGroup, fatal_sync: int = 0, pause: float = 0, *, compile_again: bool = False
    ):
        env = {name: value for name, value in os.environ.items() if not (compile_again and name.endswith("CACHE_DIR"))}
        command = [sys.executable, "-c", WORKER, str(folder), json.dumps(config.to_json()), str(fatal_sync), str(pause)]
        self.folder, self.started = folder, time.monotonic()
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)

    def wait(self) -> int:
        try:
            _, self.words = self.process.communicate(timeout=240)
        finally:
            self.process.kill()
        assert "Traceback" not in self.words, self.words
        return self.process.returncode

    def kill_when(self, happened: Callable[[], bool], delay: float = 0) -> int:
        """Kill it ``delay`` seconds after something happened; its exit status."""
        while self.process.poll() is None and not happened() and time.monotonic() < self.started + 240:
            time.sleep(0.0002)
        time.sleep(delay)
        self.process.kill()
        return self.wait()

    def writes_a_checkpoint(self) -> bool:
        folder = self.folder / "checkpoints"
        return folder.is_dir() and any(name.endswith(".tmp") for name in os.listdir(folder))


KILLED = -signal.SIGKILL


@pytest.mark.parametrize("name", [slow("cartpole"), slow("pong"), "gymnasium", slow("breakout")])
def test_killed_twice_and_resumed(name, whole, tmp_path):
    config, run, moments = settings(name), tmp_path / "run", random.Random(name)
    reference = whole(name)
    # In the second checkpoint, half way; the first must then be good.
    assert Worker(run, config, fatal_sync=FIRST_SYNCS + moments.randint(2, SYNCS)).wait() == KILLED
    assert 2 * (ITERATION // LOG + 1) <= lines_of(run) < 3 * (ITERATION // LOG + 1)  # training went on meanwhile
    assert [path.name for path in checkpoints_of(run)] in (["000001"], ["000001", "000002"])
    # Then at any moment after a few more lines.
    wanted = lines_of(run) + moments.randint(1, 5)
    worker = Worker(run, config, pause=0.02)
    assert worker.kill_when(lambda: lines_of(run) >= wanted, delay=moments.uniform(0, 0.05)) == KILLED
    assert lines_of(run) < lines_of(reference)
    assert Worker(run, config).wait() == 0
    assert_same(run, reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != "lanes"])
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_again_and_again(name, seed, whole, tmp_path):
    """Five kills in a row, at moments of every kind; every other chain compiles everything again."""
    config, run, moments = settings(name), tmp_path / "run", random.Random(f"{name}{seed}")
    reference, kills = whole(name), 0
    for kind in moments.sample(["sync", "line", "tmp", "time", "line"], 5):
        fatal = moments.randint(1, FIRST_SYNCS + 2) if kind == "sync" else 0
        worker = Worker(run, config, fatal_sync=fatal, pause=0.02, compile_again=not seed)
        begun, delay = lines_of(run), moments.uniform(0, 0.05)
        if kind == "sync":
            status = worker.wait()
        elif kind == "tmp":
            status = worker.kill_when(worker.writes_a_checkpoint)
        elif kind == "line":
            wanted = begun + moments.randint(1, 3)
            status = worker.kill_when(lambda wanted=wanted: lines_of(run) >= wanted, delay)
        else:
            status = worker.kill_when(lambda: lines_of(run) >= 1, moments.uniform(0, 0.5))
        assert status in (KILLED, 0), worker.words
        kills += status == KILLED
    assert kills >= 2
    assert Worker(run, config).wait() == 0
    assert_same(run, reference)


def test_killed_before_the_first_checkpoint_a_run_begins_anew(whole, tmp_path):
    run = shutil.copytree(whole("gymnasium"), tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints" / "replay").mkdir(parents=True)
    (run / "checkpoints" / ".000001.tmp").mkdir()
    (run / "checkpoints" / "replay" / f"rows-{0:012d}-{81:012d}.safetensors").write_bytes(b"half a sha")
    (run / "metrics.jsonl").write_bytes(log_of(run)[:700])
    assert resume(run).finished
    assert_same(run, whole("gymnasium"))


# Stopped on purpose.


@pytest.mark.parametrize("name", [*FAMILIES, slow("pong on the host"), slow("breakout")])
def test_half_a_run_made_longer_is_the_longer_run(name, whole, tmp_path):
    half = train(settings(name, steps=STEPS // 2), tmp_path / "run")
    assert (half.finished, half.step) == (True, STEPS // 2)
    longer = resume(half, STEPS)
    assert (longer.finished, longer.step) == (True, STEPS)
    assert_same(tmp_path / "run", whole(name))
    assert (tmp_path / "run" / "config.json").read_bytes() == (whole(name) / "config.json").read_bytes()


def test_a_run_that_ended_within_an_iteration_can_be_made_longer(whole, tmp_path):
    """Without evaluation, which comes at the end of a run too, nothing shows where it ended."""
    reference = tmp_path / "reference"
    train(settings("gymnasium", eval_episodes=0), reference)
    train(settings("gymnasium", eval_episodes=0, steps=ITERATION * 3 + 2 * LOG), tmp_path / "run")
    assert resume(tmp_path / "run", STEPS).finished
    assert_same(tmp_path / "run", reference)


def pressing_ctrl_c_at(step: int) -> Callable[[Status], None]:
    pressed = False

    def report(status: Status) -> None:
        nonlocal pressed
        if status.step == step and not pressed:
            pressed = True
            signal.raise_signal(signal.SIGINT)

    return report


@pytest.mark.parametrize("name", ["cartpole", "gymnasium"])
def test_sigterm_writes_a_checkpoint_and_ends_the_process(name, whole, tmp_path):
    """After the block the signal comes again: to a program that handles it not at all, that is its end."""
    run, told, came, pressed = tmp_path / "run", [], [], []

    def report(status: Status) -> None:
        told.append(status.message or "")
        if status.step == ITERATION + LOG and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(last_state(run)[0]["step"]))
    try:
        assert not train(settings(name), run, report).finished
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [last_state(run)[0]["step"]]
    assert came[0] >= ITERATION + LOG
    assert any(f"the checkpoint of step {came[0]:,} is written" in text for text in told)
    assert resume(run).finished
    assert_same(run, whole(name))


def test_a_stop_within_an_evaluation_does_not_wait_for_its_end(whole, tmp_path, monkeypatch):
    """Its games may have none. What it played is played again."""
    run, calls = tmp_path / "run", []
    real = evaluator.play_episodes

    def play(agent, envs, episodes, *, on_step, **options):
        def pressing(*played: object) -> None:
            if len(calls) == 1:
                signal.raise_signal(signal.SIGINT)
            on_step(*played)

        calls.append(episodes)
        return real(agent, envs, episodes, on_step=pressing, **options)

    monkeypatch.setattr(evaluator, "play_episodes", play)
    assert not train(settings("gymnasium"), run).finished
    assert resume(run).finished
    assert_same(run, whole("gymnasium"))


@contextmanager
def ctrl_c_within(block: int) -> Iterator[None]:
    """Ctrl-C at the end of that block of a host loop."""
    real = HostLoop._run_block

    def run_block(loop: HostLoop, now: int, *, learning: bool) -> None:
        real(loop, now, learning=learning)
        if now == block:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostLoop, "_run_block", run_block)
        yield


@pytest.mark.parametrize("name", ["cartpole", "gymnasium", slow("pong on the host")])
def test_paused_at_lines_of_the_log(name, whole, tmp_path):
    """Within the first iteration, at the end of the second, and within the last."""
    run, told = tmp_path / "run", []
    for stop in (2 * LOG, 2 * ITERATION, 3 * ITERATION + 2 * LOG):
        press = pressing_ctrl_c_at(stop)

        def report(status: Status, press: Callable[[Status], None] = press) -> None:
            told.append(status.message)
            press(status)

        paused = resume(run, on_progress=report) if run.exists() else train(settings(name), run, report)
        assert (paused.finished, paused.step) == (False, stop)
        assert "stopping with a checkpoint; Ctrl-C again stops at once" in told
    assert resume(run).finished
    assert_same(run, whole(name))


@pytest.mark.parametrize("name", ["gymnasium on the host", slow("pong on the host"), slow("pong"), slow("gymnasium")])
def test_paused_between_lines_of_the_log(name, whole, tmp_path):
    """Twice in an iteration, and then past a checkpoint: its replay is that of the run, not that of the pause."""
    run = tmp_path / "run"
    for block in (3, 90, 93, 130):  # before learning; in the third iteration; again; in the last
        with ctrl_c_within(block):
            paused = resume(run) if run.exists() else train(settings(name), run)
        assert (paused.finished, paused.step) == (False, 4 * (block + 1))
    assert resume(run).finished
    assert_same(run, whole(name))


def test_evaluations_have_a_period_of_their_own(tmp_path):
    """At the first line of the log after each hundred steps, and at the end; a pause in between changes nothing."""
    config = settings("gymnasium", eval_period_steps=100)
    reference = train(config, tmp_path / "whole")
    evaluated = [row["step"] for row in reference.rows if "eval/episodes" in row]
    assert evaluated == [120, 200, 320, 400, 520, 600, STEPS]
    for block in (26, 40):  # within the line of the first evaluation, and right after a checkpoint
        with ctrl_c_within(block):
            resume(tmp_path / "run") if block > 26 else train(config, tmp_path / "run")
    assert resume(tmp_path / "run").finished
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_checkpoint_is_in_place_when_it_is_announced(tmp_path):
    announced = []

    def look(folder: Path) -> None:
        info = last_state(folder)[0]
        assert info["metrics_bytes"] == len(log_of(folder))
        assert info["episodes_bytes"] == (folder / "episodes.jsonl").stat().st_size > 0
        announced.append(info["step"])

    with lenient():
        cramerl.train(settings("gymnasium"), tmp_path / "run", after_checkpoint=look)
    assert announced == list(range(ITERATION, STEPS + 1, ITERATION))


def test_what_is_seen_after_a_pause_is_stacked_as_if_there_had_been_none(tmp_path, monkeypatch):
    """The choice of an action hardly shows it, so every row's observation is looked at."""
    config, real = settings("pong on the host", steps=120, eval_episodes=0), HostLoop._seen
    seen: dict[int, np.ndarray] = {}

    def seen_by(loop: HostLoop, group: EnvGroup) -> np.ndarray:
        seen[loop.row] = np.array(real(loop, group))  # rows that are played again come before the row that is next
        return np.array(seen[loop.row])

    monkeypatch.setattr(HostLoop, "_seen", seen_by)
    train(config, tmp_path / "whole")
    whole, seen = seen, {}
    with ctrl_c_within(14):
        assert not train(config, tmp_path / "run").finished
    assert resume(tmp_path / "run").finished
    assert seen.keys() == whole.keys() == set(range(60))
    assert [row for row in whole if not np.array_equal(whole[row], seen[row])] == []
    assert whole[40].shape == (2, 84, 84, 4)


def test_rows_paused_in_are_whole_in_every_later_checkpoint(whole, tmp_path):
    """The last row's outcome is not known at a pause; it is when the next checkpoint is written."""
    run = tmp_path / "run"
    with ctrl_c_within(130):
        train(settings("gymnasium"), run)
    row = last_state(run)[0]["rows"][1] - 1
    resume(run)
    found = []
    for one in (run, whole("gymnasium")):
        info, _, rows = last_state(one)
        found.append({key: array[row - info["rows"][0]].tolist() for key, array in rows.items()})
    assert found[0] == found[1]


def test_a_replay_shorter_than_an_iteration_goes_back_to_its_start(tmp_path):
    config, told = settings("gymnasium", replay_steps=100, min_replay_steps=80), []
    train(config, tmp_path / "whole")
    press = pressing_ctrl_c_at(ITERATION + 3 * LOG)

    def report(status: Status) -> None:
        told.append(status.message)
        press(status)

    assert not train(config, tmp_path / "run", report).finished
    assert told[-1] == "the replay is shorter than an iteration: resuming starts at the iteration's beginning"
    assert last_state(tmp_path / "run")[0]["step"] == ITERATION
    assert resume(tmp_path / "run").finished
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_lanes_go_on_together(whole, tmp_path):
    paused = train(settings("lanes"), tmp_path / "run", pressing_ctrl_c_at(2 * ITERATION + LOG))
    assert not paused.finished
    assert resume(tmp_path / "run").finished
    assert_same(tmp_path / "run", whole("lanes"))


def test_both_lanes_are_in_the_log(whole):
    lines = [json.loads(line) for line in log_of(whole("lanes")).splitlines()]
    seeds = [line["seed"] for line in lines if "charts/episodes" in line]
    assert seeds == [0, 1] * (STEPS // LOG)
    by_seed = {seed: [line for line in lines if line["seed"] == seed and "losses/loss" in line] for seed in (0, 1)}
    assert [line["step"] for line in by_seed[0]] == [line["step"] for line in by_seed[1]]
    assert all(a["losses/loss"] != b["losses/loss"] for a, b in zip(by_seed[0], by_seed[1], strict=True))
    evaluated = [(line["step"], line["seed"]) for line in lines if "eval/episodic_return" in line]
    assert evaluated == [(step, seed) for step in range(ITERATION, STEPS + 1, ITERATION) for seed in (0, 1)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_finished_run_is_left_as_it_is(name, whole, tmp_path):
    run = shutil.copytree(whole(name), tmp_path / "run")
    before = files_of(run)
    again = resume(run)
    assert (again.finished, again.step, len(again.rows)) == (True, STEPS, lines_of(run))
    assert files_of(run) == before
    with pytest.raises(ValueError, match=rf"^steps must be at least {STEPS}, which the run has done, got {LOG}$"):
        resume(run, LOG)
    assert files_of(run) == before


# Damage.


def cut_state(checkpoint: Path) -> str:
    state = checkpoint / "state.safetensors"
    os.truncate(state, state.stat().st_size - 1)
    return r"checkpoint 000004 cannot be used: state.safetensors has \d+ bytes, but must have \d+"


def alter_shard(checkpoint: Path) -> str:
    shard = max((checkpoint.parent / "replay").iterdir())
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    return r"checkpoint 000004 cannot be used: rows-\d+-\d+.safetensors has been altered: .*"


def lose_manifest(checkpoint: Path) -> str:
    (checkpoint / "manifest.json").unlink()
    return r"checkpoint 000004 cannot be used: manifest.json cannot be read \(No such file or directory\)"


def other_format(checkpoint: Path) -> str:
    file = checkpoint / "manifest.json"
    manifest = json.loads(file.read_text()) | {"format": 99, "cramerl": "7.0"}
    file.write_text(json.dumps(manifest))
    return (
        rf"checkpoint {checkpoint.name} cannot be used: manifest.json has format 99, written by cramerl 7\.0; "
        rf"cramerl {re.escape(cramerl.__version__)} reads format \d+"
    )


@pytest.mark.parametrize("damage", [cut_state, alter_shard, lose_manifest, other_format])
@pytest.mark.parametrize("name", ["cartpole", "gymnasium on the host"])
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(name, damage, whole, tmp_path):
    run, told = shutil.copytree(whole(name), tmp_path / "run"), []
    sentence = damage(checkpoints_of(run)[-1])
    assert resume(run, on_progress=lambda status: told.append((status.step, status.message))).finished
    step, words = told[0]
    assert step == STEPS - ITERATION
    assert words
    assert re.fullmatch(sentence + "; continuing from an earlier one", words)
    assert not any("checkpoint" in (message or "") for _, message in told[1:] if "were cut" not in (message or ""))
    assert_same(run, whole(name))


@pytest.mark.parametrize("damage", [lambda path: (path / "state.safetensors").write_bytes(b""), other_format])
def test_no_checkpoint_can_be_used(damage, whole, tmp_path):
    run = shutil.copytree(whole("gymnasium"), tmp_path / "run")
    for checkpoint in checkpoints_of(run):
        damage(checkpoint)
    before = files_of(run)
    with pytest.raises(Damaged, match=r"holds no usable checkpoint .*checkpoint 000004.*checkpoint 000003"):
        resume(run)
    assert files_of(run) == before


def test_a_log_shorter_than_the_checkpoint_says(whole, tmp_path):
    run = shutil.copytree(whole("gymnasium"), tmp_path / "run")
    size = len(log_of(run))
    os.truncate(run / "metrics.jsonl", size - 10)
    with pytest.raises(ValueError, match=rf"metrics.jsonl is shorter than the checkpoint says \({size - 10} < {size} "):
        resume(run)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=rf"metrics.jsonl is shorter than the checkpoint says \(0 < {size} bytes\)$"):
        resume(run)


def test_what_the_log_has_beyond_the_checkpoint_is_forgotten(whole, tmp_path):
    run = shutil.copytree(whole("gymnasium"), tmp_path / "run")
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(b'{"step": 1000, "fra')
    resume(run)
    assert_same(run, whole("gymnasium"))


# A full disk.


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("left", [64 << 10, slow(0)])
def test_a_full_disk_keeps_the_last_good_checkpoint(left, small_disk, whole):
    """With a little space left the checkpoint does not fit; with none the log does not grow either."""
    run, filler = small_disk / "run", small_disk / "filler"

    def report(status: Status) -> None:
        if status.step == 2 * ITERATION - LOG:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            filler.write_bytes(bytes(free - left))

    with pytest.raises(OSError, match="No space left on device") as caught:
        train(settings("pong"), run, report)
    assert caught.value.errno == errno.ENOSPC
    if left:
        assert "checkpoint of iteration 2 was not written; the last good one is iteration 1" in str(caught.value)
    assert [path.name for path in checkpoints_of(run)] == ["000001"]
    assert last_state(run)[0]["step"] == ITERATION
    assert not [path for path in (run / "checkpoints").rglob("*") if path.name.startswith(".")]
    with pytest.raises(OSError, match="No space left on device"):
        resume(run)  # still full
    assert last_state(run)[0]["step"] == ITERATION
    filler.unlink()
    assert resume(run).finished
    assert_same(run, whole("pong"))


# A loss that is not finite. With this step size the first update leaves weights beyond float32's squares, so that the
# second one's loss is infinite.

RUINOUS = {"learning_rate": 1e30, "eval_episodes": 0}


@pytest.mark.parametrize("name", ["cartpole", "gymnasium", slow("pong")])
def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(name, tmp_path):
    run, told = tmp_path / "run", []
    config = settings(name, **RUINOUS)
    first = LEARNING  # step of the first block that learns; one update in a block of four steps
    sentence = (
        rf"^the loss is not finite at update 1, near step {first + 8}; the last good checkpoint is at step {ITERATION} "
        rf"in {re.escape(str(run))}\. A smaller learning_rate may help$"
    )
    for go_on in (lambda: train(config, run, told.append), lambda: resume(run, on_progress=told.append)):
        with pytest.raises(Diverged, match=sentence):
            go_on()
        assert [path.name for path in checkpoints_of(run)] == ["000001"]
        info, arrays, _ = last_state(run)
        assert info["step"] == ITERATION
        assert all(np.isfinite(array).all() for array in arrays.values())
        *lines, last = (json.loads(line) for line in log_of(run).splitlines())
        assert [line["step"] for line in lines] == list(range(LOG, first + 1, LOG))
        frames = (first + LOG) * lines[0]["frames"] // lines[0]["step"]
        assert last == {"step": first + LOG, "frames": frames, "iteration": 1, "seed": 0, "diverged": True}


def test_weights_ruined_just_before_a_checkpoint_are_not_its_weights(tmp_path):
    """The last block of the iteration makes the first update: its loss is finite, the weights it leaves are not."""
    run = tmp_path / "run"
    ruinous = {**RUINOUS, "learning_rate": 3e38, "min_replay_steps": 2 * ITERATION - 4, "replay_steps": STEPS}
    with pytest.raises(Diverged, match=f"not finite.* the last good checkpoint is at step {ITERATION} in"):
        train(settings("gymnasium", **ruinous), run)
    assert all(np.isfinite(array).all() for array in last_state(run)[1].values())


def test_a_pause_after_the_loss_was_lost_does_not_replace_the_good_checkpoint(tmp_path):
    run = tmp_path / "run"
    first = LEARNING // 4
    with ctrl_c_within(first + 4), pytest.raises(Diverged, match=f"last good checkpoint is at step {ITERATION} in"):
        train(settings("gymnasium", **RUINOUS), run)
    info, arrays, _ = last_state(run)
    assert info["step"] == ITERATION
    assert all(np.isfinite(array).all() for array in arrays.values())


@pytest.mark.slow
def test_a_support_that_is_too_small_is_said_once(tmp_path):
    """Returns of CartPole are positive: none has room below -1, all have on [0, 100]."""
    for low, high, said in ((-2.0, -1.0, 1), (0.0, 100.0, 0)):
        told: list[Status] = []
        train(
            settings("cartpole", v_min=low, v_max=high, steps=ITERATION, min_replay_steps=80, eval_episodes=0),
            tmp_path / f"{high:g}",
            told.append,
        )
        words = [one.message for one in told if one.message and "cannot be told apart" in one.message]
        assert len(words) == said
        assert all(re.search(r"a realised return, .*, lies above v_max = -1: returns beyond it", one) for one in words)


# With several lanes one that is lost does not take the others with it.

LOSING = {"learning_rate": [1e-3, 1e30], "seed": 0}


@pytest.fixture(scope="module")
def losing(tmp_path_factory) -> tuple[Path, list[Status]]:
    """A run whose second lane is lost within its second iteration."""
    run, told = tmp_path_factory.mktemp("losing") / "run", []
    assert train(settings("lanes", **LOSING), run, told.append).finished
    return run, told


def test_a_lane_that_is_lost_says_so_once_and_the_others_go_on(losing, tmp_path):
    run, told = losing
    lines = [json.loads(line) for line in log_of(run).splitlines()]
    first = LEARNING + LOG  # the line after the first update
    own = [line for line in lines if line.get("learning_rate") == 1e30]
    place = {"step": first, "frames": first, "iteration": 1}
    assert own.pop() == place | {"learning_rate": 1e30, "seed": 0, "diverged": True}
    assert [line["step"] for line in own if "charts/episodes" in line] == list(range(LOG, first, LOG))
    words = [status.message for status in told if status.message and "diverged" in status.message]
    assert words == [
        f"diverged: run 1 (learning_rate 1e+30, seed 0): the loss is not finite at update 1, near step "
        f"{first - LOG + 8}; 1 of 2 runs continue"
    ]
    assert all(status.row is None or status.row["learning_rate"] == 1e-3 for status in told)
    described = json.loads((run / "weights.json").read_text(), parse_constant=pytest.fail)
    assert set(described["norms"][1].values()) == {1e30, 0, None}
    assert None not in described["norms"][0].values()
    # The other lane is what it is beside a good one.
    good = {**LOSING, "learning_rate": [1e-3, 2e-3]}
    train(settings("lanes", **good), tmp_path / "good")
    both = [log_of(folder).decode().splitlines() for folder in (run, tmp_path / "good")]
    others = [[line for line in each if '"learning_rate": 0.001' in line] for each in both]
    assert others[0] == others[1]
    assert len(others[0]) == STEPS // LOG + STEPS // ITERATION


@pytest.mark.parametrize("stop", [LEARNING, LEARNING + LOG, 3 * ITERATION])
def test_a_run_with_a_lost_lane_goes_on_as_if_never_stopped(stop, losing, tmp_path):
    """Stopped before it is lost, right where it is written off, and long after."""
    run = tmp_path / "run"
    assert not train(settings("lanes", **LOSING), run, pressing_ctrl_c_at(stop)).finished
    assert resume(run).finished
    assert_same(run, losing[0])
    assert (run / "weights.json").read_bytes() == (losing[0] / "weights.json").read_bytes()


def test_a_finished_run_with_a_lost_lane_is_left_as_it_is(losing, tmp_path):
    run = shutil.copytree(losing[0], tmp_path / "run")
    before = files_of(run)
    assert resume(run).finished
    assert files_of(run) == before


def test_a_lost_lane_cannot_be_loaded(losing):
    assert cramerl.load_agent(losing[0]).params
    sentence = (
        r"^lane must be one of 0 \(learning_rate 0.001, seed 0\) in .*run, got 1, which diverged: its loss was not"
    )
    with pytest.raises(ValueError, match=sentence):
        cramerl.load_agent(losing[0], lane=1)


def test_a_lane_is_not_evaluated_once_it_is_lost_and_the_others_are(losing):
    lines = [json.loads(line) for line in log_of(losing[0]).splitlines()]
    evaluated = [(line["learning_rate"], line["step"]) for line in lines if "eval/episodic_return" in line]
    assert [step for rate, step in evaluated if rate == 1e30] == [ITERATION]
    assert [step for rate, step in evaluated if rate == 1e-3] == list(range(ITERATION, STEPS + 1, ITERATION))


def test_the_last_lane_is_evaluated_if_the_first_is_lost(tmp_path):
    changes = {**LOSING, "learning_rate": [1e30, 1e-3], "checkpoints": "weights"}
    run = train(settings("lanes", **changes), tmp_path / "run")
    assert run.finished
    steps = [line["step"] for line in run.rows if "eval/episodic_return" in line and line["learning_rate"] == 1e-3]
    assert steps == list(range(ITERATION, STEPS + 1, ITERATION))


def test_when_all_lanes_are_lost_the_run_ends(tmp_path):
    run = tmp_path / "run"
    config = settings("lanes", **{**LOSING, "learning_rate": [1e29, 1e30]})
    sentence = "^all 2 runs diverged, the last of them because the loss is not finite at update 1, near step 248; the "
    for go_on in (lambda: train(config, run), lambda: resume(run)):
        with pytest.raises(Diverged, match=sentence):
            go_on()
        lines = [json.loads(line) for line in log_of(run).splitlines()]
        assert [line["step"] for line in lines if line.get("diverged")] == [LEARNING + LOG] * 2
        assert last_state(run)[0]["step"] == ITERATION


def test_a_run_whose_replay_has_lost_its_last_iteration_cannot_be_made_longer(tmp_path):
    run = tmp_path / "run"
    ended = ITERATION + 3 * LOG
    train(settings("gymnasium", replay_steps=100, min_replay_steps=80, steps=ended, eval_episodes=0), run)
    before = files_of(run)
    sentence = (
        rf"^{re.escape(str(run))} cannot be made longer: its replay_steps are fewer than the steps of its last "
        "iteration, whose actions are needed to restore the environments$"
    )
    with pytest.raises(ValueError, match=sentence):
        resume(run, STEPS)
    assert files_of(run) == before
    assert resume(run).step == ended


def test_one_process_at_a_time_trains_into_a_folder(tmp_path):
    from cramerl.runs.folder import RunFolder

    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    with folder.locked(), pytest.raises(ValueError, match="another process is training in"), folder.locked():
        pass
    with folder.locked():
        pass


def test_a_checkpoint_goes_on_with_its_own_settings_only(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole("cartpole"), run)
    changed = json.loads((run / "config.json").read_text()) | {"seed": 5}
    (run / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"has seed = 5 in config.json, but its checkpoint was made with \d"):
        resume(run, steps=2 * changed["steps"])


def test_a_setting_that_there_was_not_when_a_checkpoint_was_made_had_its_default(tmp_path):
    now = preset("smoke", "u51", "CartPole-v1")
    written = {name: value for name, value in now.to_json().items() if name not in ("base_distribution", "mean_weight")}
    before = RunGroup.from_json(written)
    require_same_settings(as_group(now), before, tmp_path)
    with pytest.raises(
        ValueError, match=r"has mean_weight = 0\.1 in config\.json, but its checkpoint was made with 0\.0;"
    ):
        require_same_settings(as_group(dataclasses.replace(now, mean_weight=0.1)), before, tmp_path)
