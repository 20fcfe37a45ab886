"""Environments that are JAX programs (gymnax): one environment, which the loop maps over many and compiles."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl._extras import load_library
from cramerl.deep.envs.base import EnvSpec, Step, require_actions
from cramerl.deep.envs.names import is_minatar

Array = jax.Array
# Gymnax imports these for drawings that are never made here, which would take longer than everything else it imports.
gymnax = load_library("gymnax", without=("seaborn", "matplotlib.pyplot"))


class CompiledState(NamedTuple):
    """State of one environment.

    Attributes:
        inner: gymnax's state.
        over: () bool, the episode has ended and the next step starts another.
        last_action: () int32, taken in the last step, the first of the actions before; () if none is repeated.
    """

    inner: Any
    over: Array
    last_action: Array | tuple[()] = ()


class GymnaxEnv:
    """A gymnax environment that resets in the step after an episode's end, so that its last frame is not lost.

    Args:
        name: a gymnax id, such as ``Breakout-MinAtar``.
        max_episode_steps: time limit in steps; None keeps gymnax's.
        options: arguments of the environment's constructor, or of its parameters (``gravity``).
        sticky: probability that the last action is taken again in place of the one that was chosen.
    """

    def __init__(
        self,
        name: str,
        max_episode_steps: int | None = None,
        options: Mapping[str, Any] | None = None,
        sticky: float = 0.0,
    ):
        if name not in gymnax.registered_envs:
            raise ValueError(f"env must be one of {', '.join(gymnax.registered_envs)} (gymnax), got {name!r}")
        self._env, self._params = _make(name, dict(options or {}))
        self._sticky = sticky
        if max_episode_steps is not None:
            self._params = self._params.replace(max_steps_in_episode=max_episode_steps)
        actions = self._env.action_space(self._params)
        if not hasattr(actions, "n"):
            raise ValueError(f"env must have discrete actions, {name} has {type(actions).__name__} actions")
        frame = jax.eval_shape(lambda key: self._env.reset_env(key, self._params)[0], jax.random.key(0))
        if not hasattr(frame, "shape"):
            raise ValueError(f"env must have observations in one array, those of {name} have several parts")
        dtype = "uint8" if is_minatar(name) else "float32"  # zeros and ones need a byte each
        self.spec = EnvSpec(name, "gymnax", int(actions.n), tuple(frame.shape) or (1,), dtype)

        # As text, because 1, 1.0 and True are equal but not the same option.
        self._made_of = name, max_episode_steps, repr(sorted((options or {}).items())), sticky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GymnaxEnv) and other._made_of == self._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def reset(self, key: Array) -> tuple[CompiledState, Array]:
        """Start an episode: state and first frame."""
        frame, inner = self._env.reset_env(key, self._params)
        # Some fields start as Python numbers: without a dtype, everything would be compiled again at the second step.
        inner = jax.tree.map(lambda x: jnp.asarray(x, dtype=jnp.asarray(x).dtype), inner)
        last_action = jnp.zeros((), dtype=jnp.int32) if self._sticky else ()
        return CompiledState(inner, jnp.zeros((), dtype=bool), last_action), self._frame(frame)

    def step(self, key: Array, state: CompiledState, action: Array) -> tuple[CompiledState, Step]:
        """Take an action, or start the next episode if the last one is over."""
        step_key, reset_key = jax.random.split(key)
        last_action: Array | tuple[()] = ()
        if self._sticky:
            again = jax.random.uniform(jax.random.fold_in(key, 1)) < self._sticky
            action = jnp.where(again, jnp.asarray(state.last_action), action.astype(jnp.int32))
            last_action = jnp.where(state.over, 0, action)
        frame, inner, reward, terminated, _ = self._env.step_env(step_key, state.inner, action, self._params)
        truncated = self._env.is_truncated(inner, self._params)
        fresh, fresh_frame = self.reset(reset_key)
        over = state.over
        inner = jax.tree.map(lambda new, old: jnp.where(over, new, jnp.asarray(old, new.dtype)), fresh.inner, inner)
        terminated = terminated & ~over
        ended = terminated | (truncated & ~over)
        return CompiledState(inner, ended, last_action), Step(
            frames=jnp.where(over, fresh_frame, self._frame(frame)),
            rewards=jnp.where(over, 0.0, jnp.asarray(reward, jnp.float32)),
            terminated=terminated,
            ended=ended,
            first=over,
        )

    def _frame(self, observation: Array) -> Array:
        return jnp.asarray(observation).reshape(self.spec.frame_shape).astype(self.spec.frame_dtype)


class GymnaxOnHost:
    """The same environments stepped from Python, for playing and evaluation. See `HostEnvs`."""

    def __init__(self, env: GymnaxEnv, num_envs: int):
        self.env, self.spec, self.num_envs = env, env.spec, num_envs

    def reset(self, seed: int) -> np.ndarray:
        """See `HostEnvs`."""
        self._key, self._count = jax.random.key(seed), 0
        self._state, frames = _reset_all(self.env, self._key, self.num_envs)
        return np.asarray(frames)

    def step(self, actions: np.ndarray) -> Step:
        """See `HostEnvs`."""
        actions = require_actions(actions, self.num_envs, self.spec.num_actions)
        self._count += 1
        self._state, step = _step_all(self.env, self._key, self._count, self._state, actions)
        return Step(*(np.asarray(x) for x in step))

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def _make(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """An environment and its parameters, of which some options are fields; the others are its constructor's."""
    env, params = gymnax.make(name)
    defaults = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    if "max_steps_in_episode" in options:
        raise ValueError("options must not contain max_steps_in_episode, which is the argument max_episode_steps")
    fields = {key: _like(key, defaults[key], value) for key, value in options.items() if key in defaults}
    arguments = {key: value for key, value in options.items() if key not in defaults}
    if arguments:
        try:
            env, params = gymnax.make(name, **arguments)
        except Exception as error:
            known = ", ".join(sorted({*defaults, *inspect.signature(type(env)).parameters} - {"max_steps_in_episode"}))
            complaint = f"{type(error).__name__}: {error}; it has {known or 'none'}"
            raise ValueError(f"options must be arguments of {name!r}, got {arguments!r}: {complaint}") from error
    return env, params.replace(**fields)


def _like(key: str, default: Any, value: Any) -> Any:
    """A parameter with the type of its default, as programs expect; another type is an error."""
    kind = next((kind for kind in (bool, int, float) if isinstance(default, kind)), None)
    same = kind is None or (
        isinstance(value, bool) if kind is bool else isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    if not same or (kind is int and value != int(value)):
        words = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise ValueError(f"option {key} must be {words}, got {value!r}")
    return value if kind is None else kind(value)


# Compiled once for equal environments.
@partial(jax.jit, static_argnums=(0, 2))
def _reset_all(env: GymnaxEnv, key: Array, num_envs: int) -> tuple[CompiledState, Array]:
    return jax.vmap(env.reset)(jax.random.split(jax.random.fold_in(key, 0), num_envs))


@partial(jax.jit, static_argnums=0)
def _step_all(
    env: GymnaxEnv, key: Array, count: Array, state: CompiledState, actions: Array
) -> tuple[CompiledState, Step]:
    return jax.vmap(env.step)(jax.random.split(jax.random.fold_in(key, count), len(actions)), state, actions)
