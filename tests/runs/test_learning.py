"""It learns: short seeded runs of the real thing, judged by the returns they reach."""

import contextlib
import json

import pytest

import cramerl

pytestmark = pytest.mark.usefixtures("lenient_jax")
AGENTS = ("dqn", "c51", "s51", "u51", "qr", "hl_gauss")


def last_return(run):
    rows = [row for row in run.rows if row.get("charts/episodes") and row["step"] > 0.9 * run.step]
    episodes = sum(row["charts/episodes"] for row in rows)
    return sum(row["charts/episodes"] * row["charts/episodic_return"] for row in rows) / episodes


def solved_cartpole(agent, folder):
    """475 of 500, the mark at which CartPole-v1 counts as solved, over twenty greedy episodes after some iteration."""
    config = cramerl.preset(
        "classic", agent, "CartPole-v1", steps=100_000, eval_episodes=20, eval_epsilon=0.0, checkpoints="none"
    )

    def solved():
        rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return any(row.get("eval/episodic_return", 0) >= 475 for row in rows)

    def stop(status):
        if status.row and solved():
            raise InterruptedError

    with contextlib.suppress(InterruptedError):
        cramerl.train(config, folder, on_progress=stop)
    return solved()


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_solves_cartpole(agent, tmp_path):
    assert solved_cartpole(agent, tmp_path / "run")


def breakout(agent, steps, folder):
    config = cramerl.preset(
        "minatar", agent, "Breakout-MinAtar", steps=steps, exploration_decay_steps=steps // 4, checkpoints="none"
    )
    return last_return(cramerl.train(config, folder))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["s51", "u51", "c51"])
def test_minatar_breakout(agent, tmp_path):
    """A random policy gets 0.5; 200,000 steps are a fifth of the usual run."""
    assert breakout(agent, 200_000, tmp_path / "run") >= 6
