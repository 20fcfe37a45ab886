"""Settings from text, as typed on a command line."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, get_args, get_origin

from cramerl.runs.config import LARGEST, setting_types
from cramerl.runs.env_options import Options, parse_options

_MOST_SEEDS = 10_000


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting from text, as typed on a command line; integers may be written 1e6, options on lines."""
    hint = setting_types()[name]
    if hint == float | None:
        return None if text.lower() == "none" else _number(name, text, float)
    if hint is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "yes", "1")
    if hint in (int, float):
        return _number(name, text, hint)
    if hint == Options:
        return parse_options(name, text)
    if get_origin(hint) is tuple:
        return tuple(_number(name, part, get_args(hint)[0]) for part in text.split(",") if part)
    return text


def parse_settings(name: str, text: str) -> list[Any]:
    """One or more values of a setting, separated by commas; seeds may be ranges such as ``0-9``."""
    if name == "seed":
        return list(parse_seeds(text))
    hint = setting_types()[name]
    if hint is str or get_origin(hint) is tuple:  # a comma belongs to the value
        return [parse_setting(name, text)]
    values = [parse_setting(name, part.strip()) for part in text.split(",")]
    for value in values:
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
    return values


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from text such as ``0-9`` or ``0,2,5-7``, in order.

    Example:
        >>> parse_seeds("5-7,0,2")
        (0, 2, 5, 6, 7)
    """
    seeds: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= LARGEST or last - first >= _MOST_SEEDS:
            raise ValueError(f"seeds must be integers from 0 to {LARGEST} such as 0-9 or 0,2,5-7, got {text!r}")
        seeds |= set(range(first, last + 1))
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"seeds must be at most {_MOST_SEEDS}, got {len(seeds)}")
    return tuple(sorted(seeds))


def _number(name: str, text: str, kind: type) -> Any:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind is int and value != int(value)):
        raise ValueError(f"{name} must be {'an integer' if kind is int else 'a number'}, got {text!r}")
    return int(value) if kind is int else value
