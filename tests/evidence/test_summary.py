"""Summaries of studies: the best settings, lengths, unfinished and diverged runs, and notes."""

import shutil

import numpy as np
import pytest
from study_runs import column, diverging, read_rows, summary_of, tables_of, write_rows, write_run

from cramerl.evidence.curves import final_score, read_curves
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import bootstrap_interval
from cramerl.evidence.summary import Scoring, summarise
from cramerl.reports.tables import number

GAME = "Breakout-MinAtar"


def learning_rate(group):
    return group.config.learning_rate


def test_a_group_has_the_mean_score_of_its_seeds_with_its_interval(tmp_path):
    write_run(tmp_path / "run", "c51", seeds=6)
    summary = summary_of(tmp_path)
    (group,) = summary.shown
    assert group.scores.tolist() == [final_score(curve) for curve in group.curves]
    assert group.score == bootstrap_interval("mean", group.scores)
    assert summary_of(tmp_path, seed=1).shown[0].score != group.score


def test_a_setting_with_a_diverged_seed_is_never_the_best(tmp_path):
    diverging(tmp_path / "study" / "a")
    write_run(tmp_path / "study" / "b", learning_rate=1.0, seed=1, level=1e6)
    write_run(tmp_path / "study" / "c", learning_rate=5e-4, seed=1)
    summary = summary_of(tmp_path)
    (group,), (bad,) = summary.groups, summary.diverged
    assert summary.shown == [group]
    assert (learning_rate(group), len(group.scores), group.steps, group.tried) == (5e-4, 2, 1000, 2)
    assert (learning_rate(bad), bad.diverged, len(bad.curves)) == (1.0, 1, 2)
    assert np.isnan(bad.score.estimate)
    assert summary.tuned("learning_rate")
    assert not summary.tuned("mass_penalty", "normalisation")
    assert summary.best_along(bad.series, bad.env, learning_rate) == {5e-4: group, 1.0: None}
    (note,) = (note for note in summary.notes if note.startswith("Diverged, so these settings have no score"))
    assert f"s51 on {GAME} with learning_rate 1, " in note
    assert "(1 of 2 seeds)" in note
    (tmp_path / "study" / "c" / "metrics.jsonl").unlink()
    rows = read_rows(tmp_path / "study" / "a")
    write_rows(tmp_path / "study" / "a", [one for one in rows if one["learning_rate"] == 1])
    with pytest.raises(ValueError, match=r"no run has an episode that ended in the last 0.2 .* \(1 diverged\)$"):
        summary_of(tmp_path)


def test_each_rate_has_the_best_of_what_else_was_tried(tmp_path):
    for kind, level in (("after", 10.0), ("before", 5.0)):
        write_run(tmp_path / "runs" / kind, level=level, normalisation=kind, learning_rate=(1e-4, 5e-4), seeds=2)
    summary = summary_of(tmp_path / "runs")
    found = summary.best_along(Series("s51"), GAME, learning_rate)
    assert list(found) == [1e-4, 5e-4]
    assert all(group.config.normalisation == "after" and group.tried == 4 for group in found.values())
    best = summary.best[Series("s51"), GAME]
    assert (learning_rate(best), best.config.normalisation) == (5e-4, "after")
    assert any("chosen by the same scores" in note for note in summary.notes)


def test_runs_of_different_lengths_are_compared_where_the_shortest_ends(tmp_path):
    long = write_run(tmp_path / "runs" / "long", "c51", steps=2000, rows=20, seed=0)
    write_run(tmp_path / "runs" / "short", "dqn", steps=500, rows=5)
    summary = summary_of(tmp_path / "runs")
    rows = tables_of(summary)["scores"].rows
    assert [row[5] for row in rows] == ["500", "500"]
    (curve,) = read_curves([long])
    assert rows[1][:3] == [GAME, "c51", number(final_score(curve, steps=500))]
    assert any("all are scored at 500, where the shortest ends (short, seed 0)" in note for note in summary.notes)


