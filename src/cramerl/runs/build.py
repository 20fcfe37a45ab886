"""From settings to the parts of a run: environments, learner, loop, agent."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cramerl._checks import require_representable
from cramerl.deep.agent import Agent
from cramerl.deep.compiled_loop import CompiledLoop
from cramerl.deep.envs.atari import AtariEnvs
from cramerl.deep.envs.base import EnvSpec, HostEnvs
from cramerl.deep.envs.gymnasium import GymnasiumEnvs
from cramerl.deep.envs.names import env_family, imported_module
from cramerl.deep.heads import make_head
from cramerl.deep.host_loop import HostLoop
from cramerl.deep.learner import Learner, make_optimiser
from cramerl.deep.loop import Loop
from cramerl.deep.networks import make_network
from cramerl.deep.schedule import Schedule
from cramerl.runs.config import SETTINGS, TrainConfig, applies_to_agent
from cramerl.runs.group import RunGroup
from cramerl.supports import Support

_REPLAY_FRACTION = 0.6  # of an accelerator's memory that the replay's frames may take


def make_envs(
    config: TrainConfig, num_envs: int, skip: int = 0, *, pictures: bool = False, trust_modules: bool = False
) -> HostEnvs:
    """Environments of any family that are stepped from Python.

    Args:
        config: the settings.
        num_envs: how many.
        skip: how many environments of the same run come before these (Atari only), so that each gets its seed.
        pictures: show them to people: frames of Atari are in colour, Gymnasium's environments can ``render()``.
        trust_modules: whether a name such as "MODULE:Env-v0" may import its module. Not if it was read from a file,
            which may come from somebody else, unless the user says so.
    """
    require_trust(config, trust_modules=trust_modules)
    family, limit, options = env_family(config.env), config.max_episode_steps, dict(config.env_options)
    if family == "gymnax":
        from cramerl.deep.envs.gymnax import GymnaxEnv, GymnaxOnHost  # takes seconds to import

        return GymnaxOnHost(GymnaxEnv(config.env, limit or None, options, config.sticky), num_envs)
    if family == "gymnasium":
        name = config.env.removeprefix("gym:")
        return GymnasiumEnvs(name, num_envs, max_episode_steps=limit or None, options=options, render=pictures)
    if options:
        raise ValueError(f"env_options must be empty for Atari games, which have settings instead, got {options}")
    return AtariEnvs(
        config.env,
        num_envs,
        sticky=config.sticky,
        life_loss_ends=config.life_loss_ends,
        max_episode_frames=4 * limit or 108_000,
        noop_max=config.noop_max,
        fire_reset=config.fire_reset,
        full_action_space=config.full_action_space,
        skip=skip,
        colour=pictures,
    )


def make_learner(config: TrainConfig, spec: EnvSpec) -> Learner:
    """Head, network and optimiser."""
    of_heads = {name: getattr(config, name) for name, setting in SETTINGS.items() if setting.group == "head"}
    support: tuple[float, float] | Literal["own"] | None = None
    if applies_to_agent("v_min", config.agent):
        # The head's atoms are 0, 1, ..., K - 1; where they lie is part of the weights.
        of_heads |= {"v_min": 0.0, "v_max": config.num_atoms - 1.0}
        support = "own" if config.v_min is None or config.v_max is None else (config.v_min, config.v_max)
    head = make_head(config.agent, **of_heads)
    network = make_network(
        network_name(config, spec),
        spec.observation_shape,
        spec.num_actions,
        head.num_outputs,
        frame_scale=spec.frame_scale,
        hidden_units=config.hidden_units,
        last_layer_scale=config.last_layer_scale,
    )
    zero = config.base_distribution == "zero" and applies_to_agent("base_distribution", config.agent)
    if config.network == "linear" and (support == "own" or zero):
        raise ValueError(
            "network linear has no bias, so v_min and v_max must be given and base_distribution be uniform, got "
            f"{config.v_min}, {config.v_max} and {config.base_distribution}"
        )
    if isinstance(support, tuple):
        # Atoms that coincide in the network's precision are an error.
        require_representable(jnp, Support.uniform(*support, config.num_atoms), jnp.zeros(1, dtype=jnp.float32))
    optimiser = make_optimiser(config.optimiser, config.optimiser_epsilon)
    return Learner(
        head,
        network,
        optimiser,
        config.learning_rate,
        config.double_q,
        support,
        zero,
        max_gradient_norm=config.max_gradient_norm,
    )


def network_name(config: TrainConfig, spec: EnvSpec) -> str:
    """The network's name, with "auto" resolved."""
    if config.network != "auto":
        return config.network
    if spec.family == "atari":
        return "nature_same"
    return "minatar" if len(spec.observation_shape) == 3 else "mlp"


