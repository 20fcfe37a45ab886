"""Heads: what differs between the agents. Everything else is shared.

A head defines what the last layer's outputs for one action mean (a distribution of the return), their value (its mean),
what they should become after a transition (the target), and how far they are from it (the loss). All functions act on
the last axis and broadcast over the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from cramerl._checks import require_choice
from cramerl.cramer import UnitMassBasis, unit_mass_basis
from cramerl.losses import (
    categorical_cross_entropy,
    cdf_cross_entropy,
    cramer_loss,
    hl_gauss_targets,
    masses_of_cdf_logits,
    quantile_huber,
    td_huber,
    td_squared,
)
from cramerl.measures import nearest_distribution, rearranged_distribution, with_unit_mass
from cramerl.projections import backup, project
from cramerl.supports import Support

Array = jax.Array
NextDistribution = Literal["signed", "rearranged", "nearest"]
_SMALL_MASS = 1e-3  # in place of zero, where logarithms are taken
_NEXT_DISTRIBUTIONS = {"rearranged": rearranged_distribution, "nearest": nearest_distribution}


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


class AtomsHead(Head, Protocol):
    """A head with a support. What follows lets the support change while a network learns."""

    @property
    def support(self) -> Support:
        """The atoms."""
        ...

    def outputs_of(self, masses: Array) -> Array:
        """Outputs whose distribution has these masses, (..., K) -> (..., num_outputs), as nearly as the head can."""
        ...

    def coarser(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How outputs change if the atoms move to ``places``, every second of the old ones.

        Args:
            places: (K,) numbers of old atoms, two apart; some are before the first or after the last.

        Returns:
            Matrix (O, O) and offset (O,): the new outputs are the matrix times the old ones, plus the offset.
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


class _LinearOnAtoms(ABC):
    """Targets whose masses are linear in the next state's."""

    support: Support

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """The projected r + gamma Z, as the head learns it."""
        return self._target_of(backup(self.support, rewards, discounts, self._backed_up(next_outputs)))

    def sum_target(self, rewards: Array, discounts: Array, coefficients: Array, next_outputs: Array) -> Array:
        """The sum of projected r + gamma Z, as the head learns it."""
        masses = jnp.sum(coefficients[..., None] * self._backed_up(next_outputs), axis=-2)
        return self._target_of(jnp.sum(backup(self.support, rewards, discounts, masses), axis=-2))

    @abstractmethod
    def _backed_up(self, next_outputs: Array) -> Array:
        """The masses (..., K) that are backed up."""

    def _target_of(self, masses: Array) -> Array:
        """What is learned, from masses of total one."""
        return masses


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
class _Softmax:
    """Probabilities on fixed atoms by a softmax, learned by cross-entropy."""

    support: Support

    @property
    def num_outputs(self) -> int:
        """One logit per atom."""
        return self.support.num_atoms

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Softmax on the atoms."""
        probs = jax.nn.softmax(outputs, axis=-1)
        return _atoms(self.support, probs), probs

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution."""
        return self.distribution(outputs)[1] @ _constant(self.support.atoms, outputs)

    def loss(self, outputs: Array, target: Array) -> Array:
        """Cross-entropy of the logits to the target."""
        return categorical_cross_entropy(target, outputs)

    def outputs_of(self, masses: Array) -> Array:
        """Logarithms; a mass of zero becomes a very small one."""
        return jnp.log(jnp.maximum(masses, _SMALL_MASS))

    def coarser(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Averages of neighbouring logits, which keep peaks but not masses: no linear map of logits keeps those.

        An atom outside the old ones gets a small fraction of the end atom's probability.
        """
        count = self.num_outputs
        near = np.clip(places[:, None] + np.array([-1, 0, 0, 1]), 0, count - 1)
        matrix = np.zeros((count, count))
        np.add.at(matrix, (np.arange(count)[:, None], near), 0.25)
        outside = (places < 0) | (places > count - 1)
        return matrix, np.where(outside, np.log(_SMALL_MASS), 0.0)


@dataclass(frozen=True)
class C51(_Softmax):
    """Cross-entropy to the projected backup. Bellemare et al. 2017."""

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """Projected r + gamma Z, probabilities."""
        return backup(self.support, rewards, discounts, self.distribution(next_outputs)[1])


@dataclass(frozen=True)
class S51(_LinearOnAtoms):
    r"""The paper's agent: the outputs are signed masses, the loss is the Cramér loss with a mass penalty.

    The loss is taken on unit-spaced atoms whatever the support, so that the paper's penalty and step size keep their
    meaning. ``normalisation`` says when unit mass is restored: after the backup (the paper's,
    :math:`y = \Pi M_r q + u`) or before it (:math:`y = M_r(q + (1 - 1^\top q)u)`), which always converges.
    ``mean_weight`` and ``next_distribution`` are not in the paper; see :class:`U51`.
    """

    support: Support
    mass_penalty: float = 10.0
    mass_penalty_scale: Literal["orthonormal", "total"] = "orthonormal"
    normalisation: Literal["after", "before"] = "after"
    mean_weight: float = 0.0
    next_distribution: NextDistribution = "signed"

    def __post_init__(self) -> None:
        require_choice("mass_penalty_scale", self.mass_penalty_scale, ("orthonormal", "total"))
        require_choice("normalisation", self.normalisation, ("after", "before"))
        require_choice("next_distribution", self.next_distribution, get_args(NextDistribution))

    @property
    def num_outputs(self) -> int:
        """One mass per atom."""
        return self.support.num_atoms

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """The outputs as they are: signed, of any total."""
        return _atoms(self.support, outputs), outputs

    def values(self, outputs: Array) -> Array:
        """Mean of the outputs with unit mass; on a support symmetric around zero, the mean of the outputs."""
        return with_unit_mass(self.support, outputs) @ _constant(self.support.atoms, outputs)

    def _backed_up(self, next_outputs: Array) -> Array:
        masses = _as_next(self.next_distribution, self.support, next_outputs)
        return with_unit_mass(self.support, masses) if self.normalisation == "before" else masses

    def _target_of(self, masses: Array) -> Array:
        return with_unit_mass(self.support, masses) if self.normalisation == "after" else masses

    def outputs_of(self, masses: Array) -> Array:
        """The masses."""
        return masses

    def coarser(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The old masses, brought to unit mass, projected onto the new atoms: so the value is kept."""
        onto, uniform = _onto(places), np.full(self.num_outputs, 1 / self.num_outputs)
        return onto - (onto @ uniform)[:, None], onto @ uniform

    def loss(self, outputs: Array, target: Array) -> Array:
        """Eq. 5 of the paper with its constant corrected (or ``total``, see ``cramerl.cramer_loss``)."""
        unit = _unit_spaced(self.num_outputs)
        return cramer_loss(unit, target, outputs, self.mass_penalty, self.mass_penalty_scale, self.mean_weight)


@dataclass(frozen=True)
class U51(_LinearOnAtoms):
    r"""Ours: unit mass by construction and a whitened loss. :math:`q = u + Bo`, loss :math:`\|o - o^*\|^2`.

    u is uniform. B spans the zero-mass vectors and is orthonormal in the Cramér metric of unit-spaced atoms, so the
    squared distance of two outputs is the squared Cramér distance of their masses: condition number one, no penalty.

    ``mean_weight`` adds the squared error of the mean, in spacings, to the loss, because actions
    are compared by their means. ``next_distribution`` says what is backed up: the next state's signed masses as they
    are, or a proper distribution made from them, with which predictions cannot run away beyond the support.
    """

    support: Support
    mean_weight: float = 0.0
    next_distribution: NextDistribution = "signed"

    def __post_init__(self) -> None:
        require_choice("next_distribution", self.next_distribution, get_args(NextDistribution))

    @property
    def num_outputs(self) -> int:
        """One less than the atoms, because the total mass is fixed."""
        return self.support.num_atoms - 1

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Signed masses of total one."""
        masses = self._basis.masses(outputs)
        return _atoms(self.support, masses), masses

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution, which is affine in the outputs."""
        return outputs @ _constant(self._slopes, outputs) + float(self.support.atoms.mean())

    def _backed_up(self, next_outputs: Array) -> Array:
        return _as_next(self.next_distribution, self.support, self.distribution(next_outputs)[1])

    def _target_of(self, masses: Array) -> Array:
        return self._basis.outputs(masses)

    def loss(self, outputs: Array, target: Array) -> Array:
        """Squared Cramér distance, plus the weighted squared error of the mean."""
        error = outputs - target
        means = error @ _constant(self._slopes / self.support.spacings.mean(), error)
        return jnp.sum(error**2, axis=-1) + (self.mean_weight * means**2 if self.mean_weight else 0.0)

    def outputs_of(self, masses: Array) -> Array:
        """The coordinates of the masses."""
        return self._basis.outputs(masses)

    def coarser(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates of the old masses projected onto the new atoms."""
        onto, none = _onto(places), np.zeros(self.num_outputs)
        offset = self._basis.outputs(onto @ self._basis.masses(none))
        columns = self._basis.outputs(self._basis.masses(np.eye(self.num_outputs)) @ onto.T)
        return (columns - offset).T, offset

    @property
    def _basis(self) -> UnitMassBasis:
        return unit_mass_basis(_unit_spaced(self.support.num_atoms))

    @property
    def _slopes(self) -> np.ndarray:
        """How the mean changes with each output."""
        return self.support.atoms @ self._basis.basis


@dataclass(frozen=True)
class L51(_LinearOnAtoms):
    r"""Ours: the heights of the CDF through a logistic, learned by binary cross-entropy.

    :math:`F_i = \sigma(o_i + \mathrm{logit}(i/K))` for :math:`i = 1, \dots, K - 1`, so that outputs of zero are the
    uniform distribution. Unit mass by construction; heights need not rise, so masses may be negative, but every height
    and therefore every mean is bounded. Cramér's distance is the sum of the squared errors of the heights; this loss is
    the sum of their cross-entropies, with the same best answer and a gradient bounded by one.
    """

    support: Support

    @property
    def num_outputs(self) -> int:
        """One height for each atom but the last, where the CDF is one."""
        return self.support.num_atoms - 1

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Differences of the heights."""
        masses = masses_of_cdf_logits(self._logits(outputs))
        return _atoms(self.support, masses), masses

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution: the largest return less the area under the CDF."""
        heights = jax.nn.sigmoid(self._logits(outputs))
        return self.support.v_max - heights @ _constant(self.support.spacings, outputs)

    def _backed_up(self, next_outputs: Array) -> Array:
        return self.distribution(next_outputs)[1]

    def sum_target(self, rewards: Array, discounts: Array, coefficients: Array, next_outputs: Array) -> Array:
        """The sum of projected r + gamma Z, its heights cut to [0, 1]: beyond, outputs would grow without end."""
        masses = super().sum_target(rewards, discounts, coefficients, next_outputs)
        heights = jnp.clip(jnp.cumsum(masses, axis=-1)[..., :-1], 0.0, 1.0)
        end = jnp.ones_like(heights[..., :1])
        return jnp.diff(jnp.concatenate([0 * end, heights, end], axis=-1), axis=-1)

    def loss(self, outputs: Array, target: Array) -> Array:
        """Binary cross-entropy of each height, summed."""
        return cdf_cross_entropy(target, self._logits(outputs))

    def outputs_of(self, masses: Array) -> Array:
        """Logits of the heights; heights of zero and one become nearly so."""
        heights = jnp.clip(jnp.cumsum(masses, axis=-1)[..., :-1], _SMALL_MASS, 1 - _SMALL_MASS)
        return jnp.log(heights) - jnp.log1p(-heights) - _row(self._uniform_logits, heights)

    def coarser(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The heights at the new atoms: the old ones where there were some, outside nearly zero or one."""
        outside = np.where(places < 0, -1, 1) * np.log(1 / _SMALL_MASS - 1)
        inside = (places >= 0) & (places < self.num_outputs)
        matrix = (np.arange(self.num_outputs) == places[:-1, None]).astype(float)
        old = self._uniform_logits[np.clip(places, 0, self.num_outputs - 1)]
        return matrix, np.where(inside, old, outside)[:-1] - self._uniform_logits

    def _logits(self, outputs: Array) -> Array:
        return outputs + _row(self._uniform_logits, outputs)

    @property
    def _uniform_logits(self) -> np.ndarray:
        uniform = np.arange(1, self.support.num_atoms) / self.support.num_atoms
        return np.log(uniform / (1 - uniform))


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


@dataclass(frozen=True)
class HLGauss(_Softmax):
    """DQN's scalar target, learned as a classification. Farebrother et al. 2024.

    Only the mean of its distribution is meant: the rest is how the target is smoothed, not the return's spread.
    """

    sigma_spacings: float = 0.75

    def target(self, rewards: Array, discounts: Array, next_outputs: Array) -> Array:
        """Histogram of a normal distribution around R + gamma max Q."""
        values = rewards + discounts * self.values(next_outputs)
        return hl_gauss_targets(self.support, values, self.sigma_spacings * float(self.support.spacings.mean()))


HEADS: dict[str, type] = {
    "dqn": DQN,
    "c51": C51,
    "s51": S51,
    "u51": U51,
    "l51": L51,
    "qr": QR,
    "hl_gauss": HLGauss,
}


def make_head(name: str, *, num_atoms: int = 51, v_min: float = -10.0, v_max: float = 10.0, **options: Any) -> Head:
    """Build a head by name; options that it does not have are ignored.

    Args:
        name: dqn, c51, s51, u51, l51, qr or hl_gauss.
        num_atoms: atoms of the support, or quantiles.
        v_min: smallest return of the support.
        v_max: largest return of the support.
        options: fields of the head's class, such as ``mass_penalty`` or ``dqn_loss``.
    """
    require_choice("agent", name, tuple(HEADS))
    known = {field.name for field in fields(HEADS[name])}
    given = {"num_atoms": num_atoms, **options}
    if name not in ("dqn", "qr"):
        given["support"] = Support.uniform(v_min, v_max, num_atoms)
    return HEADS[name](**{key: value for key, value in given.items() if key in known})


def _onto(places: np.ndarray) -> np.ndarray:
    """The matrix (K, K) that projects masses at 0, ..., K - 1 onto atoms at ``places``."""
    count = len(places)
    return np.asarray(project(Support(places), np.arange(count, dtype=float)[:, None], np.ones((count, 1)))).T


def _as_next(kind: NextDistribution, support: Support, masses: Array) -> Array:
    return masses if kind == "signed" else _NEXT_DISTRIBUTIONS[kind](support, masses)


def _unit_spaced(num_atoms: int) -> Support:
    return Support(np.arange(num_atoms, dtype=float))


def _constant(values: np.ndarray, like: Array) -> Array:
    return jnp.asarray(values, dtype=like.dtype)


def _row(values: np.ndarray, like: Array) -> Array:
    """``values`` with as many axes as ``like``: ranks are never promoted implicitly."""
    return _constant(values, like).reshape((1,) * (like.ndim - 1) + (-1,))


def _atoms(support: Support, like: Array) -> Array:
    return jnp.broadcast_to(_constant(support.atoms, like), like.shape)
