"""The agents that come with the package: each loads, predicts finite values and plays better than chance."""

from __future__ import annotations

import re
from itertools import islice

import numpy as np
import pytest
from lenient import lenient

from cramerl.deep.agent import play_steps
from cramerl.deep.envs.names import MINATAR_GAMES
from cramerl.deep.trees import flatten
from cramerl.runs import build
from cramerl.runs.agents import load, load_agent, read_weights
from cramerl.runs.config import AGENTS
from cramerl.runs.folder import load_config
from cramerl.runs.names import GAMES, SHIPPED

# Of `cramerl sweep results/shipped-agents`, see its sweep.json.
COMMAND = {"preset": "minatar", "steps": 800_000, "sticky": 0.1, "max_episode_steps": 10_000, "num_envs": 16}
EACH = 8  # environments of each agent
# Steps in each environment; Seaquest takes long to compile, and its S51 to show that it has learned.
STEPS = dict.fromkeys(GAMES, 120) | {"seaquest": 300}
SLOW = [pytest.param(game, marks=pytest.mark.slow) if game != "breakout" else game for game in GAMES]


@pytest.mark.parametrize("game", GAMES)
def test_there_is_an_agent_of_every_kind(game):
    assert {folder.name for folder in (SHIPPED / game).iterdir()} == set(AGENTS)
    for folder in (SHIPPED / game).iterdir():
        assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}


@pytest.mark.parametrize("game", GAMES)
def test_its_card_says_what_made_it(game):
    env = next(f"{name}-MinAtar" for name in MINATAR_GAMES if name.lower() == game.replace("_", ""))
    for agent in AGENTS:
        config, card = load_config(SHIPPED / game / agent), (SHIPPED / game / agent / "README.md").read_text()
        assert (config.agent, config.env) == (agent, env)
        assert config.to_json().items() >= COMMAND.items()
        assert 20_000 <= config.seed <= 20_002
        assert config == load(SHIPPED / game / agent, 0).config
        assert f"# {agent} on {env}\n" in card
        assert f"| seed | {config.seed} |" in card
        assert "| trained | 800,000 steps |" in card
        assert re.search(r"\| mean return \| \d+\.\d\d \(training episodes in the steps after 600,000", card)
        settings = dict(re.findall(r"^\| (\w+) \| (.*) \|$", card.partition("## Settings")[2], re.MULTILINE))
        assert {name: settings[name] for name in config.to_json()} == {
            name: str(value) for name, value in config.to_json().items()
        }


@pytest.mark.parametrize("game", SLOW)
def test_it_plays_better_than_chance(game):
    """All agents of a game at once, each in its own environments, beside a player that acts at random."""
    agents = [load_agent(SHIPPED / game / agent) for agent in AGENTS]
    rng, spec = np.random.default_rng(0), agents[0].spec

    def choose(observations: np.ndarray) -> np.ndarray:
        seen = observations.reshape(len(agents) + 1, EACH, *spec.observation_shape)
        values = [agent.values(one) for agent, one in zip(agents, seen, strict=False)]
        assert np.isfinite(values).all()
        return np.concatenate([*np.argmax(values, axis=-1), rng.integers(0, spec.num_actions, EACH)])

    with lenient():
        envs = build.make_envs(load_config(SHIPPED / game / "l51"), (len(agents) + 1) * EACH)
        assert envs.spec == spec
        played = list(islice(play_steps(choose, envs), STEPS[game]))
        seen = played[-1][0]
        total = np.sum([step.rewards.reshape(-1, EACH).sum(1) for _, _, step in played], axis=0)
        predicted = [agent.distributions(seen[:EACH]) for agent in agents]
    *theirs, chance = total
    assert min(theirs) > 1.4 * chance, dict(zip(AGENTS, theirs, strict=True)) | {"chance": chance}
    for one, name in zip(predicted, AGENTS, strict=True):
        assert np.isfinite(one.atoms).all(), name
        assert np.isfinite(one.masses).all(), name
        if name != "s51":
            np.testing.assert_allclose(one.masses.sum(-1), 1, atol=1e-3)


def test_training_starts_from_it():
    agent = load_agent("asterix/s51")
    weights = flatten(read_weights("asterix/s51", agent.params))
    assert weights.keys() == flatten(agent.params).keys()
    for name, array in flatten(agent.params).items():
        np.testing.assert_array_equal(weights[name], array)
