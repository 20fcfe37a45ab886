"""The score of a run, from the rows of its log."""

import math

import pytest
from study_runs import read_rows, row, write_run

from cramerl.evidence.curves import final_score, read_curves
from cramerl.runs.scores import in_tail, tail_in_words, tail_score


def test_the_tail_is_the_last_fifth_of_the_steps():
    assert in_tail([1, 800, 801, 1000, 1001], 1000).tolist() == [False, False, True, True, False]
    assert in_tail([1, 500], 1000, 1.0).tolist() == [True, True]
    # 0.9 * 310 is a little less than 279 in floating point.
    assert not in_tail(279, 310, 0.1)
    with pytest.raises(ValueError, match=r"tail must be in \(0, 1\], got 0"):
        in_tail([1], 1, 0)


def test_episodes_weigh_the_same_and_rows_without_any_do_not_count():
    rows = [row(800, 100.0), row(900, 4.0, 1), row(950, 7.0, 2), row(1000)]
    assert tail_score(rows) == (6.0, 3)
    assert tail_score(rows[:1] + rows[3:]).episodes == 0
    assert math.isnan(tail_score([]).mean)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((200, 400, 600, 800, 1000), "the last fifth of the steps"),
        ((795, 995), "the last fifth of the steps"),  # blocks are whole
        ((1000,), "all steps"),
        ((300, 600, 900, 1000), "the steps after 600"),
        ((), "the last fifth of the steps"),
    ],
)
def test_the_steps_that_are_scored_in_words(steps, words):
    """Lines of evaluations stand for no steps."""
    rows = [row(step, 1.0, 1) for step in steps]
    assert tail_in_words([*rows, *({"step": step - 1, "eval/episodic_return": 1.0} for step in steps)]) == words


def test_it_is_the_score_of_a_report(tmp_path):
    run = write_run(tmp_path / "run")
    assert tail_score(read_rows(run)).mean == pytest.approx(final_score(read_curves([run])[0]))