def require_trust(config: TrainConfig, *, trust_modules: bool) -> None:
    """Raise ValueError if making the environment imports a module, and the user has not said that it may."""
    module = imported_module(config.env)
    if module is not None and not trust_modules:
        raise ValueError(
            f"the folder names the environment {config.env!r}, which runs the Python module {module!r}: if you trust "
            "whoever wrote the folder, add --trust-modules (in Python: trust_modules=True)"
        )


def make_loop(group: RunGroup, *, trust_modules: bool = False) -> Loop:
    """The loop that trains, with its environments; see `make_envs` for ``trust_modules``."""
    config = group.first
    require_trust(config, trust_modules=trust_modules)
    schedule = Schedule(
        num_envs=config.num_envs,
        update_period_steps=config.update_period_steps,
        batch_size=config.batch_size,
        min_replay_steps=config.min_replay_steps,
        replay_steps=config.replay_steps,
        target_period_steps=config.target_period_steps,
        exploration_final=config.exploration_final,
        exploration_decay_steps=config.exploration_decay_steps,
        discount=config.discount,
        n_step=config.n_step,
        q_lambda=config.q_lambda if applies_to_agent("q_lambda", config.agent) else 0.0,
        q_lambda_greedy=config.q_lambda_greedy,
        clip_rewards=config.clip_rewards,
    )
    if env_family(config.env) == "gymnax":
        from cramerl.deep.envs.gymnax import GymnaxEnv

        env = GymnaxEnv(config.env, config.max_episode_steps or None, dict(config.env_options), config.sticky)
        rates, penalties = ([getattr(run, name) for run in group.configs] for name in ("learning_rate", "mass_penalty"))
        return CompiledLoop(
            env,
            make_learner(config, env.spec),
            schedule,
            [run.seed for run in group.configs],
            learning_rates=rates if "learning_rate" in group.lanes[0] else None,
            mass_penalties=penalties if "mass_penalty" in group.lanes[0] else None,
        )
    if len(group) > 1:
        raise ValueError(
            f"{config.env} can be trained with one seed and one learning rate at a time, because it is not a gymnax "
            f"environment, got {len(group)} runs: {group.describe()}; cramerl sweep trains several"
        )
    halves = _make_env_halves(config)
    try:
        spec = halves[0].spec
        learner = make_learner(config, spec)
        on_host = config.replay_on == "host" or (config.replay_on == "auto" and not _fits(config, spec))
        return HostLoop(halves, learner, schedule, config.seed, frames_on_host=on_host)
    except BaseException:
        for envs in halves:
            envs.close()
        raise


def _make_env_halves(config: TrainConfig) -> list[HostEnvs]:
    """The environments of a run: two halves where an accelerator learns, so that the emulators need not wait."""
    halve = env_family(config.env) == "atari" and jax.default_backend() != "cpu" and config.num_envs % 2 == 0
    if not halve:
        return [make_envs(config, config.num_envs, trust_modules=True)]
    half = config.num_envs // 2
    return [make_envs(config, half, skip, trust_modules=True) for skip in (0, half)]


def make_agent(config: TrainConfig, spec: EnvSpec, params: Any) -> Agent:
    """An agent with given weights."""
    learner = make_learner(config, spec)
    return Agent(learner.head, learner.network, params, spec)


def _fits(config: TrainConfig, spec: EnvSpec) -> bool:
    """Whether the replay's frames fit on the device; a CPU has only one memory."""
    stats = jax.devices()[0].memory_stats() or {}
    size = config.replay_steps * math.prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize
    return size <= _REPLAY_FRACTION * stats.get("bytes_limit", math.inf)
