"""Policies whose probabilities are columns of the log."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cramerl.linear import Log, evaluate_policy
from cramerl.linear.logs import log as log_module

STATE = {"state": ["wear", "site"], "action": "action", "terminated": "ended", "discount": 0.9}


def table(num_episodes: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, num_episodes)
    rows, last = int(lengths.sum()), np.cumsum(lengths) - 1
    wear = rng.integers(0, 4, rows) / 2
    service = np.where(wear > 0.7, 0.75, 0.125)
    return {
        "who": np.repeat(np.arange(num_episodes), lengths),
        "t": np.arange(rows),
        "wear": wear,
        "site": rng.choice(np.array(["a", "b"]), rows),
        "action": np.where(rng.random(rows) < 0.5, "run", "service"),
        "reward": rng.normal(size=rows),
        "ended": np.isin(np.arange(rows), last[::2]),
        "new_run": 1 - service,
        "new_service": service,
        "first": service,
        "second": 1 - service,
    }


def as_function(states: np.ndarray) -> np.ndarray:
    service = np.where(states[:, 0] > 0.7, 0.75, 0.125)
    return np.stack([1 - service, service], axis=1)


def evaluated(log: Log, policy: Any) -> Any:
    return evaluate_policy(log, policy, features="splines:4", regularisation=1e-3, intervals="none")


@pytest.fixture
def log():
    return Log.read(table(), episode="who", time="t", **STATE)


def test_columns_are_the_function_that_made_them(log):
    expected = evaluated(log, as_function)
    for named in ("new_*", "new_run, new_service", ["new_run", "new_service"], ("new_*",)):
        found = evaluated(log, named)
        np.testing.assert_array_equal(found.distribution.masses, expected.distribution.masses)
    found = evaluated(log, "new_service,new_run")  # each is the action that it names
    np.testing.assert_array_equal(found.distribution.masses, expected.distribution.masses)
    swapped = evaluated(log, "first,second")
    assert abs(swapped.mean.value - expected.mean.value) > 1e-3


def test_several_policies_and_others_beside_them(log):
    found = evaluated(log, {"new": "new_*", "old": None, "other": "first,second", "same": as_function})
    assert found["new"].mean == found["same"].mean
    assert found["other"].mean == evaluated(log, lambda states: as_function(states)[:, ::-1]).mean


def test_a_part_of_a_log_and_one_that_stays_in_its_files(log, tmp_path, monkeypatch):
    part = np.arange(3, 50)
    expected = evaluated(log.take(part), as_function)
    assert evaluated(log.take(part), "new_*").mean == expected.mean
    assert evaluated(log.take(np.arange(50)).take(part), "new_*").mean == expected.mean
    pq.write_table(pa.table(table()), tmp_path / "log.parquet")
    monkeypatch.setattr(log_module, "_MOST_BYTES", 0)
    streamed = Log.read(tmp_path / "log.parquet", episode="who", time="t", **STATE).take(part)
    assert evaluated(streamed, "new_*").mean.value == pytest.approx(expected.mean.value, rel=1e-9)


def test_next_states_that_have_columns():
    made = table()
    rows = np.append(made["who"][1:] == made["who"][:-1], False)
    following = np.minimum(np.arange(len(rows)) + 1, len(rows) - 1)
    kept = rows | made["ended"]
    loose = {name: column[kept] for name, column in made.items()}
    for name in ("wear", "site", "new_run", "new_service"):
        loose[f"next_{name}"] = made[name][following][kept]
    loose["next_new_run"] = np.where(loose["ended"], np.nan, loose["next_new_run"])  # may be missing where it ended
    log = Log.read(loose, next_state=["next_wear", "next_site"], **STATE)
    names = "new_run,new_service,next_new_run,next_new_service"
    assert evaluated(log, names).mean == evaluated(log, as_function).mean
    with pytest.raises(ValueError, match="and then one for each of them in the next state, got 2"):
        evaluate_policy(log, "new_run,new_service")


def test_states_of_their_own_need_the_columns(log):
    found = evaluated(log, "new_*")
    states = {"wear": [0.0, 1.5], "site": ["a", "b"]}
    given = states | {"new_run": [0.875, 0.25], "new_service": [0.125, 0.75]}
    np.testing.assert_array_equal(found.predict(given), evaluated(log, as_function).predict(states))
    with pytest.raises(ValueError, match="policy must be known in every state: there the columns new_run, new_service"):
        found.predict(states)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("new_run", "a column for each of the actions run, service, in this order, got 1"),
        ("nothing*", "policy must name columns of the log, got 'nothing"),
        ("wear,first", "policy must give probabilities: >= 0, each row summing to 1"),
        ("site,first", "policy must name columns of numbers, got 'site'"),
    ],
)
def test_columns_that_are_no_policy(policy, sentence, log):
    with pytest.raises(ValueError, match=sentence):
        evaluated(log, policy)


def test_missing_probabilities():
    made = table()
    made["new_run"] = np.where(np.arange(len(made["t"])) == 5, np.nan, made["new_run"])
    with pytest.raises(ValueError, match="policy must not have missing values, got some in new_run, new_service"):
        evaluated(Log.read(made, episode="who", time="t", **STATE), "new_*")


def test_a_list_of_actions_is_not_taken_for_columns():
    made = {name: column for name, column in table().items() if name not in ("site", "wear")}
    made["place"] = np.arange(len(made["t"])) % 2
    log = Log.read(
        made,
        episode="who",
        time="t",
        **(STATE | {"state": "place", "categorical": "place"}),
    )
    assert evaluated(log, ["run", "service"]).mean == evaluated(log, np.array([[1.0, 0.0], [0.0, 1.0]])).mean
