"""The atoms of a return distribution. The only place where atoms are validated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cramerl._arrays import Floats, host_reals

_MOST_ATOMS = 10**8


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Support:
    r"""Atoms :math:`z_1 < \dots < z_K` (K >= 2), at any spacing.

    Immutable and hashable: pass it to a jitted JAX function as a static argument. Atoms are kept in float64 on the
    host; each function converts them to the library, dtype and device of its masses.

    Example:
        >>> Support.uniform(-1, 1, 5).atoms
        array([-1. , -0.5,  0. ,  0.5,  1. ])

    Attributes:
        atoms: (K,) float64, read-only.
        spacings: (K - 1,) float64, the distances :math:`z_{i+1} - z_i`, read-only.
        is_uniform: whether the atoms are evenly spaced to rounding in float64 (a float32 linspace is not). Closed forms
            and O(1) look-ups need it.
        smallest_spacing: least distance between neighbours.
    """

    atoms: Floats
    spacings: Floats
    is_uniform: bool
    smallest_spacing: float

    def __init__(self, atoms: Sequence[float] | Any):
        values = host_reals("atoms", atoms) + 0.0  # + 0.0 turns -0.0 into 0.0: equal atoms, equal bytes
        if values.ndim != 1 or values.size < 2:
            raise ValueError(f"atoms must be one-dimensional with at least 2 values, got shape {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"atoms must be finite, got {values[~np.isfinite(values)][0]}")
        with np.errstate(over="ignore"):
            spacings, width = np.diff(values), values[-1] - values[0]
        if not np.isfinite(width):
            raise ValueError(f"atoms must span a finite width, got {values[0]} to {values[-1]}")
        if not (spacings > 0).all():
            i = int(np.argmax(spacings <= 0))
            raise ValueError(f"atoms must be strictly increasing, got {values[i]} followed by {values[i + 1]}")
        even = np.linspace(values[0], values[-1], values.size)
        tolerance = 8 * np.finfo(np.float64).eps * np.abs(values).max()
        # A few ulps of the largest atom may be far more than a small spacing, so evenness is measured by both.
        uniform = bool(np.all(np.abs(values - even) <= min(tolerance, 1e-6 * spacings.min())))
        for array in (values, spacings):
            array.flags.writeable = False
        object.__setattr__(self, "atoms", values)
        object.__setattr__(self, "spacings", spacings)
        object.__setattr__(self, "is_uniform", uniform)
        object.__setattr__(self, "smallest_spacing", float(spacings.min()))

    @classmethod
    def uniform(cls, v_min: float, v_max: float, num_atoms: int) -> Self:
        """``num_atoms`` evenly spaced atoms from ``v_min`` to ``v_max``, both included."""
        if isinstance(num_atoms, bool) or not isinstance(num_atoms, (int, np.integer)) or num_atoms < 2:
            raise ValueError(f"num_atoms must be an integer >= 2, got {num_atoms!r}")
        if num_atoms > _MOST_ATOMS:
            raise ValueError(f"num_atoms must be at most {_MOST_ATOMS:,}, got {num_atoms:,}")
        low, high = _finite("v_min", v_min), _finite("v_max", v_max)
        if math.isinf(high - low):
            raise ValueError(f"v_max - v_min must be finite, got v_min={low} and v_max={high}")
        if not low < high:
            raise ValueError(f"v_min must be less than v_max, got v_min={low} and v_max={high}")
        return cls(np.linspace(low, high, int(num_atoms)))

    @property
    def num_atoms(self) -> int:
        """Number of atoms, K."""
        return self.atoms.size

    @property
    def v_min(self) -> float:
        """Smallest atom."""
        return float(self.atoms[0])

    @property
    def v_max(self) -> float:
        """Largest atom."""
        return float(self.atoms[-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Support) and np.array_equal(self.atoms, other.atoms)

    def __hash__(self) -> int:
        return hash(self.atoms.tobytes())

    def __repr__(self) -> str:
        if self.is_uniform and self.num_atoms > 2:
            return f"Support.uniform({self.v_min}, {self.v_max}, {self.num_atoms})"
        return f"Support({self.atoms.tolist()})"

    def __reduce__(self) -> tuple[type[Self], tuple[list[float]]]:
        return type(self), (self.atoms.tolist(),)


def require_support(support: Any) -> Support:
    """The support, if it is one: every function that takes a support begins with this."""
    if not isinstance(support, Support):
        raise ValueError(f"support must be a Support, got {support!r}")
    return support


def _finite(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (bool, np.bool_, str, np.complexfloating)) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return number
