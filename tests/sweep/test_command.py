"""The command `cramerl sweep`, with real processes."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweep_folders import GAME, asked, diverge, plan, put_run, put_sweep

from cramerl import train
from cramerl.cli.sweep import how_to_continue
from cramerl.runs.group import as_group
from cramerl.sweep.execute import State
from cramerl.sweep.folder import find_runs, locked, log_file, read_record
from cramerl.sweep.plan import Job, wanted_runs

TINY = ["--preset", "smoke", "--hidden-units", "8"]
HOST = ["--agents", "s51", "--envs", "gym:CartPole-v1", *TINY, "--num-atoms", "11", "--steps", "4e3"]
HOST += ["--iteration-steps", "2000", "--replay-steps", "3000", "--seeds", "0"]


def metrics(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("*/*/metrics.jsonl")}


def test_runs_that_diverged_are_named_at_the_end(sweep_command, tmp_path, capsys):
    folder = put_sweep(asked(axes={"learning_rate": (1e-4, 1e-3)}), tmp_path).jobs[0].folder
    diverge(tmp_path / folder / "metrics.jsonl", {"learning_rate": 1e-3, "seed": 1}, 900)
    words = ["--agents", "s51", "--envs", GAME, "--seeds", "0-1", "--preset", "smoke", "--learning-rate", "1e-4,1e-3"]
    assert sweep_command(tmp_path, *words) == 0
    assert capsys.readouterr().out == (
        f"1 job in {tmp_path}: 1 done\ndiverged: {folder}: 1 of 4 runs: 3 (learning_rate 0.001, seed 1)\n"
        f"to see them: cramerl report {tmp_path}\n"
    )


def test_a_dry_run_says_what_starts_again(sweep_command, tmp_path, capsys):
    config, _ = wanted_runs(asked(changes={"steps": 1000, "checkpoints": "none"}))
    put_run(tmp_path, f"{GAME}/s51__seed-0", config, 300)
    words = [tmp_path, "--agents", "s51", "--envs", GAME, "--seeds", "0-1", "--preset", "smoke", "--steps", "1000"]
    words += ["--checkpoints", "none", "--dry-run"]
    assert sweep_command(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"2 jobs in {tmp_path}: 0 done, 2 to do",
        f"{tmp_path}/{GAME}/s51__seed-0: 1 run, 1,000 steps, start again, replacing its log",
        f"{tmp_path}/{GAME}/s51__seed-1: 1 run, 1,000 steps, new",
    ]


def test_jobs_that_start_again_are_not_said_to_continue():
    jobs = [
        Job("pong/x", as_group(wanted_runs(asked(envs="pong", seeds="0", changes={"checkpoints": kept}))))
        for kept in ("full", "weights")
    ]
    assert how_to_continue(State([], {}, [], jobs[:1], True)) == "the same command continues"
    text = "stopped jobs start again from the beginning, because their checkpoints are not 'full'"
    assert how_to_continue(State([], {}, [], jobs, True)).endswith(text)


def test_variants_from_the_command_line(sweep_command, tmp_path, capfd):
    put_sweep(asked("u51"), tmp_path)
    (job,) = plan(asked("u51", changes={"mean_weight": 0.1}, allow_variants=True), tmp_path).jobs
    put_run(tmp_path, job.folder, job.group)
    words = [tmp_path, "--agents", "u51", "--envs", GAME, "--seeds", "0-1", "--preset", "smoke", "--mean-weight", "0.1"]
    assert sweep_command(*words) == 2
    assert "vary it: --mean-weight 0,0.1, or keep both with --allow-variants" in capfd.readouterr().err
    assert sweep_command(*words, "--allow-variants") == 0
    assert f"1 job in {tmp_path}: 1 done\n" in capfd.readouterr().out
    assert read_record(tmp_path)["commands"][-1].endswith("--preset smoke --allow-variants --mean-weight 0.1")


def test_again_longer_with_another_seed_and_a_job_that_fails(sweep_command, tmp_path, capfd):
    out = tmp_path / "my sweep"
    words = [out, "--agents", "dqn", "--envs", "CartPole-v1", *TINY, "--jobs", "2"]
    first = [*words, "--seeds", "0-1", "--steps", "400"]
    assert sweep_command(*first) == 0
    assert f"1 job in {out}: 1 done\n" in capfd.readouterr().out
    before = metrics(out)
    assert list(before) == ["dqn__seeds-0-1"]
    assert [line["seed"] for line in map(json.loads, before["dqn__seeds-0-1"].splitlines()[:2])] == [0, 1]

    for again in (first, [*words, "--seeds", "0,1", "--steps", "4e2"]):
        assert sweep_command(*again) == 0
        assert f"1 job in {out}: 1 done\n" in capfd.readouterr().out
        assert metrics(out) == before
        assert len(read_record(out)["commands"]) == 1
    with locked(out):
        assert sweep_command(*first) == 2
    assert f"cramerl: another sweep is running in {out}" in capfd.readouterr().err

    # A job whose checkpoints are damaged will fail; the others are done nevertheless.
    (run,) = find_runs(out)
    damaged = put_run(out, "CartPole-v1/dqn__seed-5", dataclasses.replace(run.group.first, seed=5))
    (damaged / "environment.json").write_bytes((out / run.folder / "environment.json").read_bytes())
    more = [*words, "--seeds", "0-1,5-6", "--steps", "600"]
    assert sweep_command(*more, "--dry-run") == 0
    assert capfd.readouterr().out.splitlines() == [
        f"3 jobs in {out}: 0 done, 3 to do",
        f"{out}/CartPole-v1/dqn__seeds-0-1: 2 runs, 600 steps, resume from step 400",
        f"{out}/CartPole-v1/dqn__seed-5: 1 run, 600 steps, resume from step 400",
        f"{out}/CartPole-v1/dqn__seed-6: 1 run, 600 steps, new",
    ]
    assert sweep_command(*more) == 1
    said = capfd.readouterr()
    assert f"3 jobs in {out}: 2 done, 1 failed\n" in said.out
    assert f"failed: CartPole-v1/dqn__seed-5: {out}" in said.out
    assert "holds no usable checkpoint" in said.out
    assert "Traceback" not in said.err
    assert {run.folder.partition("__")[2]: run.finished and run.step for run in find_runs(out)} == {
        "seeds-0-1": 600,
        "seed-5": 400,
        "seed-6": 600,
    }
    assert metrics(out)["dqn__seeds-0-1"].startswith(before["dqn__seeds-0-1"])
    record = read_record(out)
    assert record["commands"][1].endswith("--seeds 0-1,5-6 --preset smoke --steps 600 --hidden-units 8")
    assert [(job["folder"].partition("__")[2], "failed" in job) for job in record["jobs"]] == [
        ("seed-5", True),
        ("seed-6", False),
        ("seeds-0-1", False),
    ]


# SIGINT is ignored in processes started in the background; a terminal does not do that, so restore the default.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(out: Path) -> subprocess.Popen[str]:
    """A sweep in another process, whose run is learning."""
    log = log_file(out, "gym-CartPole-v1/s51__seed-0")
    seen = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-c", FROM_A_TERMINAL, "sweep", str(out), *HOST]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while not (log.exists() and "loss" in log.read_text()[seen:]):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


def wait_for_children(out: Path) -> None:
    """They hold the sweep's lock as long as they live."""
    end = time.monotonic() + 60
    with (out / ".lock").open() as file:
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.05)
    raise AssertionError("a child outlived its sweep")


