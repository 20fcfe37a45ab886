"""Heads that predict probabilities on fixed atoms by a softmax: C51 and HL-Gauss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep.heads.protocols import SMALL_MASS, Coarser, atoms_like, constant
from cramerl.losses import categorical_cross_entropy, hl_gauss_targets
from cramerl.projections import backup
from cramerl.supports import Support

Array = jax.Array


@dataclass(frozen=True)
class _Softmax:
    """Probabilities on fixed atoms by a softmax, learned by cross-entropy."""

    fraction_seen: ClassVar[float] = 0.5
    support: Support

    @property
    def num_outputs(self) -> int:
        """One logit per atom."""
        return self.support.num_atoms

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Softmax on the atoms."""
        probs = jax.nn.softmax(outputs, axis=-1)
        return atoms_like(self.support, probs), probs

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution."""
        return self.distribution(outputs)[1] @ constant(self.support.atoms, outputs)

    def loss(self, outputs: Array, target: Array) -> Array:
        """Cross-entropy of the logits to the target."""
        return categorical_cross_entropy(target, outputs)

    def outputs_of(self, masses: Array) -> Array:
        """Logarithms; a mass of zero becomes a very small one."""
        return jnp.log(jnp.maximum(masses, SMALL_MASS))

    def coarser(self, places: np.ndarray) -> Coarser:
        """Averages of neighbouring logits, which keep peaks but not masses: no linear map of logits keeps those.

        An atom outside the old ones gets a small fraction of the end atom's probability.
        """
        count = self.num_outputs
        near = np.clip(places[:, None] + np.array([-1, 0, 0, 1]), 0, count - 1)
        matrix = np.zeros((count, count))
        np.add.at(matrix, (np.arange(count)[:, None], near), 0.25)
        outside = (places < 0) | (places > count - 1)
        return Coarser(matrix, np.where(outside, np.log(SMALL_MASS), 0.0), matrix)


@dataclass(frozen=True)
class C51(_Softmax):
    """Cross-entropy to the projected backup. Bellemare et al. 2017."""

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """Projected r + gamma Z, probabilities."""
        return backup(self.support, rewards, discounts, self.distribution(next_outputs)[1])


@dataclass(frozen=True)
class HLGauss(_Softmax):
    """DQN's scalar target, learned as a classification. Farebrother et al. 2024.

    Only the mean of its distribution is meant: the rest is how the target is smoothed, not the return's spread. The
    mean of a narrow histogram moves by a number of spacings with each update, so a fine support learns slowly, and a
    coarse one loses nothing: with this standard deviation the mean can lie anywhere between atoms.
    """

    fraction_seen: ClassVar[float] = 0.125
    sigma_spacings: float = 0.75

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """Histogram of a normal distribution around R + gamma max Q."""
        values = rewards + discounts * self.values(next_outputs)
        return hl_gauss_targets(self.support, values, self.sigma_spacings * float(self.support.spacings.mean()))
