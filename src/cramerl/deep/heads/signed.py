"""Heads that predict signed masses on fixed atoms: the paper's S51, and our U51 and L51."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from cramerl._checks import require_choice
from cramerl.cramer import UnitMassBasis, shape_modes, unit_mass_basis
from cramerl.deep.heads.protocols import SMALL_MASS, Coarser, atoms_like, constant, row
from cramerl.losses import cdf_cross_entropy, cramer_loss, masses_of_cdf_logits
from cramerl.measures import nearest_distribution, rearranged_distribution, with_unit_mass
from cramerl.projections import backup, project
from cramerl.supports import Support

Array = jax.Array
NextDistribution = Literal["signed", "rearranged", "nearest"]
_NEXT_DISTRIBUTIONS = {"rearranged": rearranged_distribution, "nearest": nearest_distribution}


class _LinearOnAtoms(ABC):
    """Targets whose masses are linear in the next state's."""

    fraction_seen: ClassVar[float] = 0.5
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
        return atoms_like(self.support, outputs), outputs

    def values(self, outputs: Array) -> Array:
        """Mean of the outputs with unit mass; on a support symmetric around zero, the mean of the outputs."""
        return with_unit_mass(self.support, outputs) @ constant(self.support.atoms, outputs)

    def _backed_up(self, next_outputs: Array) -> Array:
        masses = _as_next(self.next_distribution, self.support, next_outputs)
        return with_unit_mass(self.support, masses) if self.normalisation == "before" else masses

    def _target_of(self, masses: Array) -> Array:
        return with_unit_mass(self.support, masses) if self.normalisation == "after" else masses

    def outputs_of(self, masses: Array) -> Array:
        """The masses."""
        return masses

    def coarser(self, places: np.ndarray) -> Coarser:
        """The old masses, brought to unit mass, projected onto the new atoms: so the value is kept."""
        onto, uniform = _onto(places), np.full(self.num_outputs, 1 / self.num_outputs)
        matrix = onto - (onto @ uniform)[:, None]
        return Coarser(matrix, onto @ uniform, matrix)

    def loss(self, outputs: Array, target: Array) -> Array:
        """Eq. 5 of the paper with its constant corrected (or ``total``, see ``cramerl.cramer_loss``)."""
        unit = _unit_spaced(self.num_outputs)
        return cramer_loss(unit, target, outputs, self.mass_penalty, self.mass_penalty_scale, self.mean_weight)


