"""Replay: a ring of single frames, which are stacked into observations when they are sampled.

Time runs along the first axis, parallel environments along the second, so a step writes one contiguous row. A row
holds a frame, the action taken there and its outcome. Rows are counted from the beginning of the run and never
renumbered; row r lies in slot r modulo the capacity.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep.q_lambda import Terms, coefficients
from cramerl.deep.schedule import Schedule, Stream, stream

Array = jax.Array

FIRST = 1  # the frame has no past: it starts an episode (or a life, where a lost life ends the return)
LAST = 2  # the frame ends an episode; the next row starts another, so there is no transition here
TERMINATED = 4  # the return ends with this transition


class Replay(NamedTuple):
    """A ring of T slots for N environments.

    Attributes:
        frames: ``(T, N, *frame)``, or (T, N, 0) if they are kept on the host, in `HostFrames`.
        actions: (T, N) int32.
        rewards: (T, N) float32, as the learner sees them.
        flags: (T, N) uint8, a sum of FIRST, LAST and TERMINATED.
    """

    frames: Array
    actions: Array
    rewards: Array
    flags: Array


class Batch(NamedTuple):
    """Transitions with any leading axes.

    Attributes:
        observations: ``(..., *observation)``.
        actions: (...) int32.
        rewards: (...), the discounted sum over n steps; with Q(lambda) (..., n), the sums over 1, ..., n steps.
        discounts: of the same shape, the factor on the next state's return; zero after a termination.
        next_observations: ``(..., *observation)``; with Q(lambda) ``(..., n, *observation)``.
        weights: (...), one, or zero for an entry that must not count.
        terms: of Q(lambda); () without it.
    """

    observations: Any
    actions: Array
    rewards: Array
    discounts: Array
    next_observations: Any
    weights: Array
    terms: Terms | tuple[()] = ()


class Window(NamedTuple):
    """Which frames make an observation: slots and environments (..., stack), and whether each one counts."""

    slots: Array
    envs: Array
    keep: Array | None


def empty_replay(capacity: int, num_envs: int, frame_shape: tuple[int, ...], frame_dtype: str) -> Replay:
    """A ring of ``capacity`` rows."""
    shape = (capacity, num_envs)
    return Replay(
        frames=jnp.zeros((*shape, *frame_shape), dtype=frame_dtype),
        actions=jnp.zeros(shape, dtype=jnp.int32),
        rewards=jnp.zeros(shape, dtype=jnp.float32),
        flags=jnp.zeros(shape, dtype=jnp.uint8),
    )


def begin_row(replay: Replay, row: Array, frames: Array, first: Array, last: Array, column: Array | int = 0) -> Replay:
    """Write what is seen at ``row``: frames (N, *frame), and whether they start or end an episode.

    For only some of the environments, ``column`` is the index of the first.
    """
    slot = row % replay.flags.shape[0]
    flags = FIRST * first.astype(jnp.uint8) + LAST * last.astype(jnp.uint8)
    written = replay._replace(flags=_put(replay.flags, slot, flags, column))
    if replay.frames.shape[2:] == frames.shape[1:]:
        written = written._replace(frames=_put(replay.frames, slot, frames.astype(replay.frames.dtype), column))
    return written


def finish_row(
    replay: Replay, row: Array, actions: Array, rewards: Array, terminated: Array, column: Array | int = 0
) -> Replay:
    """Write the actions taken at ``row`` and their outcome; ``column`` as in `begin_row`."""
    slot = row % replay.flags.shape[0]
    flags = jax.lax.dynamic_slice(replay.flags, (slot, column), (1, len(terminated)))[0]
    flags = flags | (TERMINATED * terminated.astype(jnp.uint8))
    return replay._replace(
        actions=_put(replay.actions, slot, actions, column),
        rewards=_put(replay.rewards, slot, rewards, column),
        flags=_put(replay.flags, slot, flags, column),
    )


def observation_window(replay: Replay, rows: Array, envs: Array, stack: int) -> Window:
    """The last ``stack`` frames at (rows, envs), without those from before the episode's start."""
    if stack == 1:
        return Window((rows % replay.flags.shape[0])[..., None], envs[..., None], None)
    back = jnp.arange(stack - 1, -1, -1, dtype=rows.dtype)
    slots = (rows[..., None] - back.reshape((1,) * rows.ndim + (stack,))) % replay.flags.shape[0]
    envs = jnp.broadcast_to(envs[..., None], slots.shape)
    starts = (replay.flags[slots, envs] & FIRST) != 0
    # A frame counts if no later frame of the window started an episode.
    later = jnp.concatenate([starts[..., 1:], jnp.zeros_like(starts[..., :1])], axis=-1)
    cut = jnp.flip(jax.lax.cummax(jnp.flip(later, -1).astype(jnp.uint8), axis=later.ndim - 1), -1)
    return Window(slots, envs, cut == 0)


