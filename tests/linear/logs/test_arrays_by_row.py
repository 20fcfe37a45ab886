"""Policies that are arrays with a row for each row of the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, read

from cramerl.linear import Log, evaluate_policy

PLAYED = {name: np.asarray(column) for name, column in WORLD.play(LOGGED, 100).items()}
CHOSEN = np.array([1, 0, 1])


def value(log: Log, policy: Any) -> float:
    return evaluate_policy(log, policy, features="bins:3", discount=0.9, intervals="none").mean.value


@pytest.mark.parametrize("categorical", [("x",), ()], ids=["codes", "numbers"])
def test_a_row_for_each_row_of_the_log(categorical):
    log, states = read(PLAYED, categorical=categorical), PLAYED["x"]
    assert value(log, TARGET[states]) == pytest.approx(value(log, TARGET))
    assert value(log, CHOSEN[states]) == pytest.approx(value(log, CHOSEN))
    assert value(log, CHOSEN[states].astype(float)) == pytest.approx(value(log, CHOSEN))


def test_rows_are_in_the_order_of_the_source():
    count = len(PLAYED["x"])
    order = np.random.default_rng(0).permutation(count)
    mixed = {name: column[order] for name, column in (PLAYED | {"t": np.arange(count)}).items()}
    log = read(mixed, time="t")
    assert value(log, TARGET[mixed["x"]]) == pytest.approx(value(read(PLAYED), TARGET))


def test_several_of_them_and_others():
    log, states = read(PLAYED), PLAYED["x"]
    given = {"rows": TARGET[states], "chosen": CHOSEN[states], "logged": None, "table": TARGET}
    found = evaluate_policy(log, given, discount=0.9, intervals="none")
    assert found["rows"].mean.value == pytest.approx(found["table"].mean.value)
    assert found["chosen"].mean.value == pytest.approx(value(log, CHOSEN))


def test_actions_that_the_log_never_took_are_counted():
    found = evaluate_policy(read(PLAYED), np.where(PLAYED["x"] == 1, 7, 0), discount=0.9, intervals="none")
    assert found.trust.unseen_action_share > 0.1


def test_floats_that_are_whole_are_actions():
    log = read(PLAYED)
    assert value(log, np.array([1.0, 0.0, 1.0])) == pytest.approx(value(log, CHOSEN))


def test_a_table_of_another_length_is_refused():
    log = read({name: column[:-2] for name, column in PLAYED.items()} | {"died": np.zeros(len(PLAYED["x"]) - 2, bool)})
    rows = f"policy must have a row for each state, or for each of the log's {log.num_rows} rows"
    with pytest.raises(ValueError, match=rows):
        evaluate_policy(log, np.full((log.num_transitions, 2), 0.5), discount=0.9)


def test_next_states_with_columns_need_other_policies():
    log = read(PLAYED | {"y": np.roll(PLAYED["x"], -1)}, next_state="y")
    with pytest.raises(ValueError, match="has columns of next states"):
        evaluate_policy(log, TARGET[PLAYED["x"]], discount=0.9)


def test_actions_that_are_floats_are_named():
    with pytest.raises(ValueError, match="name them with action= as integers or labels \\(a holds other numbers\\)"):
        evaluate_policy(read(PLAYED | {"a": PLAYED["a"].astype(float)}), TARGET, discount=0.9)
