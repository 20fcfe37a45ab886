"""Runs that are killed or stopped, then resumed: they write the bytes of a run that never was.

Signals come at random moments of a new process, from its first instruction on, or at a place: just before the n-th time
that the process opens, renames or removes a file of the run, or in the middle of what it then writes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from commands import FROM_A_TERMINAL

from cramerl.deep.checkpoint import CheckpointStore

SETTINGS = ["--preset", "smoke", "--hidden-units", "8", "--num-atoms", "11", "--steps", "1600", "--log-steps", "200"]
SETTINGS += ["--iteration-steps", "400", "--min-replay-steps", "200", "--eval-episodes", "1"]
ENVS = ("CartPole-v1", "gym:CartPole-v1")
COMPARED = ("metrics.jsonl", "episodes.jsonl", "weights.json", "config.json")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

# SIGXFSZ ends a process in the middle of the write that takes a file beyond its limit; Python ignores it otherwise.
PLACED = """
import os, resource, signal, sys
folder, place, more = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
count = 0
def watch(event, found):
    global count
    if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"):
        return
    path = found[0]
    if not isinstance(path, str) or not os.path.abspath(path).startswith(folder):
        return
    count += 1
    if count != place:
        return
    if more < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, resource.RLIM_INFINITY))
sys.addaudithook(watch)
from cramerl.cli.main import main
status = main(sys.argv[4:])
print("places", count)
sys.exit(status)
"""


class Whole(NamedTuple):
    """Undisturbed runs: what they wrote, how long one takes, and how many places of a run there are."""

    bytes: dict[str, dict[str, bytes]]
    seconds: float
    places: int


def command(*words: object) -> list[str]:
    """A process as a terminal starts it."""
    return [sys.executable, "-c", FROM_A_TERMINAL, *map(str, words)]


def placed_command(folder: Path, place: int, more: int, *words: object) -> list[str]:
    """A process that is killed at a place: before the operation, or (``more`` >= 0) so many bytes further on."""
    return [sys.executable, "-c", PLACED, *map(str, (folder, place, more, *words))]


def prepare(place: Path) -> Whole:
    """Undisturbed runs."""
    found, seconds, places = {}, 0.0, 0
    for env in ENVS:
        begun, folder = time.monotonic(), place / env.replace(":", "-")
        words = placed_command(folder, 0, 0, "train", "s51", env, *SETTINGS, "--out", folder)
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        seconds, places = time.monotonic() - begun, int(said.split("places ")[-1])
        found[env] = _written(folder)
    return Whole(found, seconds, places)


def trial(rng: np.random.Generator, made: Whole, place: Path) -> str | None:
    """Disturb the run up to three times, at places or at moments; then let it end."""
    env, folder, story = ENVS[rng.integers(len(ENVS))], place / "run", []
    placed = rng.random() < 0.5
    for _ in range(int(rng.integers(1, 4))):
        bad = _at_a_place(rng, made, env, folder, story) if placed else _at_a_moment(rng, made, env, folder, story)
        if bad is not None:
            return f"{env} {story}: {bad}"
    ended = subprocess.run(command(*_next(env, folder)), capture_output=True, text=True, check=False)
    if ended.returncode:
        return f"{env} {story}: cannot be finished: {ended.stderr[-500:]}"
    for name, content in _written(folder).items():
        if made.bytes[env].get(name) != content:
            return f"{env} {story}: {name} differs"
    left = [path.name for path in folder.rglob(".*") if path.name != ".lock"]
    return f"{env} {story}: left {left}" if left else None


def _at_a_place(rng: np.random.Generator, made: Whole, env: str, folder: Path, story: list[str]) -> str | None:
    place, more = int(rng.integers(1, made.places + 1)), -1 if rng.random() < 0.5 else int(rng.integers(0, 3000))
    story.append(f"place {place}" + (f" + {more} bytes" if more >= 0 else ""))
    words = placed_command(folder, place, more, *_next(env, folder))
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    ended = found.returncode in (-signal.SIGKILL, -signal.SIGXFSZ)
    # A run that is resumed late may be over before it comes to the place.
    return None if ended or found.returncode == 0 else f"status {found.returncode}: {found.stderr[-500:]}"


def _at_a_moment(rng: np.random.Generator, made: Whole, env: str, folder: Path, story: list[str]) -> str | None:
    number = SIGNALS[rng.integers(len(SIGNALS))]
    story.append(number.name)
    words = command(*_next(env, folder))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        time.sleep(float(rng.uniform(0, 1.1 * made.seconds)))
        process.send_signal(number)
        try:
            err = process.communicate(timeout=240)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            process.kill()
            return "it did not end"
    before_the_first_line = "KeyboardInterrupt" in err and not folder.exists()
    if process.returncode not in (0, -number, 128 + number) and not before_the_first_line:
        return f"status {process.returncode}: {err[-500:]}"
    if process.returncode == 0 and not (folder / "weights.json").exists():
        return "it ended, but had not finished"
    return None


def _next(env: str, folder: Path) -> list[object]:
    """What a user would do next."""
    if (folder / "config.json").exists():
        return ["resume", folder]
    return ["train", "s51", env, *SETTINGS, "--out", folder]


def _written(folder: Path) -> dict[str, bytes]:
    """The bytes that must be those of every other such run: logs, weights, the last checkpoint's state and replay."""
    store = CheckpointStore(folder / "checkpoints")
    saved = store.latest()
    assert saved is not None
    found = {"state": b"".join(name.encode() + array.tobytes() for name, array in sorted(saved.arrays.items()))}
    rows = [rows for _, rows in store.rows(saved)]  # a stop may have divided them into other files
    found |= {f"replay's {name}": b"".join(part[name].tobytes() for part in rows) for name in rows[0]}
    return found | {name: (folder / name).read_bytes() for name in COMPARED}