def read_observations(replay: Replay, window: Window) -> Array:
    """Gather a window from the frames on the device: (..., *frame, stack), or (..., *frame) for a stack of one."""
    if window.keep is None:
        return replay.frames[window.slots[..., 0], window.envs[..., 0]]
    return stack_frames(replay.frames[window.slots, window.envs], window.keep)


def stack_frames(frames: Array, keep: Array) -> Array:
    """(..., stack, *frame) and (..., stack) -> (..., *frame, stack), frames that do not count set to zero."""
    mask = keep.reshape(keep.shape + (1,) * (frames.ndim - keep.ndim))
    return jnp.moveaxis(jnp.where(mask, frames, jnp.zeros_like(frames)), keep.ndim - 1, -1)


class Drawn(NamedTuple):
    """Transitions whose frames have not been read yet; see `Batch`."""

    window: Window
    next_window: Window
    actions: Array
    rewards: Array
    discounts: Array
    weights: Array
    terms: Terms | tuple[()] = ()


def draw(
    key: Array,
    replay: Replay,
    written: Array,
    shape: tuple[int, ...],
    *,
    stack: int,
    n_step: int,
    discount: float,
    q_lambda: float = 0.0,
    q_lambda_greedy: float = 1.0,
    newer_rows: int = 1,
) -> Drawn:
    """Draw uniformly from the transitions that are complete.

    Args:
        key: PRNG key.
        replay: the ring.
        written: draw from the rows before this one, counted from the beginning of the run.
        shape: of the batch.
        stack: how many frames make an observation.
        n_step: how many rewards are summed before the next state; with Q(lambda), how many steps at most are looked at.
        discount: gamma.
        q_lambda: lambda of Q(lambda); 0: its targets are not used.
        q_lambda_greedy: probability of the best action in its target policy.
        newer_rows: how many rows from ``written`` on may be in the ring, in place of the oldest.

    Returns:
        Windows, actions, n-step rewards and discounts. Each entry is drawn eight times, because a compiled program
        cannot try until it hits a transition; if all eight are last frames of episodes, its weight is zero.
    """
    capacity, num_envs = replay.flags.shape
    low = jnp.maximum(0, written + newer_rows + stack - 1 - capacity)
    # One random number gives both the row and the environment.
    drawn = jax.random.randint(key, (8, *shape), low * num_envs, (written - n_step) * num_envs)
    rows, envs = drawn // num_envs, drawn % num_envs
    real = (replay.flags[rows % capacity, envs] & LAST) == 0
    chosen = jnp.argmax(real, axis=0)[None]
    rows = jnp.take_along_axis(rows, chosen, axis=0)[0]
    envs = jnp.take_along_axis(envs, chosen, axis=0)[0]
    ahead = _look_ahead(replay, rows, envs, n_step, discount)
    terms, seen, next_rows, next_envs = (), ahead[-1], rows + ahead[-1].steps, envs
    if q_lambda > 0:
        seen = Ahead(*(jnp.stack(parts, axis=-1) for parts in zip(*ahead, strict=True)))
        next_rows, next_envs = rows[..., None] + seen.steps, jnp.broadcast_to(envs[..., None], seen.steps.shape)
        # The newest row may not have its action yet.
        acted = seen.goes_on & (next_rows < written - 1)
        terms = Terms(
            replay.actions[next_rows % capacity, next_envs], coefficients(seen.made, acted, q_lambda, q_lambda_greedy)
        )
    return Drawn(
        window=observation_window(replay, rows, envs, stack),
        next_window=observation_window(replay, next_rows, next_envs, stack),
        actions=replay.actions[rows % capacity, envs],
        rewards=seen.rewards,
        discounts=seen.discounts,
        weights=jnp.any(real, axis=0).astype(jnp.float32),
        terms=terms,
    )


def draw_block(
    key: Array, replay: Replay, block: Array, row: Array, schedule: Schedule, *, stack: int, newer_rows: int = 1
) -> Drawn:
    """Draw the transitions of all updates of a block that began at ``row``; ``key`` is the run's."""
    return draw(
        stream(key, Stream.SAMPLE, block),
        replay,
        row,
        (schedule.updates_per_block, schedule.batch_size),
        stack=stack,
        n_step=schedule.n_step,
        discount=schedule.discount,
        q_lambda=schedule.q_lambda,
        q_lambda_greedy=schedule.q_lambda_greedy,
        newer_rows=newer_rows,
    )


