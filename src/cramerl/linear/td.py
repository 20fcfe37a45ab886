r"""Streaming distributional temporal-difference learning with linear features, in float64.

A model holds masses :math:`q(x) = \Theta^\top \phi(x)`. One transition :math:`(x, r, x')` gives a target y, and

.. math:: \Theta \leftarrow \Theta + \alpha\, \phi(x)\, (y - q(x))^\top C_\lambda
    \qquad\text{or, preconditioned,}\qquad \Theta \leftarrow \Theta + \alpha\, \phi(x)\, (y - q(x))^\top.

The first follows half the negative semi-gradient of the Cramér loss (the paper's corollary has the opposite sign). The
second drops :math:`C_\lambda`: the fixed point is the same, that of `cramerl.linear.evaluate`, and the rate does not
get worse with the number of atoms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cramerl._arrays import Floats
from cramerl._checks import (
    require_choice,
    require_count,
    require_discount,
    require_finite,
    require_last_axis,
    require_penalty,
    require_scale,
)
from cramerl.cramer import cramer_gram, optimal_penalty_range
from cramerl.linear.problem import NORMALISATIONS, Normalisation, mass_offset
from cramerl.linear.processes import Transitions
from cramerl.linear.transitions import Rows, real_numbers
from cramerl.measures import with_unit_mass
from cramerl.projections import backup
from cramerl.supports import Support

# Rows backed up at a time, however large the batch. At 51 atoms a backup of 128 rows takes 1.1 us a row, one of more
# rows 2 to 3 us: in a new process the allocator returns work arrays of that size to the system after every call.
_BLOCK_ROWS = 128
_DEFAULT_BATCH = 128
_ROW_SUM_TOLERANCE = 1e-8


@dataclass(frozen=True)
class StepSize:
    r"""Step size :math:`\alpha_t = \alpha_0\, (1 + t/\tau)^{-p}` after t updates.

    Constant for p = 0, like 1/t for p = 1. For averaged weights p between 1/2 and 1 is best in the long run (Polyak and
    Juditsky 1992); a constant step forgets its start faster.

    Example:
        >>> StepSize(0.5, exponent=1.0, decay_updates=100)(300)
        0.125

    Attributes:
        initial: :math:`\alpha_0 > 0`.
        exponent: p in [0, 1].
        decay_updates: :math:`\tau > 0`, number of updates after which the decay shows.
    """

    initial: float
    exponent: float = 0.0
    decay_updates: float = 1000.0

    def __post_init__(self) -> None:
        require_scale("initial", self.initial)
        require_scale("exponent", self.exponent, zero_allowed=True)
        if self.exponent > 1:
            raise ValueError(
                f"exponent must lie in [0, 1], got {self.exponent}: such steps shrink too fast to converge"
            )
        require_scale("decay_updates", self.decay_updates)

    def __call__(self, num_updates: int) -> float:
        """The step size after ``num_updates`` updates."""
        return self.initial * (1.0 + num_updates / self.decay_updates) ** -self.exponent


class LinearTD:
    r"""Return distributions learned from transitions as they come: masses are ``features @ weights``.

    Example:
        >>> td = LinearTD(Support([0.0, 1.0, 2.0]), num_features=1, discount=0.5, step_size=0.5)
        >>> for _ in range(100):
        ...     td.update(features=[1.0], rewards=1.0, next_features=[1.0])
        >>> td.masses([1.0], averaged=False).round(6)
        array([0., 0., 1.])

    Args:
        support: K atoms.
        num_features: D.
        discount: in [0, 1).
        normalisation: how the target y keeps a total mass of one, as in `evaluate`: "before" uses
            :math:`M_r(q' + (1 - 1^\top q')u)`, "after" :math:`\Pi M_r q' + u`, and "affine" :math:`M_r q'` with the
            model :math:`q = u + \Theta^\top\phi`, whose weights have rows of sum zero.
        preconditioned: leave out :math:`C_\lambda`.
        mass_penalty: :math:`\lambda > 0`; affects the semi-gradient only, and never the fixed point.
        step_size: :math:`\alpha`: a number, a `StepSize`, or any function of the number of updates made. By default
            0.1, divided by the largest eigenvalue of :math:`C_\lambda` for the semi-gradient: right for features
            of squared norm up to about one, too large for others.
        averaging: which iterates `averaged_weights` leaves out: the first n (an integer), or the first fraction f of
            those so far (a float; the average restarts now and then, so the fraction lies between f**2 and f).
        initial_weights: (D, K), zero by default.

    Attributes:
        num_updates: updates made so far. The arguments up to ``preconditioned`` are attributes too.

    Reference:
        The corollary to Theorem 1 of the paper, with its sign and its loss corrected; preconditioned, Linear-CTD of
        Peng et al. 2025 (arXiv 2502.14172).
    """

    def __init__(
        self,
        support: Support,
        num_features: int,
        discount: float,
        *,
        normalisation: Normalisation = "before",
        preconditioned: bool = True,
        mass_penalty: float = 1.0,
        step_size: float | Callable[[int], float] | None = None,
        averaging: int | float = 0.5,
        initial_weights: ArrayLike | None = None,
    ):
        if not isinstance(support, Support):
            raise ValueError(f"support must be a Support, got {type(support).__name__}")
        require_choice("normalisation", normalisation, NORMALISATIONS)
        penalty = float(require_penalty(mass_penalty, zero_allowed=False))
        self.support = support
        self.num_features = require_count("num_features", num_features)
        self.discount = require_discount(discount)
        self.normalisation: Normalisation = normalisation
        self.preconditioned = bool(preconditioned)
        self.num_updates = 0
        self._offset = mass_offset(normalisation, support)
        self._gram = None if preconditioned else cramer_gram(support, penalty)
        largest_eigenvalue = 1.0 if preconditioned else max(penalty, optimal_penalty_range(support)[1])
        if step_size is None:
            step_size = StepSize(0.1 / largest_eigenvalue)
        self._step_size = step_size if callable(step_size) else StepSize(require_scale("step_size", step_size))
        shape = (self.num_features, support.num_atoms)
        start = np.zeros(shape) if initial_weights is None else real_numbers("initial_weights", initial_weights).copy()
        if start.shape != shape:
            raise ValueError(f"initial_weights must have shape {shape}, got {start.shape}")
        off = float(np.abs(start.sum(axis=1)).max())
        if normalisation == "affine" and off > _ROW_SUM_TOLERANCE * max(1.0, float(np.abs(start).max())):
            raise ValueError(f"initial_weights must have rows of sum 0 for 'affine', got a row that sums to {off:.3g}")
        start.flags.writeable = False
        self._weights = start
        self._average = _TailAverage(averaging, shape)

    @property
    def weights(self) -> Floats:
        """(D, K) the latest weights, read-only."""
        return self._weights

    @property
    def averaged_weights(self) -> Floats:
        """(D, K) mean of the latest iterates (Polyak-Ruppert); the weights themselves if there are none to average."""
        average = self._average.value()
        return self._weights if average is None else average

    def masses(self, features: ArrayLike, *, averaged: bool = True) -> Floats:
        """Signed masses (..., K) of the return where the features are (..., D).

        Args:
            features: (..., D).
            averaged: use the averaged weights, the better estimate; False: the latest.
        """
        phi = self._features("features", features)
        return phi @ (self.averaged_weights if averaged else self._weights) + self._offset

    def values(self, features: ArrayLike, *, averaged: bool = True) -> Floats:
        """Mean returns (...) where the features are (..., D); arguments as in `masses`."""
        return self.masses(features, averaged=averaged) @ self.support.atoms

    def update(
        self, features: ArrayLike, rewards: ArrayLike, next_features: ArrayLike, terminated: ArrayLike | None = None
    ) -> None:
        """Make one step along the mean direction of a batch of transitions, or of a single one.

        Args:
            features: (n, D) features of the states left, or (D,).
            rewards: (n,), or ().
            next_features: (n, D) features of the states reached, or (D,).
            terminated: (n,) booleans, or (): whether the return ends with this reward, which makes the next features
                irrelevant; never, by default.
        """
        self._step(self._batch(features, rewards, next_features, terminated))

    def run(
        self,
        features: ArrayLike,
        rewards: ArrayLike,
        next_features: ArrayLike,
        terminated: ArrayLike | None = None,
        *,
        batch_size: int = _DEFAULT_BATCH,
    ) -> None:
        """Pass once over transitions (arguments as in `update`), in order.

        Each update takes ``batch_size`` of them; the last update may have fewer.
        """
        batch = self._batch(features, rewards, next_features, terminated)
        for part in batch.parts(require_count("batch_size", batch_size)):
            self._step(part)

    def run_transitions(
        self, feature_matrix: ArrayLike, transitions: Transitions, *, batch_size: int = _DEFAULT_BATCH
    ) -> None:
        """Pass once over sampled transitions between states, as `MarkovRewardProcess.sample` returns them.

        Args:
            feature_matrix: (S, D), row x holds the features of state x.
            transitions: T of them.
            batch_size: as in `run`.
        """
        phi = self._features("feature_matrix", feature_matrix)
        if phi.ndim != 2:
            raise ValueError(f"feature_matrix must have shape (S, {self.num_features}), got {phi.shape}")
        if not isinstance(transitions, Transitions):
            raise ValueError(f"transitions must be Transitions, got {type(transitions).__name__}")
        x, y = np.asarray(transitions.states), np.asarray(transitions.next_states)
        for name, states in (("states", x), ("next_states", y)):
            if states.ndim != 1 or states.size == 0 or states.dtype.kind not in "iu":
                raise ValueError(f"{name} must hold (T,) integers, T >= 1, got shape {states.shape} of {states.dtype}")
            if states.min() < 0 or states.max() >= len(phi):
                allowed = f"0 to {len(phi) - 1}, the rows of feature_matrix"
                raise ValueError(f"{name} must lie in {allowed}, got {states.min()} to {states.max()}")
        r, ended = _outcomes(transitions.rewards, transitions.terminated, x.shape, "states", next_states=y)
        size = require_count("batch_size", batch_size)
        for part in (slice(i, i + size) for i in range(0, len(r), size)):
            self._step(Rows(phi[x[part]], r[part], phi[y[part]], ended[part]))

    def _step(self, rows: Rows) -> None:
        step = float(require_scale(f"step_size({self.num_updates})", self._step_size(self.num_updates)))
        with np.errstate(over="ignore", invalid="ignore"):
            weights = self._weights + step * self._direction(rows)
        if not np.isfinite(weights).all():
            raise FloatingPointError(
                f"update {self.num_updates + 1} diverged: its weights are not finite. Take a step size smaller than "
                f"{step:.3g}; `weights` still holds those of the update before"
            )
        weights.flags.writeable = False
        self._weights = weights
        self.num_updates += 1
        self._average.add(weights)

    def _direction(self, rows: Rows) -> Floats:
        """Mean over the batch of phi(x) (y - q(x))', times C_lambda if not preconditioned."""
        total, even = np.zeros_like(self._weights), 1.0 / self.support.num_atoms
        for part in rows.parts(_BLOCK_ROWS):
            masses = part.next_features @ self._weights + self._offset
            if not np.isfinite(masses).all():
                return np.full_like(total, np.nan)  # for `_step` to report; `backup` would name its own argument
            if self.normalisation == "before":
                masses = with_unit_mass(self.support, masses)
            # Where the return ends a discount of zero moves any distribution of mass one to the reward.
            masses[part.terminated] = even
            target = backup(self.support, part.rewards, part.continuation(self.discount), masses)
            if self.normalisation == "after":
                target += even - target.mean(axis=1, keepdims=True)
            total += part.features.T @ (target - (part.features @ self._weights + self._offset))
        if self.normalisation == "affine":
            # The target has the mass of the prediction, so this is zero but for rounding, which would accumulate.
            total -= total.mean(axis=1, keepdims=True)
        if self._gram is not None:
            # Once per update, on (D, K). With 64 features and 51 atoms this product takes 7 us, and two cumulative sums
            # 45 us; they break even between 200 and 300 atoms.
            total = total @ self._gram
        return total / len(rows.rewards)

    def _features(self, name: str, values: ArrayLike, *, finite: bool = True) -> Floats:
        phi = real_numbers(name, values, finite=finite)
        require_last_axis(self.num_features, "the features", **{name: phi})
        return phi

    def _batch(
        self, features: ArrayLike, rewards: ArrayLike, next_features: ArrayLike, terminated: ArrayLike | None
    ) -> Rows:
        """The transitions, checked."""
        phi = self._features("features", features)
        following = self._features("next_features", next_features, finite=False)
        if phi.ndim > 2 or phi.shape[0] == 0:
            allowed = f"(n, {self.num_features}) with n >= 1, or ({self.num_features},)"
            raise ValueError(f"features must have shape {allowed}, got {phi.shape}")
        if following.shape != phi.shape:
            raise ValueError(f"next_features must have shape {phi.shape} to go with features, got {following.shape}")
        r, ended = _outcomes(rewards, terminated, phi.shape[:-1], "features")
        if ended.any():
            following = np.where(ended[..., None], 0.0, following)  # nothing follows, so what is there does not matter
        require_finite(next_features=following)
        return Rows(np.atleast_2d(phi), np.atleast_1d(r), np.atleast_2d(following), np.atleast_1d(ended))


