"""What a log of another library says about one run: points of a learning curve, in order, each step once."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl._printable import printable
from cramerl.evidence.curves import StepUnit

FILE_BYTES = 1 << 30
"""Largest file that is read."""
LARGEST_STEP = 2**53
_LARGEST_RETURN, _LARGEST_EPISODES = 1e15, 1e12  # of anything that is played; larger numbers are damage
_LONGEST_NAME = 100
_SEED = re.compile(r"(-?(?:0|[1-9][0-9]{0,14}))(?:\.0)?")  # a table that had a gap holds 1.0 for 1


class RunName(NamedTuple):
    """What distinguishes a run from the others."""

    agent: str
    env: str
    seed: int | str


class RunLog(NamedTuple):
    """One run of another library.

    Attributes:
        name: its agent, environment and seed.
        steps: (rows,) steps, increasing.
        returns: (rows,) mean return of the episodes of a row; NaN where there are none.
        episodes: (rows,) the weight of a row; 0 where it has no return.
        source: the file, or the folder of several files.
        unit: what ``steps`` count.
        remarks: sentences on how it was read.
    """

    name: RunName
    steps: NDArray[np.int64]
    returns: Floats
    episodes: Floats
    source: Path
    unit: StepUnit = "agent step"
    remarks: tuple[str, ...] = ()


class Points:
    """The points of one run while they are read, in any order."""

    def __init__(self) -> None:
        self._steps, self._returns, self._episodes = array("d"), array("d"), array("d")
        self._not_numbers = 0

    def add(self, step: Any, value: Any, episodes: Any = 1.0) -> None:
        """Add a point; ValueError says what is wrong with it."""
        given = value
        step, value, episodes = number(step), number(value), number(episodes)
        if math.isnan(value) and given is not None and str(given).strip():
            self._not_numbers += 1
        if not (0 <= step < LARGEST_STEP and step.is_integer()):
            raise ValueError(f"the step must be a whole number from 0 on, got {step:g}")
        if math.isinf(value) or abs(value) > _LARGEST_RETURN:
            raise ValueError(f"the return must be a number of at most {_LARGEST_RETURN:g}, got {value:g}")
        if not 0 <= episodes <= _LARGEST_EPISODES and not math.isnan(value):
            raise ValueError(f"the number of episodes must be from 0 to {_LARGEST_EPISODES:g}, got {episodes:g}")
        self._steps.append(step)
        self._returns.append(value)
        self._episodes.append(0.0 if math.isnan(value) else episodes)

    def log(self, name: RunName, source: Path, unit: StepUnit = "agent step", remarks: Iterable[str] = ()) -> RunLog:
        """The run. Points at one step become one, with the mean of their returns; the order of points is lost."""
        steps, returns, episodes = (np.array(each) for each in (self._steps, self._returns, self._episodes))
        # Sorted by all columns, so that sums are the same to the last digit in whichever order rows stand.
        order = np.lexsort((episodes, returns, steps))
        order = order[steps[order] > 0]  # a return at step 0 is no result of training
        steps, returns, episodes = steps[order].astype(np.int64), returns[order], episodes[order]
        if self._not_numbers:
            remarks = [*remarks, _not_numbers(name, source, self._not_numbers)]
        merged, first = np.unique(steps, return_index=True)
        if doubled := len(steps) - len(merged):
            remarks = [*remarks, _doubled(name, source, doubled)]
        if len(merged):
            known = episodes > 0
            totals = np.add.reduceat(np.where(known, episodes * np.where(known, returns, 0.0), 0.0), first)
            episodes = np.add.reduceat(episodes, first)
            returns = np.divide(totals, episodes, out=np.full(len(merged), np.nan), where=episodes > 0)
        return RunLog(name, merged, returns, episodes, source, unit, tuple(remarks))


def _not_numbers(name: RunName, source: Path, count: int) -> str:
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return (
        f"{source.name}: the return is NaN in {rows} of {name.agent} on {name.env}, seed {name.seed}, left "
        "out. If the run diverged there, its score says what it was before."
    )


def _doubled(name: RunName, source: Path, doubled: int) -> str:
    rows = "1 row has" if doubled == 1 else f"{doubled:,} rows have"
    return (
        f"{source.name}: {rows} the same step as another row of {name.agent} on {name.env}, seed {name.seed}, and they "
        "are averaged. That is right for episodes that end at one step, and wrong if two runs go by one seed."
    )


def number(value: Any) -> float:
    """A number of a table; NaN where there is none."""
    if value is None:
        return math.nan
    if isinstance(value, str) and not value.strip():
        return math.nan
    try:
        if isinstance(value, str) and ("_" in value or not value.isascii()):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{value!r:.60} is not a number") from None


def name_text(value: Any, role: str) -> str:
    """The name of an agent or a game as it is written; what a terminal would act on is spelled out."""
    text = printable(str("" if value is None else value).strip())
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    if not text:
        raise ValueError(f"the {role} is empty")
    if len(text) > _LONGEST_NAME:
        raise ValueError(f"the {role} must have at most {_LONGEST_NAME} characters, it has {len(text)}")
    return text


def seed_of(value: Any) -> int | str:
    """A seed as a number if it is written as one, and otherwise as a word: 007, 1_0 and 1e1 are three words."""
    text = name_text(value, "seed")
    return int(match[1]) if (match := _SEED.fullmatch(text)) else text