def part_of(drawn: Drawn, start: Array, size: int) -> Drawn:
    """``size`` entries of the leading axis, from ``start``."""
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, size), drawn)


def read_batch(replay: Replay, drawn: Drawn) -> Batch:
    """Read the frames of drawn transitions from the device."""
    return Batch(
        observations=read_observations(replay, drawn.window),
        actions=drawn.actions,
        rewards=drawn.rewards,
        discounts=drawn.discounts,
        next_observations=read_observations(replay, drawn.next_window),
        weights=drawn.weights,
        terms=drawn.terms,
    )


class Ahead(NamedTuple):
    """What followed a transition's state within some number of steps, (...) each.

    Attributes:
        rewards: their discounted sum.
        discounts: the factor on the return from the state reached; zero after a termination.
        steps: how many were made.
        made: whether the last of them was made.
        goes_on: whether an action was taken in the state reached, in the same episode and before a termination.
    """

    rewards: Array
    discounts: Array
    steps: Array
    made: Array
    goes_on: Array


def read_rows(replay: Replay, start: int, stop: int, time_axis: int = 0) -> dict[str, np.ndarray]:
    """Rows [start, stop) as NumPy arrays, time first; for a checkpoint."""
    slots = np.arange(start, stop) % replay.flags.shape[time_axis]
    return {
        name: np.moveaxis(np.asarray(ring.take(slots, axis=time_axis)), time_axis, 0)
        for name, ring in replay._asdict().items()
    }


def write_rows(replay: Replay, start: int, rows: dict[str, np.ndarray], time_axis: int = 0) -> Replay:
    """Restore rows that `read_rows` returned."""
    slots = np.arange(start, start + len(rows["flags"])) % replay.flags.shape[time_axis]
    return _restore(replay, slots, {name: np.moveaxis(rows[name], 0, time_axis) for name in replay._fields}, time_axis)


def _look_ahead(replay: Replay, rows: Array, envs: Array, n_step: int, discount: float) -> list[Ahead]:
    """What is known after 1, ..., n steps; they end at a termination or an episode's last frame."""
    capacity = replay.flags.shape[0]
    total = jnp.zeros(rows.shape, dtype=jnp.float32)
    factor = jnp.ones(rows.shape, dtype=jnp.float32)  # discount of what comes next; zero after a termination
    steps = jnp.zeros_like(rows)
    running = jnp.ones(rows.shape, dtype=bool)
    found: list[Ahead] = []
    flags = replay.flags[rows % capacity, envs]
    for _ in range(n_step):
        slots = (rows + steps) % capacity
        running = running & ((flags & LAST) == 0)
        ends = (flags & TERMINATED) != 0
        total = total + jnp.where(running, factor * replay.rewards[slots, envs], 0.0)
        factor = jnp.where(running, jnp.where(ends, 0.0, factor * discount), factor)
        steps, made = steps + running.astype(steps.dtype), running
        running = running & ~ends
        flags = replay.flags[(rows + steps) % capacity, envs]
        found.append(Ahead(total, factor, steps, made, running & ((flags & LAST) == 0)))
    return found


@partial(jax.jit, static_argnames="time_axis", donate_argnums=0)
def _restore(replay: Replay, slots: Array, rows: dict[str, Array], time_axis: int) -> Replay:
    where = (slice(None),) * time_axis + (slots,)
    return Replay(*(ring.at[where].set(rows[name]) for name, ring in replay._asdict().items()))


def _put(ring: Array, slot: Array, row: Array, column: Array | int) -> Array:
    return jax.lax.dynamic_update_slice(ring, row[None], (slot, column, *[0] * (ring.ndim - 2)))


class HostFrames:
    """The frames of a replay that does not fit on the device: the same slots, in the host's memory."""

    def __init__(self, capacity: int, num_envs: int, frame_shape: tuple[int, ...], frame_dtype: str):
        self.frames = np.zeros((capacity, num_envs, *frame_shape), dtype=frame_dtype)

    def write(self, row: int, frames: np.ndarray, column: int = 0) -> None:
        """Write one row, or the part of it that starts at ``column``."""
        self.frames[row % len(self.frames), column : column + len(frames)] = frames

    def read(self, slots: Any, envs: Any) -> np.ndarray:
        """Gather (..., stack, *frame)."""
        return self.frames[np.asarray(slots), np.asarray(envs)]
