"""Supports that find themselves.

A head's atoms are 0, 1, ..., K - 1; atom i stands for the return ``low + spacing * i``, and both numbers are kept with
the weights, which mean nothing without them. They start from the returns in the replay when learning starts. Whenever
the target network changes, a support whose end clips too much doubles its spacing: too much mass, or little mass from
so far outside that the means of backups change (a large reward that is rare). The range grows towards that end, every
second atom stays where it was, and the last layer is changed so that predictions stay what they were, as nearly as the
coarser atoms allow.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cramerl.deep.heads import AtomsHead, Coarser
from cramerl.deep.networks import Params
from cramerl.deep.replay import LAST, TERMINATED, Replay
from cramerl.projections import project

Array = jax.Array

MOST_CLIPPED = 0.02
"""Mean mass beyond an end of the support above which it is widened."""
MOST_LOST = 0.1
"""Mean distance, in spacings, by which clipping may move a backup before the support is widened."""
_SMALLEST_WIDTH = 1e-2  # of the returns seen, relative to the largest; absolute if all are zero
_NEITHER, _UP, _DOWN, _BOTH = range(4)


class Clipped(NamedTuple):
    """What backups clipped since the target network last changed.

    Attributes:
        below: () float32, sum over batches of the mean mass below the support.
        above: () float32, the same above it.
        lost_below: () float32, sum over batches of the mean distance, in spacings, that clipping moves a backup up.
        lost_above: () float32, the same down.
        batches: () int32.
        known: () bool, whether the support has been found.
    """

    below: Array
    above: Array
    lost_below: Array
    lost_above: Array
    batches: Array
    known: Array


def nothing_clipped(known: Any) -> Clipped:
    """No batch yet."""
    zero = jnp.float32(0)
    return Clipped(zero, zero, zero, zero, jnp.int32(0), jnp.asarray(known))


def with_batch(clipped: Clipped, measured: tuple[Array, ...]) -> Clipped:
    """Add a batch: what it clipped below and above, and how far that moved its backups."""
    below, above, lost_below, lost_above = (old + new for old, new in zip(clipped[:4], measured, strict=True))
    return Clipped(below, above, lost_below, lost_above, clipped.batches + 1, clipped.known)


def returns_seen(replay: Replay, written: Array, discount: float) -> tuple[Array, Array]:
    """Discounted return (T, N) from every row of a replay, and whether it counts.

    Returns end where episodes do, and at the newest row; so those from long episodes are too small.
    """
    capacity = replay.flags.shape[0]
    rows = written - capacity + jnp.arange(capacity, dtype=jnp.int32)
    slots = rows % capacity
    rewards, flags = replay.rewards[slots], replay.flags[slots]
    # The newest row may not have its outcome yet.
    real = ((flags & LAST) == 0) & ((rows >= 0) & (rows < written - 1))[:, None]

    def earlier(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, ends, real = row
        total = jnp.where(real, reward + discount * jnp.where(ends, 0.0, later), 0.0)
        return total, total

    start = jnp.zeros(rewards.shape[1], dtype=jnp.float32)
    _, returns = jax.lax.scan(earlier, start, (rewards, (flags & TERMINATED) != 0, real), reverse=True)
    return returns, real


def find_support(head: AtomsHead, params: Params, returns: Array, real: Array) -> Params:
    """Weights whose support holds the returns seen in its middle, and whose distribution is near theirs.

    They fill half of it, less where the head says so.
    """
    count = head.support.num_atoms
    least, most = jnp.min(jnp.where(real, returns, jnp.inf)), jnp.max(jnp.where(real, returns, -jnp.inf))
    largest = jnp.maximum(jnp.abs(least), jnp.abs(most))
    width = jnp.maximum(most - least, _SMALLEST_WIDTH * jnp.where(largest > 0, largest, 1.0))
    width = width / head.fraction_seen
    low, spacing = (least + most - width) / 2, width / (count - 1)
    places, weights = jnp.where(real, (returns - low) / spacing, 0.0), real / jnp.sum(real)
    masses = project(head.support, places.reshape(-1), weights.reshape(-1).astype(jnp.float32))
    return starting_at(head, params | {"support": {"low": low, "spacing": spacing}}, masses)


def starting_at(head: AtomsHead, params: Params, masses: Array) -> Params:
    """Weights whose bias in the last layer is that of given masses for every action."""
    old = params["outputs"]["bias"]
    bias = jnp.broadcast_to(head.outputs_of(masses)[None], (old.shape[-1] // head.num_outputs, head.num_outputs))
    return params | {"outputs": params["outputs"] | {"bias": bias.reshape(-1)}}


def widen(head: AtomsHead, params: Params, optimiser: Any, clipped: Clipped) -> tuple[Params, Any]:
    """Weights and state of the optimiser with a wider support if an end clipped too much; else the same."""
    batches = jnp.maximum(clipped.batches, 1)
    below = (clipped.below > MOST_CLIPPED * batches) | (clipped.lost_below > MOST_LOST * batches)
    above = (clipped.above > MOST_CLIPPED * batches) | (clipped.lost_above > MOST_LOST * batches)
    choice = jnp.where(above, jnp.where(below, _BOTH, _UP), jnp.where(below, _DOWN, _NEITHER))
    matrix, offset, of_gradients, first = (jnp.asarray(part, dtype=jnp.float32)[choice] for part in _widenings(head))
    low, spacing = params["support"]["low"], params["support"]["spacing"]
    support = {"low": low + first * spacing, "spacing": jnp.where(choice == _NEITHER, spacing, 2 * spacing)}
    wider = _with_last_layer(params, matrix, offset) | {"support": support}
    moved = optimiser._replace(**_moments(optimiser, of_gradients))
    return wider, jax.tree.map(lambda old, new: jnp.where(choice == _NEITHER, old, new), optimiser, moved)


def _moments(optimiser: Any, matrix: Array) -> dict[str, Params]:
    """First moments change as gradients do, second moments as if gradients of different outputs were independent."""
    mean = _with_last_layer(optimiser.mu, matrix)
    if not isinstance(optimiser, optax.ScaleByRStdDevState):
        return {"mu": mean, "nu": _with_last_layer(optimiser.nu, matrix**2)}
    # Centred RMSProp takes the root of a variance, the second moment less the squared first: it must not be negative.
    spread = jax.tree.map(lambda square, mean: jnp.maximum(square - mean**2, 0.0), optimiser.nu, optimiser.mu)
    spread = _with_last_layer(spread, matrix**2)
    return {"mu": mean, "nu": jax.tree.map(lambda spread, mean: spread + mean**2, spread, mean)}


@cache
def _widenings(head: AtomsHead) -> tuple[np.ndarray, ...]:
    """For each choice: the parts of `Coarser`, and the place of the first new atom among the old ones."""
    count, same = head.support.num_atoms, np.eye(head.num_outputs)
    firsts = np.array([0, 0, 1 - count, -((count - 1) // 2)])
    maps = [head.coarser(first + 2 * np.arange(count)) for first in firsts[1:]]
    maps.insert(_NEITHER, Coarser(same, np.zeros(head.num_outputs), same))
    return *(np.stack(parts) for parts in zip(*maps, strict=True)), firsts


def _with_last_layer(tree: Params, matrix: Array, offset: Array | None = None) -> Params:
    size = matrix.shape[0]

    def changed(layer: Array) -> Array:
        parts = layer.reshape(*layer.shape[:-1], -1, size)
        return jnp.einsum("...o,po->...p", parts, matrix, precision="highest")

    weights, bias = changed(tree["outputs"]["weights"]), changed(tree["outputs"]["bias"])
    if offset is not None:
        bias = bias + offset[None]
    shapes = (tree["outputs"][name].shape for name in ("weights", "bias"))
    layers = (part.reshape(shape) for part, shape in zip((weights, bias), shapes, strict=True))
    return tree | {"outputs": dict(zip(("weights", "bias"), layers, strict=True))}