@pytest.mark.slow
def test_killed_stopped_and_continued_is_as_if_nothing_had_happened(sweep_command, tmp_path):
    out = tmp_path / "out"
    process = start(out)
    process.kill()
    process.communicate()
    wait_for_children(out)

    process = start(out)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert "stopping jobs with checkpoints; Ctrl-C again ends them at once" in said
    assert f"1 job in {out}: 0 done, 1 left" in said
    assert "Traceback" not in said
    wait_for_children(out)
    (run,) = find_runs(out)
    assert not run.finished
    assert run.has_checkpoint

    assert sweep_command(out, *HOST) == 0
    (run,) = find_runs(out)
    train(run.group, out=tmp_path / "whole" / run.folder)
    assert metrics(out) == metrics(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: --agents, --envs, --seeds"),
        (["--agents", "s52"], "agent must be one of dqn, c51, s51, u51, l51, qr, hl_gauss, got 's52'"),
        (["--agents", "s51,"], "--agents must be names separated by commas, got 's51,'"),
        (["--envs", "ALE/Pnog-v5"], "got 'ALE/Pnog-v5'; did you mean 'pong'?"),
        (["--seeds", "9-0"], "such as 0-9 or 0,2,5-7, got '9-0'"),
        (["--preset", "fast"], "preset must be one of paper, icml"),
        (["--network", "minatar,mlp"], "network 'minatar' needs pictures"),  # whichever cannot be built
        (["--normalisation", "after,never"], "normalisation must be one of after, before, got 'never'"),
        (["--learning-rate", "1,x"], "learning_rate must be a number, got 'x'"),
        (
            ["--learning-rate", "1e-4..1e-2"],
            "learning_rate must be one or more values, or a range with --search optuna",
        ),
        (["--steps", "1,2"], "steps must have one value in a sweep, got 1,2"),
        (["--num-env", "3"], "--num-env 3; did you mean --num-envs?"),
        (["--seed", "3"], "--seed 3; did you mean --seeds?"),
        (["--minutes", "0"], "--minutes: must be a number > 0, got '0'"),
        (["--jobs", "0"], "--jobs: must be an integer >= 1 and <= 1024, got '0'"),
        (["--best-of", "out"], "--best-of must be another folder than OUT, got out for both"),
        (["--best-of", "nowhere"], "nowhere is not the folder of a sweep: it has no sweep.json"),
    ],
)
def test_bad_input(words, sentence, sweep_command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    given = dict(zip(words[::2], words[1::2], strict=True))
    if words:
        given = {"--agents": "s51", "--envs": "CartPole-v1", "--seeds": "0"} | given
    try:
        status = sweep_command("out", *(word for pair in given.items() for word in pair))
    except SystemExit as end:
        status = end.code
    said = capfd.readouterr()
    assert status == 2, said.err
    assert sentence in said.err.splitlines()[-1]
    assert said.out == ""
    assert not list(tmp_path.iterdir())


def test_a_file_is_not_a_folder(sweep_command, tmp_path, capfd):
    (tmp_path / "file").write_text("mine")
    for more in ([], ["--dry-run"]):
        assert sweep_command(tmp_path / "file", *HOST, *more) == 2
        assert capfd.readouterr().err == f"cramerl: OUT must be a folder, {tmp_path / 'file'} is a file\n"
    assert (tmp_path / "file").read_text() == "mine"


def test_help_teaches():
    text = subprocess.run(
        [sys.executable, "-m", "cramerl", "sweep", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in ("examples:", "--best-of", "--minutes", "--dry-run", "The same command again", "s3://"):
        assert word in text
    for flag in (
        "--ray [ADDRESS]",
        "--storage URL",
        "--cpus-per-run",
        "--gpus-per-run",
        "--retries",
        "--learning-rate",
    ):
        assert flag in text
