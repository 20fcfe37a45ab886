"""Sums over blocks, for the log: what the learner said, and the episodes that ended."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cramerl.deep.learner import LearnInfo

Array = jax.Array


class Totals(NamedTuple):
    """Sums over blocks.

    Attributes:
        info: sums of the means of blocks, or of parts of them where updates are launched in parts; and the first update
            of the run whose loss was not finite (or -1).
        blocks: how many of those there were.
        episodes: how many ended.
        returns: of those, in the game's own points.
        lengths: of those, in steps.
    """

    info: LearnInfo
    blocks: Array
    episodes: Array
    returns: Array
    lengths: Array


def no_totals() -> Totals:
    """Nothing yet."""
    zero, none = jnp.float32(0), jnp.int32(0)
    return Totals(LearnInfo(zero, zero, zero, zero, zero, jnp.int32(-1)), none, none, zero, none)


def learned(info: LearnInfo, updates_before: Array) -> Totals:
    """What a block that learned adds; ``updates_before`` turns the index of a bad update into its number in the run."""
    bad = jnp.where(info.first_bad < 0, -1, updates_before + info.first_bad)
    return no_totals()._replace(info=info._replace(first_bad=bad.astype(jnp.int32)), blocks=jnp.int32(1))


def ended(over: Array, returns: Array, lengths: Array) -> Totals:
    """What the episodes that ended, of N running ones, add."""
    return no_totals()._replace(
        episodes=jnp.sum(over, dtype=jnp.int32),
        returns=jnp.sum(jnp.where(over, returns, 0.0)),
        lengths=jnp.sum(jnp.where(over, lengths, 0)),
    )


def add(a: Totals, b: Totals) -> Totals:
    """Sums, and the earlier of the bad updates."""
    bad = jnp.where(a.info.first_bad >= 0, a.info.first_bad, b.info.first_bad)
    total = jax.tree.map(lambda x, y: x + y, a, b)
    return total._replace(info=total.info._replace(first_bad=bad))
