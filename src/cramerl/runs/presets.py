"""Published settings by name, and ours for small environments. Sources: the papers, and Dopamine's configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from cramerl.deep.envs.names import env_family, env_name, is_minatar
from cramerl.runs.config import (
    AGENTS,
    SETTINGS,
    TrainConfig,
    agent_name,
    applies_to_agent,
    require_agent_settings,
    without_aliases,
)

_ADAM_C51 = {"optimiser": "adam", "learning_rate": 2.5e-4, "optimiser_epsilon": 3.125e-4}  # Bellemare et al. 2017
_ADAM_S51 = {"optimiser": "adam", "learning_rate": 2.5e-5, "optimiser_epsilon": 3.125e-5}  # the paper, section 5
_ADAM_U51 = {"optimiser": "adam", "learning_rate": 1e-4, "optimiser_epsilon": 3.125e-5}  # ours
_ADAM_QR = {"optimiser": "adam", "learning_rate": 5e-5, "optimiser_epsilon": 3.125e-4}  # Dabney et al. 2018
_ADAM_DQN = {"optimiser": "adam", "learning_rate": 6.25e-5, "optimiser_epsilon": 1.5e-4}  # Dopamine, JAX
_RMSPROP_DQN = {"optimiser": "rmsprop", "learning_rate": 2.5e-4, "optimiser_epsilon": 1e-5}  # Dopamine, dqn_icml
# Mnih et al. 2015
_RMSPROP_NATURE = {"optimiser": "rmsprop", "learning_rate": 2.5e-4, "optimiser_epsilon": 0.01 / 32**2}

_ATARI = {
    "steps": 50_000_000,
    "iteration_steps": 250_000,
    "log_steps": 2_000,
    "max_episode_steps": 27_000,
    "clip_rewards": True,
    "replay_steps": 1_000_000,
    "target_period_steps": 10_000,
    "min_replay_steps": 50_000,
    "exploration_decay_steps": 1_000_000,
    "network": "nature_same",
    "life_loss_ends": True,
    "v_min": -10.0,
    "v_max": 10.0,
}
_ATARI_AGENTS = {
    "c51": _ADAM_C51,
    "s51": _ADAM_S51,
    "u51": _ADAM_U51,
    "l51": _ADAM_C51,
    "qr": _ADAM_QR,
    "hl_gauss": _ADAM_DQN,
    "dqn": _RMSPROP_DQN,
}
# After Young and Tian 2019, whose epsilon ends at 0.1, who update at every step with RMSProp, for 5 M steps.
_MINATAR = {
    "steps": 1_000_000,
    "iteration_steps": 50_000,
    "log_steps": 5_000,
    "replay_steps": 100_000,
    "min_replay_steps": 5_000,
    "target_period_steps": 1_000,
    "exploration_final": 0.05,
    "exploration_decay_steps": 100_000,
    "optimiser_epsilon": 3.125e-5,
}
# Rates that did best over four games in results/minatar-rates, and u51 as in results/minatar-means; l51 and hl_gauss as
# c51. tests/evidence/test_results.py repeats the choice.
_MINATAR_AGENTS: dict[str, dict[str, Any]] = {
    "dqn": {"learning_rate": 1e-4},
    "c51": {"learning_rate": 3e-4},
    "s51": {"learning_rate": 3e-5, "next_distribution": "rearranged"},
    "u51": {"learning_rate": 1e-4, "base_distribution": "zero", "mean_weight": 0.1},
    "l51": {"learning_rate": 3e-4},
    "qr": {"learning_rate": 3e-4},
    "hl_gauss": {"learning_rate": 3e-4},
}
_PONG_MISC = {"network": "minatar_strided"}  # its observations have twelve times as many pixels
_CLASSIC = {
    "steps": 100_000,
    "num_envs": 4,
    "iteration_steps": 10_000,
    "log_steps": 2_000,
    "replay_steps": 20_000,
    "min_replay_steps": 1_000,
    "target_period_steps": 500,
    "exploration_final": 0.05,
    "exploration_decay_steps": 10_000,
    "update_period_steps": 2,
    "optimiser_epsilon": 1e-5,
}
_CLASSIC_AGENTS: dict[str, dict[str, Any]] = {
    "dqn": {"learning_rate": 1e-3},
    "c51": {"learning_rate": 3e-4},
    "s51": {"learning_rate": 1e-4, "next_distribution": "rearranged"},
    "u51": {"learning_rate": 1e-3},
    "l51": {"learning_rate": 3e-4},
    "qr": {"learning_rate": 1e-3},
    "hl_gauss": {"learning_rate": 3e-4},
}
_SMOKE = {
    "steps": 2_000,
    "num_envs": 4,
    "iteration_steps": 500,
    "log_steps": 100,
    "replay_steps": 1_000,
    "min_replay_steps": 200,
    "target_period_steps": 200,
    "exploration_decay_steps": 500,
    "batch_size": 8,
    "hidden_units": (16,),
}

_FAMILIES = {"atari": "Atari games", "gymnasium": "Gymnasium environments", "gymnax": "gymnax"}

PRESETS: dict[str, str] = {
    "paper": "Atari as the paper ran it: epsilon 0.05, not sticky, a lost life ends the return; 200 M frames",
    "icml": "Atari as the C51 paper ran it: as paper, with epsilon 0.01",
    "machado": "Atari with sticky actions, as Dopamine's curves: epsilon 0.01 after 250 k steps, lives do not matter",
    "dqn-nature": "Atari as Mnih et al. 2015 ran DQN: RMSProp, epsilon 0.1, no-op starts, VALID convolutions",
    "minatar": "MinAtar-sized games: replay of 100 k steps, 16 environments",
    "classic": "CartPole and its like: vectors, small replay",
    "smoke": "a few seconds of anything, to see that it runs",
}


def preset(name: str | None, agent: str, env: str, **changes: Any) -> TrainConfig:
    """Settings of a preset for an agent and an environment.

    Args:
        name: one of `PRESETS`, or None for the one that fits the environment.
        agent: dqn, c51, s51, u51, l51, qr or hl_gauss; also written ``S51``, ``QR-DQN`` or ``HL-Gauss``.
        env: see `TrainConfig.env`.
        changes: settings that replace the preset's, by their names or aliases such as ``lr``; one that the agent or the
            environment does not use is an error.

    Example:
        >>> preset("paper", "s51", "pong").learning_rate
        2.5e-05
    """
    if agent_name(env) in AGENTS and agent_name(agent) not in AGENTS:
        raise ValueError(f"agent must come before env, got agent {agent!r} and env {env!r}")
    agent, env = agent_name(agent), env_name(env)
    if agent not in AGENTS:
        raise ValueError(f"agent must be one of {', '.join(AGENTS)}, got {agent!r}")
    name = default_preset(env) if name is None else name
    changes = without_aliases(changes)
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
    require_agent_settings(changes, [agent])
    require_env_settings(changes, [env])
    values = {**_settings(name, agent, env), **changes}
    return TrainConfig.from_json({"agent": agent, "env": env, "preset": name, **values})


def applies_to_env(name: str, env: str) -> bool:
    """Whether an environment, given by its name, uses a setting."""
    return not SETTINGS[name].families or env_family(env) in SETTINGS[name].families


def applies(name: str, agent: str, env: str) -> bool:
    """Whether an agent in an environment uses a setting."""
    return applies_to_agent(name, agent) and applies_to_env(name, env)


def require_env_settings(names: Iterable[str], envs: Collection[str]) -> None:
    """Raise ValueError for a setting that none of the environments uses."""
    for name in names:
        if name in SETTINGS and not any(applies_to_env(name, env) for env in envs):
            users = " and ".join(_FAMILIES[family] for family in SETTINGS[name].families)
            raise ValueError(f"{name} is a setting of {users} and would be ignored by {', '.join(envs)}: leave it out")


def default_preset(env: str) -> str:
    """The preset that fits an environment's name."""
    if not isinstance(env, str) or not env:
        raise ValueError(f"env must be the name of an environment, got {env!r}")
    if is_minatar(env):
        return "minatar"
    return "paper" if env_family(env) == "atari" else "classic"


