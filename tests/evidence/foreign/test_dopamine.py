"""Dopamine's rows: those of its baselines, those of our own reports, and pickles that stay closed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from study_runs import row, summary_of, write_rows, write_run

from cramerl.evidence.exports import dopamine_rows
from cramerl.evidence.foreign.dopamine import PICKLES_TO_CSV, read_dopamine
from cramerl.evidence.foreign.reading import log_at, read_logs
from cramerl.evidence.foreign.tables import read_table
from cramerl.evidence.summary import summarise


def test_runs_follow_one_another_in_dopamines_files(tmp_path):
    """Without seeds: a run begins where the iteration does not rise."""
    rows = [{"Agent": "DQN", "Iteration": i, "Value": v} for i, v in [(0, 1.0), (1, 2.0), (0, 3.0), (1, 4.0)]]
    rows += [{"Agent": "C51", "Iteration": 0, "Value": value} for value in (9.0, 8.0)]
    (tmp_path / "beamrider.json").write_text(json.dumps(rows))
    curves = read_logs([log_at(tmp_path / "beamrider.json")])
    assert [(c.agent, c.env, c.seed, c.returns.tolist()) for c in curves] == [
        ("C51", "beam_rider", 0, [9]),
        ("C51", "beam_rider", 1, [8]),
        ("DQN", "beam_rider", 0, [1, 2]),
        ("DQN", "beam_rider", 1, [3, 4]),
    ]
    assert (curves[2].unit, curves[2].protocol.family) == ("iteration", "Atari")


def test_our_own_rows_come_back_as_they_were(tmp_path):
    write_run(tmp_path / "a", "s51", seeds=2)
    write_run(tmp_path / "b", "u51", env="Asterix-MinAtar", seeds=3)
    # The first episode of this run ended late, so its rows begin where those of the run before it ended.
    write_run(tmp_path / "c", "dqn", seed=1)
    write_rows(tmp_path / "c", [row(9, iteration=0, seed=1), row(1000, 4.0, iteration=1, seed=1)])
    written = dopamine_rows(summary_of(tmp_path).best.values())
    for env, rows in written.items():
        (tmp_path / f"x-{env}.json").write_text(json.dumps(rows))
        read = summarise(read_logs([log_at(tmp_path / f"x-{env}.json")]))
        again = [each for one in read for each in dopamine_rows(one.best.values())[env]]
        assert sorted(again, key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "must be a list of Dopamine's rows"),
        ([], "must be a list of Dopamine's rows"),
        ([3], "must be a list of Dopamine's rows"),
        ([{"Iteration": 0, "Value": 1}], "row 1 has no Agent"),
        ([{"Agent": "a", "Iteration": 0}], "row 1 has no Value"),
        ([{"Agent": "a", "Iteration": 0.5, "Value": 1}], "Iteration must be a whole number from 0 on, got 0.5"),
        ([{"Agent": "a", "Iteration": 2**60, "Value": 1}], "the step must be a whole number"),
        ([{"Agent": "a", "Iteration": 0, "Value": [1]}], r"\[1\] is not a number"),
        ([{"Agent": "a", "Iteration": 0, "Value": 1e308}], "the return must be a number"),
    ],
)
def test_other_json_is_a_sentence(tmp_path, rows, message):
    (tmp_path / "x.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=message):
        read_dopamine(tmp_path / "x.json")


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("sprung"),))


def test_pickles_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("log_199", "x.pkl"):
        Path(name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(ValueError, match=r"Pickles are never opened here, because they run code of whoever wrote"):
            log_at(Path(name))
    assert not Path("sprung").exists()


def test_the_advice_on_pickles_makes_a_table_that_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logs = {f"iteration_{i}": {"train_average_return": [10.0 * i], "eval_average_return": [0.0]} for i in range(3)}
    Path("logs").mkdir()
    Path("logs/log_199").write_bytes(pickle.dumps(logs))
    exec(PICKLES_TO_CSV, {})
    (log,) = read_table(Path("dqn.csv"), {})
    assert log.name == ("dqn", "Pong", 0)
    assert (log.steps.tolist(), log.returns.tolist()) == ([250_000, 500_000, 750_000], [0, 10, 20])
