"""What every family of environments gives the loops: single frames, and where an episode starts and ends.

All families reset in the step after the last one of an episode. The step that ends an episode returns its last frame
with ``ended``; the next step ignores the action, gives no reward, and returns the first frame of the next episode with
``first``. So every real transition is followed by the frame it led to, at a time limit too, and the reset is marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, get_args

import numpy as np

from cramerl._checks import require_choice
from cramerl.deep.envs.names import Family


class EnvSpec(NamedTuple):
    """What a network and a replay need to know about an environment.

    Attributes:
        name: as the user gave it.
        family: "gymnax" (a JAX program), "atari" or "gymnasium".
        num_actions: A.
        frame_shape: shape of one frame, without the stack.
        frame_dtype: "uint8" or "float32".
        stack: how many frames make an observation; if more than one, they are its last axis.
        frame_scale: the network divides frames by it.
        frames_per_step: emulator frames per agent step.
    """

    name: str
    family: Family
    num_actions: int
    frame_shape: tuple[int, ...]
    frame_dtype: str
    stack: int = 1
    frame_scale: float = 1.0
    frames_per_step: int = 1

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of the network's input, without the batch."""
        return (*self.frame_shape, self.stack) if self.stack > 1 else self.frame_shape


def spec_from_json(values: dict[str, Any]) -> EnvSpec:
    """Read a spec back from JSON of ``spec._asdict()``. The family gymnax may be called "native" there."""
    spec = EnvSpec(**{**values, "frame_shape": tuple(values["frame_shape"])})
    if spec.family == "native":
        spec = spec._replace(family="gymnax")
    require_choice("family", spec.family, get_args(Family))
    for name in ("num_actions", "stack", "frames_per_step"):
        require_count(name, getattr(spec, name), 1)
    for size in spec.frame_shape:
        require_count("frame_shape", size, 1)
    if spec.frame_dtype not in ("uint8", "float32") or not spec.frame_scale > 0:
        raise ValueError(f"frame_dtype and frame_scale cannot be {spec.frame_dtype!r} and {spec.frame_scale!r}")
    return spec


class EnvFailed(ValueError):  # noqa: N818 - reads well as `except EnvFailed`
    """An environment raised an exception of its own."""


class Step(NamedTuple):
    """What one step of N environments returned, in NumPy arrays, or JAX arrays in a compiled loop.

    Attributes:
        frames: ``(N, *frame_shape)``.
        rewards: (N,) float32, unclipped.
        terminated: (N,) bool, the return ends here: the game is over, or a life is lost and that ends the return. Not
            set by a time limit.
        ended: (N,) bool, the episode is over, by its own end or by a time limit; the next step starts another.
        first: (N,) bool, the frame has no past: it starts an episode, or a life if a lost life ends the return.
    """

    frames: Any
    rewards: Any
    terminated: Any
    ended: Any
    first: Any


class HostEnvs(Protocol):
    """N environments that are stepped from Python. They may be closed twice."""

    spec: EnvSpec
    num_envs: int

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments and return frames; the same seed and actions lead to the same steps."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Take (N,) int32 actions."""
        ...

    def close(self) -> None:
        """Free threads and processes."""
        ...


class FrameStack:
    """Stacks frames into observations as the replay does: without frames from before an episode's start."""

    def __init__(self, spec: EnvSpec, num_envs: int):
        self._stack = spec.stack
        self._frames = np.zeros((num_envs, *spec.observation_shape), spec.frame_dtype)

    def push(self, frames: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Add a frame; returns the observations."""
        if self._stack == 1:
            return frames
        past = np.where(first.reshape(-1, *[1] * (self._frames.ndim - 1)), 0, self._frames[..., 1:])
        self._frames = np.concatenate([past, frames[..., None]], axis=-1, dtype=self._frames.dtype)
        return self._frames


def require_count(name: str, value: Any, least: int) -> int:
    """Return an integer of at least ``least``; anything else is a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def require_actions(actions: Any, num_envs: int, num_actions: int) -> np.ndarray:
    """Return valid actions as (N,) int32, else raise ValueError: ALE would wait forever for an unknown action."""
    actions = np.asarray(actions)
    if (
        actions.shape != (num_envs,)
        or actions.dtype.kind not in "iu"
        or ((actions < 0) | (actions >= num_actions)).any()
    ):
        raise ValueError(f"actions must be {num_envs} integers from 0 to {num_actions - 1}, got {actions.tolist()}")
    return actions.astype(np.int32)


def env_seeds(seed: int, num_envs: int) -> np.ndarray:
    """Derive a seed for each environment."""
    return np.random.SeedSequence(require_count("seed", seed, 0)).generate_state(num_envs) % (2**31 - 1)
