"""Groups of runs: what they may differ in, how they are written, and old formats."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.presets import preset


def test_combinations_are_penalties_by_rates_by_seeds():
    group = RunGroup.of(TrainConfig(), seed=[3, 4], learning_rate=[1e-3, 1e-4], mass_penalty=[0.0, 5.0])
    expected = [(p, r, s) for p in (0.0, 5.0) for r in (1e-3, 1e-4) for s in (3, 4)]
    assert [(run.mass_penalty, run.learning_rate, run.seed) for run in group.configs] == expected
    assert [tuple(lane.values()) for lane in group.lanes] == expected
    assert list(group.lanes[0]) == ["mass_penalty", "learning_rate", "seed"]


def test_what_all_runs_share_tells_none_apart():
    group = RunGroup.of(TrainConfig(), seed=[3, 4], learning_rate=[1e-3])
    assert group.lanes == [{"seed": 3}, {"seed": 4}]
    assert as_group(TrainConfig(seed=7)).lanes == [{"seed": 7}]
    assert (group.values("seed"), group.values("learning_rate")) == ([3, 4], [1e-3])


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ([], "a group must have 1 to 4096 runs, got 0"),
        ([TrainConfig(), TrainConfig()], "runs of a group must differ from one another, got one of them twice"),
        (
            [TrainConfig(n_step=1), TrainConfig(n_step=3, seed=1)],
            "runs of a group may differ in seed, learning_rate, mass_penalty only, got n_step 1 and 3",
        ),
        (
            [TrainConfig(agent="c51"), TrainConfig(agent="c51", mass_penalty=1.0)],
            "mass_penalty is a setting of s51 and would be ignored by c51: leave it out",
        ),
    ],
)
def test_runs_that_make_no_group(configs, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        as_group(configs)


def test_several_runs_need_a_compiled_environment():
    from cramerl.runs.build import make_loop

    group = RunGroup.of(preset("smoke", "s51", "gym:CartPole-v1"), seed=[0, 1])
    sentence = r"^gym:CartPole-v1 can be trained with one seed .* got 2 runs: 0 \(seed 0\), 1 \(seed 1\); cramerl sweep"
    with pytest.raises(ValueError, match=sentence):
        make_loop(group)


axes = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True),
        "learning_rate": st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=3, unique=True),
        "mass_penalty": st.lists(st.floats(0.0, 20.0), min_size=1, max_size=3, unique=True),
    },
)


@given(axes)
def test_groups_survive_json_and_find_their_lines(values):
    group = RunGroup.of(TrainConfig(hidden_units=(3,)), **values)
    text = json.dumps(group.to_json(), allow_nan=False)
    again = RunGroup.from_json(json.loads(text))
    assert again == group
    assert json.dumps(again.to_json()) == text
    assert [group.lane_of({"step": 1, **lane}) for lane in group.lanes] == list(range(len(group)))
    assert group.lane_of({"seed": 1000}) is None


def test_a_group_of_one_is_written_as_a_config():
    config = TrainConfig(seed=5, learning_rate=1e-3)
    assert as_group(config).to_json() == config.to_json()


def test_runs_of_earlier_versions_are_read():
    """They listed seeds, rates and penalties in one config, and called a setting otherwise."""
    written = TrainConfig(agent="s51", seed=3).to_json()
    written["base_law"] = written.pop("base_distribution")
    earlier = written | {"lanes": 2, "learning_rates": [1e-3, 1e-4], "mass_penalties": []}
    expected = RunGroup.of(TrainConfig(agent="s51"), seed=[3, 4], learning_rate=[1e-3, 1e-4])
    assert RunGroup.from_json(earlier) == expected
    alone = written | {"lanes": 1, "learning_rates": [], "mass_penalties": []}
    assert RunGroup.from_json(alone) == as_group(TrainConfig(agent="s51", seed=3))


@pytest.mark.parametrize("runs", [3, ["x"], {}])
def test_what_is_no_list_of_runs(runs):
    with pytest.raises(ValueError, match="runs must be a list of objects, got"):
        RunGroup.from_json(TrainConfig().to_json() | {"runs": runs})


def test_diverged_runs_are_named_by_the_log():
    group = RunGroup.of(TrainConfig(), seed=[3, 4, 5], learning_rate=[1e-3, 1e-4])
    rows = [{"step": 5, **lane} for lane in group.lanes] + [{"step": 9, **group.lanes[4], "diverged": True}]
    assert group.diverged(rows) == [4]
    assert group.describe([4]) == "4 (learning_rate 0.0001, seed 4)"
    assert RunGroup.of(TrainConfig(), seed=range(30)).describe().endswith("19 (seed 19) and 10 more")
