r"""Return distributions from logged transitions, by least squares.

The fixed point is that of `evaluate`, with averages over the data in place of expectations:

.. math:: G\,\Theta = \frac1n \sum_t \phi_t\, \big(M_{r_t} (q'_t + (1 - 1^\top q'_t) u)\big)^\top,
    \qquad q'_t = \Theta^\top \phi'_t, \qquad G = \frac1n \sum_t \phi_t \phi_t^\top + \rho I

(for *before*; a transition that ends the return has the distribution of its reward alone). One pass over the data is
enough: :math:`M_r` is piecewise linear in r, so rewards of any kind add up to at most :math:`K^2 + 1` matrices (D, D).
"""

# ruff: noqa: N803 (X is the name scikit-learn's users know)
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cramerl._arrays import Floats
from cramerl._checks import require_choice, require_discount, require_scale, require_tolerance
from cramerl.linear.certificates import LogCertificate, certify_log
from cramerl.linear.problem import NORMALISATIONS, Normalisation, mass_offset
from cramerl.linear.solve import METHODS, Method
from cramerl.linear.solve import solve as solve_system
from cramerl.linear.support_choice import support_from_data
from cramerl.linear.transition_sums import (
    SupportReport,
    TransitionSums,
    sums_whitening,
    system_by_passes,
    system_from_moments,
)
from cramerl.linear.transitions import Source, feature_table, few_rows, make_rows
from cramerl.measures import cvar, nearest_distribution, quantile, with_unit_mass
from cramerl.projections import backup
from cramerl.supports import Support

# Unknowns up to which the matrix of the whole system, if it was formed anyway, is factorised.
_DIRECT_UNKNOWNS = 5000
# Attributes that are known once the fixed point was found, and those that are known once data was seen.
_SOLVED = ("weights_", "residual_", "support_report_", "certificate_")
_SEEN = ("support_", "n_features_in_", "n_samples_")


