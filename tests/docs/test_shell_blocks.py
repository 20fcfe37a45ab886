"""The commands of the documentation.

Each command of each block is known to its parser, with every flag. Those of ``cramerl train`` and ``cramerl sweep``
are also checked value by value, with ``--print-config`` and ``--dry-run``. What is quick is run as it stands, in the
order of its page, by the tests of shell pages; what is not is listed in ``shell_pages.NOT_RUN``.
"""

import os
import re
import shlex

import commands as command_line
import pytest
from code_blocks import PAGES, ROOT, blocks, commands, inline_commands
from shell_pages import FROM_ELSEWHERE, GIVEN, NOT_RUN, RUN, SHELL

from cramerl.cli.main import COMMANDS, make_parser

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
EXTRAS = set(
    re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1], re.M)
)
OTHERS = {".", "cd", "export", "nvidia-cuda-mps-control"}
"""Programs that are not ours, whose arguments nobody checks."""


def parse(words):
    """What argparse makes of a ``cramerl`` command."""
    parser = make_parser(words[1])
    options, unknown = parser.parse_known_args(words[1:])
    assert not unknown
    return options


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page == "reliability.md")) for page in SHELL]
)
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


def test_what_is_listed_exists():
    found = [words for page in SHELL for block in SHELL[page] for words in commands(block.text)]
    for start in NOT_RUN:
        assert any(shlex.join(words).startswith(start) for words in found), start
    for page, start in FROM_ELSEWHERE:
        assert any(block.text.startswith(start) for block in blocks(page)), start
    assert set(GIVEN) <= set(RUN)
