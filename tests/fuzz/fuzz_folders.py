"""Commands on the folders of runs and exports in which something was changed, with right sums where sums are asked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from commands import run

SETTINGS = ("--preset", "smoke", "--hidden-units", 8, "--num-atoms", 11, "--v-min", -10, "--v-max", 10)
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**40,
    10**40,
    1e308,
    "",
    "x",
    "\x1b[2J",
    "../../x",
    "evil:CartPole-v1",
    [],
    {},
    [[]],
]
MARK = "of the user"


def prepare(place: Path) -> Path:
    """A run with two checkpoints, and its export."""
    steps = ("--steps", 400, "--iteration-steps", 200, "--log-steps", 100, "--min-replay-steps", 100)
    trained = run("train", "s51", "CartPole-v1", *SETTINGS, *steps, "--out", place / "run")
    assert trained.returncode == 0, trained.stderr
    assert run("export", place / "run", "--out", place / "export").returncode == 0
    return place


def trial(rng: np.random.Generator, made: Path, place: Path) -> str | None:
    """Alter one or two files of a copy, then use it."""
    kind = "run" if rng.random() < 0.8 else "export"
    folder = shutil.copytree(made / kind, place / "theirs")
    outside = place / "outside"
    outside.mkdir()
    (outside / "file").write_text(MARK)
    (outside / "202401").mkdir()
    (outside / "202401" / "photo").write_text(MARK)
    done = [_alter(rng, folder, outside) for _ in range(int(rng.integers(1, 3)))]
    commands = [
        ("play", folder, "--episodes", 1, "--max-steps", 20),
        ("export", folder, "--out", place / "out"),
        ("watch", folder, "--max-steps", 2, "--out", place / "page.html"),
    ]
    commands += [("resume", folder), ("resume", folder, "--steps", 600)] * (kind == "run")
    commands += [("report", folder, "--out", place / "report", "--unfinished")] * (kind == "run")
    words = commands[rng.integers(len(commands))]
    found = run(*words, cwd=place)
    what = f"{words[0]} {kind} after {'; '.join(done)}"
    if found.returncode not in (0, 1, 2) or "Traceback" in found.stderr:
        return f"{what}: status {found.returncode}: {found.stderr[-500:]}"
    if found.returncode and "cramerl: " not in found.stderr:
        return f"{what}: no sentence: {found.stderr[-300:]}"
    if "\x1b" in found.stdout + found.stderr:
        return f"{what}: an escape sequence was printed"
    kept = [(outside / "file").read_text(), (outside / "202401" / "photo").read_text()]
    files = sorted(path.relative_to(outside).as_posix() for path in outside.rglob("*"))
    if kept != [MARK] * 2 or files != ["202401", "202401/photo", "file"]:
        return f"{what}: it changed what lies outside"
    return None


def _alter(rng: np.random.Generator, folder: Path, outside: Path) -> str:
    """Change one file; returns what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        return "nothing was left"
    file = files[rng.integers(len(files))]
    name, data = file.relative_to(folder).as_posix(), file.read_bytes()
    way = ["flip", "cut", "json", "json", "json", "link", "pipe", "remove", "deep", "folder link"][rng.integers(10)]
    if way == "flip" and data:
        place = int(rng.integers(len(data)))
        file.write_bytes(data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :])
    elif way == "cut":
        file.write_bytes(data[: int(rng.integers(len(data) + 1))])
    elif way == "json" and file.suffix in (".json", ".jsonl"):
        _change_json(rng, file)
    elif way == "deep":
        file.write_text("[" * 50_000)
    elif way in ("link", "pipe", "remove"):
        file.unlink()
        if way == "link":
            file.symlink_to(outside / "file")
        if way == "pipe":
            os.mkfifo(file)
    elif way == "folder link" and file.parent != folder:
        shutil.rmtree(file.parent)
        file.parent.symlink_to(outside)
    if rng.random() < 0.5:
        _seal(folder)
    return f"{way} {name}"


def _change_json(rng: np.random.Generator, file: Path) -> None:
    """Put something else in the place of one value of a file, or of one of its lines."""
    lines = (
        file.read_text(errors="replace").splitlines() if file.suffix == ".jsonl" else [file.read_text(errors="replace")]
    )
    number = int(rng.integers(len(lines))) if lines else 0
    try:
        content = json.loads(lines[number])
        at = content
        while isinstance(at, dict) and at:
            key = list(at)[rng.integers(len(at))]
            if isinstance(at[key], dict) and at[key] and rng.random() < 0.7:
                at = at[key]
                continue
            if rng.random() < 0.2:
                del at[key]
            else:
                at[key] = VALUES[rng.integers(len(VALUES))]
            break
        lines[number] = json.dumps(content, indent=None if file.suffix == ".jsonl" else 1)
    except (ValueError, IndexError, RecursionError):
        lines = ["{}"]
    file.write_text("\n".join(lines) + "\n")


def _seal(folder: Path) -> None:
    """Make every sum right again, as somebody would who has tampered with a checkpoint."""
    for manifest in filter(Path.is_file, folder.glob("checkpoints/*/manifest.json")):
        try:
            content = json.loads(manifest.read_text())
            for name, record in content["files"].items():
                file = manifest.parent / name
                file = file if file.is_file() else manifest.parents[1] / name
                if file.is_file() and isinstance(record, dict):
                    data = file.read_bytes()
                    record |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            content.pop("sha256", None)
            text = json.dumps(content, sort_keys=True, separators=(",", ":"))
            manifest.write_text(json.dumps(content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            continue
