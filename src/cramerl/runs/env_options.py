"""Arguments of an environment as a setting: what may be given, from texts and to text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Options = tuple[tuple[str, bool | int | float | str | None], ...]
"""Arguments by name, in the order of the names."""
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def checked_options(name: str, value: Any) -> Options:
    """Arguments from a mapping or from pairs, in the order of their names; ValueError says what is allowed."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (tuple, list)) or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs):
        raise ValueError(f"{name} must be arguments by name, got {value!r}")
    found: dict[str, Any] = {}
    for key, given in pairs:
        one = given.item() if isinstance(given, np.generic) else given
        if not isinstance(key, str) or not key.isidentifier() or key in found:
            raise ValueError(f"{name} must have different names of arguments, got {key!r}")
        if not (one is None or isinstance(one, (bool, int, float, str))) or one in (math.inf, -math.inf) or one != one:
            raise ValueError(f"{name} must have numbers, true, false, null or text as values, got {key}={given!r}")
        found[key] = one
    return tuple(sorted(found.items()))


def parse_options(name: str, text: str) -> Options:
    r"""Arguments from lines of KEY=VALUE, where a value is JSON (or Python's True, False and None) or else text.

    Example:
        >>> parse_options("env_options", "map_name=8x8\nis_slippery=false")
        (('is_slippery', False), ('map_name', '8x8'))
    """
    return checked_options(name, [_parse_option(name, line) for line in text.split("\n")])


def options_text(options: Options) -> str:
    """Options as they are written on a command line, separated by spaces.

    Example:
        >>> options_text((("gravity", -5), ("is_slippery", False)))
        'gravity=-5 is_slippery=false'
    """
    return " ".join(f"{key}={_value_text(value)}" for key, value in options)


def _value_text(value: Any) -> str:
    """JSON, or the text itself if it is not taken for anything else."""
    return value if isinstance(value, str) and _parse_value(value) is value else json.dumps(value)


def _parse_option(name: str, pair: str) -> tuple[str, Any]:
    key, equals, text = pair.partition("=")
    if not equals:
        raise ValueError(f"{name} must be KEY=VALUE, got {pair!r}")
    return key, _parse_value(text)


def _parse_value(text: str) -> Any:
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