@dataclass(frozen=True)
class U51(_LinearOnAtoms):
    r"""Ours: unit mass by construction and a whitened loss. :math:`q = u + Bo`, loss :math:`\|o - o^*\|^2`.

    u is uniform. B spans the zero-mass vectors and is orthonormal in the Cramér metric of unit-spaced atoms, so the
    squared distance of two outputs is the squared Cramér distance of their masses: condition number one, no penalty.
    ``mean_weight`` adds the squared error of the mean, in spacings, by which actions are compared. With a proper
    ``next_distribution`` in place of the signed masses, predictions cannot run away. ``mode_exponent`` p scales the
    modes, :math:`q = u + B\Lambda^p o`, by eigenvalues (the largest taken as one): narrow ones learn more slowly.
    """

    support: Support
    mean_weight: float = 0.0
    next_distribution: NextDistribution = "signed"
    mode_exponent: float = 0.0

    def __post_init__(self) -> None:
        require_choice("next_distribution", self.next_distribution, get_args(NextDistribution))

    @property
    def num_outputs(self) -> int:
        """One less than the atoms, because the total mass is fixed."""
        return self.support.num_atoms - 1

    def distribution(self, outputs: Array) -> tuple[Array, Array]:
        """Signed masses of total one."""
        masses = self._basis.masses(outputs)
        return atoms_like(self.support, masses), masses

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution, which is affine in the outputs."""
        return outputs @ constant(self._slopes, outputs) + float(self.support.atoms.mean())

    def _backed_up(self, next_outputs: Array) -> Array:
        return _as_next(self.next_distribution, self.support, self.distribution(next_outputs)[1])

    def loss(self, outputs: Array, target: Array) -> Array:
        """Squared Cramér distance, plus the weighted squared error of the mean."""
        error, scales = outputs - target, _mode_scales(self.support.num_atoms, self.mode_exponent)
        means, scaled = error @ constant(self._slopes / self.support.spacings.mean(), error), error * row(scales, error)
        return jnp.sum(scaled**2, axis=-1) + (self.mean_weight * means**2 if self.mean_weight else 0.0)

    def outputs_of(self, masses: Array) -> Array:
        """The coordinates of the masses."""
        return self._basis.outputs(masses)

    _target_of = outputs_of

    def coarser(self, places: np.ndarray) -> Coarser:
        """The coordinates of the old masses projected onto the new atoms."""
        onto, none = _onto(places), np.zeros(self.num_outputs)
        offset = self._basis.outputs(onto @ self._basis.masses(none))
        matrix = (self._basis.outputs(self._basis.masses(np.eye(self.num_outputs)) @ onto.T) - offset).T
        steepness = _mode_scales(self.support.num_atoms, self.mode_exponent) ** 2  # gradient for each unit of error
        return Coarser(matrix, offset, steepness[:, None] * matrix / steepness)

    @property
    def _basis(self) -> UnitMassBasis:
        return _scaled_basis(self.support.num_atoms, self.mode_exponent)

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
        return atoms_like(self.support, masses), masses

    def values(self, outputs: Array) -> Array:
        """Mean of the distribution: the largest return less the area under the CDF."""
        heights = jax.nn.sigmoid(self._logits(outputs))
        return self.support.v_max - heights @ constant(self.support.spacings, outputs)

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
        heights = jnp.clip(jnp.cumsum(masses, axis=-1)[..., :-1], SMALL_MASS, 1 - SMALL_MASS)
        return jnp.log(heights) - jnp.log1p(-heights) - row(self._uniform_logits, heights)

    def coarser(self, places: np.ndarray) -> Coarser:
        """The heights at the new atoms: the old ones where there were some, outside nearly zero or one."""
        outside = np.where(places < 0, -1, 1) * np.log(1 / SMALL_MASS - 1)
        inside = (places >= 0) & (places < self.num_outputs)
        matrix = (np.arange(self.num_outputs) == places[:-1, None]).astype(float)
        old = self._uniform_logits[np.clip(places, 0, self.num_outputs - 1)]
        return Coarser(matrix, np.where(inside, old, outside)[:-1] - self._uniform_logits, matrix)

    def _logits(self, outputs: Array) -> Array:
        return outputs + row(self._uniform_logits, outputs)

    @property
    def _uniform_logits(self) -> np.ndarray:
        uniform = np.arange(1, self.support.num_atoms) / self.support.num_atoms
        return np.log(uniform / (1 - uniform))


def _mode_scales(num_atoms: int, exponent: float) -> np.ndarray:
    """The eigenvalue of each mode to a power, one for the widest."""
    _, roots = shape_modes(_unit_spaced(num_atoms))
    return (roots / roots[0]) ** (2 * exponent)


def _scaled_basis(num_atoms: int, exponent: float) -> UnitMassBasis:
    basis, scales = unit_mass_basis(_unit_spaced(num_atoms)), _mode_scales(num_atoms, exponent)
    return UnitMassBasis(basis.basis * scales, basis.left_inverse / scales[:, None])


def _onto(places: np.ndarray) -> np.ndarray:
    """The matrix (K, K) that projects masses at 0, ..., K - 1 onto atoms at ``places``."""
    count = len(places)
    return np.asarray(project(Support(places), np.arange(count, dtype=float)[:, None], np.ones((count, 1)))).T


def _as_next(kind: NextDistribution, support: Support, masses: Array) -> Array:
    return masses if kind == "signed" else _NEXT_DISTRIBUTIONS[kind](support, masses)


def _unit_spaced(num_atoms: int) -> Support:
    return Support(np.arange(num_atoms, dtype=float))
