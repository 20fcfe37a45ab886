"""Answers with intervals: a return distribution that was estimated, and what can be read off it."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from cramerl import _svg
from cramerl._arrays import Floats
from cramerl.linear.logs.influence import HeightInfluence
from cramerl.measures import cvar, mean, nearest_distribution, quantile, with_unit_mass
from cramerl.supports import Support


class Estimate(NamedTuple):
    """A number, the ends of its interval, and its standard error (NaN where there are no intervals)."""

    value: float
    low: float
    high: float
    se: float

    def __str__(self) -> str:
        """The number with its interval."""
        if np.isnan(self.low):
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


class ReturnDistribution:
    """An estimated distribution of the return; all figures are read off one proper distribution, ``probs``.

    Attributes:
        support: K atoms.
        masses: (K,) signed masses, as they were fitted.
        probs: (K,) probabilities: the nearest proper distribution.
        level: of the intervals.
        influence: how the log's episodes move the heights of the CDF; None without intervals.
        on_atoms: whether returns lie on the atoms. If not, a height of the CDF is the mean of its gap between two
            atoms, and intervals of the CDF and of quantiles also hold what a straight line through the gap gives.
    """

    def __init__(
        self,
        support: Support,
        masses: Floats,
        level: float,
        influence: HeightInfluence | None,
        on_atoms: bool = True,
    ):
        self.support, self.masses, self.level, self.influence = support, masses, level, influence
        self.on_atoms = on_atoms
        self.probs: Floats = nearest_distribution(support, masses)
        self._slopes = None if influence is None else _slopes(support, masses)

    @property
    def mean(self) -> Estimate:
        """The mean return."""
        value, gradient = float(mean(self.support, self.probs)), self.gradient("mean", None)
        return self._estimate(value, gradient, self.support.v_min, self.support.v_max)

    @property
    def heights(self) -> Floats:
        """(K - 1,) the CDF at every atom but the last."""
        return np.cumsum(self.probs)[:-1]

    def cdf(self, z: float) -> Estimate:
        """The probability of a return of z or less."""
        return self._height("cdf", z)

    def below(self, z: float) -> Estimate:
        """The probability of a return less than z."""
        return self._height("below", z)

    def quantile(self, level: float) -> Estimate:
        """The smallest atom whose CDF reaches the level; its interval inverts the band around the CDF."""
        level = _fraction("level", level)
        value = float(quantile(self.support, self.probs, level))
        if self._slopes is None:
            return Estimate(value, np.nan, np.nan, np.nan)
        low, high = self.band()
        ends = [self._first_reaching(side, level) for side in (high, low)]
        at = max(0, min(len(low) - 1, int(np.searchsorted(self.support.atoms, value))))
        return Estimate(value, min(ends[0], value), max(ends[1], value), self._error_of_quantile(at))

    def cvar(self, level: float) -> Estimate:
        """The mean of the worst fraction ``level`` of returns."""
        level = _fraction("level", level)
        if level == 0:
            raise ValueError("level must be above 0 for CVaR, got 0")
        value, gradient = float(cvar(self.support, self.probs, level)), self.gradient("cvar", level)
        return self._estimate(value, gradient, self.support.v_min, self.support.v_max)

    def band(self) -> tuple[Floats, Floats]:
        """Lower and upper ends (K - 1,) of the pointwise intervals of the CDF at every atom but the last."""
        margin = self._quantile_of_t() * self._errors() + self.rises()
        return np.clip(self.heights - margin, 0.0, 1.0), np.clip(self.heights + margin, 0.0, 1.0)

    def moved(self, gradient: Floats) -> Floats | None:
        """(E,) what each episode adds to the error of a function of the heights with this gradient."""
        if self.influence is None or self.influence.influences is None or self._slopes is None:
            return None
        return self.influence.influences @ (self._slopes.T @ gradient)

    def gradient(self, name: str, at: float | None) -> Floats:
        """Gradient, in the heights, of "mean", "cvar", "cdf" or "below"."""
        heights, spacings = self.heights, self.support.spacings
        if name == "mean":
            return -spacings
        if at is None or name not in ("cvar", "cdf", "below"):
            raise ValueError(f"what must be 'mean', or 'cvar', 'cdf' or 'below' with a number, got {name!r}, {at!r}")
        if name == "cvar":  # the quantile less the area under the CDF below it, divided by the level
            return -spacings * (heights < at) / at
        return (np.arange(len(heights)) == self._place(name, at)).astype(np.float64)

    def __repr__(self) -> str:
        return f"ReturnDistribution(mean {self.mean}, 5% {self.quantile(0.05)}, 95% {self.quantile(0.95)})"

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>{_svg.bars(self.support.atoms, self.probs)}"

    def rises(self) -> Floats:
        """(K - 1,) how far the CDF may be from its mean over each gap between atoms, at the ends of the gap.

        That is what a straight line through the gap rises by on each side of the middle, with the harmonic mean of the
        slopes to both neighbours, so that a jump beside it counts little. It is 0 if returns lie on the atoms.
        """
        widths = self.support.spacings
        if self.on_atoms:
            return np.zeros(len(widths))
        wide = np.concatenate([widths[:1], widths, widths[-1:]])
        slopes = np.diff(np.concatenate([[0.0], self.heights, [1.0]])) / (0.5 * (wide[:-1] + wide[1:]))
        left, right = np.maximum(slopes[:-1], 0.0), np.maximum(slopes[1:], 0.0)
        total = left + right
        return widths * np.divide(left * right, total, out=np.zeros(len(total)), where=total > 0)

    def rise(self, name: str, at: float | None) -> float:
        """That of the gap that "cdf" or "below" is read from; 0 of "mean" and "cvar", which know means over gaps."""
        if at is None or name not in ("cdf", "below"):
            return 0.0
        place = self._place(name, at)
        return float(self.rises()[place]) if 0 <= place < len(self.support.spacings) else 0.0

    def _place(self, name: str, z: float) -> int:
        """The gap whose height is the CDF at z, or just below it; -1 below all atoms."""
        side = "right" if name == "cdf" else "left"
        return int(np.searchsorted(self.support.atoms, _number("z", z), side=side)) - 1

    def _height(self, name: str, z: float) -> Estimate:
        place = self._place(name, z)
        if place < 0 or place >= len(self.support.spacings):
            certain = float(place >= 0)
            return Estimate(certain, certain, certain, 0.0)
        gradient = (np.arange(len(self.support.spacings)) == place).astype(np.float64)
        value, low, high, se = self._estimate(float(self.heights[place]), gradient, 0.0, 1.0)
        low, high = np.clip([low - self.rise(name, z), high + self.rise(name, z)], 0.0, 1.0).tolist()
        return Estimate(value, low, high, se)

    def _estimate(self, value: float, gradient: Floats, least: float, most: float) -> Estimate:
        if self._slopes is None or self.influence is None:
            return Estimate(value, np.nan, np.nan, np.nan)
        turned = self._slopes.T @ gradient
        se = float(np.sqrt(max(0.0, turned @ self.influence.covariance @ turned)))
        margin = self._quantile_of_t() * se
        return Estimate(value, max(least, value - margin), min(most, value + margin), se)

    def _errors(self) -> Floats:
        """(K - 1,) standard errors of the heights."""
        if self._slopes is None or self.influence is None:
            return np.full(len(self.support.spacings), np.nan)
        return np.sqrt(np.maximum(0.0, np.diag(self._slopes @ self.influence.covariance @ self._slopes.T)))

    def _error_of_quantile(self, place: int) -> float:
        """Standard error of the height, divided by the density there."""
        width = self.support.atoms[min(place + 1, len(self.probs) - 1)] - self.support.atoms[max(place - 1, 0)]
        inside = float(self.probs[max(place - 1, 0) : place + 2].sum())
        return float(self._errors()[place] * width / inside) if inside > 0 else np.nan

    def _first_reaching(self, heights: Floats, level: float) -> float:
        return float(self.support.atoms[int(np.searchsorted(np.append(heights, 1.0), level))])

    def _quantile_of_t(self) -> float:
        if self.influence is None:
            return np.nan
        return float(stdtrit(max(1, self.influence.num_episodes - 1), 0.5 + 0.5 * self.level))


def _slopes(support: Support, masses: Floats) -> Floats:
    """(K - 1, K - 1) derivative of the proper heights in the signed ones.

    The nearest distribution replaces heights that fall by their mean, weighted by the spacings, and cuts to [0, 1].
    """
    from scipy.optimize import isotonic_regression  # slow to import

    target = np.cumsum(with_unit_mass(support, masses))[:-1]
    weights = support.spacings
    fitted = isotonic_regression(target, weights=weights)
    slopes = np.zeros((len(target), len(target)))
    for start, stop in zip(fitted.blocks[:-1], fitted.blocks[1:], strict=True):
        if -1e-12 <= fitted.x[start] <= 1 + 1e-12:
            slopes[start:stop, start:stop] = weights[start:stop] / weights[start:stop].sum()
    return slopes


def _fraction(name: str, value: float) -> float:
    if not 0 <= _number(name, value) <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    return float(value)


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)
