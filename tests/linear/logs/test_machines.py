"""The example log: what it says is right, against the process that made it."""

import numpy as np
import pytest

from cramerl.linear import Log, evaluate_policy
from cramerl.linear.logs import machines

POLICIES = {"logged": machines.logged_policy(), "careful": machines.careful_policy()}


def exact_mean(policy: np.ndarray) -> float:
    """By the equations of the process."""
    return float(machines.start_distribution() @ machines.reward_process(policy).true_values()[:-1])


def played(policy: np.ndarray, count: int = 8000) -> np.ndarray:
    """Returns of so many machines that are never cut."""
    table = machines.simulate(policy, count, np.full(count, 10_000), np.random.default_rng(5))
    return np.bincount(table["machine"], table["reward"] * machines.DISCOUNT ** table["week"], count)


@pytest.fixture(scope="module")
def found():
    policies = {"careful": "careful_*", "logged": None}
    return evaluate_policy(Log.read("example:machines"), policies, features="splines:5", num_atoms=41)


def test_the_file_is_what_the_script_makes():
    with np.load(machines.FILE, allow_pickle=False) as arrays:
        made = machines.make_log()
        assert list(arrays) == list(made)
        for name, column in made.items():
            np.testing.assert_array_equal(arrays[name], column)
    assert machines.FILE.stat().st_size < 300_000


def test_two_truths_agree():
    for policy in POLICIES.values():
        returns = played(policy)
        assert returns.mean() == pytest.approx(exact_mean(policy), abs=4 * returns.std() / np.sqrt(len(returns)))


@pytest.mark.parametrize("name", POLICIES)
def test_the_intervals_hold_the_truth_and_complete_episodes_do_not(name, found):
    truth, answer, returns = exact_mean(POLICIES[name]), found[name], np.sort(played(POLICIES[name]))
    assert answer.trust.verdict == "use"
    assert answer.mean.low < truth < answer.mean.high
    worst = returns[: len(returns) // 10].mean()
    assert answer.cvar(0.1).low < worst < answer.cvar(0.1).high
    assert answer.mean.value == pytest.approx(truth, rel=0.06)
    if name == "logged":  # cut episodes are long ones, which were worth more
        (seen,) = answer.comparisons
        assert seen.mean + 2 * seen.se < truth


def test_the_difference_of_the_policies(found):
    truth = exact_mean(POLICIES["careful"]) - exact_mean(POLICIES["logged"])
    difference = found.difference("careful", "logged")
    assert 0 < difference.low < truth < difference.high


def test_an_example_that_there_is_not():
    with pytest.raises(ValueError, match="source must be one of the examples example:machines, got 'example:clinic'"):
        Log.read("example:clinic")


def test_the_columns_of_an_example_can_be_named():
    log = Log.read("example:machines", state="wear", discount=0.5)
    assert (log.schema.number_names, log.discount, log.action_levels) == (("wear",), 0.5, ("run", "service"))
