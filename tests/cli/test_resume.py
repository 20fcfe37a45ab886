"""`cramerl resume`: a longer run, and one that was stopped by Ctrl-C."""

import shutil
import signal
import subprocess
import sys

import pytest
from commands import FROM_A_TERMINAL, refused, run, run_process
from tiny import TINY


def test_resume_makes_a_run_longer_and_says_when_there_is_nothing_to_do(trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    before = (folder / "metrics.jsonl").read_text()
    done = run("resume", str(folder))
    assert done.returncode == 0, done.stderr
    assert "the run was finished already, after 600 steps; --steps N makes it longer" in done.stdout
    assert (folder / "metrics.jsonl").read_text() == before
    longer = run("resume", str(folder), "--steps", "9e2")
    assert longer.returncode == 0, longer.stderr
    assert "900 steps" in longer.stdout
    assert (folder / "metrics.jsonl").read_text().startswith(before)


@pytest.mark.slow
def test_ctrl_c_and_resume_write_what_an_uninterrupted_run_writes(tmp_path):
    settings = ["s51", "gym:CartPole-v1", *TINY, "--steps", "4e3", "--iteration-steps", "2000"]
    settings += ["--replay-steps", "3000"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    command = [sys.executable, "-c", FROM_A_TERMINAL, "train", *settings, "--out", str(stopped)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        try:
            words = next(line for line in process.stderr if "loss" in line)
            process.send_signal(signal.SIGINT)
            words += process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == 130, words
    assert "stopping with a checkpoint; Ctrl-C again stops at once\n" in words
    assert f"to continue from its last checkpoint: cramerl resume {stopped}" in words
    assert "Traceback" not in words
    assert list((stopped / "checkpoints").glob("*/manifest.json"))
    lines = (stopped / "metrics.jsonl").read_bytes()
    assert 0 < len(lines.splitlines()) < 40

    resumed = run_process("resume", stopped)
    assert resumed.returncode == 0, resumed.stderr
    assert run("train", *settings, "--out", str(whole)).returncode == 0
    assert (stopped / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (whole / "metrics.jsonl").read_bytes().startswith(lines)


def test_bad_input(tmp_path):
    assert "nowhere has no config.json" in refused("resume", "nowhere", cwd=tmp_path)
    assert not list(tmp_path.iterdir())
