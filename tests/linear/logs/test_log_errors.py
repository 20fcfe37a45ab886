"""What is wrong with a log is named: the argument, the column, the value and what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from log_tables import NAMES, table

from cramerl.linear import Log


def changed(**columns: Any) -> dict[str, Any]:
    """The table with some columns changed by functions of them."""
    data = table()
    return data | {name: change(data[name].copy()) for name, change in columns.items()}


def put(index: int, value: Any) -> Any:
    def change(column: np.ndarray) -> np.ndarray:
        column = column.astype(object) if value is None else column
        column[index] = value
        return column

    return change


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such column": (table(), {"reward": "cost"}, "reward must name columns of the log, got 'cost'; its columns are"),
    "no such state": (
        table(),
        {"state": "z*"},
        r"state must name columns of the log, got 'z\*'; its columns are who, t",
    ),
    "no state": (table(), {"state": None}, "state must be a column name or several, got None; the columns are who"),
    "two episodes": (table(), {"episode": "x*"}, r"episode must be the name of one column, got 'x\*', which names x0"),
    "same next": (table(), {"next_state": ["x0", "x1"], "state": ["x0", "g"]}, "other columns than state, got 'x0' in"),
    "unequal next": (
        table(),
        {"next_state": "g", "state": ["x0", "x1"]},
        r"next_state must name one column for each of the 2 columns of the state \(x0, x1\), got 1 \(g\)",
    ),
    "next of another type": (table(), {"next_state": "ward", "state": "x0"}, "next_state must name columns of numbers"),
    "text as reward": (table(), {"reward": "ward", "state": "x0"}, "reward must name columns of numbers, got 'ward'"),
    "missing state": (changed(x0=put(3, np.nan)), {}, "state must not have missing values, got 1 in column 'x0'"),
    "missing ward": (changed(ward=put(3, None)), {}, "state must not have missing values, got 1 in column 'ward'"),
    "infinite": (changed(x0=put(3, np.inf)), {}, "state must be finite, got inf in column 'x0'"),
    "missing reward": (changed(r=put(0, np.nan)), {}, "reward must not have missing values, got 1 in column 'r'"),
    "missing action": (changed(a=put(0, None)), {}, "action must not have missing values, got 1 rows with one in 'a'"),
    "missing end": (changed(died=put(0, None)), {}, "terminated must not have missing values, got 1 in column 'died'"),
    "missing episode": (changed(who=put(0, None)), {}, "episode must not have missing values, got 1 in column 'who'"),
    "missing time": (changed(t=put(0, None)), {}, "time must not have missing values, got 1 in column 't'"),
    "text as time": (
        table(),
        {"time": "ward", "state": "x0"},
        "time must name a column of numbers or times, got 'ward'",
    ),
    "ended too soon": (
        changed(died=put(0, True)),
        {},
        "terminated must be true only in the last row of an episode, got",
    ),
    "cut too soon": (changed(cut=put(0, True)), {}, "truncated must be true only in the last row of an episode, got 1"),
    "numbers as ends": (table(), {"terminated": "x0", "state": "x1"}, "terminated must name a column of booleans, got"),
    "twice": (changed(t=lambda t: t * 0), {}, "time must differ between the rows of an episode, got .* same 'who'"),
    "discount": (table(), {"discount": 1.5}, r"discount must be a number in \[0, 1\] or a column name, got 1.5"),
    "discounts": (changed(g=put(2, 1.5)), {}, r"discount must hold numbers in \[0, 1\], got 1.5 in column 'g'"),
    "weight": (changed(w=put(2, -1)), {}, "weight must hold numbers >= 0, got -1 in column 'w'"),
    "no weight": (changed(w=lambda w: 0 * w), {}, "weight must hold at least one number > 0, got only 0 in column 'w'"),
    "propensity": (changed(p=put(2, 0)), {}, r"propensity must hold numbers in \(0, 1\], got 0 in column 'p'"),
    "lengths": (table() | {"z": [1]}, {}, "source must hold arrays of one length, got 1 in 'z' and"),
    "codes of floats": (table(), {"categorical": "x0"}, "strings, integers or booleans, got 'x0', which holds floats"),
    "objects": (
        table() | {"z": [{}] * len(table()["r"])},
        {"state": "z"},
        "column 'z' must hold values of one type: .* got dict",
    ),
    "no table": (7, {}, "source must be a data frame, .* got int"),
    "an array": (np.eye(3), {}, "source must be a data frame, .* got ndarray"),
    "no rows": ({name: column[:0] for name, column in table().items()}, {}, "source must hold at least one row"),
    "ends as words": (
        table() | {"z": np.where(table()["r"] > 0, "yes", "no")},
        {"terminated": "z"},
        "terminated must name a column of booleans, got 'z', which holds labels",
    ),
    "enormous": (changed(r=put(2, 1e300)), {}, r"reward must be less than 1e\+100 in size, got 1e\+300"),
    "cut at once": (
        {"r": np.ones(6), "x0": np.arange(6.0), "x1": np.ones(6), "who": np.arange(6), "over": np.arange(6) < 3},
        dict.fromkeys(NAMES, None) | {"episode": "who", "state": "x*", "reward": "r", "terminated": "over"},
        "source must hold rows that are followed by others, .* got 3 rows that go on",
    ),
    "a list and a column": (
        {"z": np.ones((4, 3)), "z1": np.ones(4), "r": np.ones(4)},
        {},
        "'z1' more than once .the parts of a column of lists have its name and a number",
    ),
    "one row": (
        {name: column[:1] for name, column in table().items()},
        {"terminated": None},
        "at least one row with a",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    source, changes, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        Log.read(source, **NAMES | changes)
