"""What a report says first, its short names, and what it hides."""

import pytest
from study_runs import summary_of, tables_of, write_run
from sweep_folders import diverge

from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import bootstrap_interval
from cramerl.reports.dots import dot_plots
from cramerl.reports.headline import headline
from cramerl.reports.labels import left_out, short_labels
from cramerl.reports.tables import interval_text, make_tables, number
from cramerl.reports.telling import telling_tables

GAME = "Breakout-MinAtar"


def write_agents(folder, levels, env=GAME, **settings):
    for agent, level in levels.items():
        write_run(folder / f"{agent}-{env}", agent, env, level=level, **settings)
    return folder


def difference(summary, first, second, env=GAME):
    samples = ([summary.best[Series(agent), env].scores] for agent in (first, second))
    return interval_text(bootstrap_interval("difference_of_means", *samples))


def test_one_seed_tells_nothing_apart(tmp_path):
    summary = summary_of(write_agents(tmp_path, {"dqn": 9.0, "c51": 10.0, "s51": 8.0}))
    scores = {one.agent: number(summary.best[one, GAME].score.estimate) for one in summary.series}
    listed = ", ".join(f"{agent} {scores[agent]}" for agent in ("c51", "dqn", "s51"))
    assert headline(summary) == f"On {GAME}: one seed, so the three cannot be told apart: {listed}."


def test_who_is_ahead_and_by_how_much(tmp_path):
    summary = summary_of(write_agents(tmp_path, {"dqn": 9.0, "c51": 20.0, "s51": 8.0}, seeds=10))
    score = interval_text(summary.best[Series("c51"), GAME].score)
    ahead = f"c51 is ahead with {score}, {difference(summary, 'c51', 'dqn')} above dqn, the next."
    assert headline(summary) == f"On {GAME}: {ahead}"


def test_who_cannot_be_told_apart(tmp_path):
    """The same seeds have the same noise, so equal levels give equal scores."""
    summary = summary_of(write_agents(tmp_path, {"dqn": 5.0, "c51": 10.0, "u51": 10.0}, seeds=10))
    text = headline(summary)
    assert "c51 and u51 cannot be told apart; c51 is 0.000 [" in text
    assert text.endswith(f"Behind c51: dqn by {difference(summary, 'c51', 'dqn')}.")


def test_an_agent_with_one_seed_is_not_compared(tmp_path):
    write_agents(tmp_path, {"c51": 20.0, "s51": 8.0}, seeds=10)
    summary = summary_of(write_agents(tmp_path, {"dqn": 9.0}))
    text = headline(summary)
    assert f"c51 is ahead with {interval_text(summary.best[Series('c51'), GAME].score)}" in text
    assert text.endswith(f"{difference(summary, 'c51', 's51')} above s51, the next. dqn: one seed, so not compared.")


def test_a_leader_of_many_is_judged_among_all_pairs(tmp_path, monkeypatch):
    """With ten agents the level is 1 - 0.05 / 45."""
    levels = []

    def spy(*args, level=0.95, **settings):
        levels.append(level)
        return bootstrap_interval(*args, level=level, **settings)

    monkeypatch.setattr("cramerl.reports.headline.bootstrap_interval", spy)
    for steps in range(1, 11):
        write_run(tmp_path / str(steps), "u51", n_step=steps, seeds=2)
    headline(summary_of(tmp_path))
    assert {0.95, 1 - 0.05 / 45} == set(levels)


def test_runs_of_several_protocols_are_not_ranked(tmp_path):
    write_run(tmp_path / "plain", "s51", seeds=3)
    write_run(tmp_path / "sticky", "c51", seeds=3, sticky=0.25)
    assert headline(summary_of(tmp_path, mix_protocols=True)).startswith("These runs follow different protocols")


def test_a_run_that_diverged_is_named(tmp_path):
    write_agents(tmp_path, {"c51": 20.0, "s51": 8.0}, seeds=10)
    log = tmp_path / f"s51-{GAME}" / "metrics.jsonl"
    diverge(log, {"seed": 3}, 500)
    assert headline(summary_of(tmp_path)).endswith(" s51: no score, because a run diverged.")