def _settings(name: str, agent: str, env: str) -> dict[str, Any]:
    if name == "paper":
        return {**_ATARI, **_ATARI_AGENTS[agent], "exploration_final": 0.05}
    if name == "icml":
        return {**_ATARI, **_ATARI_AGENTS[agent], "exploration_final": 0.01}
    if name == "machado":
        sticky = {"sticky": 0.25, "life_loss_ends": False, "min_replay_steps": 20_000, "target_period_steps": 8_000}
        dqn = {**_ADAM_DQN, "dqn_loss": "squared"} if agent == "dqn" else {}
        decay = {"exploration_final": 0.01, "exploration_decay_steps": 250_000}
        return {**_ATARI, **_ATARI_AGENTS[agent], **sticky, **decay, **dqn}
    if name == "dqn-nature":
        # RMSProp's epsilon, 0.01, is for gradients summed over the batch of 32; here they are averaged.
        nature = {"network": "nature", "noop_max": 30, "eval_epsilon": 0.05}
        dqn = _RMSPROP_NATURE if agent == "dqn" else {}
        return {**_ATARI, **_ATARI_AGENTS[agent], **nature, **dqn, "exploration_final": 0.1}
    if name == "minatar":
        return {**_MINATAR, **_MINATAR_AGENTS[agent], **(_PONG_MISC if env == "Pong-misc" else {})}
    own = {**_CLASSIC_AGENTS[agent], "optimiser_epsilon": 1e-5}
    return {**_CLASSIC, **own} if name == "classic" else {**_SMOKE, **own}
