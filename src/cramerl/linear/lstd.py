r"""Return distributions from logged transitions, by least squares.

The fixed point is that of `evaluate`, with averages over the data in place of expectations:

.. math:: G\,\Theta = \frac1n \sum_t \phi_t\, \big(M_{r_t} (q'_t + (1 - 1^\top q'_t) u)\big)^\top,
    \qquad q'_t = \Theta^\top \phi'_t, \qquad G = \frac1n \sum_t \phi_t \phi_t^\top + R

(for *before*; a transition that ends the return has the distribution of its reward alone; R is the penalty of
`cramerl.linear.transition_sums.ridge`). One pass over the data is enough: :math:`M_r` is piecewise linear in r, so
rewards of any kind add up to at most :math:`K^2 + 1` matrices (D, D).
"""

# ruff: noqa: N803 (X is the name scikit-learn's users know)
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cramerl._arrays import Floats
from cramerl._checks import require_choice, require_log_discount, require_scale, require_tolerance
from cramerl.linear.fixed_point import NEXT_DISTRIBUTIONS, Asked, NextDistribution, find_fixed_point, system_and_method
from cramerl.linear.log_certificates import (
    MOST_MASS,
    LogCertificate,
    MeanSystem,
    certify_log,
    mean_system,
    size_over_data,
)
from cramerl.linear.log_variances import variance_ratio
from cramerl.linear.problem import NORMALISATIONS, Normalisation, Whitening, mass_offset
from cramerl.linear.scores import crps_skill
from cramerl.linear.solve import (
    METHODS,
    MOST_ERROR,
    Method,
)
from cramerl.linear.support_choice import support_from_data
from cramerl.linear.systems import LinearSystem
from cramerl.linear.transition_sums import (
    SupportReport,
    TransitionSums,
    basis_of_sums,
    constant_weights,
)
from cramerl.linear.transitions import Source, feature_table, few_rows, make_rows, real_numbers
from cramerl.measures import cvar, mean, nearest_distribution, quantile
from cramerl.supports import Support

# Attributes that are known once the fixed point was found, and those that are known once data was seen.
_SOLVED = ("weights_", "residual_", "method_", "support_report_", "certificate_", "means_")
_SEEN = ("support_", "n_features_in_", "n_samples_")
# Attributes that are built again where they are needed.
_REBUILT = ("_basis_", "_system")


