"""Environments of each family by name."""

import dataclasses

import numpy as np
import pytest

from cramerl.deep.envs.base import EnvSpec, spec_from_json
from cramerl.runs.build import make_envs, make_learner
from cramerl.runs.config import SETTINGS, TrainConfig

pytestmark = pytest.mark.usefixtures("lenient_jax")


@pytest.mark.parametrize(
    ("name", "family"), [("CartPole-v1", "gymnax"), ("gym:CartPole-v1", "gymnasium"), ("pong", "atari")]
)
def test_environments_by_name(name, family):
    envs = make_envs(TrainConfig(env=name, max_episode_steps=2), 2)
    assert (envs.spec.family, envs.num_envs) == (family, 2)
    envs.reset(0)
    ends = [envs.step(np.zeros(2, np.int32)).ended.tolist() for _ in range(3)]
    assert ends == [[False] * 2, [True] * 2, [False] * 2]
    envs.close()


def test_options_reach_the_environment():
    envs = make_envs(TrainConfig(env="FrozenLake-v1", env_options={"is_slippery": False, "map_name": "8x8"}), 2)
    assert envs.spec.frame_shape == (64,)
    envs.reset(0)
    assert envs.step(np.array([1, 2])).frames.argmax(axis=1).tolist() == [8, 1]  # down and right, without slipping
    envs.close()
    all_actions = TrainConfig(env="Breakout-MinAtar", env_options={"use_minimal_action_set": False})
    assert make_envs(all_actions, 1).spec.num_actions == 6
    assert make_envs(dataclasses.replace(all_actions, env_options=()), 1).spec.num_actions == 3
    with pytest.raises(ValueError, match=r"^env_options must be empty for Atari games, .* got {'mode': 1}$"):
        make_envs(TrainConfig(env="pong", env_options={"mode": 1}), 1)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "Cartpol-v1",
            r"env must be a Gymnasium id such as 'CartPole-v1'.* got 'Cartpol-v1'; did you mean 'CartPole-v1'",
        ),
        ("Breakout-Mini", r"env must be .* got 'Breakout-Mini'"),
        ("Brekaout-MinAtar", r"env must be one of .*Breakout-MinAtar.* \(gymnax\), got 'Brekaout-MinAtar'"),
        ("ALE/Pnog-v5", r"env must be an Atari game .* got 'ALE/Pnog-v5'; did you mean 'pong'\?"),
        ("gym:Nothing-v0", r"env must be .* got 'Nothing-v0'"),
        ("gym:Pendulum-v1", r"Discrete actions, got 'Pendulum-v1' with Box"),
    ],
)
def test_unknown_names(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_envs(TrainConfig(env=name), 1)


def test_a_spec_in_json_may_call_gymnax_native():
    spec = EnvSpec("CartPole-v1", "gymnax", 2, (4,), "float32")
    for family in ("gymnax", "native"):
        assert spec_from_json({**spec._asdict(), "frame_shape": [4], "family": family}) == spec
    with pytest.raises(ValueError, match=r"^family must be one of 'gymnax', 'atari', 'gymnasium', got 'jax'$"):
        spec_from_json({**spec._asdict(), "family": "jax"})


CHANGED = {
    "num_atoms": 12,
    "v_min": -7.0,
    "v_max": 7.0,
    "mass_penalty": 3.0,
    "mass_penalty_scale": "total",
    "normalisation": "before",
    "base_distribution": "zero",
    "mean_weight": 0.5,
    "next_distribution": "rearranged",
    "mode_exponent": 0.25,
    "dqn_loss": "squared",
    "quantile_threshold": 0.5,
    "sigma_spacings": 2.0,
}


def test_every_setting_of_a_head_reaches_it():
    settings = {name: setting for name, setting in SETTINGS.items() if setting.group == "head"}
    assert set(settings) == set(CHANGED)
    spec = EnvSpec("none", "gymnasium", 2, (4,), "float32")
    for name, setting in settings.items():
        for agent in setting.agents:
            plain = TrainConfig(agent=agent, network="mlp", v_min=-10.0, v_max=10.0)
            changed = dataclasses.replace(plain, **{name: CHANGED[name]})
            assert make_learner(changed, spec) != make_learner(plain, spec), (agent, name)
