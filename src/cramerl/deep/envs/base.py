"""What every family of environments gives the loops: single frames, and when an episode begins and ends.

All families speak next-step autoreset. The step that ends an episode returns its last frame with ``ended``; the step
after that ignores the action, earns nothing, and returns the first frame of the next episode with ``first``. So every
real transition is followed by the frame it led to, also at a time limit, and the one that is not real is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np


class EnvSpec(NamedTuple):
    """What a network and a replay need to know of an environment.

    Attributes:
        name: as the user gave it.
        family: "native" (a JAX program), "atari" or "gymnasium".
        num_actions: A.
        frame_shape: of one frame, without the stack.
        frame_dtype: "uint8" or "float32".
        stack: frames an observation is made of; a stack of more than one is a last axis of its own.
        frame_scale: what a frame's values are divided by for the network.
        frames_per_step: emulator frames per agent step.
    """

    name: str
    family: str
    num_actions: int
    frame_shape: tuple[int, ...]
    frame_dtype: str
    stack: int = 1
    frame_scale: float = 1.0
    frames_per_step: int = 1

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of what the network sees."""
        return (*self.frame_shape, self.stack) if self.stack > 1 else self.frame_shape


def spec_from_json(values: dict[str, Any]) -> EnvSpec:
    """A spec from what ``spec._asdict()`` became in a JSON file."""
    spec = EnvSpec(**{**values, "frame_shape": tuple(values["frame_shape"])})
    for name in ("num_actions", "stack", "frames_per_step"):
        require_count(name, getattr(spec, name), 1)
    for size in spec.frame_shape:
        require_count("frame_shape", size, 1)
    if spec.frame_dtype not in ("uint8", "float32") or not spec.frame_scale > 0:
        raise ValueError(f"frame_dtype and frame_scale cannot be {spec.frame_dtype!r} and {spec.frame_scale!r}")
    return spec


class Step(NamedTuple):
    """What one step of N environments returned; arrays of NumPy (host) or JAX (native).

    Attributes:
        frames: ``(N, *frame_shape)``.
        rewards: (N,) float32, as the game gives them.
        terminated: (N,) bool, nothing comes after for the learner: the game is over, or a life is lost where that
            counts. Not set by a time limit.
        ended: (N,) bool, the episode is over, by its own end or by a time limit; the next step starts another.
        first: (N,) bool, the frame has no past: it starts an episode, or a life where that counts.
    """

    frames: Any
    rewards: Any
    terminated: Any
    ended: Any
    first: Any


class HostEnvs(Protocol):
    """N environments stepped from Python. Closing twice is allowed."""

    spec: EnvSpec
    num_envs: int

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew; the same seed gives the same future for the same actions. Returns frames."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Take (N,) int32 actions."""
        ...

    def close(self) -> None:
        """Free threads and processes."""
        ...


class FrameStack:
    """Observations from single frames, as the replay stacks them: nothing from before an episode's start."""

    def __init__(self, spec: EnvSpec, num_envs: int):
        self._stack = spec.stack
        self._frames = np.zeros((num_envs, *spec.observation_shape), spec.frame_dtype)

    def push(self, frames: np.ndarray, first: np.ndarray) -> np.ndarray:
        """What is seen now."""
        if self._stack == 1:
            return frames
        past = np.where(first.reshape(-1, *[1] * (self._frames.ndim - 1)), 0, self._frames[..., 1:])
        self._frames = np.concatenate([past, frames[..., None]], axis=-1, dtype=self._frames.dtype)
        return self._frames


def require_count(name: str, value: Any, least: int) -> int:
    """An integer of at least ``least``, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def require_actions(actions: Any, num_envs: int, num_actions: int) -> np.ndarray:
    """(N,) integers that the environments know, or ValueError: ALE would wait forever for an unknown one."""
    actions = np.asarray(actions)
    if (
        actions.shape != (num_envs,)
        or actions.dtype.kind not in "iu"
        or ((actions < 0) | (actions >= num_actions)).any()
    ):
        raise ValueError(f"actions must be {num_envs} integers from 0 to {num_actions - 1}, got {actions.tolist()}")
    return actions.astype(np.int32)


def env_seeds(seed: int, num_envs: int) -> np.ndarray:
    """A seed for each environment, from one."""
    return np.random.SeedSequence(require_count("seed", seed, 0)).generate_state(num_envs) % (2**31 - 1)
