"""Which episodes a run counts: none are cut without need, those that are are counted, and each has its line."""

import dataclasses
import json
import re
import resource
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from lenient import lenient

import cramerl
from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup
from cramerl.runs.log_lines import warning_of_cuts
from cramerl.runs.presets import preset
from cramerl.runs.trainer import Run, Status

STEPS, ITERATION, LOG, ENVS = 640, 160, 40, 2
TINY = {"steps": STEPS, "iteration_steps": ITERATION, "log_steps": LOG, "num_envs": ENVS, "batch_size": 4}
TINY |= {"replay_steps": 240, "min_replay_steps": 240, "hidden_units": (8,), "max_episode_steps": 40}


def config(env: str = "gym:CartPole-v1", **changes: Any) -> TrainConfig:
    return preset("smoke", "dqn", env, **{**TINY, **changes})


def train(runs: TrainConfig | RunGroup, folder: Path, told: list[str] | None = None) -> Run:
    with lenient():
        return cramerl.train(runs, folder, on_progress=lambda s: None if told is None else told.append(s.message or ""))


def episodes_of(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "episodes.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", name="resumable")
def fixture_resumable(tmp_path_factory) -> tuple[Run, list[str]]:
    told: list[str] = []
    return train(config(eval_episodes=2), tmp_path_factory.mktemp("runs") / "run", told), told


@pytest.fixture(scope="module", name="lanes")
def fixture_lanes(tmp_path_factory) -> Run:
    group = RunGroup.of(config("CartPole-v1", checkpoints="none"), seed=[3, 4])
    return train(group, tmp_path_factory.mktemp("runs") / "run")


