"""Policies as people give them: tables, labels, functions; probabilities of the log's actions come of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, read

from cramerl.linear import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.policies import Policy, make_policy, read_policy_columns

STATES = {"ward": ["icu", "icu", "home"], "age": [30.0, 70.0, 50.0]}


def tabular_log() -> Log:
    return read(WORLD.play(LOGGED, 20))


def labelled(action: Any = ("stay", "go", "go", "stay"), **more: Any) -> Log:
    """A log with words, two columns of the state and a few rows."""
    columns: dict[str, Any] = {"ward": ["icu", "home", "home", "icu"], "age": [30.0, 40.0, 50.0, 70.0]}
    columns |= {"a": np.array(action), "r": np.ones(4), "died": np.ones(4, bool), "who": np.arange(4)}
    words: dict[str, Any] = {"state": ["ward", "age"], "action": "a", "reward": "r", "terminated": "died"}
    return Log.read(columns, episode="who", **words | more)


def probs(policy: Any, log: Log, states: Any) -> np.ndarray:
    made = make_policy(policy, log)
    assert made is not None
    return made(log.encode(states))


ALL_STATES = {"x": [2, 0, 1]}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (TARGET, TARGET),
        (TARGET.tolist(), TARGET),
        ([0.25, 0.75], [[0.25, 0.75]] * 3),
        ([1, 0, 1], [[0, 1], [1, 0], [0, 1]]),
        (np.array([True, False, True]), [[0, 1], [1, 0], [0, 1]]),
        (lambda states: TARGET[states[:, 0].astype(int)], TARGET),
        (lambda states: (states[:, 0] == 1).astype(int), [[1, 0], [0, 1], [1, 0]]),
    ],
    ids=["(S, A)", "lists", "(A,)", "(S,)", "(S,) booleans", "probabilities of a function", "actions of a function"],
)
def test_every_form_of_a_policy(policy, expected):
    """Rows are found by the value of the state, whatever the order in which states are asked about."""
    np.testing.assert_allclose(probs(policy, tabular_log(), ALL_STATES), np.asarray(expected)[[2, 0, 1]])


def test_tables_for_states_that_are_numbers():
    log = read(WORLD.play(LOGGED, 20), categorical=())
    np.testing.assert_allclose(probs(TARGET, log, ALL_STATES), TARGET[[2, 0, 1]])
    with pytest.raises(ValueError, match="policy must be a function unless states are integers from 0 to 2"):
        probs(TARGET, log, {"x": [0.5]})
    with pytest.raises(ValueError, match="policy must be a function unless states are integers from 0 to 2"):
        probs(TARGET, log, {"x": [3]})


def test_words_as_states_and_actions():
    words = labelled(state="ward")
    assert words.action_levels == ("go", "stay")
    np.testing.assert_array_equal(
        probs(["stay", "go"], words, {"ward": ["icu", "home"]}), [[1, 0], [0, 1]]
    )  # levels are sorted: home stays, icu goes
    table = np.array([[0.1, 0.9], [0.8, 0.2]])
    np.testing.assert_array_equal(probs(table, words, {"ward": ["icu", "home"]}), table[[1, 0]])
    np.testing.assert_array_equal(probs(lambda s: np.array(["go"] * len(s)), words, {"ward": ["icu"]}), [[1, 0]])


def test_functions_get_numbers_first_and_then_codes():
    seen = []

    def policy(states: np.ndarray) -> np.ndarray:
        seen.append(states)
        return np.full((len(states), 2), 0.5)

    probs(policy, labelled(), STATES)
    np.testing.assert_array_equal(seen[0], [[30, 1], [70, 1], [50, 0]])


def test_none_is_the_policy_that_made_the_log():
    assert make_policy(None, tabular_log()) is None
    made = Policy(lambda states: np.full((len(states), 2), 0.5), (0, 1), None)
    assert make_policy(made, tabular_log()) is made


def gaps() -> Log:
    """A log of actions 0, 2 and 5 of six."""
    columns = WORLD.play(LOGGED, 20)
    columns["a"] = np.array([0, 2, 5])[np.arange(len(columns["a"])) % 3]
    return read(columns)


def test_actions_never_taken_are_left_out_and_counted():
    log = gaps()
    made = make_policy(np.array([0.2, 0.5, 0.1, 0.0, 0.0, 0.2]), log)
    assert made is not None
    np.testing.assert_allclose(made(log.encode({"x": [0, 1]})), [[0.4, 0.2, 0.4]] * 2)
    assert made.unknown == pytest.approx(0.5)
    chosen = make_policy([5, 1, 2], log)
    assert chosen is not None
    np.testing.assert_allclose(chosen(log.encode({"x": [0, 1, 2]})), [[0, 0, 1], [1 / 3] * 3, [0, 1, 0]])
    assert chosen.unknown == pytest.approx(1 / 3)
    alike = make_policy([0.2, 0.3, 0.5], log)  # as many as the log's actions: these
    assert alike is not None
    np.testing.assert_allclose(alike(log.encode({"x": [0]})), [[0.2, 0.3, 0.5]])
    assert alike.unknown == 0


def test_too_few_columns_for_the_actions_of_the_log():
    with pytest.raises(ValueError, match="policy must have a probability for each of the log's 3 actions, got 4 col"):
        probs(np.full((3, 4), 0.25), gaps(), ALL_STATES)


def test_an_action_that_was_always_true():
    log = labelled((True, True, True, True), state="age")
    np.testing.assert_array_equal(probs([0.25, 0.75], log, {"age": [1.0]}), [[1.0]])


def test_no_states_have_no_probabilities():
    made = make_policy([0.5, 0.5], tabular_log())
    assert made is not None
    nobody = Observations(np.empty((0, 0)), np.empty((0, 1), np.int32))
    assert made(nobody).shape == (0, 2)
    assert made.unknown == 0


BAD: dict[str, tuple[Any, str]] = {
    "sum": (TARGET * 0.9, "policy must give probabilities: >= 0, each row summing to 1"),
    "negative": ([[1.5, -0.5]] * 3, "policy must give probabilities: >= 0, each row summing to 1"),
    "missing": ([np.nan, 1.0], "policy must give probabilities"),
    "rows": (TARGET[:2], "policy must have a row for each of 3 states, got 2"),
    "text": (
        "uniform",
        r"policy must be a function, names of columns, \(A,\) or \(S, A\) probabilities, or \(S,\) actions, got str",
    ),
    "number": (0.5, r"policy must be a function, .* got float"),
    "function of another shape": (lambda s: np.ones((len(s), 2, 1)), r"policy must give \(3, A\) probabilities or"),
    "function for fewer": (lambda s: np.zeros(1, int), "policy must give an action for each of 3 states, got 1"),
    "function of words in rows": (lambda s: [["a", "b"]] * len(s), r"policy must give .* got shape \(3, 2\) of <U1"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    policy, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        probs(policy, tabular_log(), ALL_STATES)


def test_logs_that_cannot_have_other_policies_are_named():
    with pytest.raises(ValueError, match="policy needs the log's actions, which must be discrete"):
        make_policy([0.5, 0.5], read(WORLD.play(LOGGED, 5), action=None))
    with pytest.raises(ValueError, match=r"policy must be a function where the state has several columns, got a table"):
        make_policy([[0.5, 0.5]] * 3, labelled())
    with pytest.raises(ValueError, match="policy must be a function for states that the log never had, got a table"):
        probs([0, 1, 1], tabular_log(), {"x": [7]})


@pytest.mark.parametrize(
    "names",
    [("new_safe", "new_fast"), ("new_fast", "new_safe"), ("Safe probability", "fast probability"), ("safe", "FAST")],
)
def test_columns_that_name_their_actions_are_found_in_any_order(names):
    """An answer for the wrong actions would look as good as the right one."""
    action = np.array(["safe", "fast", "fast", "safe"])
    likely = {name: np.full(4, 0.9 if "safe" in name.lower() else 0.1) for name in names}
    log = Log.read(
        {
            "x": [0.0, 1.0, 1.0, 0.0],
            "a": action,
            "r": (action == "safe") * 1.0,
            "end": np.ones(4, bool),
            "who": np.arange(4),
        }
        | likely,
        episode="who",
        state="x",
        action="a",
        reward="r",
        terminated="end",
    )
    log, made = read_policy_columns({"new": list(names)}, log)
    policy = make_policy(made["new"], log)
    assert policy is not None
    for name, level in zip(made["new"].names, ("fast", "safe"), strict=True):
        assert level in name.lower()
    assert policy.sources.lower().startswith("fast from ")


def test_columns_that_fit_some_actions_only_are_refused():
    table = {"ward": ["icu"] * 4, "a": ["stay", "go", "go", "stay"], "r": np.ones(4), "died": np.ones(4, bool)}
    table |= {"who": np.arange(4), "p_stay": np.full(4, 0.5), "p_other": np.full(4, 0.5)}
    log = Log.read(table, episode="who", state="ward", action="a", reward="r", terminated="died")
    with pytest.raises(ValueError, match=r"policy must name columns in the order of the actions go, stay, but p_stay"):
        read_policy_columns({"new": ["p_stay", "p_other"]}, log)
