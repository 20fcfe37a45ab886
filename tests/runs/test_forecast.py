"""How long a run will take: what is timed, what is extrapolated, and what is said."""

import pytest

from cramerl.deep.schedule import Schedule
from cramerl.runs.forecast import Expected, Forecast, describe_forecast
from cramerl.runs.presets import preset

# A block is 4 steps and an update; learning starts at block 100.
SCHEDULE = Schedule(num_envs=4, min_replay_steps=400)
COMPILING, LOGGING, ACTING, LEARNING, UPDATES = 30.0, 7.0, 0.13, 0.5, 0.4


class TimedLoop:
    """Blocks that take a known time: the first and the first that learns compile."""

    def __init__(self, block: int = 0, updates: float | None = None):
        self.schedule, self.block, self.now, self.updates = SCHEDULE, block, 0.0, updates
        self._new = {"acting", "learning"}

    def advance(self, blocks: int) -> None:
        for _ in range(blocks):
            kind = "learning" if self.block >= SCHEDULE.first_learning_block else "acting"
            self.now += COMPILING * (kind in self._new) + (LEARNING if kind == "learning" else ACTING)
            self._new.discard(kind)
            self.block += 1

    def time_updates(self) -> float | None:
        return self.updates


def forecasts(loop, total: int, line: int):
    """What is said after each line of so many blocks."""
    forecast = Forecast(loop, total, lambda: loop.now)
    while loop.block < total:
        stop = min(loop.block + line, total)
        parts = forecast.parts(stop - loop.block)
        assert sum(parts) == stop - loop.block
        assert min(parts) > 0
        for part in parts:
            loop.advance(part)
            forecast.part_done()
        yield loop.block, forecast.expected()
        loop.now += LOGGING


def test_the_speed_is_that_of_learning_without_compilation():
    said = {block: found for block, found in forecasts(TimedLoop(), 10_000, 50) if found is not None}
    assert list(said) == [150]  # after the first line that learns, and once
    assert said[150].seconds == pytest.approx((10_000 - 150) * LEARNING)
    assert said[150].steps_per_second == pytest.approx(4 / LEARNING)


def test_updates_that_can_be_timed_beforehand_are_added():
    said = {block: found for block, found in forecasts(TimedLoop(updates=UPDATES), 10_000, 50) if found is not None}
    assert list(said) == [50]
    assert said[50].seconds == pytest.approx(50 * ACTING + 9_900 * (ACTING + UPDATES))


@pytest.mark.parametrize(
    ("start", "total", "line", "block"), [(0, 100, 20, 20), (500, 700, 50, 550), (99, 150, 1, 102)]
)
def test_runs_that_do_not_learn_or_continue(start, total, line, block):
    said = [(at, found) for at, found in forecasts(TimedLoop(start), total, line) if found is not None]
    ((at, found),) = said
    assert at == block
    assert found.seconds == pytest.approx((total - block) * (LEARNING if total > 100 else ACTING))


def test_nothing_is_said_of_an_instant():
    assert [found for _, found in forecasts(TimedLoop(), 5, 1)] == [None] * 5
    assert [found for _, found in forecasts(TimedLoop(), 60, 30)] == [None] * 2  # four seconds are left


def test_a_long_run_comes_with_something_shorter():
    hour = Expected(3000.0, 5.0)
    atari, small = preset(None, "s51", "breakout"), preset(None, "s51", "Breakout-MinAtar")
    assert describe_forecast(hour, small, "cpu") == (
        "this will take about 50 min on this CPU (5 steps/s while learning)"
    )
    month = Expected(30 * 86400.0, 20.0)
    assert describe_forecast(month, atari, "cpu") == (
        "this will take about 30.0 days on this CPU (20 steps/s while learning); Breakout-MinAtar is a small game of "
        "the same name"
    )
    assert describe_forecast(month, small, "cpu").endswith("; --steps 70000 takes about an hour")
    assert "small game" not in describe_forecast(month, atari, "gpu")
    assert describe_forecast(month, preset(None, "s51", "qbert"), "cpu").endswith("a GPU is hundreds of times faster")
