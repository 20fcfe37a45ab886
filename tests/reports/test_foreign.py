"""A report of other libraries' runs, alone and beside ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from study_runs import column, write_run

import cramerl
from cramerl import plots
from cramerl.cli.main import main
from cramerl.evidence.foreign.reading import log_at, read_logs
from cramerl.evidence.summary import Scoring, summarise
from cramerl.reports.build import _different, make_report

ENV = "Breakout-MinAtar"
HOSTILE = ["<script>alert(1)</script>", "a|b](c) \x1b[2Jred", "$\\frac{", "=1+1", "&lt;", "ab\u202ecd", "蜘蛛"]


def theirs(path: Path, agents=("ppo", "a2c", "rainbow"), env: str = ENV, seeds: int = 3, steps: int = 1000) -> Path:
    rows = ['"agent","env","seed","step","return"']
    for level, agent in enumerate(agents, start=1):
        for seed in range(seeds):
            noise = np.random.default_rng([level, seed])
            for step in range(steps // 10, steps + 1, steps // 10):
                name = agent.replace('"', '""')
                rows.append(f'"{name}","{env}",{seed},{step},{level * step / 100 + noise.normal():.4f}')
    path.write_text("\n".join(rows))
    return path


def test_a_report_of_a_table_has_what_ours_has(tmp_path):
    out = tmp_path / "out"
    page = cramerl.report(theirs(tmp_path / "theirs.csv"), out)
    assert page == out / "report.html"
    text = page.read_text()
    assert '<p class="finding">On Breakout-MinAtar: rainbow is ahead with' in text
    assert {"curves.svg", "curves.png"} <= {path.name for path in (out / "figures").iterdir()}
    tables = (out / "tables.md").read_text()
    assert "| a2c against ppo | Breakout-MinAtar |" in tables
    assert "Protocol (Breakout-MinAtar): not known, because logs of other libraries do not say" in tables
    assert "Logs of other libraries: theirs.csv." in tables
    assert "How the runs of a2c; ppo; rainbow were played and scored is not known" in text
    assert "weights" not in tables
    assert not (out / "dopamine").exists()  # steps are no iterations
    (study,) = json.loads((out / "scores.json").read_text())["studies"]
    assert study["name"] == "theirs"
    assert np.array(study["rliable"]["scores"]["ppo"]).shape == (3, 1)
    rows = [line.split(",") for line in (tmp_path / "theirs.csv").read_text().splitlines()[1:]]
    for run in study["runs"]:
        key = [f'"{run["agent"]}"', f'"{ENV}"', str(run["seed"])]
        last = [float(row[4]) for row in rows if row[:3] == key and int(row[3]) > 800]
        assert run["score"] == pytest.approx(sum(last) / 2)


def test_the_order_of_rows_does_not_matter_for_a_single_byte(tmp_path):
    path = theirs(tmp_path / "theirs.csv")
    make_report([path], tmp_path / "a")
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *sorted(rows, key=lambda row: row[::-1])]))
    make_report([path], tmp_path / "b")
    for name in ("report.html", "tables.md", "scores.json", "figures/curves.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_hostile_names_are_only_text(tmp_path):
    out = tmp_path / "out"
    sections = make_report([theirs(tmp_path / "theirs.csv", HOSTILE)], out)
    page, tables = (out / "report.html").read_text(), (out / "tables.md").read_text()
    assert "alert(1)" in page
    for text in (page, tables, (out / "scores.json").read_text(), (out / "figures/curves.svg").read_text()):
        assert "<script>alert" not in text.replace('"<script>alert(1)</script>"', "")  # in JSON it is no HTML
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "a|b](c)" not in tables
    (table,) = [one for one in sections[0].tables if one.name == "scores"]
    assert set(column(table, 1)) >= {"a|b](c) \\x1b[2Jred", "$\\frac{", "ab\\u202ecd"}


def test_ours_and_theirs_stand_side_by_side_only_if_asked(tmp_path, capsys):
    ours = write_run(tmp_path / "runs/mine", "s51", ENV, seeds=3)
    table = theirs(tmp_path / "theirs.csv")
    assert main(["report", str(tmp_path / "runs"), str(table), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "must share one protocol to be compared, got theirs.csv (protocol not known) and mine (protocol known)" in (
        " ".join(error.split())
    )
    (section,) = make_report([ours.parent, table], tmp_path / "out", Scoring(mix_protocols=True))
    labels = [one.label for one in section.summary.series]
    assert labels == ["s51", *(f"{name}, protocol not known" for name in ("a2c", "ppo", "rainbow"))]
    assert "shown side by side and not ranked" in section.finding
    (scores,) = [table for table in section.tables if table.name == "scores"]
    assert scores.rows[0][-1].startswith("learning_rate")
    assert [row[-1] for row in scores.rows[1:]] == ["not known"] * 3


def test_own_agents_keep_their_colours():
    found = plots.agent_colours(["s51", "dqn", "PPO", "a", "b", "c"])
    assert (found["s51"], found["dqn"]) == (plots.AGENT_COLOURS["s51"], plots.AGENT_COLOURS["dqn"])
    assert len(set(found.values())) == 6
    assert not {plots.POSITIVE, plots.NEGATIVE} & set(found.values())
    assert len(plots.agent_colours([f"agent {i}" for i in range(10)])) == 10


def test_many_agents_are_compared_with_the_best_only(tmp_path):
    few, many = (theirs(tmp_path / f"{n}.csv", [f"agent {i}" for i in range(n)], seeds=2) for n in (6, 8))
    (summary,) = summarise(read_logs([log_at(few)]))
    assert len(summary.comparisons) == 15
    (summary,) = summarise(read_logs([log_at(many)]))
    assert {one.first.agent for one in summary.comparisons} == {"agent 7"}
    assert len(summary.comparisons) == 7


def test_files_of_games_are_told_apart_whatever_the_disk():
    assert _different(["A-B", "A-B", "a-b", "A-B-2"]) == ["A-B", "A-B-2", "a-b-3", "A-B-2-2"]


def test_the_same_run_twice_is_refused(tmp_path):
    first, second = theirs(tmp_path / "a.csv"), theirs(tmp_path / "b.csv", agents=("ppo",))
    with pytest.raises(ValueError, match=r"a\.csv and .*b\.csv are the same run: ppo on Breakout-MinAtar with seed 0"):
        make_report([first, second], tmp_path / "out")
    assert len(make_report([first, first], tmp_path / "out")[0].summary.curves) == 9


def test_runs_of_different_lengths_and_single_seeds(tmp_path):
    long = theirs(tmp_path / "long.csv", ("ppo",), seeds=1, steps=2000)
    short = theirs(tmp_path / "short.csv", ("a2c",), seeds=1)
    (section,) = make_report([long, short], tmp_path / "out")
    assert "scored at 1,000, where the shortest ends (short.csv, seed 0)" in " ".join(section.notes)
    assert "one seed, so the two cannot be told apart" in section.finding


def test_iterations_and_steps_are_not_mixed(tmp_path):
    row = {"Agent": "DQN", "Iteration": 0, "Value": 1.0, "Game": ENV}
    (tmp_path / "x.json").write_text(json.dumps([row]))
    make_report([tmp_path / "x.json"], tmp_path / "out")
    assert "iterations" in (tmp_path / "out/figures/curves.svg").read_text()
    with pytest.raises(
        ValueError, match=r"must count in the same unit to be compared, got .* \(agent steps\) and x.json"
    ):
        make_report([tmp_path / "x.json", theirs(tmp_path / "a.csv")], tmp_path / "out")


def test_the_flag_for_columns(tmp_path, capsys):
    path = theirs(tmp_path / "theirs.csv")
    path.write_text(path.read_text().replace('"agent"', '"who"').replace('"step"', '"when"'))
    status = main(["report", str(path), "--columns", "agent=who,step=when", "--out", str(tmp_path / "out")])
    assert status == 0
    assert "rainbow is ahead" in capsys.readouterr().out
    for wrong, words in (("agent", "must be pairs such as agent=algo"), ("x=who", "columns must be named for agent")):
        try:
            status = main(["report", str(path), "--columns", wrong, "--out", str(tmp_path / "out")])
        except SystemExit as exit_:
            status = exit_.code
        assert status == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_what_is_no_log_is_a_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(
        ValueError, match=r"notes.txt must be a folder of runs, a table \(.csv, .tsv, .parquet\), an event"
    ):
        make_report([tmp_path / "notes.txt"], tmp_path / "out")
    (tmp_path / "logs").mkdir()
    with pytest.raises(ValueError, match="tables such as CSV files are named one by one"):
        make_report([tmp_path / "logs"], tmp_path / "out")
    (tmp_path / "logs/log_3").write_bytes(b"\x80")
    with pytest.raises(ValueError, match="Pickles are never opened here"):
        make_report([tmp_path / "logs"], tmp_path / "out")
    run = write_run(tmp_path / "run")
    with pytest.raises(ValueError, match="columns are those of tables"):
        make_report([run], tmp_path / "out", columns={"agent": "x"})


def test_the_example_of_the_page_works(tmp_path):
    docs = Path(__file__).parents[2] / "docs/reports.md"
    (example,) = re.findall(r"```text\n(agent,env,seed.*?)```", docs.read_text(), re.DOTALL)
    (tmp_path / "theirs.csv").write_text(example)
    (section,) = make_report([tmp_path / "theirs.csv"], tmp_path / "out")
    assert section.finding.startswith("On CartPole-v1: ppo is ahead with")
