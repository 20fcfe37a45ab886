"""Scores in the formats of other tools."""

import pytest
from study_runs import row, summary_of, write_rows, write_run

from cramerl.evidence.curves import final_score, read_curves
from cramerl.evidence.exports import dopamine_rows, rliable_scores
from cramerl.evidence.scores import Series


def test_arrays_for_rliable(tmp_path):
    for agent, env, lanes in [
        ("s51", "Asterix-MinAtar", 3),
        ("s51", "Breakout-MinAtar", 2),
        ("dqn", "Asterix-MinAtar", 2),
    ]:
        write_run(tmp_path / f"{agent}-{env}", agent, env, seeds=lanes)
    summary = summary_of(tmp_path)
    found = rliable_scores(summary.best, summary.games, summary.series)
    assert found.games == ["Asterix-MinAtar"]  # what both have played
    assert found.scores["s51"].shape == (3, 1)
    found = rliable_scores(summary.best, summary.games, [Series("s51")], checkpoints=5)
    assert found.games == ["Asterix-MinAtar", "Breakout-MinAtar"]
    assert found.scores["s51"].shape == (2, 2)
    assert found.curves["s51"].shape == (2, 2, 5)
    assert found.seeds["s51"] == [[0, 1], [0, 1]]
    for curve in read_curves([tmp_path]):
        seed = curve.config.seed
        if curve.agent == "s51" and seed < 2:
            place = found.games.index(curve.env)
            assert found.scores["s51"][seed, place] == final_score(curve)
            assert found.curves["s51"][seed, place, -1] == pytest.approx(final_score(curve))  # fifths too
    assert found.steps["Asterix-MinAtar"].tolist() == [200, 400, 600, 800, 1000]
    with pytest.raises(ValueError, match="checkpoints must be >= 1, got 0"):
        rliable_scores(summary.best, summary.games, summary.series, checkpoints=0)


def test_arrays_end_where_the_shortest_run_does(tmp_path):
    write_run(tmp_path / "a", "s51")
    write_run(tmp_path / "b", "s51", seed=1, steps=500)
    summary = summary_of(tmp_path)
    found = rliable_scores(summary.best, summary.games, summary.series)
    assert found.steps["Breakout-MinAtar"][-1] == 500
    assert found.scores["s51"][0, 0] == final_score(read_curves([tmp_path / "a"])[0], steps=500)


def test_rows_for_dopamine(tmp_path):
    run = write_run(tmp_path / "run")
    write_rows(
        run, [row(1, 2.0, 1, iteration=0), row(2, 5.0, 2, iteration=0), row(3, iteration=1), row(4, 1.0, iteration=2)]
    )
    found = dopamine_rows(summary_of(run).groups)
    assert found == {
        "Breakout-MinAtar": [
            {"Iteration": 0, "Value": 4.0, "Agent": "s51", "Game": "Breakout-MinAtar", "Seed": 0},
            {"Iteration": 2, "Value": 1.0, "Agent": "s51", "Game": "Breakout-MinAtar", "Seed": 0},
        ]
    }
