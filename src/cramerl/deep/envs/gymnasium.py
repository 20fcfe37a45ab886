"""Gymnasium environments with discrete actions, stepped one after another in this process."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from cramerl.deep.envs.base import EnvFailed, EnvSpec, Step, env_seeds, require_actions, require_count

_OWN_ARGUMENTS = {
    "id",
    "num_envs",
    "vectorization_mode",
    "vector_kwargs",
    "wrappers",
    "max_episode_steps",
    "render_mode",
}


class GymnasiumEnvs:
    """N copies of a registered environment.

    A frame is the observation: float32 for a Box of numbers, uint8 for a Box of pictures in uint8, a one-hot float32
    vector for a Discrete one.

    Attributes:
        spec: see `EnvSpec`.
        num_envs: N.

    Args:
        name: a Gymnasium id such as "CartPole-v1", or "module:Name-v0", which imports the module that registers it.
        num_envs: N.
        max_episode_steps: steps after which an episode is cut off; None for the limit the environment registered.
        options: passed to the environment's constructor.
        render: whether ``render`` shall draw pictures, if the environment can.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        options: Mapping[str, Any] | None = None,
        render: bool = False,
    ):
        self.num_envs = require_count("num_envs", num_envs, 1)
        chosen = dict(options or {})
        for taken in _OWN_ARGUMENTS.intersection(chosen):
            raise ValueError(f"options must not contain {taken}, which has an argument or a setting of its own")
        if max_episode_steps is not None:
            chosen["max_episode_steps"] = require_count("max_episode_steps", max_episode_steps, 1)
        if render and _can_render(name):
            chosen["render_mode"] = "rgb_array"
        self._envs: VectorEnv | None = _make(name, self.num_envs, chosen)
        actions, self._space = self._envs.single_action_space, self._envs.single_observation_space
        try:
            if not isinstance(actions, Discrete):
                raise ValueError(f"env must be an environment with Discrete actions, got {name!r} with {actions}")
            shape, dtype = _frame(name, self._space)
        except ValueError:
            self.close()
            raise
        self._first_action = int(actions.start)
        self.spec = EnvSpec(
            name=name,
            family="gymnasium",
            num_actions=int(actions.n),
            frame_shape=shape,
            frame_dtype=dtype,
            frame_scale=255.0 if dtype == "uint8" else 1.0,
        )
        self._ended: np.ndarray | None = None

    def reset(self, seed: int) -> np.ndarray:
        """See `HostEnvs`."""
        seeds = env_seeds(seed, self.num_envs)
        envs = self._open()
        with self._blamed("reset"):
            observations, _ = envs.reset(seed=seeds.tolist())
        self._ended = np.zeros(self.num_envs, bool)
        return self._frames(observations)

    def step(self, actions: np.ndarray) -> Step:
        """See `HostEnvs`. Actions are counted from 0, whatever the action space starts at."""
        envs, first = self._open(), self._ended
        if first is None:
            raise ValueError("reset must be called before step")
        actions = require_actions(actions, self.num_envs, self.spec.num_actions)
        with self._blamed("step"):
            observations, rewards, terminated, truncated, _ = envs.step(actions.astype(np.int64) + self._first_action)
        ended = np.asarray(terminated | truncated, bool)
        self._ended = ended
        with np.errstate(over="ignore"):
            rewards = np.where(first, 0.0, rewards).astype(np.float32)
        return Step(
            frames=self._frames(observations),
            rewards=self._finite("rewards", rewards),
            terminated=np.asarray(terminated, bool),
            ended=ended.copy(),
            first=first,
        )

    def render(self) -> np.ndarray | None:
        """An RGB picture of the first environment; None if it has none, or lacks the library that draws it."""
        envs = self._open()
        if envs.render_mode is None:
            return None
        with self._blamed("render"):
            try:
                pictures = envs.render()
            except gymnasium.error.DependencyNotInstalled:
                return None
        return None if pictures is None else np.asarray(pictures[0], np.uint8)

    def close(self) -> None:
        """See `HostEnvs`."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None

    def _frames(self, observations: Any) -> np.ndarray:
        if isinstance(self._space, Discrete):
            values = self._space.start + np.arange(self._space.n)
            return (np.asarray(observations)[:, None] == values).astype(np.float32)
        with np.errstate(over="ignore"):
            frames = np.asarray(observations, self.spec.frame_dtype)
        return self._finite("observations", frames.reshape(self.num_envs, *self.spec.frame_shape))

    def _finite(self, what: str, numbers: np.ndarray) -> np.ndarray:
        """Numbers that an agent can learn from; ValueError blames the environment for others."""
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            bad = numbers[~np.isfinite(numbers)][0]
            raise ValueError(f"{what} must be finite numbers (of float32), {self.spec.name} gave {bad}")
        return numbers

    @contextmanager
    def _blamed(self, method: str) -> Iterator[None]:
        """Name the environment and the place in its code when it raises an exception of its own."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise EnvFailed(
                f"env must be an environment that works, {self.spec.name} raised {what} in its {method} "
                f"({Path(place.filename).name} line {place.lineno})"
            ) from error

    def _open(self) -> VectorEnv:
        if self._envs is None:
            raise ValueError("these environments were closed; make new ones")
        return self._envs


