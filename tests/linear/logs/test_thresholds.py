"""Limits of the numbers behind a verdict."""

import math

import pytest

from cramerl.linear.logs.thresholds import Limit


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.1, None), (0.10001, "care"), (0.5, "care"), (0.50001, "do not use"), (math.nan, None)]
)
def test_numbers_past_a_limit_speak_against_an_answer(value, verdict):
    assert Limit(0.1, 0.5).verdict(value) == verdict
    assert Limit(0.1, 0.5).verdict(20 * value, 20) == verdict
    assert Limit(-0.1, -0.5, least=True).verdict(-value) == verdict


def test_a_limit_may_have_one_side_alone():
    assert Limit(0.1, math.inf).verdict(1e9) == "care"
    assert Limit(0.1, 0.1).verdict(0.2) == "do not use"
