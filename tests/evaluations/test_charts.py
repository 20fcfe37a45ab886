"""Axes, paths and dot plots."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.evaluations.charts import Axis, Row, band, dot_plot, steps
from cramerl.linear.logs.estimates import Estimate

NAN = math.nan
ends = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))


def wide_as(start: float | None, end: float | None) -> float:
    assert start is not None
    assert end is not None
    return end - start


@given(low=ends, width=st.floats(1e-3, 1e6))
def test_ticks_are_round_numbers_at_their_places(low, width):
    axis = Axis(low, low + width)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 8
    for tick in ticks:
        unit = {"k": 1e3, "M": 1e6}.get(tick.words[-1], 1.0)
        number = unit * float(tick.words.rstrip("kM").replace(",", ""))
        assert tick.at == pytest.approx(100 * (number - low) / width, abs=0.02 + 1e4 * abs(number) * 1e-12 / width)
    assert sorted(tick.at for tick in ticks) == [tick.at for tick in ticks]
    assert len({tick.words for tick in ticks}) == len(ticks)


def test_steps_hold_their_heights_until_the_next_place():
    axis, up = Axis(0.0, 10.0), Axis(0.0, 1.0)
    path = steps(axis, up, np.array([0.0, 4.0, 8.0]), np.array([0.0, 0.5, 1.0]))
    assert path == "M0.00 100.00H40.00V50.00H80.00V0.00H100"


def test_a_band_goes_there_and_back():
    axis, up = Axis(0.0, 10.0), Axis(0.0, 1.0)
    path = band(axis, up, np.array([0.0, 5.0]), np.array([0.1, 0.3]), np.array([0.2, 0.6]))
    assert path == "M0.00 80.00H50.00V40.00H100V70.00H50.00V90.00H0.00Z"


def test_a_wide_interval_goes_on_beyond_the_axis():
    own = Row("own", Estimate(1.0, 0.9, 1.1, 0.05), "1.0", main=True)
    wide = Row("wide", Estimate(1.2, -500.0, 500.0, 200.0), "1.2")
    lost = Row("lost", Estimate(math.inf, NAN, NAN, NAN), "none")
    plot = dot_plot("means", [own, wide, lost], 0.0)
    first, second, third = plot.dots
    assert first.beyond == (False, False)
    assert second.beyond == (True, True)
    assert (second.low, second.high) == (0.0, 100.0)
    assert wide_as(first.low, first.high) > 20
    assert wide_as(first.at, second.at) > 0
    assert third.at is None


def test_little_differences_are_not_magnified():
    rows = [Row(str(value), Estimate(value, NAN, NAN, NAN), "") for value in (1.0, 1.0001)]
    near, far = (dot_plot("means", rows, least).dots for least in (0.1, 0.0))
    assert wide_as(near[0].at, near[1].at) < 1
    assert wide_as(far[0].at, far[1].at) > 50


def test_equal_numbers_have_an_axis():
    plot = dot_plot("means", [Row("one", Estimate(0.0, 0.0, 0.0, 0.0), "0", main=True)], 0.0, (0.0, "zero"))
    assert plot.dots[0].at == pytest.approx(50)
    assert plot.reference.at == pytest.approx(50)
    assert all(re.fullmatch(r"-?\d+\.?\d*", tick.words) for tick in plot.across)
