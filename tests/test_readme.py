"""The commands of README.md run as they stand, in their order, and make what it shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("cramerl ")
]


def test_readme_fits_the_width_of_a_code_block():
    lines = [line for block in re.findall(r"```\w+\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
    assert max(map(len, lines)) <= 92
    assert len(TEXT.splitlines()) < 160


def test_the_extras_it_names_are_those_that_exist():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(
        r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0], re.M
    )
    assert all(f"`{extra}`" in TEXT for extra in extras if extra not in ("all", "dev"))


@pytest.mark.slow
def test_its_commands_run(tmp_path):
    printed = {}
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in COMMANDS:
        found = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert found.returncode == 0, f"{command}: {found.stderr}"
        printed[command] = found.stdout
    assert (tmp_path / "out" / "compare" / "report.html").exists()
    shown = re.search(r"```text\n(Return of policy.*?)\n\.\.\.\n(.*?)\n```", TEXT, re.DOTALL)
    assert shown is not None
    evaluated = next(text for command, text in printed.items() if "example:machines" in command)
    assert evaluated.startswith(shown[1])
    assert shown[2] in evaluated
