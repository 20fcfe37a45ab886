"""A study and a report of it, made once."""

import subprocess
import sys

import pytest
from study_runs import write_run

from cramerl.reports.build import make_report

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")
LEVELS = {"dqn": 10.0, "c51": 11.0, "s51": 8.0, "u51": 12.0}


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Four agents, two games, three seeds; and sweeps of one game over learning rates and penalties beside it."""
    root = tmp_path_factory.mktemp("results")
    for env in GAMES:
        for agent, level in LEVELS.items():
            write_run(root / "main" / f"{env}-{agent}", agent, env, level=level, seeds=3)
    for agent in ("dqn", "u51"):
        write_run(root / "rates" / agent, agent, GAMES[0], seeds=2, learning_rate=(1e-4, 5e-4))
    for scale in ("orthonormal", "total"):
        for kind in ("after", "before"):
            settings = {"mass_penalty_scale": scale, "normalisation": kind, "mass_penalty": (1.0, 10.0)}
            write_run(root / "lambda" / f"{scale}-{kind}", "s51", GAMES[0], seeds=2, **settings)
    (root / "main" / "sweep.json").write_text('{"command": "cramerl sweep <all>"}')
    return root


@pytest.fixture(scope="session")
def written(study, tmp_path_factory):
    """The command on all studies, in a process of its own: how it ended, and the folder it wrote."""
    out = tmp_path_factory.mktemp("written") / "report"
    command = [sys.executable, "-m", "cramerl", "report", str(study), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False), out


@pytest.fixture(scope="session")
def main_report(study, tmp_path_factory):
    """The sections and the folder of a report of the main study."""
    out = tmp_path_factory.mktemp("main") / "out"
    return make_report([study / "main"], out), out