def _make(name: str, num_envs: int, options: dict[str, Any]) -> VectorEnv:
    """Make the vector environment; one ValueError replaces the many types that Gymnasium raises."""
    next_step = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    try:
        return gymnasium.make_vec(name, num_envs, vectorization_mode="sync", vector_kwargs=next_step, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(f"env must be an environment whose libraries are installed, got {name!r}: {error}") from error
    except (gymnasium.error.Error, ImportError) as error:
        kinds = (
            "a Gymnasium id such as 'CartPole-v1', 'module:Name-v0' for one that a module registers, or an Atari game"
        )
        near = _near(str(name))
        hint = f"; did you mean {near!r}?" if near else f": {error}"
        raise ValueError(f"env must be {kinds} such as 'ALE/Pong-v5', got {name!r}{hint}") from error
    except Exception as error:
        given = {key: value for key, value in options.items() if key not in _OWN_ARGUMENTS}
        if not given and not isinstance(error, TypeError):  # which a missing argument raises
            raise
        # Environments complain in many ways: TypeError, AssertionError, KeyError, ...
        complaint = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ValueError(f"options must be arguments of {name!r}, got {given!r}: {complaint}") from error


def _near(name: str) -> str | None:
    """The newest version of the registered environment whose id is most like a name."""
    ids = {id.lower(): id for id in gymnasium.registry}
    found = difflib.get_close_matches(name.lower(), ids, n=1, cutoff=0.7)
    family = [id for id in ids.values() if found and id.rpartition("-v")[0] == ids[found[0]].rpartition("-v")[0]]
    return max(family, key=lambda id: int(f"0{id.rpartition('-v')[2]}"), default=None)


def _can_render(name: str) -> bool:
    """Whether an environment says that it can be drawn as an array."""
    try:
        entry = gymnasium.spec(name).entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    except (gymnasium.error.Error, ImportError):
        return False  # `_make` says what is wrong
    return "rgb_array" in getattr(creator, "metadata", {}).get("render_modes", ())


def _frame(name: str, space: gymnasium.Space) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a frame; ValueError if a network cannot read such observations."""
    if isinstance(space, Discrete):
        return (int(space.n),), "float32"
    if isinstance(space, Box):  # of floats, integers or bools
        picture = space.dtype == np.uint8 and len(space.shape) >= 2
        shape = (*space.shape, 1) if picture and len(space.shape) == 2 else space.shape or (1,)
        return shape, "uint8" if picture else "float32"
    raise ValueError(f"env must be an environment with Box or Discrete observations, got {name!r} with {space}")
