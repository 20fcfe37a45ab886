"""Ctrl-C and SIGTERM while any command works: it ends soon, with the status of the signal, and nothing half-written."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fuzz_kills import command

SETTINGS = ["--preset", "smoke", "--hidden-units", "8", "--num-atoms", "11", "--v-min", "-10", "--v-max", "10"]
SETTINGS += ["--min-replay-steps", "100", "--log-steps", "200", "--iteration-steps", "400"]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
MOST_SECONDS = 60  # for a last checkpoint, on a busy machine
# Each in a folder of its own that has RUN, a run of 800 steps.
LINES = {
    "demo": ["demo", "--out", "out"],
    "verify": ["verify", "--json", "claims.json"],
    "evaluate": ["evaluate", "gridworld", "--features", "fourier:5", "--json"],
    "train": ["train", "s51", "CartPole-v1", *SETTINGS, "--steps", "20000", "--out", "out"],
    "gym": ["train", "s51", "gym:CartPole-v1", *SETTINGS, "--steps", "4000", "--eval-episodes", "5", "--out", "out"],
    "resume": ["resume", "RUN", "--steps", "20000"],
    "play": ["play", "RUN", "--episodes", "200"],
    "export": ["export", "RUN", "--out", "out"],
    "sweep": ["sweep", "out", "--agents", "s51,dqn", "--envs", "CartPole-v1", "--seeds", "0", "--preset", "smoke"],
    "report": ["report", "RUN", "--out", "out"],
    "watch": ["watch", "RUN", "--out", "page.html"],
    "serve": ["watch", "RUN", "--serve", "--port", "0"],
}


class Made(NamedTuple):
    """A run to work on, and how long the start of a command takes here."""

    run: Path
    seconds: float


def prepare(place: Path) -> Made:
    """Train the run."""
    begun = time.monotonic()
    words = ["train", "s51", "CartPole-v1", *SETTINGS, "--steps", "800", "--out", place / "run"]
    subprocess.run(command(*words), check=True, capture_output=True)
    return Made(place / "run", time.monotonic() - begun)


def trial(rng: np.random.Generator, made: Made, place: Path) -> str | None:
    """One command, one signal, one moment."""
    name = list(LINES)[rng.integers(len(LINES))]
    number, moment = SIGNALS[rng.integers(2)], float(rng.uniform(0, 2) * made.seconds)
    shutil.copytree(made.run, place / "RUN")
    what = f"{name}, {number.name} after {moment:.2f} s"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(*LINES[name]), cwd=place, **pipes) as process:
        time.sleep(moment)
        over, sent = process.poll() is not None, time.monotonic()
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"{what}: it did not end within {MOST_SECONDS} seconds"
    seconds = time.monotonic() - sent
    before_the_first_line = "ready" not in out
    if not before_the_first_line and ("Traceback" in err or "Exception ignored" in err):
        return f"{what}: {err[-700:]}"
    stopped = process.returncode in (-number, 128 + number) or (before_the_first_line and "KeyboardInterrupt" in err)
    if not over and not stopped and not (process.returncode == 0 and seconds < 5):  # it was about to end
        return f"{what}: status {process.returncode} after {seconds:.1f} s: {err[-500:]}"
    left = [path.name for path in place.rglob(".*") if path.name not in (".lock",) and "sweep" not in path.name]
    return f"{what}: left {left}" if left else None
