"""The flags of `cramerl evaluate` for logs, and their words in errors of the library."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cramerl.cli.flags import integer_from, number_in, probability

COLUMNS = (
    "episode",
    "time",
    "state",
    "categorical",
    "action",
    "reward",
    "terminated",
    "truncated",
    "next_state",
    "weight",
    "propensity",
)
"""Flags that name columns, as `Log.read` calls them."""
LOG_ONLY = (
    *COLUMNS,
    "features_action",
    "start",
    "intervals",
    "bootstrap",
    "quantiles",
    "cvar",
    "regularisation",
    "seed",
    "strict",
    "ray",
)
"""Flags that concern only a log."""
WITH_RAY = ("state", "next_state", "reward", "terminated")
"""Those that --ray knows."""

# Arguments of the library that have flags of other names; the others are those of COLUMNS and their like.
_FLAGS = {
    "source": "--data",
    "path": "--data",
    "table": "--data",
    "features": "--features",
    "policy": "--policy",
    "discount": "--discount",
    "level": "--intervals",
    "resamples": "--bootstrap",
    "num_atoms": "--atoms",
    "v_min": "--v-min",
    "v_max": "--v-max",
    "keep": "--keep",
    "folder": "the folder",
}
_FLAGS |= {
    name: f"--{name.replace('_', '-')}" for name in (*COLUMNS, "features_action", "start", "regularisation", "seed")
}
_ANYWHERE = ("num_atoms", "v_min", "v_max", "next_state", "features_action")


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a log."""
    add = parser.add_argument_group("columns of a log (--data)").add_argument
    add("--episode", metavar="COLUMN", help="tells episodes apart, such as a patient or a machine")
    add("--time", metavar="COLUMN", help="orders the rows of an episode (default: they are in order)")
    add("--state", metavar="COLUMNS", help="the state: names with commas between them, and wildcards such as 'x*'")
    add("--categorical", metavar="COLUMNS", help="columns of the state that hold codes; texts are categories anyway")
    add("--reward", metavar="COLUMN", help="the reward (default: reward)")
    add(
        "--terminated",
        metavar="COLUMNS",
        help="the return ended after this row; 'died|discharged' is either of them (default: terminated, if there)",
    )
    add("--truncated", metavar="COLUMNS", help="the episode was cut after this row, but the return did not end")
    add("--action", metavar="COLUMNS", help="the action, if another policy than the log's is evaluated")
    add("--propensity", metavar="COLUMN", help="how probable the action was: adds importance sampling to compare with")
    add("--weight", metavar="COLUMN", help="how much each row counts")
    add(
        "--next-state",
        metavar="COLUMNS",
        help="the next state, in the order of --state, if the log has columns for it; then --episode is not needed",
    )
    _add_answer_flags(parser)


def _add_answer_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the answer from a log (--data)").add_argument
    fraction = number_in("in (0, 1]", lambda value: 0 < value <= 1)
    add("--intervals", type=_level, metavar="LEVEL", help="level of the intervals, or none (default: 0.95)")
    add(
        "--bootstrap",
        type=integer_from(2),
        nargs="?",
        const=200,
        metavar="N",
        help="intervals from N bootstrap samples of the episodes (200), in place of one linear solution",
    )
    add("--quantiles", type=numbers_of(probability), metavar="LEVELS", help="with commas (default: 0.05,0.5,0.95)")
    add("--cvar", type=numbers_of(fraction), metavar="FRACTIONS", help="means of the worst returns (default: 0.1,0.25)")
    add("--start", choices=("episodes", "rows"), help="average over the first states of episodes (default), or all")
    add(
        "--features-action",
        choices=("product",),
        help="features of states and actions: product, those of the state once more for each action (the default)",
    )
    rho = number_in(">= 0", lambda value: value >= 0)
    add("--regularisation", type=rho, metavar="RHO", help="(default: chosen by held-out episodes)")
    add("--seed", type=integer_from(0), help="of the held-out episodes and the bootstrap (default: 0)")
    add("--strict", action="store_true", help="exit with status 3 if the verdict is 'do not use'")
    add(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="fit on a Ray cluster (host:port of its head, or auto; without ADDRESS the one that RAY_ADDRESS names, "
        "else all cores of this machine): the distributions of single states for the policy that made the log, from "
        "--state and --next-state as they are, without intervals and verdict. Every machine must be able to read the "
        "files",
    )


def answer_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `evaluate_policy` that flags gave."""
    if options.intervals == "none" and options.bootstrap is not None:
        raise ValueError("--bootstrap makes intervals, which --intervals none leaves out: give one of the two")
    found: dict[str, Any] = {
        "features": options.features,
        "features_action": options.features_action,
        "num_atoms": options.atoms,
        "regularisation": options.regularisation,
        "start": options.start or "episodes",
        "seed": options.seed or 0,
    }
    if options.intervals == "none":
        found["intervals"] = "none"
    elif options.intervals is not None:
        found["level"] = options.intervals
    if options.bootstrap is not None:
        found |= {"intervals": "bootstrap", "resamples": options.bootstrap}
    return found


@contextmanager
def errors_name_flags() -> Iterator[None]:
    """Errors about arguments of the library as errors about the flags that a user typed."""
    try:
        yield
    except ValueError as error:
        raise ValueError(in_flags(str(error))) from error


def in_flags(text: str) -> str:
    """A text with flags in the place of arguments: at its beginning, and where they are written as ``name=``."""

    def flag(match: re.Match[str]) -> str:
        return _FLAGS.get(match[1], match[1])

    names = "|".join(_FLAGS)
    text = re.sub(rf"^({names})\b(?= must| holds| needs)", flag, text)
    text = re.sub(rf"\b({names})=(?=$|[\s;:,.)])", flag, text)
    return re.sub(rf"(?<![-\w])({'|'.join(_ANYWHERE)})\b(?!=)", flag, text)


def _level(text: str) -> float | str:
    if text == "none":
        return text
    return number_in("in (0, 1), or none", lambda value: 0 < value < 1)(text)


def numbers_of(single: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    """A type of argument: numbers that ``single`` reads, with commas between them."""

    def numbers(text: str) -> tuple[float, ...]:
        return tuple(single(part) for part in text.split(","))

    return numbers
