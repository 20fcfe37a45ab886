"""Sums over blocks for the log: what the learner measured, and the episodes that ended."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cramerl.deep.learner import LearnInfo

Array = jax.Array


class BlockTotals(NamedTuple):
    """Sums over blocks.

    Attributes:
        info: sums of the means of blocks, or of parts of blocks where updates are launched in parts; ``first_bad`` is
            the number of the first update of the run whose loss was not finite, or -1.
        blocks: how many means were summed.
        episodes: how many episodes ended.
        returns: the sum of their returns, in the game's own points.
        lengths: the sum of their lengths, in steps.
    """

    info: LearnInfo
    blocks: Array
    episodes: Array
    returns: Array
    lengths: Array


def no_totals() -> BlockTotals:
    """Sums of nothing."""
    zero, none = jnp.float32(0), jnp.int32(0)
    return BlockTotals(LearnInfo(zero, zero, zero, zero, zero, zero, zero, zero, jnp.int32(-1)), none, none, zero, none)


def learned(info: LearnInfo, updates_before: Array) -> BlockTotals:
    """What a block that learned adds; ``updates_before`` turns the index of a bad update into its number in the run."""
    bad = jnp.where(info.first_bad < 0, -1, updates_before + info.first_bad)
    return no_totals()._replace(info=info._replace(first_bad=bad.astype(jnp.int32)), blocks=jnp.int32(1))


def ended(over: Array, returns: Array, lengths: Array) -> BlockTotals:
    """What the episodes that are ``over``, among N running ones, add."""
    return no_totals()._replace(
        episodes=jnp.sum(over, dtype=jnp.int32),
        returns=jnp.sum(jnp.where(over, returns, 0.0)),
        lengths=jnp.sum(jnp.where(over, lengths, 0)),
    )


def add(a: BlockTotals, b: BlockTotals) -> BlockTotals:
    """Add sums; the bad update of ``a``, which came first, is kept."""
    bad = jnp.where(a.info.first_bad >= 0, a.info.first_bad, b.info.first_bad)
    total = jax.tree.map(lambda x, y: x + y, a, b)
    return total._replace(info=total.info._replace(first_bad=bad))