class DistributionalLSTD:
    r"""Least-squares return distributions from transitions, as an estimator in scikit-learn's style.

    A state's distribution is ``X @ weights_`` (for *affine*, plus 1/K): signed masses on the atoms of ``support_``. Put
    a column of ones among the features: then every distribution has mass one, and where nothing clips the means are
    those of ordinary LSTD. The distributions are those of the policy that made the data, which should visit states as
    the policy does.

    Args:
        support: K atoms; None chooses an even support from the data (`partial_fit`: from the first chunk). Mean returns
            and standard deviations are estimated linearly, and the support reaches four deviations beyond the means.
        discount: in [0, 1).
        num_atoms: K, if the support is chosen.
        normalisation: how the mass is kept at one, as in `evaluate`: "before", "after" or "affine".
        regularisation: :math:`\rho \ge 0`, in the units of the mean square of a feature.
        method: "direct", "krylov", "iteration" or "auto", as in `evaluate`.
        tol: bound on the error of the solution, as in `evaluate`.

    Attributes:
        weights_: (D, K).
        residual_: norm, weighted by the data, of the change that one more step of the process makes.
        support_: the atoms in use.
        support_report_: a ``SupportReport``: what the support cuts off.
        certificate_: a ``LogCertificate``: constant, conditioning, gap to LSTD; None if the data was used in passes.
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
    support_report_: SupportReport
    certificate_: LogCertificate | None
    _sums: TransitionSums | None = None

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
    ):
        self.support = support
        self.discount = discount
        self.num_atoms = num_atoms
        self.normalisation: Normalisation = normalisation
        self.regularisation = regularisation
        self.method: Method = method
        self.tol = tol

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

    def fit(self, X: ArrayLike, rewards: ArrayLike, X_next: ArrayLike, terminated: ArrayLike | None = None) -> Self:
        """Find the fixed point for these transitions; earlier data is forgotten.

        Args:
            X: (n, D) features of the states.
            rewards: (n,).
            X_next: (n, D) features of the next states; ignored where the return ends.
            terminated: (n,) whether the return ends with the reward; None: never. An episode that was only cut off
                (truncated) has not ended.
        """
        return self.fit_source(make_rows(X, rewards, X_next, terminated))

    def fit_source(self, source: Source) -> Self:
        """Find the fixed point for the rows of a source: what `fit`, `fit_parquet` and `fit_ray` have in common.

        It makes four passes over the rows, or one if the support is given. Moments that do not fit in memory are
        replaced by a pass for each product of the iteration.
        """
        self._keep(source.total(self._empty_sums(source)))
        return self._solve(source)

    def partial_fit(
        self, X: ArrayLike, rewards: ArrayLike, X_next: ArrayLike, terminated: ArrayLike | None = None
    ) -> Self:
        """Add one chunk of transitions (arguments as in `fit`); the fixed point is found on first use.

        Memory does not grow with the data: at most K² D² numbers, and work arrays of the size of a chunk. Chunks of
        100,000 rows or more are fastest. On an error nothing is added.
        """
        rows = make_rows(X, rewards, X_next, terminated, None if self._sums is None else self.n_features_in_)
        sums = self._empty_sums(rows) if self._sums is None else self._sums
        if self.discount != sums.discount or self.support not in (None, sums.support):
            raise ValueError(
                f"support and discount must stay {sums.support} and {sums.discount} for more data, "
                f"got {self.support} and {self.discount}"
            )
        if not sums.fits(rows):
            raise ValueError(
                f"partial_fit must hold its moments in {8e-9 * sums.most_numbers:g} GB, got rewards that need more "
                f"with {sums.support.num_atoms} atoms and {len(sums.total)} features: use fewer, or fit (in passes)"
            )
        sums.add(rows)
        self._keep(sums)
        return self

    def solve(self) -> Self:
        """Find the fixed point for all data so far, with the present settings."""
        return self._solve(None)

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: after `partial_fit` the fixed point is found when it is first needed.
        if name in _SOLVED and self._sums is not None:
            return vars(self.solve())[name]
        if name in _SOLVED + _SEEN:
            raise NotFittedError(
                f"{name} is known only after fit or partial_fit: this {type(self).__name__} has no data"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def predict(self, X: ArrayLike) -> Floats:
        """(n,) mean returns of states with features X (n, D)."""
        rows, atoms = self._features(X), self.support_.atoms
        return rows @ (self.weights_ @ atoms) + self._offset * atoms.sum()

    def predict_masses(self, X: ArrayLike) -> Floats:
        """(n, K) signed masses of the return on the atoms of ``support_``."""
        return self._features(X) @ self.weights_ + self._offset

    def predict_quantile(self, X: ArrayLike, level: ArrayLike) -> Floats:
        """Quantiles of the return, from the nearest proper distribution: (n,), or (n, L) for L levels in [0, 1]."""
        return self._risk(quantile, X, level)

    def predict_cvar(self, X: ArrayLike, level: ArrayLike) -> Floats:
        """Mean of the worst fraction ``level`` of returns, from the nearest proper distribution: (n,), or (n, L)."""
        return self._risk(cvar, X, level)

    def score(self, X: ArrayLike, rewards: ArrayLike, X_next: ArrayLike, terminated: ArrayLike | None = None) -> float:
        r"""Fraction of the spread of the one-step targets that the predictions explain, in squared Cramér distance.

        .. math:: 1 - \frac{\sum_t \ell^2(q(x_t), y_t)}{\sum_t \ell^2(\bar y, y_t)}, \qquad y_t = M_{r_t} q(x'_t)

        One is perfect; zero is no better than one distribution for all states. Masses are brought to one first. If
        every transition ends the return this is the skill score of the CRPS. Otherwise the targets depend on the model:
        compare only models of the same support and discount.
        """
        rows = make_rows(X, rewards, X_next, terminated, self.n_features_in_)
        spacings, k, n = self.support_.spacings, self.support_.num_atoms, len(rows.rewards)
        missed, squares, total = 0.0, 0.0, np.zeros(k - 1)
        for part in rows.parts(few_rows(8 * k)):
            q, following = (
                with_unit_mass(self.support_, x @ self.weights_ + self._offset)
                for x in (part.features, part.next_features)
            )
            target = np.cumsum(backup(self.support_, part.rewards, part.discounts(self._discount), following), axis=1)
            missed += float(np.sum((np.cumsum(q, axis=1) - target)[:, :-1] ** 2 @ spacings))
            squares += float(np.sum(target[:, :-1] ** 2 @ spacings))
            total += target[:, :-1].sum(axis=0)
        spread = squares - float((total / n) ** 2 @ spacings) * n
        return 1.0 - missed / spread if spread > 1e-12 * squares else float(missed <= 1e-12 * squares)

    def _risk(self, measure: Callable[..., Any], X: ArrayLike, level: ArrayLike) -> Floats:
        rows, levels = self._features(X), np.asarray(level, dtype=np.float64)
        if levels.ndim > 1:
            raise ValueError(f"level must be a number or one-dimensional, got shape {levels.shape}")
        size = few_rows(8 * self.support_.num_atoms * max(1, levels.size))
        parts = []
        for i in range(0, len(rows), size):
            proper = nearest_distribution(self.support_, rows[i : i + size] @ self.weights_ + self._offset)
            parts.append(measure(self.support_, proper[:, None, :], np.atleast_1d(levels)[None, :]))
        out = np.concatenate(parts)
        return out[:, 0] if levels.ndim == 0 else out

    def _features(self, X: ArrayLike) -> Floats:
        return feature_table("X", X, self.n_features_in_)

    def _empty_sums(self, source: Source) -> TransitionSums:
        """Sums to add the source's rows to, on the support that was given or that the rows choose."""
        self._check_settings()
        support, discount = self.support, float(self.discount)
        if support is None:
            support = support_from_data(source, discount, self.num_atoms, float(self.regularisation))
        return TransitionSums(support, discount, source.num_features)

    def _check_settings(self) -> None:
        if self.support is not None and not isinstance(self.support, Support):
            raise ValueError(f"support must be a Support or None, got {type(self.support).__name__}")
        require_discount(self.discount)
        require_tolerance(self.tol)
        require_choice("normalisation", self.normalisation, NORMALISATIONS)
        require_choice("method", self.method, METHODS)
        require_scale("regularisation", self.regularisation, zero_allowed=True)

    def _keep(self, sums: TransitionSums) -> None:
        """Keep the sums, and forget the fixed point of earlier ones."""
        for stale in _SOLVED:
            vars(self).pop(stale, None)
        self._sums, self._discount = sums, sums.discount
        self.support_, self.n_features_in_, self.n_samples_ = sums.support, len(sums.total), sums.num_samples

    def _solve(self, source: Source | None) -> Self:
        sums, method, normalisation = self._sums, self.method, self.normalisation
        if sums is None:
            raise NotFittedError(f"{type(self).__name__} must see data first: call fit or partial_fit")
        self._check_settings()
        regularisation = float(self.regularisation)
        whitening = sums_whitening(sums, regularisation)
        moments = None if sums.collector is None else sums.collector.moments()
        if moments is not None:
            system, whole = system_from_moments(moments, sums, whitening, normalisation)
            if method == "auto" and whole and system.constant.size <= _DIRECT_UNKNOWNS:
                method = "direct"
        elif source is not None:
            system = system_by_passes(source, sums, whitening, normalisation)
        else:
            raise ValueError("solve needs moments, which were too large to keep in this fit: call fit again")
        found = solve_system(system, method, self.tol, sums.discount)
        if not found.residual <= 1e-6 * max(1.0, float(np.linalg.norm(found.weights))):
            warnings.warn(
                f"no fixed point was found (residual {found.residual:.1e}): data that does not visit states as the "
                "policy does may have none",
                stacklevel=3,
            )
        self.weights_, self.residual_ = whitening.inverse @ found.weights, found.residual
        self._offset = mass_offset(normalisation, sums.support)
        self.support_report_ = sums.report(self.weights_, normalisation)
        self.certificate_ = None
        if moments is not None:
            self.certificate_ = certify_log(moments, sums, whitening, self.weights_, normalisation, regularisation)
        return self


class NotFittedError(ValueError, AttributeError):
    """The estimator has seen no data; the base classes are those of scikit-learn's error of this name."""
