"""The episodes that ended, one by one, and the returns that a learner saw in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep.schedule import Schedule

Array = jax.Array
_STEPS_KEPT = 2**14  # of one lane on the device, between two calls of `read_record`


class Episodes(NamedTuple):
    """Episodes of one run, in the order in which they ended.

    Attributes:
        steps: (M,) agent steps of the run when each ended.
        envs: (M,) in which of the parallel environments.
        returns: (M,) in the game's own points.
        lengths: (M,) in steps.
        cut: (M,) whether a reset of the environments ended it.
        realised: (P,) discounted returns that ended, from their start, as the learner sees rewards: of episodes, or of
            lives where a lost life ends the return.
    """

    steps: np.ndarray
    envs: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    cut: np.ndarray
    realised: np.ndarray


def no_episodes() -> Episodes:
    """None."""
    numbers, counts = np.zeros(0), np.zeros(0, np.int64)
    return Episodes(counts, counts, numbers, counts, np.zeros(0, bool), numbers)


def join(parts: Iterable[Episodes]) -> Episodes:
    """All episodes of the parts, in their order."""
    return Episodes(*map(np.concatenate, zip(no_episodes(), *parts, strict=True)))


class Running(NamedTuple):
    """N episodes that are being played, in a compiled loop.

    Attributes:
        returns: (N,) so far, in the game's own points.
        lengths: (N,) so far, in steps.
        discounted: (N,) discounted return so far, as the learner sees rewards.
        weight: (N,) discount of the next reward in it.
    """

    returns: Array
    lengths: Array
    discounted: Array
    weight: Array


def start_running(num_envs: int) -> Running:
    """Episodes that begin."""
    zeros = jnp.zeros(num_envs, dtype=jnp.float32)
    return Running(zeros, jnp.zeros(num_envs, dtype=jnp.int32), zeros, jnp.ones(num_envs, dtype=jnp.float32))


class Record(NamedTuple):
    """What ended in each of the last R rows: a ring on the device, dense, because scattered writes cost more.

    Attributes:
        returns: (R, N), of the episodes that ended.
        lengths: (R, N) int32, zero where none ended.
        realised: (R, N), the discounted returns that ended; NaN where none did.
    """

    returns: Any
    lengths: Any
    realised: Any


def record_rows(schedule: Schedule) -> int:
    """How many rows a record holds: whole blocks, at least one."""
    rows = schedule.rows_per_block
    return max(1, _STEPS_KEPT // schedule.num_envs // rows) * rows


def empty_record(schedule: Schedule) -> Record:
    """A ring in which nothing has ended."""
    shape = record_rows(schedule), schedule.num_envs
    zeros = jnp.zeros(shape, dtype=jnp.float32)
    return Record(zeros, jnp.zeros(shape, dtype=jnp.int32), zeros)


def count_step(running: Running, record: Record, row: Array, step: Any, rewards: Array, discount: float) -> Any:
    """What is running after a step, the record with what ended in it, and all returns and lengths up to it.

    Args:
        running: the episodes before it.
        record: the ring.
        row: of the step.
        step: what the environments returned.
        rewards: as the learner sees them.
        discount: gamma.
    """
    returns = running.returns + step.rewards
    lengths = running.lengths + (~step.first).astype(jnp.int32)
    discounted = running.discounted + running.weight * rewards
    ends = step.terminated | step.ended
    slot = row % record.lengths.shape[0]
    ended = Record(
        returns=returns, lengths=jnp.where(step.ended, lengths, 0), realised=jnp.where(ends, discounted, jnp.nan)
    )
    record = Record(
        *(jax.lax.dynamic_update_slice(ring, x[None], (slot, 0)) for ring, x in zip(record, ended, strict=True))
    )
    restarts = ends | step.first
    running = Running(
        returns=jnp.where(step.ended, 0.0, returns),
        lengths=jnp.where(step.ended, 0, lengths),
        discounted=jnp.where(restarts, 0.0, discounted),
        weight=jnp.where(restarts, 1.0, running.weight * discount),
    )
    return running, record, returns, lengths


def read_record(record: Record, start: int, stop: int) -> Episodes:
    """The episodes that ended in rows [start, stop), which the ring must still hold; its arrays are NumPy's."""
    slots = np.arange(start, stop) % len(record.lengths)
    lengths, num_envs = record.lengths[slots], record.lengths.shape[1]
    rows, envs = np.nonzero(lengths)
    realised = record.realised[slots]
    return Episodes(
        steps=(start + rows + 1) * num_envs,
        envs=envs,
        returns=record.returns[slots][rows, envs].astype(np.float64),
        lengths=lengths[rows, envs].astype(np.int64),
        cut=np.zeros(len(rows), bool),
        realised=realised[~np.isnan(realised)].astype(np.float64),
    )
