"""The Python of the documentation runs as it stands, and prints what the page shows.

The blocks of one page share their names, in order, in a folder that is empty at first and in a process of their own.
What a page leaves to its reader is listed in ``GIVEN``, what cannot run here in ``NOT_RUN``.
"""

import ast
import itertools
import os
import subprocess
import sys

import pytest
from code_blocks import PAGES, blocks, shows

PYTHON = {
    page: [block for block in blocks(page) if block.language in ("python", "py")]
    for page in PAGES
    if any(block.language in ("python", "py") for block in blocks(page))
}
SLOW = {"agents.md", "estimator.md", "watch.md"}  # they train agents, or fit a million rows

WATCHED = """
import gymnasium
import numpy as np
import cramerl

env = gymnasium.make("CartPole-v1")  # the environment and the network of the reader
atoms = np.linspace(0.0, 100.0, 51)
weights = np.random.default_rng(0).normal(size=(4, 2, 51))

def network(observation):
    masses = np.exp(np.tensordot(observation, weights, 1))
    return masses / masses.sum(-1, keepdims=True)

for agent in ("s51", "c51"):
    cramerl.train(agent, "Breakout-MinAtar", preset="smoke", steps=500, out=f"runs/{agent}")
"""
ON_RAY = """
from unittest import mock
import cramerl.linear

cramerl.linear.fit_ray = mock.create_autospec(cramerl.linear.fit_ray)  # it has the files: only the call is checked
"""
GIVEN = {"watch.md": WATCHED, "scale.md": ON_RAY}
"""What the reader has, by the page: it is run before the page's own blocks."""

NOT_RUN: dict[tuple[str, int], str] = {}
"""Blocks that cannot run here, by page and number, with the reason."""

WARNINGS = (
    "error::UserWarning",
    "error::DeprecationWarning:__main__",
    "ignore::UserWarning:minari.utils",  # it would like a dataset to have an author and a link
)
SEPARATOR = "--- end of a block ---"


def run_page(page, folder):
    """What each block of a page prints."""
    parts = [GIVEN.get(page, "")]
    parts += [block.text for number, block in enumerate(PYTHON[page]) if (page, number) not in NOT_RUN]
    (folder / "page.py").write_text(f"\nprint({SEPARATOR!r})\n".join(parts), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, *itertools.chain(*(("-W", rule) for rule in WARNINGS)), "page.py"],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "Agg", "MINARI_DATASETS_PATH": str(folder / "minari")},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert found.returncode == 0, f"{page}: {found.stderr}"
    return found.stdout.split(f"{SEPARATOR}\n")[1:]


def shown_after(page, block):
    """The output that a page shows below a block, if it shows one."""
    after = PAGES[page].read_text(encoding="utf-8").splitlines()[block.line + block.text.count("\n") + 1 :]
    following = [each for each in blocks(page) if each.line > block.line][:1]
    if after[:2] == ["", "```text"]:
        return following[0].text
    return None


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PYTHON])
def test_blocks_run_and_print_what_the_page_shows(page, tmp_path):
    printed = run_page(page, tmp_path)
    ran = [block for number, block in enumerate(PYTHON[page]) if (page, number) not in NOT_RUN]
    assert len(printed) == len(ran)
    for block, output in zip(ran, printed, strict=True):
        shown = shown_after(page, block)
        if shown is not None:
            assert shows(shown, output), f"{page}, line {block.line}, prints\n{output}"


@pytest.mark.parametrize("page", PYTHON)
def test_blocks_are_python(page):
    for block in PYTHON[page]:
        ast.parse(block.text, filename=f"{page}:{block.line}")


def test_what_is_listed_exists():
    assert set(GIVEN) <= set(PYTHON)
    assert set(PYTHON) >= SLOW
    assert all(number < len(PYTHON[page]) and reason for (page, number), reason in NOT_RUN.items())
