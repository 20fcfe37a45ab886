"""What a head can do, and what heads on atoms share."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.supports import Support

Array = jax.Array
SMALL_MASS = 1e-3  # in place of zero, where logarithms are taken


class Head(Protocol):
    """What the outputs for one action mean, and how they learn."""

    @property
    def num_outputs(self) -> int:
        """How many numbers the last layer returns for each action."""
        ...

    @property
    def support(self) -> Support | None:
        """The atoms, or None if the distribution has no fixed ones."""
        ...

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Atoms and masses (..., K) of the distribution of the return; masses may be negative (s51, u51, l51)."""
        ...

    def values(self, outputs: Array) -> Array:
        """Mean return (...) by which actions are compared: (..., num_outputs) -> (...)."""
        ...

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """What the outputs at (s, a) should become, given the outputs of the best next action."""
        ...

    def loss(self, outputs: Array, target: Array) -> Array:
        """Per-example loss (...)."""
        ...


class Coarser(NamedTuple):
    """How outputs change with the atoms: the new ones are ``matrix @ old + offset``.

    Attributes:
        matrix: (O, O).
        offset: (O,).
        of_gradients: (O, O), how their gradients change; those of errors that are the old ones times the matrix.
    """

    matrix: np.ndarray
    offset: np.ndarray
    of_gradients: np.ndarray


class AtomsHead(Head, Protocol):
    """A head with a support. What follows lets the support change while a network learns.

    Attributes:
        fraction_seen: the part of a support that finds itself which the returns seen at the beginning fill.
    """

    fraction_seen: ClassVar[float]

    @property
    def support(self) -> Support:
        """The atoms."""
        ...

    def outputs_of(self, masses: Array) -> Array:
        """Outputs whose distribution has these masses, (..., K) -> (..., num_outputs), as nearly as the head can."""
        ...

    def coarser(self, places: np.ndarray) -> Coarser:
        """How outputs change if the atoms move to ``places``, every second of the old ones.

        Args:
            places: (K,) numbers of old atoms, two apart; some are before the first or after the last.
        """
        ...


@runtime_checkable
class LinearHead(Protocol):
    """A head whose target is linear in what is backed up, so that it can learn sums with signs: Q(lambda)."""

    def sum_target(self, rewards: Array, discounts: Array, coefficients: Array, next_outputs: Array) -> Array:
        """What the outputs should become, if the target is a sum of backups.

        Args:
            rewards: (..., n), of each backup.
            discounts: (..., n), of each backup.
            coefficients: (..., n, J), of J distributions in each backup; of any sign, and one in total.
            next_outputs: (..., n, J, num_outputs), the outputs of those distributions.
        """
        ...


def constant(values: np.ndarray, like: Array) -> Array:
    """``values`` in the precision of ``like``."""
    return jnp.asarray(values, dtype=like.dtype)


def row(values: np.ndarray, like: Array) -> Array:
    """``values`` with as many axes as ``like``: ranks are never promoted implicitly."""
    return constant(values, like).reshape((1,) * (like.ndim - 1) + (-1,))


def atoms_like(support: Support, like: Array) -> Array:
    """The atoms, in the shape and precision of ``like``."""
    return jnp.broadcast_to(constant(support.atoms, like), like.shape)
