"""Numbers are rounded to what their intervals allow."""

import math

import numpy as np
import pytest

from cramerl.evaluations.numerals import interval_of, percent_estimate, plain, value_of
from cramerl.linear.logs.estimates import Estimate

NAN = math.nan


@pytest.mark.parametrize(
    ("estimate", "value", "interval"),
    [
        (Estimate(0.78345, 0.7612, 0.80561, 0.01), "0.783", "0.761 to 0.806"),
        (Estimate(37404.3, 9095.2, 65713.4, 1.0), "37,404", "9,095 to 65,713"),
        (Estimate(1.5, 0.0, 30.0, 1.0), "2", "0 to 30"),
        (Estimate(-0.0001, -2.0, 2.0, 1.0), "0.0", "-2.0 to 2.0"),
        (Estimate(-1.47e-18, -1.1e-16, 1.1e-16, 1e-17), "0", "0 to 0"),
        (Estimate(3.14159, NAN, NAN, NAN), "3.14", ""),
        (Estimate(2.5e9, NAN, NAN, NAN), "2.5e+09", ""),
    ],
)
def test_estimates(estimate, value, interval):
    assert value_of(estimate) == value
    assert interval_of(estimate) == interval


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1,234"), (0.012345, "0.0123"), (3.6e-7, "3.6e-07"), (np.inf, "inf"), (NAN, "not known")],
)
def test_plain_numbers(value, text):
    assert plain(value) == text


def test_probabilities():
    assert percent_estimate(Estimate(0.4321, 0.4, 0.5, 0.1)) == "43.2% (40.0% to 50.0%)"
    assert percent_estimate(Estimate(0.4321, NAN, NAN, NAN)) == "43.2%"
