"""What an evaluation is asked: a process, features, a support, how mass is kept at one, and weights of the states."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular

from cramerl._arrays import Floats, host_reals
from cramerl._checks import require_choice, require_finite
from cramerl.linear.processes import MarkovRewardProcess, require_process
from cramerl.supports import Support

Normalisation = Literal["before", "after", "affine"]
NORMALISATIONS = ("before", "after", "affine")

_STATIONARY_TOLERANCE = 1e-9


def mass_offset(normalisation: Normalisation, support: Support) -> float:
    """What every mass has beside ``features @ weights``: 1/K for *affine*, else nothing."""
    return 1.0 / support.num_atoms if normalisation == "affine" else 0.0


class Whitening(NamedTuple):
    """Change of basis to features that are orthonormal under the state distribution."""

    inverse: Floats  # R^-1, (D, D): whitened features are Phi R^-1, and weights are R^-1 Theta
    condition: float  # condition number of Phi' Xi Phi
    constant: Floats  # (D,) inner products of the whitened features with the constant function
    scaled_condition: float  # condition number where the columns of Phi have the same size

    def plain(self, weights: Floats) -> Floats:
        """Weights of the features as they are."""
        return self.inverse @ weights

    def fitted(self, products: Floats) -> Floats:
        """Whitened weights of the least-squares fit, from inner products (D, K) of the features with its target."""
        return self.inverse.T @ products

    def unfitted(self, weights: Floats) -> Floats:
        """Transpose of `fitted`."""
        return self.inverse @ weights

    def gathered(self, weights: Floats) -> Floats:
        """Transpose of `plain`."""
        return self.inverse.T @ weights


class SparseGram:
    """What `Whitening` does, for features that are too many to whiten: weights stay those of the features as they are.

    Args:
        gram: (D, D) sparse and regular.
    """

    def __init__(self, gram: Any):
        from scipy.sparse.linalg import splu  # slow to import, and rarely needed

        self.condition = math.nan
        self.constant = np.zeros(gram.shape[0])  # only needed for other normalisations than "before"
        # A column of zeros, such as that of an action never taken in a state, gets weights of zero.
        empty = sparse.diags_array((gram.diagonal() == 0).astype(np.float64))
        try:
            # The matrix is symmetric and positive: keeping its pattern symmetric spares nearly all fill-in.
            matrix, symmetric = sparse.csc_array(gram + empty), {"SymmetricMode": True}
            self._factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)
        except RuntimeError:
            raise ValueError("X must have linearly independent columns: drop some, or set regularisation > 0") from None

    def plain(self, weights: Floats) -> Floats:
        """Weights of the features as they are."""
        return weights

    def fitted(self, products: Floats) -> Floats:
        """Weights of the least-squares fit, from inner products (D, K) of the features with its target."""
        return self._factors.solve(products)

    def unfitted(self, weights: Floats) -> Floats:
        """Transpose of `fitted`, which is symmetric."""
        return self._factors.solve(weights)

    def gathered(self, weights: Floats) -> Floats:
        """Transpose of `plain`."""
        return weights


Basis = Whitening | SparseGram


class Problem(NamedTuple):
    """One evaluation, as it was asked."""

    process: MarkovRewardProcess  # the Markov reward process
    features: Floats  # (S, D)
    support: Support  # K atoms
    normalisation: Normalisation  # how the mass is kept at one
    state_distribution: Floats  # (S,) weights of the states
    stationary: bool  # whether those weights are stationary, which every guarantee needs
    whitening: Whitening  # of the features under the weights

    @property
    def offset(self) -> float:
        """What every mass has beside ``features @ weights``."""
        return mass_offset(self.normalisation, self.support)

    @property
    def whitened_features(self) -> Floats:
        """(S, D) features that are orthonormal under the state distribution."""
        return self.features @ self.whitening.inverse

    def masses(self, weights: Floats, states: Any = slice(None)) -> Floats:
        """(S, K) masses with these weights (D, K), or those of some states."""
        return self.features[states] @ weights + self.offset

    def values(self, weights: Floats) -> Floats:
        """(S,) mean returns with these weights (D, K)."""
        atoms = self.support.atoms
        return self.features @ (weights @ atoms) + self.offset * atoms.sum()

    def largest_error(self, whitened: Floats) -> float:
        """What a difference of whitened weights (D, K) makes at most, in any state, however rare.

        It is the largest difference of a mass, or of a mean return in widths of the support.
        """
        atoms = self.support.atoms
        scaled = atoms / (atoms[-1] - atoms[0])
        parts = self._parts(self.whitening.inverse @ whitened)
        return max(max(float(np.abs(part).max()), float(np.abs(part @ scaled).max())) for part in parts)

    def worst_condition(self) -> float:
        """Condition number of single states; where columns are orthogonal, rare states are as good as others."""
        longest = max(float((part**2).sum(axis=1).max()) for part in self._parts(self.whitening.inverse))
        return min(longest, self.whitening.scaled_condition)

    def _parts(self, weights: Floats) -> Iterator[Floats]:
        """Rows of ``features @ weights``, a few at a time."""
        rows = max(1, 4_000_000 // weights.shape[1])
        return (self.features[i : i + rows] @ weights for i in range(0, len(self.features), rows))

    def most_visited(self, count: int) -> Any:
        """The states with the most weight, at most ``count``, in the order of their numbers."""
        return np.sort(np.argsort(-self.state_distribution, kind="stable")[:count])


def make_problem(
    process: MarkovRewardProcess,
    features: ArrayLike,
    support: Support,
    normalisation: Normalisation,
    state_distribution: ArrayLike | None,
) -> Problem:
    """Check the arguments of `evaluate` and whiten the features."""
    require_choice("normalisation", normalisation, NORMALISATIONS)
    require_process(process)
    if not isinstance(support, Support):
        raise ValueError(f"support must be a Support, got {type(support).__name__}")
    given: Any = features
    num_states = process.num_states
    phi = host_reals("features", given.toarray() if sparse.issparse(given) else given)
    if phi.ndim != 2 or phi.shape[0] != num_states or phi.shape[1] == 0:
        raise ValueError(f"features must have shape ({num_states}, D), one row for each state, got {phi.shape}")
    require_finite(features=phi)
    if phi.shape[1] > num_states:
        raise ValueError(f"features must have at most {num_states} columns, one for each state, got {phi.shape[1]}")
    if state_distribution is None:
        xi, stationary = process.stationary_distribution(), True
    else:
        xi = np.array(host_reals("state_distribution", state_distribution))
        if xi.shape != (num_states,):
            raise ValueError(f"state_distribution must have shape ({num_states},), got {xi.shape}")
        if not (xi >= 0).all() or not abs(xi.sum() - 1) <= 1e-8:
            found = f"a smallest entry of {xi.min():.12g} and a sum of {xi.sum():.12g}"
            raise ValueError(f"state_distribution must be >= 0 and sum to 1, got {found}")
        drift = float(np.abs(process.transition.T @ xi - xi).sum())
        stationary = drift <= _STATIONARY_TOLERANCE
        if not stationary:
            warnings.warn(
                f"state_distribution is not stationary (one step moves {drift:.2g} of its mass): contraction, "
                "convergence and the bounds are no longer guaranteed",
                stacklevel=3,
            )
    return Problem(process, phi, support, normalisation, xi, stationary, whiten(phi, xi))


def whiten(features: Floats, weights: Floats) -> Whitening:
    """Find the whitening of features (S, D) under weights (S,); ValueError if they are linearly dependent."""
    gram = _weighted_gram(features, weights)
    scale = np.sqrt(np.diag(gram))
    if not scale.all():
        raise ValueError(
            f"features must not vanish, but column {int(np.argmin(scale))} is zero in every state that has weight: "
            "drop it, or give a state_distribution that sees it"
        )
    values = np.linalg.eigvalsh(gram / np.outer(scale, scale))
    if values[0] <= 1e-13 * values[-1]:
        rank = int((values > 1e-13 * values[-1]).sum())
        raise ValueError(
            f"features must be linearly independent under the state distribution, got rank {rank} of {len(gram)}"
        )
    first = np.diag(1 / scale) @ _inverse_root(gram / np.outer(scale, scale))
    # The first root loses digits where features are badly conditioned. The features it gives are nearly orthonormal,
    # so whitening these once more brings the digits back.
    inverse = first @ _inverse_root(_weighted_gram(features, weights, first))
    eigenvalues = np.linalg.eigvalsh(gram)
    condition = float(eigenvalues[-1] / max(eigenvalues[0], np.finfo(float).tiny))
    return Whitening(inverse, condition, inverse.T @ (features.T @ weights), float(values[-1] / values[0]))


def _inverse_root(gram: Floats) -> Floats:
    return solve_triangular(cholesky(gram), np.eye(len(gram)))


def _weighted_gram(features: Floats, weights: Floats, change: Floats | None = None) -> Floats:
    """Phi' Xi Phi, of the features or of the features after a change of basis; a few rows at a time."""
    total = np.zeros((features.shape[1], features.shape[1]))
    rows = max(1, 4_000_000 // features.shape[1])
    for i in range(0, len(features), rows):
        part = features[i : i + rows] if change is None else features[i : i + rows] @ change
        total += part.T @ (weights[i : i + rows, None] * part)
    return total