class _TailAverage:
    """Mean of the latest iterates, without keeping them.

    Two sums cover them. Whenever the newer one started at or before the fraction f of the iterates so far, the older
    one is dropped and a new one started. So the mean always starts between f**2 and f of them.
    """

    def __init__(self, averaging: int | float, shape: tuple[int, ...]):
        whole = isinstance(averaging, int | np.integer)
        real = isinstance(averaging, float | np.floating)
        if isinstance(averaging, bool) or not ((whole and averaging >= 0) or (real and 0 <= averaging < 1)):
            raise ValueError(f"averaging must be an integer >= 0 or a fraction in [0, 1), got {averaging!r}")
        self._fraction = 0.0 if whole else float(averaging)
        self._left_out = int(averaging) if whole else 0
        self._seen = 0
        self._older, self._older_start = np.zeros(shape), self._left_out
        self._newer, self._newer_start = np.zeros(shape), self._left_out

    def add(self, iterate: Floats) -> None:
        if self._fraction > 0 and self._newer_start <= self._fraction * self._seen:
            self._older, self._older_start = self._newer, self._newer_start
            self._newer, self._newer_start = np.zeros_like(iterate), self._seen
        self._seen += 1
        if self._seen > self._left_out:
            self._newer += iterate

    def value(self) -> Floats | None:
        count = self._seen - self._older_start
        return (self._older + self._newer) / count if count > 0 else None


def _outcomes(
    rewards: Any, terminated: Any, shape: tuple[int, ...], other: str, **more: NDArray[Any]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Rewards and whether the return ends, checked (like ``more``) to have ``shape``, that of ``other``."""
    r = real_numbers("rewards", rewards)
    ended = np.zeros(shape, dtype=np.bool_) if terminated is None else np.asarray(terminated)
    if ended.dtype != np.bool_:
        raise ValueError(f"terminated must hold booleans, got dtype {ended.dtype}")
    for name, array in {"rewards": r, "terminated": ended, **more}.items():
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape} to go with {other}, got {array.shape}")
    return r, ended
