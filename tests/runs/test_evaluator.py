"""Evaluation during training: compiled once, closed at the end, and honest about episodes that are one game."""

import dataclasses
from typing import Any

import jax
import pytest
from lenient import lenient

import cramerl
from cramerl.deep import agent as agents
from cramerl.runs import build
from cramerl.runs.evaluator import warning_of_one_game
from cramerl.runs.presets import preset

TINY = {"steps": 96, "iteration_steps": 32, "log_steps": 32, "num_envs": 2, "min_replay_steps": 90, "batch_size": 4}
TINY |= {"network": "mlp", "hidden_units": (8,), "num_atoms": 11, "eval_episodes": 3, "max_episode_steps": 10}
PONG = preset("smoke", "c51", "pong", **TINY, checkpoints="none")


@pytest.fixture
def made(monkeypatch):
    """The environments that are made."""
    found, real = [], build.make_envs

    def make_envs(*arguments, **options):
        found.append(real(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(build, "make_envs", make_envs)
    return found


def test_it_is_compiled_once_warns_once_and_its_environments_are_closed(made, tmp_path):
    greedy: Any = agents._greedy
    before, told = greedy._cache_size(), []
    with lenient():
        run = cramerl.train(PONG, tmp_path / "run", on_progress=lambda status: told.append(status.message or ""))
    assert ["nearly one game" in words for words in told] == [True] + [False] * (len(told) - 1)
    assert sum("eval/episodic_return" in row for row in run.rows) == 3
    assert greedy._cache_size() <= before + 1
    assert [envs.num_envs for envs in made] == [2, 3]
    assert [envs._envs for envs in made] == [None, None]


def test_its_environments_are_closed_after_an_error(made, tmp_path):
    def fail(status):
        if status.step > 32:
            raise RuntimeError("enough")

    with lenient(), pytest.raises(RuntimeError, match="enough"):
        cramerl.train(PONG, tmp_path / "run", on_progress=fail)
    assert [envs._envs for envs in made] == [None, None]


@pytest.mark.parametrize(
    ("changes", "episodes", "epsilon", "warned"),
    [
        ({}, 3, 0.001, True),
        ({}, 1, 0.001, False),
        ({}, 3, 0.01, False),
        ({"noop_max": 1}, 3, 0.0, True),  # ALE draws fewer than noop_max no-ops
        ({"noop_max": 30}, 3, 0.0, False),
        ({"sticky": 0.25}, 3, 0.0, False),
        ({"env": "CartPole-v1"}, 3, 0.0, False),  # starts are drawn
    ],
)
def test_episodes_that_are_nearly_one_game(changes, episodes, epsilon, warned):
    words = warning_of_one_game(dataclasses.replace(PONG, **changes), episodes, epsilon)
    assert (words is not None) == warned
    if words:
        assert words.startswith(f"3 episodes of pong without sticky actions and no-ops, with epsilon {epsilon:g}, are ")


@pytest.mark.parametrize(("changes", "alike"), [({}, True), ({"noop_max": 30}, False)])
def test_games_without_chance_are_one_game(changes, alike):
    """What the warning is about, in the emulator: without random actions all scores and lengths are equal."""
    config = dataclasses.replace(PONG, max_episode_steps=0, **changes)
    envs = build.make_envs(config, 3)
    params = build.make_learner(config, envs.spec).init(jax.random.key(0)).params
    with lenient():
        played = agents.play_episodes(build.make_agent(config, envs.spec, params), envs, 3, epsilon=0.0)
    envs.close()
    assert (len(set(played)) == 1) == alike