class Broken(gymnasium.Env):
    """Its twentieth reward is not a number."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.zeros(2, np.float32), np.nan if self.count == 20 else 1.0, self.count % 5 == 0, False, {}


def test_rewards_that_are_not_finite_end_a_run_and_leave_no_line(tmp_path):
    gymnasium.register("Broken-v0", Broken)
    with pytest.raises(ValueError, match=r"^rewards must be finite numbers \(of float32\), Broken-v0 gave nan$"):
        train(config("Broken-v0"), tmp_path / "run")
    gymnasium.registry.pop("Broken-v0")
    for name in ("metrics.jsonl", "episodes.jsonl"):
        text = (tmp_path / "run" / name).read_text() if (tmp_path / "run" / name).exists() else ""
        assert "nan" not in text.lower()


def test_evaluations_of_a_run_are_different_games(tmp_path):
    changes = {"eval_episodes": 6, "eval_period_steps": 60, "checkpoints": "none", "learning_rate": 1e-30}
    run = train(config(**changes, steps=320), tmp_path / "run")
    played = [(one["step"], one["return"]) for one in episodes_of(run) if one["kind"] == "evaluation"]
    steps = sorted({step for step, _ in played})
    assert len(steps) > 3
    assert len({tuple(score for at, score in played if at == step) for step in steps}) == len(steps)


def test_without_full_checkpoints_iterations_leave_no_trace(tmp_path):
    """The log is that of a run of one iteration; episodes fill the environments' time but for what is unfinished."""
    short = train(config(checkpoints="none"), tmp_path / "short")
    long = train(config(checkpoints="weights", iteration_steps=STEPS), tmp_path / "long")
    rows = [[{k: v for k, v in row.items() if k != "iteration"} for row in run.rows] for run in (short, long)]
    assert rows[0] == rows[1]
    assert episodes_of(short) == episodes_of(long)
    assert not any("charts/episodes_cut" in row for row in short.rows)
    assert_time_is_accounted_for(episodes_of(short), STEPS // ENVS, unfinished=True)


def test_an_earlier_run_is_made_again_with_its_resets(resumable, tmp_path):
    """Its config.json does not say when environments are reset, and all of them were at each iteration."""
    written = config(checkpoints="none", eval_episodes=2).to_json()
    del written["environment_resets"]
    again = train(RunGroup.from_json(written), tmp_path / "run")
    assert again.rows == resumable[0].rows
    assert episodes_of(again) == episodes_of(resumable[0])


def assert_time_is_accounted_for(episodes: list[dict[str, Any]], rows: int, *, unfinished: bool) -> None:
    """The steps of each environment are its episodes and their restarts."""
    for env in range(ENVS):
        own = [row for row in episodes if row.get("env_index") == env and row["kind"] != "evaluation"]
        assert [row["step"] for row in own] == sorted(row["step"] for row in own)
        at = 0
        for row in own:
            at += row["length"] + (at > 0)  # a restart takes a step
            assert row["step"] == at * ENVS
        assert at <= rows
        assert unfinished or at == rows


def test_where_a_run_can_be_resumed_cut_episodes_are_counted(resumable):
    run, _ = resumable
    found = episodes_of(run)
    assert {row["kind"] for row in found} == {"training", "cut", "evaluation"}
    for iteration in range(STEPS // ITERATION):
        start = iteration * ITERATION
        own = [row for row in found if start < row["step"] <= start + ITERATION]
        moved = [row | {"step": row["step"] - start} for row in own]
        for env in range(ENVS):  # each was cut, unless an episode ended or restarted just there
            last = [row for row in moved if row.get("env_index") == env][-1]
            assert last["step"] >= ITERATION - ENVS
        assert_time_is_accounted_for(moved, ITERATION // ENVS, unfinished=True)
        line = [row for row in run.rows if row["iteration"] == iteration and "charts/episodes_cut" in row]
        assert [row["step"] for row in line] == [start + ITERATION]
        assert line[0]["charts/episodes_cut"] == sum(row["kind"] == "cut" for row in own) > 0


@pytest.mark.parametrize("name", ["resumable", "lanes"])
def test_each_episode_has_its_line(name, request):
    found = request.getfixturevalue(name)
    run = found if isinstance(found, Run) else found[0]
    for row in run.rows:
        kind = "evaluation" if "eval/episodes" in row else "training"
        tag = "eval" if kind == "evaluation" else "charts"
        since = row["step"] - (LOG if kind == "training" else 1)
        own = [
            one
            for one in episodes_of(run)
            if one["kind"] == kind and one["seed"] == row["seed"] and since < one["step"] <= row["step"]
        ]
        assert len(own) == row[f"{tag}/episodes"]
        if own:
            assert np.mean([one["return"] for one in own]) == pytest.approx(row[f"{tag}/episodic_return"], rel=1e-6)
            assert np.mean([one["length"] for one in own]) == pytest.approx(row[f"{tag}/episodic_length"], rel=1e-6)
            assert all(one["return"] == one["length"] for one in own)  # a point for each step
    assert sum(row.get("charts/episodes", 0) for row in run.rows) > 20


def test_the_seeds_of_a_group_are_told_apart(lanes):
    assert {row["seed"] for row in episodes_of(lanes)} == {3, 4}
    assert list(episodes_of(lanes)[0]) == ["step", "seed", "kind", "env_index", "return", "length"]


def test_many_cut_episodes_are_told_once(resumable):
    words = [one for one in resumable[1] if "were cut" in one]
    assert len(words) == 1
    match = re.search(r"(\d+) of (\d+) episodes were cut where the environments were reset", words[0])
    assert match
    first = [row for row in episodes_of(resumable[0]) if row["step"] <= ITERATION and row["kind"] != "evaluation"]
    assert (int(match[1]), int(match[2])) == (sum(row["kind"] == "cut" for row in first), len(first))
    assert "Raise iteration_steps, now 160, or choose checkpoints 'weights' or 'none'" in words[0]


@pytest.mark.parametrize(("cut", "ended", "said"), [(0, 0, False), (5, 95, False), (6, 94, True), (1, 0, True)])
def test_when_cut_episodes_are_many(cut, ended, said):
    assert bool(warning_of_cuts(config(), cut, ended)) == said


def test_a_return_beyond_the_support_is_told_before_anything_is_learned(tmp_path):
    """Returns of the first episodes of CartPole are some 8 to 30 points, discounted by 0.99."""
    told: list[str] = []
    narrow = preset("smoke", "c51", "gym:CartPole-v1", **TINY, v_min=0.0, v_max=5.0, num_atoms=11, checkpoints="none")
    run = train(dataclasses.replace(narrow, steps=2 * LOG), tmp_path / "run", told)
    words = [one for one in told if "lies above v_max = 5" in one]
    assert len(words) == 1
    match = re.search(r"a realised return, ([\d.]+), lies above v_max = 5: returns beyond it", words[0])
    assert match
    first = [row["length"] for row in episodes_of(run) if row["step"] <= LOG]
    assert float(match[1]) == pytest.approx(max((1 - 0.99**length) / 0.01 for length in first), rel=5e-3)
    assert not any("v_min" in one and "below" in one for one in told)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium warns of the same, and of more
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 1e300])
@pytest.mark.parametrize("what", ["rewards", "observations"])
def test_what_an_environment_gives_is_blamed_and_not_the_settings(what, number, tmp_path):
    """Infinite rewards can be learned from without a loss that shows it: they would be clipped to the support."""

    class Bad(Broken):
        def step(self, action: Any) -> Any:
            self.count += 1
            bad = number if self.count == 20 else 1.0
            seen = np.array([bad if what == "observations" else 0.0, 0.0])
            return seen, bad if what == "rewards" else 1.0, self.count % 5 == 0, False, {}

    Bad.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    gymnasium.register("Bad-v0", Bad)
    try:
        with pytest.raises(
            ValueError, match=rf"^{what} must be finite numbers \(of float32\), Bad-v0 gave -?(inf|nan)$"
        ):
            train(config("Bad-v0"), tmp_path / "run")
    finally:
        gymnasium.registry.pop("Bad-v0")


def test_returns_beyond_single_precision_end_a_run(tmp_path):
    """Each of the rewards is within it."""

    class Rich(Broken):
        def step(self, action: Any) -> Any:
            self.count += 1
            return np.zeros(2, np.float32), 2e38, self.count % 5 == 0, False, {}

    gymnasium.register("Rich-v0", Rich)
    try:
        with pytest.raises(
            ValueError, match=r"^returns of episodes must lie within 3\.4e\+38 .* gave 1\.0e\+39: scale"
        ):
            train(config("Rich-v0"), tmp_path / "run")
    finally:
        gymnasium.registry.pop("Rich-v0")


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_exception_in_an_environment_is_a_sentence_that_names_the_last_checkpoint(method, tmp_path):
    class Failing(Broken):
        resets = 0

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.resets += 1
            if method == "reset" and self.resets > 25:
                raise KeyError("its own")
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.count += 1
            if method == "step" and self.count > 150:
                raise KeyError("its own")
            return np.zeros(2, np.float32), 1.0, self.count % 5 == 0, False, {}

    gymnasium.register("Failing-v0", Failing)
    sentence = r"^env must be .*, Failing-v0 raised KeyError: 'its own' in its (reset|step) \(test_episode_log.py line"
    try:
        with pytest.raises(ValueError, match=sentence) as caught:
            train(config("Failing-v0"), tmp_path / "run")
    finally:
        gymnasium.registry.pop("Failing-v0")
    (note,) = caught.value.__notes__
    assert re.fullmatch(rf"\(the last good checkpoint is at step \d+ in {re.escape(str(tmp_path / 'run'))}\)", note)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_full_disk_while_a_log_grows_is_told_with_the_file_and_the_last_checkpoint(tmp_path):
    run, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)

    def report(status: Status) -> None:
        if status.step == ITERATION + LOG:
            while not (run / "checkpoints/000001").exists():  # it is written while training continues
                time.sleep(0.01)
            size = max((run / name).stat().st_size for name in ("metrics.jsonl", "episodes.jsonl"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))

    try:
        with lenient(), pytest.raises(OSError, match=r"File too large: '.*/run/(metrics|episodes).jsonl'") as caught:
            cramerl.train(config(), run, on_progress=report)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.__notes__ == [f"(the last good checkpoint is at step {ITERATION} in {run})"]
    with lenient():
        assert cramerl.resume(run).finished


def test_an_environment_that_is_compiled_is_blamed_too(tmp_path):
    settings = {"env_options": {"gravity": 1e38}, "eval_episodes": 0, "checkpoints": "none"}
    with pytest.raises(ValueError, match=r"^observations must be finite numbers, CartPole-v1 gave some that are not$"):
        train(config("CartPole-v1", **settings), tmp_path / "run")
