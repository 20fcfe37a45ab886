"""The part of the sweep command for a search over settings: its flags, and ranges such as 1e-5..1e-3."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from cramerl._extras import require_library
from cramerl.cli.flags import integer_from
from cramerl.runs.config import parse_setting, setting_types

if TYPE_CHECKING:
    from cramerl.sweep.plan import Sweep
    from cramerl.sweep.search import Range, Search, Space

_ONLY = ("trials", "batch", "search_seed")
_TRIALS, _BATCH = 20, 4


def add_search_flags(sweep: argparse.ArgumentParser) -> None:
    """Add the flags of a search."""
    group = sweep.add_argument_group(
        "search over settings (extra optuna)",
        "Settings with several values, or with a range LOW..HIGH, are chosen by how trials before them did: the mean "
        "over seeds of the return in the last fifth of the steps. Then report with other seeds and --best-of OUT.",
    )
    add = group.add_argument
    add("--search", choices=("optuna",), help="search with Optuna instead of trying every combination")
    words = "for each agent in each environment"
    add("--trials", type=integer_from(1, 10**5), metavar="N", help=f"settings to try, {words} (default: {_TRIALS})")
    add(
        "--batch",
        type=integer_from(1, 10**4),
        metavar="N",
        help=f"trials that are asked for, and then run, together (default: {_BATCH})",
    )
    add("--search-seed", type=integer_from(0, 2**31 - 1), metavar="N", help="of the search (default: 0)")


def require_search_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored, and say what to install."""
    given = [name for name in _ONLY if getattr(options, name) is not None]
    if options.search is None and given:
        flag = f"--{given[0].replace('_', '-')}"
        raise ValueError(f"{flag} belongs to --search and would be ignored here: leave it out")
    if options.search is not None:
        require_library("optuna")
        if options.best_of is not None:
            raise ValueError("--search and --best-of must not both be given: one sweep chooses, another one reports")
        if options.allow_variants:
            raise ValueError(
                "--search and --allow-variants must not both be given: trials are told apart by what is searched"
            )


def parse_range(name: str, text: str) -> Range | None:
    """The range that a text such as ``1e-5..1e-3`` means, or None."""
    hint = setting_types()[name]
    if hint not in (int, float) or ".." not in text:
        return None
    from cramerl.sweep.search import Range

    low, _, high = text.partition("..")
    ends = [parse_setting(name, end.strip()) for end in (low, high)]
    if not ends[0] < ends[1]:
        raise ValueError(f"{name} must be a range LOW..HIGH with LOW < HIGH, got {text!r}")
    if not math.isfinite(ends[1] - ends[0]):
        raise ValueError(f"{name} must be a range whose width is a number, got {text!r}")
    return Range(*ends, whole=hint is int)


def space_of(
    options: argparse.Namespace,
    axes: dict[str, tuple[Any, ...]],
    ranges: dict[str, Range],
    texts: dict[str, str],
) -> Space:
    """What to search; nothing where no search is asked for.

    Args:
        options: of the command line.
        axes: settings with several values.
        ranges: settings with a range.
        texts: settings as they were written, by the name of one value: --learning-rates is learning_rate.
    """
    if options.search is None:
        for name in ranges:
            raise ValueError(
                f"{name} must be values with commas between, or a range for --search optuna, got {texts[name]!r}"
            )
        return {}
    space = {**axes, **ranges}
    if not space:
        raise ValueError("--search needs a range such as --learning-rate 1e-5..1e-3, or a setting with several values")
    return space


def search_of(options: argparse.Namespace, sweep: Sweep) -> Search | None:
    """The search that is asked for, as far as it has come."""
    if options.search is None:
        return None
    from cramerl.sweep.search import Search

    return Search(
        options.out,
        options.space,
        sweep,
        trials=options.trials or _TRIALS,
        batch=options.batch or _BATCH,
        seed=options.search_seed or 0,
    )


def asked_words(search: Search) -> str:
    """How far the choice of what is tried has come."""
    asked = sum(map(len, search.tried.values()))
    if not search.left:
        return f"all {asked} trials of the search are chosen"
    return f"{asked} of {asked + search.left} trials of the search are chosen; the scores of these will choose the next"


def print_best(search: Search) -> None:
    """The best settings that were found so far."""
    for (agent, env), trials in search.tried.items():
        scores = [-math.inf if score is None else score for score in search.scores((agent, env))]
        ended = sum(score > -math.inf for score in scores)
        if ended:
            best = max(range(len(scores)), key=scores.__getitem__)
            words = ", ".join(f"{name} {value}" for name, value in trials[best].items())
            print(f"best of {ended} trials of {agent} on {env}: {words}, score {scores[best]:,.2f} (trial {best})")
