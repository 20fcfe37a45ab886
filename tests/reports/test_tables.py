"""The tables of a report, and numbers in words."""

import pytest
from study_runs import column, diverging, read_rows, summary_of, tables_of, write_rows, write_run

from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import Interval
from cramerl.reports.figures import make_figures
from cramerl.reports.tables import Entry, interval_text, number, settings_table

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")


def test_numbers_in_words():
    assert [number(x) for x in (0.12345, 1.2345, 123.45, 12345.6, -0.0001, float("nan"))] == [
        *("0.123", "1.23", "123.5", "12,346", "0.000", "–")
    ]
    assert interval_text(Interval(1234.5, 1.0, 2000.0)) == "1,234 [1, 2,000]"
    assert interval_text(Interval(1.0, float("nan"), float("nan"))) == "1.00"


def test_entries_keep_their_values(study):
    summary = summary_of(study / "main")
    for group, row in zip(summary.shown, tables_of(summary)["scores"].rows, strict=True):
        values = [entry.value for entry in row if isinstance(entry, Entry)]
        assert values == [group.score.estimate, pytest.approx(group.whole.mean()), 3, 1000]


def test_scores_name_the_rate_of_each(tmp_path):
    for agent, rate in (("c51", 1e-4), ("s51", 3e-5)):
        write_run(tmp_path / agent, agent, learning_rate=rate)
    scores = tables_of(summary_of(tmp_path))["scores"]
    assert scores.columns[-1] == "setting"
    assert column(scores, -1) == ["learning_rate 0.0001", "learning_rate 3e-05, lambda 10, after"]


def test_rates_at_which_runs_diverged_are_shown(tmp_path):
    folder = write_run(tmp_path / "study" / "a", learning_rate=(1e-4, 5e-4, 1.0))
    end = {"step": 500, "frames": 500, "iteration": 0, "learning_rate": 1.0, "seed": 0, "diverged": True}
    write_rows(folder, [*(row for row in read_rows(folder) if row["learning_rate"] < 1), end])
    summary = summary_of(tmp_path)
    (row,) = tables_of(summary)["rates"].rows
    assert row[-2].endswith(", 1: diverged")
    (caption,) = (figure.caption for figure in make_figures(summary) if figure.name == "rates")
    assert "a rate at which runs diverged" in caption
    diverging(tmp_path / "other" / "a")  # with a single rate left
    assert "rates" not in tables_of(summary_of(tmp_path / "other"))


def test_penalties_are_put_on_one_scale(study):
    found = tables_of(summary_of(study / "lambda"))["penalties"].rows
    ours = [(row[2], row[3], row[4]) for row in found if row[0] == GAMES[0]]
    lambdas = (("1", "1 (orthonormal)"), ("10", "10 (orthonormal)"), ("51", "1 (total)"), ("510", "10 (total)"))
    assert ours == [(kind, *words) for kind in ("after", "before") for words in lambdas]


def test_atari_has_published_scores_beside_it(tmp_path):
    for env in ("pong", "asterix"):
        for agent in ("c51", "dqn"):
            write_run(tmp_path / f"{agent}-{env}", agent, env, level=15.0)
    summary = summary_of(tmp_path)
    found = tables_of(summary)
    rows = [row for row in found["published"].rows if row[:2] == ["pong", "c51"]]
    assert ["pong", "c51", "CleanRL", "not sticky", "", "", "", "19.5", "", "", ""] in rows
    assert rows[0][2:6] == ["Dopamine TF", "sticky actions (0.25)", "-6.1", "14.2"]
    rows = [row for row in found["published"].rows if row[:3] == ["pong", "c51", "DQN Zoo"]]
    assert rows[0][4:6] == ["-7.2 [-12.8, -0.5]", "17.9 [17.2, 19.7]"]
    caption = make_figures(summary)[0].caption
    assert "One seed: no interval." in caption
    assert "DQN Zoo at 10 M frames (not sticky)" in caption
    assert "Dopamine" not in caption
    assert "human-normalised" in found["aggregates"].note
    one_seed = f"{number(0.0)} (one seed: no interval)"
    assert found["comparisons"].rows[0][2:] == [one_seed, "–", one_seed]
    assert found["scores"].rows[0][2] == number(summary.best[Series("dqn"), "asterix"].score.estimate)


def test_a_support_that_is_too_small_is_named(tmp_path):
    for agent, clipped in (("c51", 0.2), ("u51", 0.3)):
        run = write_run(tmp_path / agent, agent, seeds=2)
        rows = [row | {"dist/clipped_mass": clipped if row["step"] > 800 else 1 - clipped} for row in read_rows(run)]
        write_rows(run, rows)
    note = tables_of(summary_of(tmp_path))["diagnostics"].note
    words = "More than 25% of the mass lay outside the support and was moved to its ends: u51 on Breakout-MinAtar. "
    assert words in note
    assert "c51" not in note


def test_settings_that_agents_do_not_share(tmp_path):
    write_run(tmp_path / "a", "c51", n_step=3)
    write_run(tmp_path / "b", "dqn", initial_weights="/home/someone/weights")
    rows = dict(settings_table(summary_of(tmp_path)).rows)
    assert rows["n_step"] == "3 (c51); 1 (dqn)"
    assert rows["dqn_loss"] == "huber (dqn)"
    assert "mass_penalty" not in rows
    assert rows["initial_weights"].endswith("weights (dqn)")
    assert "/home" not in str(rows)
