"""Whether predicted distributions say as often as they should that a return lies where it was seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cramerl._arrays import Floats
from cramerl._checks import require_finite, require_last_axis
from cramerl.supports import Support

_LEVELS = (0.5, 0.8, 0.9, 0.95)


class Calibration(NamedTuple):
    """How predicted distributions compare with the returns that were seen."""

    pit: Floats
    """(m,) probability integral transforms: uniform on [0, 1] if the distributions are right."""
    statistic: float
    """Largest distance of the transforms of first rows from the uniform distribution (Kolmogorov-Smirnov)."""
    p_value: float
    coverage: dict[float, float]
    """Of central intervals by level: the share of returns inside."""
    firsts: Floats
    """(E,) the transforms of the first rows of episodes, which the test is about."""

    @classmethod
    def of(cls, support: Support, probs: Floats, returns: Floats, groups: NDArray[Any], seed: int = 0) -> Calibration:
        """That of distributions (m, K) for returns (m,) of rows, ordered in time, whose groups (m,) are episodes."""
        pit = pit_values(support, probs, returns, seed)
        inside = {level: float((np.abs(pit - 0.5) <= level / 2).mean()) for level in _LEVELS}
        return cls(pit, *uniformity(pit, groups), inside, first_of_each(pit, groups))


def pit_values(support: Support, probs: Floats, returns: Floats, seed: int = 0) -> Floats:
    r"""(m,) probability integral transforms of returns: F(g), made uniform where F jumps.

    The mass of an atom stands for the returns around it, each of which `project` splits between its two neighbours. So
    each return moves to one of its two neighbouring atoms at random, with the shares of that split as probabilities,
    and then to a uniform place in the jump of F there. If the masses are those of the true distribution, projected, the
    transforms are exactly uniform, whether returns lie on atoms, between them, or at a few values such as 0 alone.

    Args:
        support: K atoms.
        probs: (m, K) proper distributions.
        returns: (m,) realised returns; those beyond the support count for its ends.
        seed: of the random choices.
    """
    _require_distributions(support, probs, returns)
    atoms = support.atoms
    inside = np.clip(returns, atoms[0], atoms[-1])
    cell = np.clip(np.searchsorted(atoms, inside, side="right") - 1, 0, len(atoms) - 2)
    above = (inside - atoms[cell]) / support.spacings[cell]
    generator = np.random.default_rng(seed)
    atom = cell + (generator.random(len(inside)) < above)
    upper = np.clip(np.cumsum(probs, axis=1), 0.0, 1.0)[np.arange(len(inside)), atom]
    mass = np.maximum(probs[np.arange(len(inside)), atom], 0.0)
    return np.maximum(upper - mass * generator.random(len(inside)), 0.0)


def uniformity(pit: Floats, groups: NDArray[Any]) -> tuple[float, float]:
    """Kolmogorov-Smirnov statistic and p-value of the first row of each group; NaN without rows.

    The rows of an episode share its rewards, so only one of each is used. It is the first: rows chosen by chance would
    come from short episodes too often, whose returns are not those that are predicted.
    """
    if np.shape(pit) != np.shape(groups):
        raise ValueError(f"groups must have one value for each of pit, shape {np.shape(pit)}, got {np.shape(groups)}")
    if not len(pit):
        return float("nan"), float("nan")
    found = stats.kstest(first_of_each(pit, groups), "uniform")
    return float(found.statistic), float(found.pvalue)


def first_of_each(values: Floats, groups: NDArray[Any]) -> Floats:
    """(E,) the first value of each group."""
    return values[np.unique(groups, return_index=True)[1]]


def _require_distributions(support: Support, probs: Floats, returns: Floats) -> None:
    require_last_axis(support.num_atoms, "the atoms of the support", probs=probs)
    if np.ndim(returns) != 1 or np.shape(probs)[:-1] != np.shape(returns):
        allowed = "one distribution (m, K) for each of the returns (m,)"
        raise ValueError(f"probs must hold {allowed}, got shapes {np.shape(probs)} and {np.shape(returns)}")
    require_finite(probs=probs, returns=returns)
    if len(probs) and ((low := probs.min()) < -1e-9 or np.abs(probs.sum(axis=1) - 1.0).max() > 1e-6):
        raise ValueError(
            f"probs must be distributions: masses >= 0 of total 1, got a smallest mass of {low:g} "
            f"and totals from {probs.sum(axis=1).min():g} to {probs.sum(axis=1).max():g}"
        )
