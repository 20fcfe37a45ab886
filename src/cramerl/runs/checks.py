"""Checks of the values of settings against their types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import numpy as np

from cramerl.runs.env_options import Options, checked_options


def checked(name: str, value: Any, hint: Any, bounds: Mapping[str, float]) -> Any:
    """The value, converted to its type; ValueError says what is allowed."""
    if hint == float | None:
        return None if value is None else _number(name, value, float, bounds)
    if hint == Options:
        return checked_options(name, value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
    elif get_origin(hint) is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{name} must be a list of numbers, got {value!r}")
        return tuple(_number(name, part, get_args(hint)[0], bounds) for part in value)
    elif hint is bool or hint is str:
        if not isinstance(value, hint):
            raise ValueError(f"{name} must be {'true or false' if hint is bool else 'text'}, got {value!r}")
        if isinstance(value, str) and not value.isprintable():
            raise ValueError(f"{name} must be text without control characters, got {value!r}")
    else:
        return _number(name, value, hint, bounds)
    return value


def _number(name: str, value: Any, hint: type, bounds: Mapping[str, float]) -> Any:
    kind = "an integer" if hint is int else "a number"
    value = value.item() if isinstance(value, np.number) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300 or hint(value) != value:
        raise ValueError(f"{name} must be {kind}, got {value!r}")
    low, high, above = (bounds.get(word) for word in ("low", "high", "above"))
    if (
        (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
    ):
        ends = [f">= {low}" if low is not None else "", f"<= {high}" if high is not None else ""]
        ends += [f"> {above}" if above is not None else ""]
        raise ValueError(f"{name} must be {kind} {' and '.join(filter(None, ends))}, got {value}")
    return hint(value)
