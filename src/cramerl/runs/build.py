"""From settings to the parts of a run: environments, learner, loop, agent."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cramerl.deep.envs.names import env_family
from cramerl.runs.config import TrainConfig

if TYPE_CHECKING:
    from cramerl.deep.agent import Agent
    from cramerl.deep.envs.base import EnvSpec, HostEnvs
    from cramerl.deep.learner import Learner
    from cramerl.deep.loop import Loop

_DEVICE_SHARE = 0.6  # of an accelerator's memory that the frames of a replay may take


def make_envs(config: TrainConfig, num_envs: int, skip: int = 0) -> HostEnvs:
    """Environments of a run that are stepped from Python; ``skip`` of the same run come before them."""
    from cramerl.deep.envs import make

    options = {field.name: getattr(config, field.name) for field in dataclasses.fields(make.EnvOptions)}
    return make.make_envs(make.EnvOptions(**options), num_envs, skip)


def make_learner(config: TrainConfig, spec: EnvSpec) -> Learner:
    """Head, network and optimiser."""
    from cramerl.deep.heads import make_head
    from cramerl.deep.learner import Learner, make_optimiser
    from cramerl.deep.networks import make_network

    head = make_head(
        config.agent,
        num_atoms=config.num_atoms,
        v_min=config.v_min,
        v_max=config.v_max,
        mass_penalty=config.mass_penalty,
        mass_penalty_scale=config.mass_penalty_scale,
        normalisation=config.normalisation,
        base_distribution=config.base_distribution,
        mean_weight=config.mean_weight,
        dqn_loss=config.dqn_loss,
        quantile_threshold=config.quantile_threshold,
        sigma_spacings=config.sigma_spacings,
    )
    network = make_network(
        network_name(config, spec),
        spec.observation_shape,
        spec.num_actions,
        head.num_outputs,
        frame_scale=spec.frame_scale,
        hidden_units=config.hidden_units,
        last_layer_scale=config.last_layer_scale,
    )
    _try_head(head)
    optimiser = make_optimiser(config.optimiser, config.optimiser_epsilon)
    return Learner(head, network, optimiser, config.learning_rate, config.double_q)


def _try_head(head: Any) -> None:
    """Let a head say what is wrong with its support before anything is written."""
    import jax
    import jax.numpy as jnp

    outputs, number = jnp.zeros((1, head.num_outputs), jnp.float32), jnp.zeros(1, jnp.float32)
    jax.eval_shape(lambda o, r: head.loss(o, head.target(r, r, o)), outputs, number)


def network_name(config: TrainConfig, spec: EnvSpec) -> str:
    """The network that "auto" stands for."""
    if config.network != "auto":
        return config.network
    if spec.family == "atari":
        return "nature_same"
    return "minatar" if len(spec.observation_shape) == 3 else "mlp"


def make_loop(config: TrainConfig) -> Loop:
    """The loop that trains, with its environments."""
    from cramerl.deep.schedule import Schedule

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
        clip_rewards=config.clip_rewards,
    )
    if env_family(config.env) == "gymnax":
        from cramerl.deep.compiled_loop import CompiledLoop
        from cramerl.deep.envs.gymnax import GymnaxEnv

        env, lanes = GymnaxEnv(config.env, config.max_episode_steps or None), config.lane_settings
        return CompiledLoop(
            env,
            make_learner(config, env.spec),
            schedule,
            [lane["seed"] for lane in lanes],
            learning_rates=[lane["learning_rate"] for lane in lanes] if config.learning_rates else None,
            mass_penalties=[lane["mass_penalty"] for lane in lanes] if config.mass_penalties else None,
        )
    for name, allowed in (("lanes", 1), ("learning_rates", ()), ("mass_penalties", ())):
        if getattr(config, name) != allowed:
            raise ValueError(
                f"{name} are for environments that are JAX programs, {config.env} is none; got {getattr(config, name)}"
            )
    from cramerl.deep.host_loop import HostLoop

    groups = _make_groups(config)
    try:
        spec = groups[0].spec
        learner = make_learner(config, spec)
        on_host = config.replay_on == "host" or (config.replay_on == "auto" and not _fits(config, spec))
        return HostLoop(groups, learner, schedule, config.seed, frames_on_host=on_host)
    except BaseException:
        for envs in groups:
            envs.close()
        raise


def _make_groups(config: TrainConfig) -> list[HostEnvs]:
    """The environments of a run: two halves where an accelerator learns, so that the emulator need not wait for it."""
    import jax

    halves = env_family(config.env) == "atari" and jax.default_backend() != "cpu" and config.num_envs % 2 == 0
    if not halves:
        return [make_envs(config, config.num_envs)]
    half = config.num_envs // 2
    return [make_envs(config, half, skip) for skip in (0, half)]


def make_agent(config: TrainConfig, spec: EnvSpec, params: Any) -> Agent:
    """An agent with given weights."""
    from cramerl.deep.agent import Agent

    learner = make_learner(config, spec)
    return Agent(learner.head, learner.network, params, spec)


def _fits(config: TrainConfig, spec: EnvSpec) -> bool:
    """Whether the frames of the replay fit on the device; on a CPU there is one memory."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    size = config.replay_steps * math.prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize
    return size <= _DEVICE_SHARE * stats.get("bytes_limit", math.inf)
