"""The commands of the documentation.

Each command of each block is known to its parser, with every flag. Those of ``cramerl train`` and ``cramerl sweep``
are also checked value by value, with ``--print-config`` and ``--dry-run``. What is quick is run as it stands, in the
order of its page, and prints what the page shows; what is not is listed in ``NOT_RUN``.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import commands as command_line
import pytest
from code_blocks import PAGES, ROOT, blocks, commands, inline_commands, shows

from cramerl.cli.main import COMMANDS, make_parser

SHELL = {
    page: [block for block in blocks(page) if block.language == "sh"]
    for page in PAGES
    if any(block.language == "sh" for block in blocks(page))
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
EXTRAS = set(
    re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1], re.M)
)
OTHERS = {".", "cd", "export", "nvidia-cuda-mps-control"}
"""Programs that are not ours, whose arguments nobody checks."""

HOURS, CLUSTER, HUB = "takes hours", "needs a cluster", "needs an account"
NOT_RUN = {
    "make": "installs, or takes minutes",
    "pip": "installs",
    "nvidia-cuda-mps-control": "needs a GPU",
    "python tests/fuzz/fuzz.py": "takes minutes",
    "results/study.sh": HOURS,
    ".": "there is no .venv here: the environment is that of the tests",
    "export": "only with nvidia-cuda-mps-control",
    "cramerl train s51 Breakout-MinAtar --steps 1e6": "takes an hour",
    "cramerl train c51 pong": HOURS,
    "cramerl train u51 Breakout-MinAtar --q-lambda": HOURS,
    "cramerl train s51 Breakout-MinAtar --sticky": "takes an hour",
    "cramerl train l51": "each takes minutes",
    "cramerl sweep": HOURS,
    "cramerl evaluate --data logs/": CLUSTER,
    "cramerl evaluate --data s3://bucket/logs": CLUSTER,
    "cramerl export runs/second --out exports/second --push": HUB,
    "cramerl watch hf://USER/NAME": HUB,
    "cramerl watch runs/s51 --serve": "runs until it is stopped",
}
"""Beginnings of commands that do not run here, with the reason."""

GIVEN = {
    "watch.md": "cramerl demo --out out/demo --train-steps 2000",
    "reports.md": "cramerl train s51 CartPole-v1 --preset smoke --eval-episodes 3 --out runs/first\n"
    "cramerl evaluate FrozenLake-v1 --discount 0.95\n",
}
"""What the reader has done before, by the page."""

IN_THE_PROSE = {"logs.md": "python benchmarks/log_goals.py out/shop/customers.parquet"}
"""Commands whose output a page shows without a block of their own."""

DIGITS_VARY = {"agents.md", "start.md"}
"""Pages that show what a trained agent does, which is rounded differently on another processor, and speeds."""

FROM_ELSEWHERE = {
    ("agents.md", "training s51 on breakout"): HOURS,
    ("logs.md", "- Along episodes age"): "of a variant that the text names",
    ("losses.md", "state 0"): "tests/test_examples.py",
    ("sweeps.md", "runs/first/sweep.json"): "a listing of files",
}
"""Shown texts that no command of the page prints here: how they begin, and why."""


def reason_not_to_run(command):
    words = shlex.join(command)
    return next((reason for start, reason in NOT_RUN.items() if words.startswith(start)), None)


def parse(words):
    """What argparse makes of a ``cramerl`` command."""
    parser = make_parser(words[1])
    options, unknown = parser.parse_known_args(words[1:])
    assert not unknown
    return options


@pytest.mark.parametrize("page", SHELL)
def test_commands_and_flags_exist(page):
    for block in SHELL[page]:
        for words in commands(block.text):
            match words:
                case ["cramerl", "--help"]:
                    pass
                case ["cramerl", *_]:
                    parse(words)
                case ["make", *rest]:
                    assert {word for word in rest if "=" not in word} <= TARGETS
                case ["pip", "install", path]:
                    assert set(re.findall(r"\w+", path.partition("[")[2])) <= EXTRAS
                case ["python", program, *rest]:
                    assert (ROOT / program).exists()
                    if flags := {word for word in rest if word.startswith("--")}:
                        shown = command_line.python(program, "--help", cwd=ROOT).stdout
                        assert flags <= set(re.findall(r"--[a-z-]+", shown))
                case [program, *_] if program.startswith("results/"):
                    assert os.access(ROOT / program, os.X_OK)
                case [program, *_]:
                    assert program in OTHERS


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_prose_exist_with_their_flags(page):
    """They are often part of a command, so only the names of their flags are checked."""
    for words in inline_commands(page):
        assert words[1] in COMMANDS, words
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags_of(words[1]), words


def flags_of(command):
    """Every flag of a command."""
    (subparsers,) = (action for action in make_parser(command)._actions if isinstance(action.choices, dict))
    assert isinstance(subparsers.choices, dict)
    return set(subparsers.choices[command]._option_string_actions)


def checked(words):
    """A command that checks the values of another and does nothing else; None if there is none."""
    if words[:2] == ["cramerl", "train"] and "--initial-weights" not in words:
        return [*words[1:], "--print-config"]
    if words[:2] == ["cramerl", "sweep"] and not {"--best-of", "--dry-run", "--ray"} & set(words):
        return [*words[1:], "--dry-run"]
    return None


@pytest.mark.parametrize("page", SHELL)
def test_settings_are_accepted(page, tmp_path):
    for block in SHELL[page]:
        for words in commands(block.text):
            if checking := checked(words):
                found = command_line.run(*checking, cwd=tmp_path)
                assert found.returncode == 0, f"{shlex.join(words)}: {found.stderr}"


def run_page(page, folder):
    """What the commands of a page print, all together."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for name in ("benchmarks", "docs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    place, printed = folder, []
    texts = [GIVEN.get(page, ""), *(block.text for block in SHELL[page]), IN_THE_PROSE.get(page, "")]
    for words in (words for text in texts for words in commands(text)):
        if reason_not_to_run(words):
            continue
        if words[0] == "cd":
            place /= words[1]
            continue
        found = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert found.returncode == 0, f"{page}: {shlex.join(words)}: {found.stderr}"
        printed.append(found.stderr + found.stdout)
    return "".join(printed)


RUN = [page for page in SHELL if any(not reason_not_to_run(each) for one in SHELL[page] for each in commands(one.text))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_commands_run_and_print_what_the_page_shows(page, tmp_path):
    printed = run_page(page, tmp_path)
    python = [block for block in blocks(page) if block.language == "python"]
    for block in blocks(page):
        listed = any(one == page and block.text.startswith(start) for one, start in FROM_ELSEWHERE)
        after_python = any(each.line + each.text.count("\n") + 3 == block.line for each in python)
        if block.language == "text" and not listed and not after_python:
            assert shows(block.text, printed, digits=page not in DIGITS_VARY), f"line {block.line}, not in\n{printed}"


def test_what_is_listed_exists():
    found = [words for page in SHELL for block in SHELL[page] for words in commands(block.text)]
    for start in NOT_RUN:
        assert any(shlex.join(words).startswith(start) for words in found), start
    for page, start in FROM_ELSEWHERE:
        assert any(block.text.startswith(start) for block in blocks(page)), start
    assert set(GIVEN) <= set(RUN)