class DistributionalLSTD:
    r"""Least-squares return distributions from transitions, as an estimator in scikit-learn's style.

    A state's distribution is ``X @ weights_`` (for *affine*, plus 1/K): signed masses on the atoms of ``support_``. Put
    a column of ones among the features: then every distribution has mass one, and where nothing clips the means are
    those of ordinary LSTD. The distributions are those of the policy that made the data, which should visit states as
    the policy does.

    Args:
        support: K atoms; None chooses an even support from the data (`partial_fit`: from the first chunk). Mean returns
            and standard deviations are estimated linearly. The support reaches four deviations beyond the means and
            holds every reward that was seen, but nothing that returns cannot reach.
        discount: in [0, 1]; one needs returns that end.
        num_atoms: K, if the support is chosen.
        normalisation: how the mass is kept at one, as in `evaluate`: "before", "after" or "affine".
        regularisation: :math:`\rho \ge 0`, how strongly predictions are drawn to one distribution for all states.
            Features are compared by their own variance, so units do not matter, and a constant is free. An indicator
            of a group that has c of n rows is shrunk by c / (c + rho n).
        method: "direct", "krylov", "iteration" or "auto", as in `evaluate`.
        tol: bound on the error of the solution, as in `evaluate`.
        next_distribution: "signed" solves the linear equations. Where the data does not visit states as the policy
            does these may have a solution with enormous masses, or none. "proper" makes the next state's masses a
            distribution before each backup, which stays bounded; it takes a pass over the data for each step. "auto" is
            signed unless that explodes, and warns if it does.

    Attributes:
        weights_: (D, K).
        residual_: norm, weighted by the data, of the change that one more step of the process makes.
        method_: how the equations were solved: "direct", "krylov", "iteration", or "constrained" for proper next
            distributions.
        support_: the atoms in use.
        support_report_: a ``SupportReport``: what the support cuts off.
        means_: weights (D,) of the mean returns by ordinary LSTD, and the spectral radius of its iteration.
        certificate_: a ``LogCertificate``: constant, conditioning, gap to LSTD, spectral radius, size of the masses.
        n_features_in_: D.
        n_samples_: transitions seen.

    Example:
        >>> rewards, terminated = np.array([1.0, 3.0]), np.array([True, True])
        >>> model = DistributionalLSTD(Support([0, 2, 4])).fit(np.ones((2, 1)), rewards, np.ones((2, 1)), terminated)
        >>> model.predict_masses([[1.0]])
        array([[0.25, 0.5 , 0.25]])
    """

    weights_: Floats
    residual_: float
    method_: str
    support_report_: SupportReport
    certificate_: LogCertificate
    means_: MeanSystem
    _sums: TransitionSums | None = None
    _basis_: Any
    _system: LinearSystem | None

    def __init__(
        self,
        support: Support | None = None,
        discount: float = 0.99,
        *,
        num_atoms: int = 51,
        normalisation: Normalisation = "before",
        regularisation: float = 0.0,
        method: Method = "auto",
        tol: float = 1e-12,
        next_distribution: NextDistribution = "auto",
    ):
        self.support = support
        self.discount = discount
        self.num_atoms = num_atoms
        self.normalisation: Normalisation = normalisation
        self.regularisation = regularisation
        self.method: Method = method
        self.tol = tol
        self.next_distribution: NextDistribution = next_distribution

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in list(inspect.signature(type(self).__init__).parameters)[1:]}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments. They take effect at the next `fit` (support and discount) or `solve`."""
        for name in params:
            if name not in self.get_params():
                raise ValueError(f"params must be among {', '.join(self.get_params())}, got {name!r}")
            setattr(self, name, params[name])
        return self

    def fit(
        self,
        X: ArrayLike,
        rewards: ArrayLike,
        X_next: ArrayLike,
        terminated: ArrayLike | None = None,
        *,
        discounts: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Find the fixed point for these transitions; earlier data is forgotten.

        Args:
            X: (n, D) features of the states, dense or ``scipy.sparse``.
            rewards: (n,).
            X_next: (n, D) features of the next states, or their expectation under the policy to be evaluated; ignored
                where the return ends.
            terminated: (n,) whether the return ends with the reward; None: never. An episode that was only cut off
                (truncated) has not ended.
            discounts: (n,) discount of what follows each row, in [0, 1], where steps last differently long; None: the
                estimator's ``discount``.
            sample_weight: (n,) how much each row counts, >= 0; None: one.
        """
        return self.fit_source(make_rows(X, rewards, X_next, terminated, discounts, sample_weight))

    def fit_source(self, source: Source) -> Self:
        """Find the fixed point for the rows of a source: what `fit`, `fit_parquet` and `fit_ray` have in common.

        It makes a few passes over the rows, or one if the support is given. Moments that do not fit in memory are
        replaced by a pass for each product of the iteration.
        """
        self._keep(source.total(self._empty_sums(source)))
        return self._solve(source)

    def partial_fit(
        self,
        X: ArrayLike,
        rewards: ArrayLike,
        X_next: ArrayLike,
        terminated: ArrayLike | None = None,
        *,
        discounts: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add one chunk of transitions (arguments as in `fit`); the fixed point is found on first use.

        Memory does not grow with the data: at most K² D² numbers, and work arrays of the size of a chunk. Chunks of
        100,000 rows or more are fastest. On an error nothing is added.
        """
        known = None if self._sums is None else self.n_features_in_
        rows = make_rows(X, rewards, X_next, terminated, discounts, sample_weight, num_features=known)
        sums = self._empty_sums(rows) if self._sums is None else self._sums
        if self.discount != sums.discount or self.support not in (None, sums.support):
            raise ValueError(
                f"support and discount must stay {sums.support} and {sums.discount} for more data, "
                f"got {self.support} and {self.discount}"
            )
        if not sums.fits(rows):
            raise ValueError(
                f"partial_fit must hold its moments in {8e-9 * sums.most_numbers:g} GB, got rewards that need more "
                f"with {sums.support.num_atoms} atoms and {sums.num_features} features: use fewer, or fit (in passes)"
            )
        sums.add(rows)
        self._keep(sums)
        return self

    def solve(self) -> Self:
        """Find the fixed point for all data so far, with the present settings."""
        return self._solve(None)

    def __getstate__(self) -> dict[str, Any]:
        # A system is made of functions, which cannot be pickled, and so are factors of a sparse matrix.
        return {name: value for name, value in vars(self).items() if name not in _REBUILT}

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: after `partial_fit` the fixed point is found when it is first needed.
        if name in _SOLVED and self._sums is not None:
            return vars(self.solve())[name]
        if name == "_basis_" and self._sums is not None:
            self._basis_ = basis_of_sums(self._sums, float(self.regularisation), self.normalisation)
            return self._basis_
        if name == "_system" and self._sums is not None:
            constrained = self.method_ == "constrained"
            self._system = None if constrained else system_and_method(None, self._sums, self._basis_, self._asked())[0]
            return self._system
        if name in _SOLVED + _SEEN:
            raise NotFittedError(
                f"{name} is known only after fit or partial_fit: this {type(self).__name__} has no data"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def predict(self, X: ArrayLike) -> Floats:
        """(n,) mean returns of states with features X (n, D), of the signed masses: those of LSTD if nothing clips.

        Quantiles and CVaR are those of the nearest proper distribution, whose mean is ``predict_mean``.
        """
        rows, atoms = self._features(X), self.support_.atoms
        return rows @ (self.weights_ @ atoms) + self._offset * atoms.sum()

    def predict_mean(self, X: ArrayLike) -> Floats:
        """(n,) mean returns of the nearest proper distributions, which never leave the support."""
        return np.concatenate([mean(self.support_, part) for part in self._proper_parts(self._features(X))])

    def predict_masses(self, X: ArrayLike) -> Floats:
        """(n, K) signed masses of the return on the atoms of ``support_``."""
        return self._features(X) @ self.weights_ + self._offset

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(n, K) probabilities: the nearest proper distributions to `predict_masses`."""
        return np.concatenate(list(self._proper_parts(self._features(X))))

    def predict_quantile(self, X: ArrayLike, level: ArrayLike) -> Floats:
        """Quantiles of the return, from the nearest proper distribution: (n,), or (n, L) for L levels in [0, 1]."""
        return self._risk(quantile, X, level)

    def predict_cvar(self, X: ArrayLike, level: ArrayLike) -> Floats:
        """Mean of the worst fraction ``level`` of returns, from the nearest proper distribution: (n,), or (n, L)."""
        return self._risk(cvar, X, level)

    def score(self, X: ArrayLike, returns: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        r"""Skill of the predicted distributions for returns that were seen, best on episodes that were held out.

        .. math:: 1 - \frac{\sum_t \mathrm{CRPS}(p(x_t), g_t)}{\sum_t \mathrm{CRPS}(\bar p, g_t)}

        One is perfect; zero is no better than the distribution of all these returns, for every state. Unlike a score of
        one-step targets, which depend on the model, it ranks models of any support, features and training data.

        Args:
            X: (n, D) features of states.
            returns: (n,) discounted sum of the rewards from each state to the end of its episode.
            sample_weight: (n,) how much each state counts; None: one.
        """
        rows, seen = self._features(X), real_numbers("returns", returns)
        weights = np.ones(rows.shape[0]) if sample_weight is None else real_numbers("sample_weight", sample_weight)
        for name, given in (("returns", seen), ("sample_weight", weights)):
            if given.shape != (rows.shape[0],):
                raise ValueError(f"{name} must have one entry for each of the {rows.shape[0]} rows, got {given.shape}")
        return crps_skill(self.support_, self._proper_parts(rows), seen, weights)

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = {name: value for name, value in self.get_params().items() if value != signature[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def _proper_parts(self, rows: Any) -> Iterator[Floats]:
        """The nearest proper distributions of rows of features, a few rows at a time."""
        size = few_rows(8 * self.support_.num_atoms)
        for i in range(0, rows.shape[0], size):
            yield nearest_distribution(self.support_, rows[i : i + size] @ self.weights_ + self._offset)

    def _risk(self, measure: Callable[..., Any], X: ArrayLike, level: ArrayLike) -> Floats:
        rows, levels = self._features(X), real_numbers("level", level)
        if levels.ndim > 1:
            raise ValueError(f"level must be a number or one-dimensional, got shape {levels.shape}")
        chosen = np.atleast_1d(levels)[None, :]
        parts = [measure(self.support_, part[:, None, :], chosen) for part in self._proper_parts(rows)]
        out = np.concatenate(parts)
        return out[:, 0] if levels.ndim == 0 else out

    def _features(self, X: ArrayLike) -> Any:
        return feature_table("X", X, self.n_features_in_)

    def _empty_sums(self, source: Source) -> TransitionSums:
        """Sums to add the source's rows to, on the support that was given or that the rows choose."""
        self._check_settings()
        support, discount = self.support, float(self.discount)
        if support is None:
            support = support_from_data(source, discount, self.num_atoms, float(self.regularisation))
        sums = TransitionSums(support, discount, source.num_features, getattr(source, "most_moments", None))
        sums.penalties = getattr(source, "penalties", None)
        return sums

    def _check_settings(self) -> None:
        if self.support is not None and not isinstance(self.support, Support):
            raise ValueError(f"support must be a Support or None, got {type(self.support).__name__}")
        require_log_discount(self.discount)
        require_choice("next_distribution", self.next_distribution, NEXT_DISTRIBUTIONS)
        require_tolerance(self.tol)
        require_choice("normalisation", self.normalisation, NORMALISATIONS)
        require_choice("method", self.method, METHODS)
        require_scale("regularisation", self.regularisation, zero_allowed=True)

    def _asked(self) -> Asked:
        return Asked(self.normalisation, float(self.regularisation), self.method, self.next_distribution, self.tol)

    def _keep(self, sums: TransitionSums) -> None:
        """Keep the sums, and forget the fixed point of earlier ones."""
        for stale in _SOLVED + _REBUILT:
            vars(self).pop(stale, None)
        self._sums = sums
        self.support_, self.n_features_in_, self.n_samples_ = sums.support, sums.num_features, sums.num_samples

    def _solve(self, source: Source | None) -> Self:
        sums = self._sums
        if sums is None:
            raise NotFittedError(f"{type(self).__name__} must see data first: call fit or partial_fit")
        self._check_settings()
        basis = basis_of_sums(sums, float(self.regularisation), self.normalisation)
        solved = find_fixed_point(source, sums, basis, self._asked())
        self.weights_, self.residual_, self.method_ = solved.weights, solved.found.residual, solved.found.method
        self._offset = mass_offset(self.normalisation, sums.support)
        self._basis_, self._system = solved.basis, solved.system
        if isinstance(basis, Whitening):
            self._check_total_mass(sums)
        keeping = self.normalisation, float(self.regularisation)
        means = self.means_ = mean_system(sums, basis, *keeping)
        ratio = variance_ratio(source, sums, basis, means.weights, self.weights_, *keeping)
        self.certificate_ = certify_log(sums, basis, means, self.weights_, self.normalisation, ratio)
        typical = size_over_data(sums, means.weights[:, None])
        self.support_report_ = sums.report(self.weights_, self.normalisation, self.certificate_.lstd_gap, typical)
        return self

    def _check_total_mass(self, sums: TransitionSums) -> None:
        """Warn if a constant is in the span of the features, but the equations have lost it."""
        if constant_weights(sums) is None:
            return
        total = float(sums.total @ self.weights_.sum(axis=1)) / sums.weight + self._offset * sums.support.num_atoms
        if MOST_ERROR < abs(total - 1.0) <= MOST_MASS:  # beyond that it has been said that there is no solution
            warnings.warn(
                f"the distributions have a total mass of {total:.6g} on average in place of one: columns of X depend "
                "on each other too closely for these numbers; drop some of them",
                stacklevel=4,
            )


class NotFittedError(ValueError, AttributeError):
    """The estimator has seen no data; the base classes are those of scikit-learn's error of this name."""
