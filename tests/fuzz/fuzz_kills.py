"""Runs that are killed or stopped at random moments: resumed, they write the bytes of a run that never was."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from commands import FROM_A_TERMINAL

SETTINGS = ["--preset", "smoke", "--hidden-units", "8", "--num-atoms", "11", "--steps", "4000", "--log-steps", "200"]
SETTINGS += ["--iteration-steps", "1000", "--min-replay-steps", "200", "--eval-episodes", "1"]
ENVS = ("CartPole-v1", "gym:CartPole-v1")
COMPARED = ("metrics.jsonl", "episodes.jsonl", "weights.json")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def command(*words: object) -> list[str]:
    """A process as a terminal starts it."""
    return [sys.executable, "-c", FROM_A_TERMINAL, *map(str, words)]


def prepare(place: Path) -> tuple[dict[str, dict[str, bytes]], float]:
    """The bytes of undisturbed runs, and how long one takes."""
    found, begun = {}, 0.0
    for env in ENVS:
        begun, folder = time.monotonic(), place / env.replace(":", "-")
        subprocess.run(command("train", "s51", env, *SETTINGS, "--out", folder), check=True, capture_output=True)
        found[env] = {name: (folder / name).read_bytes() for name in COMPARED}
    return found, time.monotonic() - begun


def trial(rng: np.random.Generator, made: tuple[dict[str, dict[str, bytes]], float], place: Path) -> str | None:
    """Send up to three signals at random moments, from the first instruction on; then let it end."""
    whole, seconds = made
    env, folder, story = ENVS[rng.integers(len(ENVS))], place / "run", []
    for _ in range(int(rng.integers(1, 4))):
        number = SIGNALS[rng.integers(len(SIGNALS))]
        story.append(number.name)
        with subprocess.Popen(_next(env, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            time.sleep(float(rng.uniform(0, 1.1 * seconds)))
            process.send_signal(number)
            try:
                err = process.communicate(timeout=240)[1].decode(errors="replace")
            except subprocess.TimeoutExpired:
                process.kill()
                return f"{env} {story}: it did not end"
        if process.returncode not in (0, -number, 128 + number):
            before_the_first_line = "KeyboardInterrupt" in err and not folder.exists()
            if not before_the_first_line:
                return f"{env} {story}: status {process.returncode}: {err[-500:]}"
        if process.returncode == 0 and not (folder / "weights.json").exists():
            return f"{env} {story}: it ended, but had not finished"
    ended = subprocess.run(_next(env, folder), capture_output=True, text=True, check=False)
    if ended.returncode:
        return f"{env} {story}: cannot be finished: {ended.stderr[-500:]}"
    for name, content in whole[env].items():
        if (folder / name).read_bytes() != content:
            return f"{env} {story}: {name} differs"
    left = [path.name for path in folder.rglob(".*") if path.name != ".lock"]
    return f"{env} {story}: left {left}" if left else None


def _next(env: str, folder: Path) -> list[str]:
    """What a user would do next."""
    if (folder / "config.json").exists():
        return command("resume", folder)
    return command("train", "s51", env, *SETTINGS, "--out", folder)