def test_unfinished_runs_are_named(tmp_path):
    write_run(tmp_path / "runs" / "whole", "u51")
    half = write_run(tmp_path / "runs" / "half", "c51", seeds=2)
    rows = read_rows(half)
    write_rows(half, [row for row in rows if row["step"] <= 600])
    bad = write_run(tmp_path / "runs" / "bad", "s51")  # another note names it
    end = {"step": 600, "frames": 600, "iteration": 0, "seed": 0, "diverged": True}
    write_rows(bad, [*(row for row in rows if row["step"] <= 500 and row["seed"] == 0), end])
    summary = summary_of(tmp_path / "runs", unfinished=True)
    assert "Not finished: runs/half (600 of 1,000 steps)." in summary.notes
    assert [(group.series.label, group.steps) for group in summary.shown] == [("c51", 600), ("u51", 600)]
    summary = summary_of(tmp_path / "runs")  # a running one does not cut the others short
    words = "Left out because they are not finished and others on the game are: runs/half (600 of 1,000 steps)."
    assert words in summary.notes
    assert [(group.series.label, group.steps) for group in summary.shown] == [("u51", 1000)]
    shutil.rmtree(tmp_path / "runs" / "whole")
    shutil.rmtree(bad)
    assert "Not finished: runs/half (600 of 1,000 steps)." in summary_of(tmp_path / "runs").notes


def test_runs_without_a_score_are_named(tmp_path):
    write_run(tmp_path / "runs" / "good", "c51", seeds=2)
    empty = write_run(tmp_path / "runs" / "empty", "s51")
    (empty / "metrics.jsonl").write_text('{"step": 5')
    silent = write_run(tmp_path / "runs" / "silent", "u51")
    write_rows(silent, [{"step": step, "frames": step, "seed": 0, "charts/episodes": 0} for step in (500, 1000)])
    notes = summary_of(tmp_path / "runs").notes
    assert "Left out because their logs have no rows with such scores: empty, seed 0." in notes
    assert f"No score because no episode ended in the last 0.2 of the steps: u51 on {GAME}, seed 0." in notes


def test_protocols_are_mixed_only_on_request(tmp_path):
    write_run(tmp_path / "runs" / "plain", "c51", "pong")
    write_run(tmp_path / "runs" / "sticky", "c51", "pong", sticky=0.25, seed=1)
    words = (
        r"^runs on pong in runs must share one protocol to be compared, got plain \(not sticky\) and sticky "
        r"\(sticky 0.25\); mix_protocols shows them side by side$"
    )
    with pytest.raises(ValueError, match=words):
        summary_of(tmp_path / "runs")
    scores = tables_of(summary_of(tmp_path / "runs", mix_protocols=True))["scores"]
    assert column(scores, 1) == ["c51, not sticky", "c51, sticky 0.25"]


def test_families_in_one_folder_are_summarised_separately(tmp_path):
    for env in ("pong", GAME, "CartPole-v1"):
        write_run(tmp_path / "runs" / env, "c51", env)
    found = summarise(read_curves([tmp_path / "runs"]))
    assert [one.title for one in found] == ["runs: Atari", "runs: MinAtar", "runs: other"]


@pytest.mark.parametrize(("seeds", "doubted"), [(1, False), (2, True), (5, False)])
def test_intervals_of_few_seeds_are_doubted(seeds, doubted, tmp_path):
    write_run(tmp_path / "run", "dqn", seeds=seeds)
    assert any("Fewer than 5 seeds" in note for note in summary_of(tmp_path).notes) == doubted


def test_the_tail_is_a_fraction():
    with pytest.raises(ValueError, match=r"tail must be in \(0, 1\], got 1.5"):
        Scoring(tail=1.5)


def test_episodes_that_resets_cut_are_noted_where_they_are_many(tmp_path):
    """Of 4 episodes in the last fifth of the steps, 1 more is 20 %; without the column nothing is known."""
    for seed in range(3):
        write_run(tmp_path / "runs" / str(seed), env="pong", seed=seed)
    rows = read_rows(tmp_path / "runs" / "1")
    write_rows(tmp_path / "runs" / "1", [row | {"charts/episodes_cut": int(row["step"] < 500)} for row in rows])
    rows[-2]["charts/episodes_cut"] = 1
    write_rows(tmp_path / "runs" / "2", [row | {"seed": 2} for row in rows])
    (note,) = (note for note in summary_of(tmp_path / "runs").notes if "Resets" in note)
    assert note.endswith("so complete ones are too short and scores may be biased: s51 on pong, seed 2 (20%).")
