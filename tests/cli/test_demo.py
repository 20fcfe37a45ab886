"""`cramerl demo`: tables, numbers and pictures."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from commands import FROM_A_TERMINAL, refused, run, run_process


def test_demo_writes_tables_pictures_and_numbers(tmp_path):
    out = tmp_path / "new" / "folder"
    result = run("demo", "--out", out, "--steps", "200")
    assert result.returncode == 0, result.stderr
    assert "1053.48" in result.stdout
    written = json.loads((out / "demo.json").read_text())
    assert written["conditioning"][3]["num_atoms"] == 51
    assert written["conditioning"][3]["raw"] == pytest.approx(4296.0000281, rel=1e-9)
    assert written["measures"]["nearest"]["negative_mass"] == 0
    # Nothing clips: the backup has mean 1 + 0.9 mean, and the nearest distribution mass one.
    means = {name: values["mean"] for name, values in written["measures"].items()}
    assert means["target"] == pytest.approx(1 + 0.9 * means["prediction"])
    raw, s51, u51 = (d["error"] for d in written["descents"])
    assert u51 < 1e-13 < s51 < raw < 1
    assert "Mean returns equal LSTD's" in result.stdout
    assert json.loads((out / "evaluation.json").read_text())["certificate"]["distribution_bound"]["holds"]
    for picture in ("demo.png", "evaluation.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--atoms", "2"], "--atoms: must be an integer >= 3, got '2'"),
        (["--steps", "many"], "--steps: must be an integer >= 1, got 'many'"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("demo", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("demo", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "matplotlib is not installed; install it with: pip install 'cramerl[plot]'" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_terminal_without_accents(tmp_path):
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = run_process("demo", "--steps", "5", "--out", tmp_path, env=plain)
    assert result.returncode == 0
    assert "Cram?r" in result.stdout


def test_ctrl_c_stops_cleanly(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", FROM_A_TERMINAL, "demo", "--steps", "100000000", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not out.exists() and process.poll() is None:  # it is created before the work
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            _, words = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopped" in words
    assert not list(out.iterdir())
