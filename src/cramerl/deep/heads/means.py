"""Heads without fixed atoms: DQN, which predicts the mean only, and QR-DQN, which predicts quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from cramerl._checks import require_choice
from cramerl.losses import quantile_huber, td_huber, td_squared

Array = jax.Array


@dataclass(frozen=True)
class DQN:
    """Predicts the mean only. Mnih et al. 2015 (Huber loss); the squared error is Dopamine's newer default."""

    dqn_loss: Literal["huber", "squared"] = "huber"
    num_outputs: ClassVar[int] = 1
    support: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_choice("dqn_loss", self.dqn_loss, ("huber", "squared"))

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """A point mass at the value."""
        return outputs, jnp.ones_like(outputs)

    def values(self, outputs: Array) -> Array:
        """The output itself."""
        return outputs[..., 0]

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """R + gamma max Q."""
        return rewards + discounts * self.values(next_outputs)

    def sum_target(self, rewards: Array, discounts: Array, coefficients: Array, next_outputs: Array) -> Array:
        """The sum of R + gamma Q."""
        each = self.target(rewards[..., None], discounts[..., None], next_outputs)
        return jnp.sum(coefficients * each, axis=(-2, -1))

    def loss(self, outputs: Array, target: Array) -> Array:
        """Huber with threshold one, or the square."""
        return (td_huber if self.dqn_loss == "huber" else td_squared)(target, self.values(outputs))


@dataclass(frozen=True)
class QR:
    """Quantiles at fixed levels, quantile Huber loss. Dabney et al. 2018 (QR-DQN)."""

    num_atoms: int = 51
    quantile_threshold: float = 1.0
    support: ClassVar[None] = None

    @property
    def num_outputs(self) -> int:
        """One quantile per level (2i - 1) / 2N."""
        return self.num_atoms

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Equal masses at the quantiles."""
        return outputs, jnp.full_like(outputs, 1.0 / self.num_atoms)

    def values(self, outputs: Array) -> Array:
        """Mean of the quantiles."""
        return jnp.mean(outputs, axis=-1)

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """Shifted and scaled quantiles."""
        return rewards[..., None] + discounts[..., None] * next_outputs

    def loss(self, outputs: Array, target: Array) -> Array:
        """Quantile Huber loss."""
        return quantile_huber(target, outputs, threshold=self.quantile_threshold)
