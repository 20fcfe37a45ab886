"""Checks of arguments, each with the sentence that a caller reads when it fails.

Shapes are always checked. Values are checked when they can be read (see ``_arrays.host_values``): inside ``jax.jit``
or on an accelerator a bad value passes through and shows in the result; it is never repaired.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from cramerl._arrays import Array, as_floats, expand, host_values, is_array, is_compiling
from cramerl.supports import Support, require_support


def require_finite(**arrays: Array) -> None:
    """Raise ValueError if an array holds NaN or infinity."""
    for name, array in arrays.items():
        values = host_values(array)
        if values is None:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.sum(values)  # is finite where all values are, unless it overflows: then every one is checked
        if not np.isfinite(total) and not (finite := np.isfinite(values)).all():
            raise ValueError(f"{name} must be finite, got {values[~finite].flat[0]}")


def require_in_unit_interval(**arrays: Array) -> None:
    """Raise ValueError if an array has a value outside [0, 1] (NaN included)."""
    for name, array in arrays.items():
        values = host_values(array)
        if values is not None and not (inside := (values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must lie in [0, 1], got {values[~inside].flat[0]}")


def require_representable(xp: Any, support: Support, like: Array) -> None:
    """Raise ValueError if the support's atoms coincide, or overflow, in the dtype of ``like``."""
    require_support(support)
    if is_compiling(like):  # even a dtype's limits are symbols there
        return
    limits, largest = xp.finfo(like.dtype), max(abs(support.v_min), abs(support.v_max))
    least = max(2 * float(limits.eps) * largest, float(limits.smallest_normal))
    if support.smallest_spacing < least or largest > float(limits.max):
        raise ValueError(f"support must have atoms that differ in {like.dtype}, got {support!r}")


def require_last_axis(size: int, what: str, **arrays: Array) -> None:
    """Raise ValueError if an array's last axis is not ``size`` long; ``what`` describes the axis."""
    for name, array in arrays.items():
        if array.ndim == 0 or array.shape[-1] != size:
            raise ValueError(f"{name} must have a last axis of {size} ({what}), got shape {tuple(array.shape)}")


def require_same_last_axis(first: str, a: Array, second: str, b: Array) -> None:
    """Raise ValueError unless two arrays have a last axis of the same length, one at least."""
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-1] or a.shape[-1] == 0:
        shapes = f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{first} and {second} must have last axes of equal length, one at least, got {shapes}")


def broadcast(xp: Any, numbers: tuple[str, ...] = (), **arrays: Array) -> list[Array]:
    """The arrays with common leading axes, or ValueError naming the shapes that do not broadcast.

    Leading axes are all but the last; all axes of the arrays that are named in ``numbers``.
    """
    leading = {name: tuple(a.shape if name in numbers else a.shape[:-1]) for name, a in arrays.items()}
    try:
        common, *others = leading.values()
        if others.count(common) < len(others):  # the usual case is kept cheap
            common = np.broadcast_shapes(common, *others)
    except ValueError:
        given = ", ".join(f"{shape} of {name}" for name, shape in leading.items())
        raise ValueError(f"leading axes must broadcast together, got {given}") from None
    return [expand(xp, a, (*common, *a.shape[len(leading[name]) :])) for name, a in arrays.items()]


def on_support(support: Any, numbers: tuple[str, ...] = (), **arrays: Array) -> tuple[Any, ...]:
    """Masses on a support, in one library and with common leading axes: ``xp, first, second, ...``.

    ValueError unless they are finite masses on a support whose atoms differ in their dtype. Arrays that are named in
    ``numbers`` are no masses: they have no axis of atoms.
    """
    require_support(support)
    xp, *values = as_floats(**arrays)
    arrays = dict(zip(arrays, values, strict=True))
    masses = {name: array for name, array in arrays.items() if name not in numbers}
    require_last_axis(support.num_atoms, "the atoms of the support", **masses)
    require_finite(**masses)
    require_representable(xp, support, values[0])
    return xp, *broadcast(xp, numbers, **arrays)


def require_penalty(mass_penalty: Any, *, zero_allowed: bool = True) -> Any:
    """A mass penalty, if it is a finite number that is not negative (or, on request, positive)."""
    return require_scale("mass_penalty", mass_penalty, zero_allowed=zero_allowed)


def require_scale(name: str, value: Any, *, zero_allowed: bool = False) -> Any:
    """A width, weight or threshold, if it is finite and positive (or, on request, zero).

    Python and NumPy numbers become a plain float, which does not widen the dtype of the result. An array of another
    library is returned as it is, because it may be traced.
    """
    allowed = "a finite number >= 0" if zero_allowed else "a finite number > 0"
    if type(value) in (int, float):  # apart from the rest, which torch.compile cannot trace
        try:
            number = float(value)
        except OverflowError:  # of an integer
            number = math.inf
    else:
        known = value
        if is_array(value) and not isinstance(value, np.generic) and (known := host_values(value)) is None:
            return value
        try:
            plain = np.asarray(known)
        except (TypeError, ValueError):  # a ragged list, or what only its library can read
            plain = np.asarray(None)
        if plain.ndim != 0 or plain.dtype.kind not in "iuf":
            raise ValueError(f"{name} must be {allowed}, got {value!r}")
        number = float(plain)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero_allowed):
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number if isinstance(value, (int, float, np.generic, np.ndarray)) else value


def require_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """The value as a float, if it is a finite real number in [low, high]; truth values are no numbers here."""
    number = math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        with suppress(OverflowError):  # of an integer
            number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        within = f" in [{low:g}, {high:g}]" if math.isfinite(high) else f" >= {low:g}" if math.isfinite(low) else ""
        raise ValueError(f"{name} must be a finite number{within}, got {value!r}")
    return number


def require_count(name: str, value: Any, least: int = 1, most: int = 2**31 - 1) -> int:
    """The value as an int, if it is an integer from ``least`` to ``most``; truth values are not integers here."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        end = f" and <= {most}" if whole and value > most else ""
        raise ValueError(f"{name} must be an integer >= {least}{end}, got {value!r}")
    return int(value)


def require_seed(seed: Any) -> int:
    """The seed of a random generator, if it is an integer >= 0."""
    return require_count("seed", seed, least=0, most=2**63 - 1)


def require_discount(discount: Any) -> float:
    """The discount as a float, if it is a number in [0, 1)."""
    if isinstance(discount, bool) or not isinstance(discount, int | float | np.number) or not 0 <= discount < 1:
        raise ValueError(f"discount must lie in [0, 1), got {discount!r}")
    return float(discount)


def require_log_discount(discount: Any) -> float:
    """The discount as a float, if it is a number in [0, 1]: in a log that ends its returns it may be one."""
    if isinstance(discount, bool) or not isinstance(discount, int | float | np.number) or not 0 <= discount <= 1:
        raise ValueError(f"discount must lie in [0, 1], got {discount!r}")
    return float(discount)


def require_tolerance(tol: Any) -> float:
    """The tolerance as a float, if it is a number in (0, 1)."""
    if isinstance(tol, bool) or not isinstance(tol, int | float | np.number) or not 0 < tol < 1:
        raise ValueError(f"tol must lie in (0, 1), got {tol!r}")
    return float(tol)


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
