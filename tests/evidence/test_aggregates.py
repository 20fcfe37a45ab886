"""Aggregates over games: their scale, and what they leave out."""

import numpy as np
import pytest
from study_runs import column, summary_of, tables_of, write_run

from cramerl.evidence.curves import final_score, read_curves
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import bootstrap_interval
from cramerl.evidence.summary import summarise

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    for env in GAMES:
        for agent, level in (("dqn", 10.0), ("c51", 11.0), ("u51", 12.0)):
            write_run(root / f"{env}-{agent}", agent, env, level=level, seeds=3)
    return root


def test_scores_are_divided_by_dqn(study):
    summary = summary_of(study)
    found = summary.aggregates
    assert summary.notes == ["Fewer than 5 seeds: bootstrap intervals of so few runs are too narrow."]
    assert found.scale == "scores divided by dqn's mean score on the same game"
    dqn = {env: summary.best[Series("dqn"), env].score.estimate for env in GAMES}
    ours = [summary.best[Series("u51"), env].scores / dqn[env] for env in GAMES]
    expected = bootstrap_interval("iqm", ours)
    assert found.intervals[Series("u51")]["iqm"] == pytest.approx(expected)


def test_without_dqn_the_best_agent_is_the_measure(study):
    (summary,) = summarise([curve for curve in read_curves([study]) if curve.agent != "dqn"])
    assert summary.aggregates.scale == "scores divided by the best agent's mean score on the same game"
    assert np.mean(summary.aggregates.scores[Series("u51")][0]) == pytest.approx(1.0)


def test_dqn_in_some_games_only_is_said(study):
    curves = [curve for curve in read_curves([study]) if curve.agent != "dqn" or curve.env == GAMES[0]]
    (summary,) = summarise(curves)
    assert summary.aggregates.scale.endswith("on the same game, because dqn has not played all of them")


def test_atari_is_human_normalised(tmp_path):
    for env in ("pong", "asterix"):
        write_run(tmp_path / env, "c51", env, level=15.0)
    found = summary_of(tmp_path).aggregates
    assert found.scale.startswith("human-normalised")
    score = final_score(read_curves([tmp_path / "pong"])[0])
    assert found.scores[Series("c51")][1] == pytest.approx([(score + 20.7) / (14.6 + 20.7)])


def test_games_of_different_protocols_have_none(tmp_path):
    write_run(tmp_path / "a", "c51", "pong", exploration_final=0.01)
    write_run(tmp_path / "b", "c51", "asterix")
    summary = summary_of(tmp_path)
    assert summary.aggregates is None
    assert any("games were played under different protocols" in note for note in summary.notes)


def test_one_agent_has_none(tmp_path):
    write_run(tmp_path / "a", "u51", seeds=2)
    summary = summary_of(tmp_path)
    assert summary.aggregates is None
    assert "aggregates" not in tables_of(summary)
    assert "There are no aggregates: u51 has nothing to be compared with." in summary.notes


@pytest.mark.parametrize("level", [-5.0, 0.0])
def test_scores_that_cannot_be_divided_by(level, tmp_path):
    for agent in ("dqn", "c51"):
        write_run(tmp_path / agent, agent, "Pong-misc", level=level, seeds=2)
    summary = summary_of(tmp_path)
    assert summary.aggregates is None
    assert any(note.startswith("Aggregates leave out Pong-misc: the score to divide by, ") for note in summary.notes)


def test_unequal_seeds_and_missing_games(tmp_path):
    for agent, env, seeds in (("dqn", 0, 4), ("dqn", 1, 2), ("c51", 0, 3), ("c51", 1, 2), ("s51", 0, 1)):
        write_run(tmp_path / f"{agent}{env}", agent, GAMES[env], seeds=seeds)
    summary = summary_of(tmp_path)
    table = tables_of(summary)["aggregates"]
    assert column(table, 0) == ["dqn", "c51"]
    assert column(table, -1) == ["2–4", "2–3"]
    assert f"Aggregates leave out s51: not all of {', '.join(GAMES)} were played." in summary.notes