def test_over_several_games_the_iqm_decides(study):
    summary = summary_of(study / "main")
    assert summary.aggregates is not None
    iqms = {one.agent: found["iqm"] for one, found in summary.aggregates.intervals.items()}
    text = headline(summary)
    assert text.startswith("Over two games, by the IQM of normalised scores: u51 is ahead with ")
    assert interval_text(iqms["u51"]) in text
    assert number(iqms["u51"].estimate - iqms["c51"].estimate) in text
    assert text.endswith("above c51, the next. These are few seeds (3), so the intervals are too narrow.")


def test_one_agent_has_a_score(tmp_path):
    summary = summary_of(write_run(tmp_path / "run"))
    score = number(summary.shown[0].score.estimate)
    assert headline(summary) == f"On {GAME}: s51 scores {score} (one seed, so no interval)."


def test_many_names_are_counted(tmp_path):
    for steps in range(1, 8):
        write_run(tmp_path / "runs" / str(steps), "u51", n_step=steps, seeds=2)
    assert "u51 (n_step 3) and four more cannot be told apart" in headline(summary_of(tmp_path))


@pytest.mark.parametrize(
    ("several", "expected"),
    [
        ([{"mean_weight": 0.1}], ["u51"]),
        ([{"mean_weight": 0.1}, {}], ["u51", "u51, mean_weight 0.1"]),
        ([{"mean_weight": 0.1, "n_step": 1}, {"mean_weight": 0.1, "n_step": 3}], ["u51, n_step 1", "u51, n_step 3"]),
    ],
)
def test_names_say_only_what_differs(several, expected, tmp_path):
    for i, settings in enumerate(several):
        write_run(tmp_path / str(i), "u51", **settings)
    series = summary_of(tmp_path).series
    assert list(short_labels(series).values()) == expected
    words = ["Names leave out what all runs of an agent share: u51 has mean_weight 0.1."]
    assert left_out(series) == ([] if {} in several else words)


def test_what_says_nothing_is_hidden_and_named(tmp_path):
    summary = summary_of(write_agents(tmp_path, {"dqn": 9.0, "c51": 10.0, "s51": 8.0}))
    tables = make_tables(summary)
    assert {"aggregates", "comparisons"} <= {table.name for table in tables}
    shown, words = telling_tables(summary, tables)
    assert [table.name for table in shown] == ["scores", "diagnostics"]
    assert words == (
        "Hidden because they say nothing here: the aggregates, which repeat the scores on a single game; three "
        "comparisons, which have no interval because of a single seed. tables.md has them."
    )


def test_what_says_something_is_shown(study, tmp_path):
    summary = summary_of(study / "main")
    tables = list(tables_of(summary).values())
    assert telling_tables(summary, tables) == (tables, "")
    write_agents(tmp_path, {"dqn": 9.0, "c51": 10.0}, seeds=3)
    write_run(tmp_path / "s51", "s51")
    shown, words = telling_tables(summary_of(tmp_path), make_tables(summary_of(tmp_path)))
    (comparisons,) = (table for table in shown if table.name == "comparisons")
    assert [row[0] for row in comparisons.rows] == ["c51 against dqn"]
    assert "two comparisons" in words


def test_dots_lie_between_the_ends_of_their_intervals(study):
    summary = summary_of(study / "main")
    plots = dot_plots(summary)
    assert [plot.title for plot in plots] == ["IQM over 2 games", *summary.games]
    for plot in plots:
        for dot in plot.dots:
            assert dot.low is not None
            assert dot.high is not None
            assert 4 <= dot.low <= dot.at <= dot.high <= 96
        assert [dot.at for dot in plot.dots] == sorted((dot.at for dot in plot.dots), reverse=True)
        assert min(dot.low or 0 for dot in plot.dots) == 4
        assert max(dot.high or 0 for dot in plot.dots) == 96


def test_a_single_score_stands_in_the_middle(tmp_path):
    ((dot,),) = (plot.dots for plot in dot_plots(summary_of(write_run(tmp_path / "run"))))
    assert (dot.at, dot.low, dot.high) == (50.0, None, None)
