"""How long a run will take, as soon as that can be known.

The speed of a loop before it learns says little about its speed afterwards, and the first block of either kind compiles
programs. So blocks are timed from the second one on, apart for acting and learning. Where learning starts late (Atari),
the updates are timed beforehand, on the side.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax

from cramerl.deep.envs.names import env_family, sibling
from cramerl.deep.loop import Loop
from cramerl.runs.config import TrainConfig
from cramerl.runs.progress import duration

_LONG = 3600.0
_ENOUGH = 0.5  # seconds that are timed before anything is known
_SHORT = 10.0  # of what takes fewer seconds nothing is said


class Expected(NamedTuple):
    """Seconds that the rest of a run takes, and agent steps per second while it learns."""

    seconds: float
    steps_per_second: float


class Forecast:
    """Times the blocks of a loop until it can say how long the rest will take.

    Args:
        loop: the loop, before its first block of this session.
        total_blocks: blocks of the whole run.
        clock: seconds.
    """

    def __init__(self, loop: Loop, total_blocks: int, clock: Callable[[], float] = time.perf_counter):
        self._loop, self._total, self._clock = loop, total_blocks, clock
        self._learns_from = loop.schedule.first_learning_block
        self._compiling = {loop.block, max(loop.block, self._learns_from)}
        self._mark = clock(), loop.block
        self._seconds, self._blocks, self._learning = 0.0, 0, False  # timed so far, and whether these blocks learned
        self._known = False

    def parts(self, num_blocks: int) -> list[int]:
        """Cut the next blocks before and after one that compiles. What is computed does not depend on the cuts."""
        start, stop = self._loop.block, self._loop.block + num_blocks
        cuts = {cut for block in self._compiling for cut in (block, block + 1) if start < cut < stop}
        places = sorted({start, stop, *cuts})
        self._mark = self._clock(), start
        return [b - a for a, b in itertools.pairwise(places)]

    def part_done(self) -> None:
        """Take note that a part of `parts` has run."""
        if self._loop.block - 1 in self._compiling:
            self._mark = self._clock(), self._loop.block
            self._seconds, self._blocks, self._learning = 0.0, 0, self._loop.block > self._learns_from

    def expected(self) -> Expected | None:
        """What is expected of the rest, once: None before it is known and afterwards, and if little is left.

        Call it when the parts are done and the device is idle, before anything else takes time.
        """
        if self._known:
            return None
        block, schedule = self._loop.block, self._loop.schedule
        if block - 1 not in self._compiling:
            self._seconds += self._clock() - self._mark[0]
            self._blocks += block - self._mark[1]
        if not self._blocks or self._seconds < _ENOUGH:
            return None
        per_block = self._seconds / self._blocks
        filling = max(0, min(self._learns_from, self._total) - block)
        learning, seconds = self._total - block - filling, filling * per_block
        if learning and not self._learning:
            updates = self._loop.time_updates()
            if updates is None:
                return None  # it will be known when learning has started
            # A CPU's cores do both; an accelerator learns while the environments are stepped.
            per_block = per_block + updates if jax.default_backend() == "cpu" else max(per_block, updates)
        self._known = True
        seconds += learning * per_block
        return Expected(seconds, schedule.steps_per_block / max(per_block, 1e-9)) if seconds >= _SHORT else None


def describe_forecast(expected: Expected, config: TrainConfig, device: Literal["cpu"] | str) -> str:
    """What to say about the duration of a run; of a long one also what is shorter."""
    seconds, speed = expected
    text = f"this will take about {duration(seconds)} on this {device.upper()} ({speed:,.0f} steps/s while learning)"
    if seconds <= _LONG:
        return text
    steps = int(float(f"{_LONG * speed:.0e}"))
    if steps >= 4 * config.min_replay_steps:
        text += f"; --steps {steps} takes about an hour"
    if env_family(config.env) == "atari" and device == "cpu":
        small = sibling(config.env)
        text += f"; {small} is a small game of the same name" if small else "; a GPU is hundreds of times faster"
    return text
