"""Command lines of real words in a wrong order, wrong words, and words that mean something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from commands import run

from cramerl.cli.main import COMMANDS, make_parser

WORDS = [
    *(
        "",
        "-",
        "--",
        "x",
        "0",
        "-1",
        "1e99",
        "nan",
        "inf",
        "1,2,,",
        "0-4",
        "9" * 400,
        "é",
        "\x1b[2J",
        "a b",
        "../..",
        "/",
    ),
    *(
        "s51",
        "pong",
        "CartPole-v1",
        "gym:x:y",
        "ALE/",
        "$\\frac$",
        "<b>",
        "--json",
        "runs",
        ".",
        "/dev/null",
        "null",
        "\\",
    ),
]


def trial(rng: np.random.Generator, _: Any, place: Path) -> str | None:
    """A line that is refused in words, or that does nothing but print: it trains nothing and writes nothing."""
    command = [*COMMANDS, "nothing"][rng.integers(len(COMMANDS) + 1)]
    flags = list(make_parser(command)._option_string_actions)
    if command in COMMANDS:
        import importlib

        assert importlib.import_module(f"cramerl.cli.{command}")
        options = make_parser(command)._subparsers
        assert options is not None
        flags += list(options._group_actions[0].choices[command]._option_string_actions)  # type: ignore[attr-defined]
    words = [command]
    for _ in range(int(rng.integers(0, 6))):
        word = WORDS[rng.integers(len(WORDS))]
        if rng.random() < 0.6:
            flag = flags[rng.integers(len(flags))]
            words += [[f"{flag}={word}"], [flag, word], [flag], [f"{flag}{word}"]][rng.integers(4)]
        else:
            words.append(word)
    if command in ("demo", "verify", "evaluate", "train", "sweep", "report", "watch"):
        words.append("--no-such-flag")  # these would work for a while
    found = run(*words, cwd=place)
    line = " ".join(map(repr, words))
    if found.returncode not in (0, 2) or "Traceback" in found.stderr:
        return f"{line}: status {found.returncode}: {found.stderr[-500:]}"
    if found.returncode == 2 and not found.stderr.strip():
        return f"{line}: refused without a word"
    if "\x1b" in found.stdout + found.stderr:
        return f"{line}: an escape sequence was printed"
    return f"{line}: left {left}" if (left := sorted(path.name for path in place.iterdir())) else None
