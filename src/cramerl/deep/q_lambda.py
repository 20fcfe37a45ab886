"""Q(lambda): targets from several steps of any policy, corrected without importance sampling.

The target of a transition looks up to n steps ahead. Step t (from 0) adds the backup, over the t + 1 rewards up to it,
of the next state's distribution under the target policy; and unless it is the last step, it takes away lambda times the
backup of the distribution of the action that was taken there. What is added and taken away has total mass one, but its
masses are signed: heads whose target is linear in the next distribution can learn it.

The target policy is greedy, or it is a mixture: greedy with some probability, otherwise the action that was taken.

Reference:
    Tang et al. 2024 (arXiv 2402.05766); of means, Harutyunyan et al. 2016.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Terms(NamedTuple):
    """What a target is summed from, beside the rewards, the discounts and the next observations of each of n steps.

    Attributes:
        actions: (..., n) int32, taken in the state after each step; anything where its coefficient is zero.
        coefficients: (..., n, 2), on the distributions of that state's best action and of the action taken.
    """

    actions: Array
    coefficients: Array


def coefficients(made: Array, acted: Array, q_lambda: float, greedy: float) -> Array:
    """Coefficients (..., n, 2) of the best actions and of the actions taken; they sum to one.

    Args:
        made: (..., n), whether each step was made: all of them up to the last.
        acted: (..., n), whether the action taken after each step is known.
        q_lambda: lambda.
        greedy: probability of the best action in the target policy; where the action taken is not known, it is one.
    """
    powers = np.power(q_lambda, np.arange(made.shape[-1])).astype(np.float32)
    weights = jnp.where(made, powers.reshape((1,) * (made.ndim - 1) + (-1,)), 0.0)
    goes_on = jnp.concatenate([made[..., 1:], jnp.zeros_like(made[..., :1])], axis=-1)
    kept, goes_on = ((1.0 - greedy) * acted.astype(jnp.float32), goes_on.astype(jnp.float32))
    return jnp.stack([weights * (1.0 - kept), weights * (kept - q_lambda * goes_on)], axis=-1)


def shares(coefficients: Array) -> Array:
    """The coefficients (..., n, 2) of what is added, scaled to sum to one; those of what is taken away are zero.

    Where no step was made, all are zero.
    """
    added = jnp.maximum(coefficients, 0.0)
    total = jnp.sum(added, axis=(-2, -1), keepdims=True)
    return added / jnp.where(total > 0, total, 1.0)
