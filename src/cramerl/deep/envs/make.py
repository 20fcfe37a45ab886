"""Environments of any family from their settings."""

from __future__ import annotations

from dataclasses import dataclass

from cramerl.deep.envs.atari import AtariEnvs
from cramerl.deep.envs.base import HostEnvs
from cramerl.deep.envs.gymnasium import GymnasiumEnvs
from cramerl.deep.envs.names import env_family


@dataclass(frozen=True)
class EnvOptions:
    """Settings of an environment; all but the first two concern Atari games only, see `AtariEnvs`.

    Attributes:
        env: the name.
        max_episode_steps: time limit in agent steps; 0 is the environment's own.
        sticky: probability that the emulator repeats the last action.
        life_loss_ends: whether a lost life ends the return for the learner.
        noop_max: largest number of no-ops at the start of a game.
        fire_reset: whether to press fire at the start of a game that needs it.
        full_action_space: all 18 actions instead of those the game uses.
    """

    env: str
    max_episode_steps: int = 0
    sticky: float = 0.0
    life_loss_ends: bool = True
    noop_max: int = 0
    fire_reset: bool = False
    full_action_space: bool = False


def make_envs(options: EnvOptions, num_envs: int, skip: int = 0) -> HostEnvs:
    """Make environments of any family that are stepped from Python.

    Args:
        options: what to make.
        num_envs: how many.
        skip: how many environments of the same run come before these (Atari only), so that each gets its seed.
    """
    family, limit = env_family(options.env), options.max_episode_steps
    if family == "gymnax":
        from cramerl.deep.envs.gymnax import GymnaxEnv, GymnaxOnHost  # takes seconds to import: only where it is used

        return GymnaxOnHost(GymnaxEnv(options.env, limit or None), num_envs)
    if family == "gymnasium":
        return GymnasiumEnvs(options.env.removeprefix("gym:"), num_envs, max_episode_steps=limit or None)
    return AtariEnvs(
        options.env,
        num_envs,
        sticky=options.sticky,
        life_loss_ends=options.life_loss_ends,
        max_episode_frames=4 * limit or 108_000,
        noop_max=options.noop_max,
        fire_reset=options.fire_reset,
        full_action_space=options.full_action_space,
        skip=skip,
    )
