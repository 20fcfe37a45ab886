"""The shell commands of the documentation: which there are, which do not run and why, and how a page of them is run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from code_blocks import PAGES, ROOT, blocks, commands, shows

SHELL = {
    page: [block for block in blocks(page) if block.language == "sh"]
    for page in PAGES
    if any(block.language == "sh" for block in blocks(page))
}
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
    "cramerl report theirs.csv --columns": "a table with other names is the reader's",
    "cramerl report cleanrl/runs": "these logs are the reader's",
    "cramerl report runs/mine": "these runs are the reader's",
    "cramerl watch runs/s51 --serve": "runs until it is stopped",
}
"""Beginnings of commands that do not run here, with the reason."""

GIVEN = {
    "watch.md": "cramerl demo --out out/demo --train-steps 2000",
    "reports.md": "cramerl train s51 CartPole-v1 --preset smoke --eval-episodes 3 --out runs/first\n"
    "cramerl evaluate FrozenLake-v1 --discount 0.95\n",
}
"""What the reader has done before, by the page."""

FILES = {("reports.md", "theirs.csv"): "agent,env,seed,step,return\n"}
"""Files that the reader has, by the page that shows them: how the text begins."""

IN_THE_PROSE = {"logs.md": "python benchmarks/log_goals.py out/shop/customers.parquet"}
"""Commands whose output a page shows without a block of their own."""

DIGITS_VARY = {"agents.md", "start.md"}
"""Pages that show what a trained agent does, which is rounded differently on another processor, and speeds."""

FROM_ELSEWHERE = {
    ("agents.md", "training s51 on breakout"): HOURS,
    ("logs.md", "- Along episodes age"): "of a variant that the text names",
    ("losses.md", "state 0"): "tests/test_examples.py",
    ("reports.md", "agent,env,seed,step,return"): "a file of the reader",
    ("sweeps.md", "runs/first/sweep.json"): "a listing of files",
}
"""Shown texts that no command of the page prints here: how they begin, and why."""


def reason_not_to_run(command):
    words = shlex.join(command)
    return next((reason for start, reason in NOT_RUN.items() if words.startswith(start)), None)


def run_page(page, folder):
    """What the commands of a page print, all together."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for name in ("benchmarks", "docs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    for (of, name), start in FILES.items():
        if of == page:
            (text,) = (block.text for block in blocks(page) if block.text.startswith(start))
            (folder / name).write_text(text, encoding="utf-8")
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


def check_page(page: str, place: Path) -> None:
    """Run the commands of a page in a folder, and compare what they print with what the page shows."""
    printed = run_page(page, place)
    python = [block for block in blocks(page) if block.language == "python"]
    for block in blocks(page):
        listed = any(one == page and block.text.startswith(start) for one, start in FROM_ELSEWHERE)
        after_python = any(each.line + each.text.count("\n") + 3 == block.line for each in python)
        if block.language == "text" and not listed and not after_python:
            assert shows(block.text, printed, digits=page not in DIGITS_VARY), f"line {block.line}, not in\n{printed}"
