"""It learns: short seeded runs of the real thing, judged by the returns they reach."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import cramerl
from cramerl.runs.config import AGENTS

# In a process of its own, because the tests' own compiles without optimisations: these runs are long. The folder's
# config.json and its log say all there is to know.
TRAIN = """
import json, sys
from pathlib import Path
import cramerl
config, folder, enough = cramerl.TrainConfig.from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), float(sys.argv[3])
def stop(status):
    lines = (folder / "metrics.jsonl").read_text().splitlines() if status.row else ()
    if any(json.loads(line).get("eval/episodic_return", 0) >= enough for line in lines):
        sys.exit()
cramerl.train(config, out=folder, on_progress=stop)
"""


def train(config, folder, enough=1e9):
    """Train until an evaluation reaches enough; the rows of the log."""
    config = dataclasses.replace(config, checkpoints="none")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_FLAGS", "JAX_"))}
    words = [sys.executable, "-c", TRAIN, json.dumps(config.to_json()), str(folder), str(enough)]
    subprocess.run(words, env=environment, check=True)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_solves_cartpole(agent, tmp_path):
    """475 of 500, the mark at which CartPole-v1 counts as solved, over twenty greedy episodes after some iteration."""
    config = cramerl.preset("classic", agent, "CartPole-v1", steps=100_000, eval_episodes=20, eval_epsilon=0.0)
    rows = train(config, tmp_path / "run", enough=475)
    assert max(row.get("eval/episodic_return", 0) for row in rows) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_acrobot_without_a_support(agent, tmp_path):
    """Every return is negative; a random policy gets -500, and so did agents with atoms on [0, 100]."""
    assert last_return(train(cramerl.preset(None, agent, "Acrobot-v1", steps=60_000), tmp_path / "run")) > -200


def last_return(rows):
    rows = [row for row in rows if row.get("charts/episodes") and row["step"] > 0.9 * rows[-1]["step"]]
    episodes = sum(row["charts/episodes"] for row in rows)
    return sum(row["charts/episodes"] * row["charts/episodic_return"] for row in rows) / episodes


def breakout(agent, steps, folder):
    config = cramerl.preset("minatar", agent, "Breakout-MinAtar", steps=steps, exploration_decay_steps=steps // 4)
    return last_return(train(config, folder))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["s51", "u51", "l51", "c51"])
def test_minatar_breakout(agent, tmp_path):
    """A random policy gets 0.5; 200,000 steps are a fifth of the usual run."""
    assert breakout(agent, 200_000, tmp_path / "run") >= 6
