"""What the claims have in common: small processes, the paper's operators written plainly, errors of distributions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.cramer import cramer_distance_sq, cramer_gram
from cramerl.linear.operators import projected_bellman_update
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.measures import with_unit_mass
from cramerl.projections import backup, backup_matrix, project
from cramerl.supports import Support


class Setting(NamedTuple):
    """A process, features (S, D) and a support."""

    process: MarkovRewardProcess
    features: Floats
    support: Support

    @property
    def weights(self) -> Floats:
        """(S,) stationary distribution."""
        return self.process.stationary_distribution()

    def bellman(self, masses: Floats) -> Floats:
        """T'P, (S, K)."""
        return projected_bellman_update(self.process.branches, self.support, masses)

    def backup_tensor(self) -> Floats:
        """(S, K, S, K): T' as a matrix, the same as `bellman` for many masses at once."""
        branches = self.process.branches
        moves = backup_matrix(self.support, branches.rewards, branches.discounts)
        leaves = np.equal.outer(np.arange(self.process.num_states), branches.states).astype(float)
        following = branches.next_distribution.toarray()
        return np.einsum("xn,ny,nkl->xkyl", leaves, following, moves, optimize=True)

    def projected_returns(self) -> Floats:
        """(S, K) distribution of the return on the support: `MarkovRewardProcess.true_returns` by one dense solve."""
        num_states, k = self.process.num_states, self.support.num_atoms
        matrix, even = self.backup_tensor().reshape(num_states * k, -1), np.full(num_states * k, 1.0 / k)
        # The difference to the uniform distribution has mass zero at every state, so the matrix may ignore masses.
        centred = matrix - matrix.reshape(-1, num_states, k).mean(axis=2).repeat(k, axis=1)
        return (even + np.linalg.solve(np.eye(num_states * k) - centred, matrix @ even - even)).reshape(num_states, k)

    def span_projection(self) -> Floats:
        """Π_Φ, (S, S): projection onto the span of the features in the stationary norm."""
        weighted = self.features.T * self.weights
        return self.features @ np.linalg.solve(weighted @ self.features, weighted)

    def shape_sq(self, difference: Floats) -> float:
        """Squared norm of (S, K) in C_0, weighted by the states: blind to mass."""
        return float(self.weights @ cramer_distance_sq(self.support, difference, 0 * difference, 0.0))

    def mass_sq(self, difference: Floats) -> float:
        """Squared norm of (S, K) in ee', weighted by the states."""
        return float(self.weights @ difference.sum(axis=1) ** 2) / self.support.num_atoms

    def drift(self) -> float:
        """c: the largest C_0 norm of M_r u - u."""
        support, even = self.support, np.full(self.support.num_atoms, 1.0 / self.support.num_atoms)
        moved = backup(support, self.process.branches.rewards, self.process.discount, even)
        return math.sqrt(np.max(cramer_distance_sq(support, moved, even, 0.0)))

    def distribution_error_sq(self, masses: Floats, fine: Support, distribution: Floats) -> float:
        """Squared C_0 error, weighted, of (S, K) masses against the (S, J) distribution of the return on more atoms."""
        spread = project(fine, self.support.atoms, with_unit_mass(self.support, masses))
        return float(self.weights @ cramer_distance_sq(fine, spread, distribution, 0.0))

    def loss_step(self, design: Floats, lam: float, *, before: bool = False) -> tuple[Floats, Floats]:
        """One step of minimising the loss of Eq. 5 (constant corrected) over outputs that are linear in weights w.

        Nothing is assumed of the design (S, K, W), which makes outputs ``design @ w``: normal equations of the
        quadratic loss, with T' applied to every column. ``before`` gives the outputs mass one before they are backed
        up. The step is w -> F w + c; returns F (W, W) and c (W,).
        """
        k, xi = self.support.num_atoms, self.weights
        weighted = np.einsum("x,xkw,kl->wxl", xi, design, cramer_gram(self.support, 0.0))
        pulled = (lam / k) * np.einsum("x,xkw->w", xi, design)
        masses = design.sum(axis=1)
        normal = np.einsum("wxl,xlv->wv", weighted, design) + (lam / k) * np.einsum("x,xw,xv->wv", xi, masses, masses)

        def back(outputs: Floats) -> Floats:
            return self.bellman(with_unit_mass(self.support, outputs) if before else outputs)

        start = back(np.zeros(design.shape[:2]))
        moved = np.stack([back(column) - start for column in np.moveaxis(design, -1, 0)], axis=-1)
        matrix = np.linalg.solve(normal, np.einsum("wxl,xlv->wv", weighted, moved))
        return matrix, np.linalg.solve(normal, np.einsum("wxl,xl->w", weighted, start) + pulled)

    def free_design(self) -> Floats:
        """The design of the paper's class ΦΘ, (S, K, DK): every atom has separate weights."""
        k, (num_states, num_features) = self.support.num_atoms, self.features.shape
        return np.einsum("xd,kl->xkdl", self.features, np.eye(k)).reshape(num_states, k, num_features * k)


def unit_support(num_atoms: int) -> Support:
    """The paper's atoms: spacing one, centred on zero."""
    return Support.uniform((1 - num_atoms) / 2, (num_atoms - 1) / 2, num_atoms)


def random_setting(
    rng: np.random.Generator,
    *,
    num_states: int = 4,
    num_features: int = 2,
    num_atoms: int = 7,
    discount: float = 0.8,
    reach: float = 1.0,  # largest reward, in units of the largest that never clips
    bias: bool = False,  # make the first feature the constant
    uneven: bool = False,  # draw the atoms at random instead of one apart
) -> Setting:
    """A dense random process with two rewards a state that depend on the next state, and normal features."""
    support = unit_support(num_atoms)
    if uneven:
        inner = np.sort(rng.uniform(support.v_min, support.v_max, num_atoms - 2))
        support = Support([support.v_min, *inner, support.v_max])
    distribution = rng.dirichlet(np.full(num_states, 0.7), size=num_states)
    fraction = rng.uniform(size=distribution.shape)
    limit = reach * (1 - discount) * support.v_max
    first, second = rng.uniform(-limit, limit, 2)
    process = MarkovRewardProcess.from_outcomes(
        [(first, distribution * fraction), (second, distribution * (1 - fraction))], discount
    )
    features = rng.normal(size=(num_states, num_features))
    if bias:
        features[:, 0] = 1.0
    return Setting(process, features, support)


def one_state() -> Setting:
    """The smallest process: one state, reward zero, one feature. Its return is zero, and nothing clips."""
    return Setting(MarkovRewardProcess([[1.0]], [0.0], 0.5), np.ones((1, 1)), unit_support(5))


def density_distance_sq(atoms: Floats, difference: Floats) -> float:
    """The appendix's shape part: the CDF less a uniform density of the same mass, squared, over the atoms' range."""
    heights, mass, width = np.cumsum(difference)[:-1], difference.sum(), atoms[-1] - atoms[0]
    left = heights - mass * (atoms[:-1] - atoms[0]) / width
    right = heights - mass * (atoms[1:] - atoms[0]) / width
    # On each cell the integrand is the square of a straight line.
    return float(np.sum((left**2 + left * right + right**2) / 3 * np.diff(atoms)))


def spectral_radius(matrix: Floats) -> float:
    """Largest modulus of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(matrix)).max())
