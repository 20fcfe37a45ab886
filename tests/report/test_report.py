"""`cramerl report`, as its user meets it: what is written, said and refused."""

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from study_runs import change_config, write_rows, write_run

from cramerl import plots
from cramerl.claims import projection
from cramerl.cli.main import main
from cramerl.cli.report import write_demo_report
from cramerl.evidence.curves import area_under_curve, final_score, on_grid, read_curves
from cramerl.evidence.scores import Series, normalised, summarise
from cramerl.evidence.statistics import Interval, bootstrap_interval, iqm, mean_band
from cramerl.report.build import make_report
from cramerl.report.figures import grid_edges, make_figures
from cramerl.report.page import to_text
from cramerl.report.scenes import DistributionPictures
from cramerl.report.settings import settings_table
from cramerl.report.tables import interval, make_tables, number

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")
LEVELS = {"dqn": 10.0, "c51": 11.0, "s51": 8.0, "u51": 12.0}


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cramerl", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def tables(sections, study=0):
    return {table.name: table for table in sections[study].tables}


def tables_of(paths, **options):
    """The tables of a report of one study, without the figures, which take longest."""
    (summary,) = summarise(read_curves(paths), **options)
    return {table.name: table for table in make_tables(summary, normalised(summary)[0], 0)}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Four agents, two games, three seeds; and a sweep over learning rates and penalties beside it."""
    root = tmp_path_factory.mktemp("results")
    for env in GAMES:
        for agent, level in LEVELS.items():
            write_run(root / "main" / f"{env}-{agent}", agent, env, level=level, lanes=3)
            write_run(root / "rates" / f"{env}-{agent}", agent, env, level=level, lanes=2, learning_rates=(1e-4, 5e-4))
        for scale in ("orthonormal", "total"):
            for kind in ("after", "before"):
                settings = {
                    "mass_penalty_scale": scale,
                    "normalisation": kind,
                    "mass_penalties": (1.0, 10.0),
                    "lanes": 2,
                }
                write_run(root / "lambda" / f"{env}-{scale}-{kind}", "s51", env, **settings)
    (root / "main" / "sweep.json").write_text('{"command": "cramerl sweep <all>"}')
    return root


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "report"
    return report(study, "--out", out), out


def test_what_is_written_and_said(written, study):
    result, out = written
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert f"wrote {out / 'report.html'}" in result.stdout
    for word in ("main", "lambda", "rates", "u51", "IQM", "note: Several settings were tried"):
        assert word in result.stdout
    names = set(files(out))
    assert {"report.html", "tables.md", "scores.json", "dopamine/main-Asterix-MinAtar.json"} <= names
    for name in ("main-curves", "main-aggregates", "main-profiles", "rates-rates", "lambda-penalties"):
        assert {f"figures/{name}.svg", f"figures/{name}.png"} <= names
    assert not {"figures/main-rates.svg", "figures/lambda-aggregates.svg"} & names
    assert list(out.parent.iterdir()) == [out]


def test_the_page_is_one_file_without_network(written):
    page = (written[1] / "report.html").read_text()
    ids: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found = dict(attrs)
            ids.extend([found["id"]] if "id" in found else [])
            assert tag not in ("img", "iframe", "object")
            assert "src" not in found
            for name in ("href", "xlink:href"):
                assert found.get(name, "#").startswith(("#", "data:,"))

    Reader().feed(page)
    assert len(ids) == len(set(ids))
    assert page.count("<svg") == 3 + 4 + 2  # one agent alone has no aggregates and no profiles
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "default-src 'none'" in page
    assert "cramerl sweep &lt;all&gt;" in page
    assert str(written[1].parent) not in page
    for target in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert target in ids


def page_values(page: str) -> list[list[dict]]:
    found = re.findall(r'<script type="application/json" class="values">(.*?)</script>', page)
    return [json.loads(text) for text in found]


def test_the_page_holds_the_values_that_are_drawn(study, tmp_path):
    sections = make_report([study / "main"], tmp_path / "out")
    curves, aggregates, profiles = page_values((tmp_path / "out" / "report.html").read_text())
    assert [panel["title"] for panel in curves] == list(GAMES)
    summary = sections[0].summary
    for panel in curves:
        env = panel["title"]
        assert [words for words, _ in panel["stops"]] == [f"step {step:,}" for step in range(100, 1001, 100)]
        assert [line["label"] for line in panel["lines"]] == ["dqn", "c51", "s51", "u51"]
        for series, line in zip(summary.series, panel["lines"], strict=True):
            cell = summary.cells[series, env]
            band = mean_band([on_grid(curve, grid_edges(summary, env)) for curve in cell.curves], seed=0)
            expected = [interval(Interval(*map(float, values))) for values in zip(*band, strict=True)]
            assert [point[2] for point in line["points"]] == expected
        assert all(0 <= part <= 100 for part in panel["box"])
        assert all(0 <= part <= 100 for line in panel["lines"] for point in line["points"] for part in point[:2])
    assert len(profiles[0]["stops"]) <= 41
    assert_aggregates(aggregates, tables(sections)["aggregates"])


def assert_aggregates(panels, table):
    """The bars of each panel from the top down, each with the words of the table."""
    assert [panel["title"] for panel in panels] == table.columns[1:-1]
    for column, panel in enumerate(panels, start=1):
        assert panel["along"] == "y"
        assert [words for words, _ in panel["stops"]] == [row[0] for row in table.rows]
        assert [at for _, at in panel["stops"]] == sorted(at for _, at in panel["stops"])
        for i, line in enumerate(panel["lines"]):
            (point,) = (point for point in line["points"] if point)
            assert line["points"].index(point) == i
            assert point[2] == table.rows[i][column]


def test_bars_have_titles_for_pages_without_scripts(study, tmp_path):
    found = tables(make_report([study / "main"], tmp_path / "out"))["aggregates"]
    for text in ((tmp_path / "out" / name).read_text() for name in ("report.html", "figures/aggregates.svg")):
        for row in found.rows:
            assert text.count(f"<title>{row[0]}: IQM {row[1]}</title>") == 2  # the bar, and the mark in it


def test_values_of_settings_that_were_tried(study, tmp_path):
    make_report([study / "rates"], tmp_path / "out")
    (summary,) = summarise(read_curves([study / "rates"]))
    (drawing,) = [figure.drawing for figure in make_figures(summary, None, 0) if figure.name == "rates"]
    assert [label.get_text() for label in drawing.axes[0].get_xticklabels()] == ["0.0001", "0.0005"]
    rates = page_values((tmp_path / "out" / "report.html").read_text())[-1]
    assert [words for words, _ in rates[0]["stops"]] == ["learning rate 0.0001", "learning rate 0.0005"]
    assert all(None not in line["points"] for line in rates[0]["lines"])


def test_names_in_values_do_not_end_the_script(tmp_path):
    write_run(tmp_path / "runs" / "a", "c51", "</script><b>-game")
    make_report([tmp_path / "runs"], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "</script><b>" not in page
    assert page_values(page)[0][0]["title"] == "</script><b>-game"


def test_settings_and_versions_are_folded_away(study, tmp_path):
    make_report([study / "rates"], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    details = page[page.index('<details class="settings"') :]
    assert "Versions: cramerl 0.0, device cpu: cpu." in details
    for name, value in (("learning_rate", "0.0001, 0.0005"), ("seed", "0, 1"), ("steps", "1,000"), ("double_q", "off")):
        assert f"<tr><td>{name}</td><td>{value}</td></tr>" in details
    assert "learning_rates" not in details


def test_settings_that_agents_do_not_share(tmp_path):
    write_run(tmp_path / "runs" / "a", "c51", n_step=3)
    write_run(tmp_path / "runs" / "b", "dqn", initial_weights="/home/someone/weights")
    (section,) = make_report([tmp_path / "runs"], tmp_path / "out")
    rows = dict(settings_table(section.summary).rows)
    assert rows["n_step"] == "3 (c51); 1 (dqn)"
    assert rows["dqn_loss"] == "huber (dqn)"
    assert "mass_penalty" not in rows
    assert "/home" not in (tmp_path / "out" / "report.html").read_text()


def test_claims_of_the_paper_come_last(study, tmp_path):
    claims = [statement.check() for statement in projection.STATEMENTS[:2]]
    make_report([study / "main"], tmp_path / "out", claims=claims)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index('id="theory"') > page.index('id="study-0-settings"')
    assert page.count('<details id="claim-') == 2
    assert "2 claims" in (tmp_path / "out" / "tables.md").read_text()
    assert json.loads((tmp_path / "out" / "scores.json").read_text())["theory"]["passed"] is True


def test_claims_whose_figures_moved_are_an_error(study, tmp_path, monkeypatch, capsys):
    claim = dataclasses.replace(projection.STATEMENTS[0].check(), passed=False)
    monkeypatch.setattr("cramerl.claims.verify", lambda: [claim])
    assert main(["report", str(study / "main"), "--out", str(tmp_path / "out"), "--verify"]) == 1
    assert f"FIGURES HAVE MOVED in {claim.id}." in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()


def test_figures_for_papers(study, tmp_path):
    for name in ("a", "b"):
        make_report([study / "main"], tmp_path / name, pdf=True)
    found = files(tmp_path / "a")
    assert found == files(tmp_path / "b")
    for name in ("curves", "aggregates", "profiles"):
        assert found[f"figures/{name}.pdf"].startswith(b"%PDF")
        assert b"Date" not in found[f"figures/{name}.pdf"]


def test_the_demonstration_ends_with_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr("cramerl.claims.verify", list)
    write_run(tmp_path / "runs" / "s51")
    page = write_demo_report(tmp_path)
    assert write_demo_report(tmp_path) == page  # in place of the first
    assert page == tmp_path / "report" / "report.html"
    assert "Learning curves" in page.read_text()


def test_the_same_runs_give_the_same_bytes(written, study, tmp_path):
    again = tmp_path / "again"
    make_report([study], again, look=DistributionPictures())  # another process than the first
    before = files(written[1])
    assert files(again) == before
    make_report([study], again, seed=1, look=DistributionPictures())  # in place of the earlier one
    assert files(again).keys() == before.keys()
    assert (again / "tables.md").read_bytes() != before["tables.md"]


def test_scores_are_those_of_the_curves(written, study):
    content = json.loads((written[1] / "scores.json").read_text())
    main = next(one for one in content["studies"] if one["name"] == "main")
    assert main["rliable"]["games"] == list(GAMES)
    curves = read_curves([study / "main"])
    for agent in LEVELS:
        expected = np.array([[final_score(c) for c in curves if (c.agent, c.env) == (agent, env)] for env in GAMES]).T
        assert np.array(main["rliable"]["scores"][agent]) == pytest.approx(expected)
        assert np.array(main["rliable"]["curves"][agent]).shape == (3, 2, 20)
    assert len(main["runs"]) == 24
    (summary,) = summarise(curves)
    cell = summary.cells[Series("u51"), GAMES[0]]
    text = (written[1] / "tables.md").read_text()
    assert f"| {GAMES[0]} | u51 | {interval(bootstrap_interval('mean', cell.scores))} |" in text
    rows = json.loads((written[1] / "dopamine" / "main-Asterix-MinAtar.json").read_text())
    assert len(rows) == 4 * 3 * 2
    assert set(rows[0]) == {"Iteration", "Value", "Agent"}


def test_aggregates_are_divided_by_dqn(study):
    (summary,) = summarise(read_curves([study / "main"]))
    scale, notes = normalised(summary)
    assert notes == []
    assert scale.words == "scores divided by the mean score of dqn on the same game"
    dqn = {env: summary.cells[Series("dqn"), env].mean for env in GAMES}
    ours = [summary.cells[Series("u51"), env].scores / dqn[env] for env in GAMES]
    assert iqm(scale.scores[Series("u51")]) == pytest.approx(iqm(ours))


def test_without_dqn_the_best_agent_is_the_measure(study):
    (summary,) = summarise([curve for curve in read_curves([study / "main"]) if curve.agent != "dqn"])
    scale, _ = normalised(summary)
    assert "of the best agent (there is no dqn that has played them all)" in scale.words
    assert np.mean(scale.scores[Series("u51")][0]) == pytest.approx(1.0)


def test_comparisons_are_those_that_were_asked_for(study, tmp_path):
    found = tables_of([study / "main"])["comparisons"].rows
    pairs = list(dict.fromkeys(row[0] for row in found))
    words = ["u51 against s51", "c51 against dqn", "s51 against dqn", "u51 against dqn", "s51 against c51"]
    assert pairs == [*words, "u51 against c51"]
    assert [row[1] for row in found[:3]] == [*GAMES, "all, normalised"]
    assert found[0][3] == "1.00 [1.00, 1.00]"
    curves = [curve for curve in read_curves([study / "main"]) if curve.env == GAMES[0]]
    whole = {agent: [area_under_curve(curve) for curve in curves if curve.agent == agent] for agent in ("u51", "s51")}
    assert found[0][4].startswith(f"{number(np.mean(whole['u51']) - np.mean(whole['s51']))} [")
    assert found[0][4] != found[0][2]
    assert found[2][4] == ""


def test_the_best_setting_is_chosen_and_said(study, tmp_path):
    sections = make_report([study / "rates"], tmp_path / "out")
    found = tables(sections)
    assert all(row[2] == "0.0005" and row[-1] == "yes" for row in found["rates"].rows)
    assert len(found["rates"].rows) == 8
    assert found["scores"].rows[0][-1] == "learning_rate 0.0005 (best of 2)"
    assert found["scores"].columns[-1] == "best setting"
    assert any("chosen by these very scores" in note for note in sections[0].notes)
    assert {"figures/rates.svg", "figures/curves.svg"} <= set(files(tmp_path / "out"))
    assert "dopamine/Asterix-MinAtar.json" in files(tmp_path / "out")


def test_each_rate_is_shown_with_the_best_of_what_else_was_tried(tmp_path):
    for kind, level in (("after", 10.0), ("before", 5.0)):
        write_run(tmp_path / "runs" / kind, level=level, normalisation=kind, learning_rates=(1e-4, 5e-4), lanes=2)
    (summary,) = summarise(read_curves([tmp_path / "runs"]))
    found = summary.best_along(Series("s51"), "Breakout-MinAtar", lambda cell: cell.setting("learning_rate"))
    assert [value for value, _ in found] == [1e-4, 5e-4]
    assert all(cell.setting("normalisation") == "after" and cell.tried == 4 for _, cell in found)
    best = summary.cells[Series("s51"), "Breakout-MinAtar"]
    assert (best.setting("learning_rate"), best.setting("normalisation")) == (5e-4, "after")


def test_rates_at_which_runs_diverged_are_shown(tmp_path):
    folder = write_run(tmp_path / "study" / "a", learning_rates=(1e-4, 5e-4, 1.0))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["learning_rate"] < 1]
    lost = {"step": 500, "frames": 500, "iteration": 0, "learning_rate": 1.0, "seed": 0, "diverged": True}
    write_rows(folder, [*rows, lost])
    sections = make_report([tmp_path], tmp_path / "out")
    (row,) = tables(sections)["rates"].rows
    assert row[-2].endswith(", 1: diverged")
    assert "diverged" in (tmp_path / "out" / "report.html").read_text()


def test_penalties_are_put_on_one_scale(study, tmp_path):
    found = tables_of([study / "lambda"])["penalties"].rows
    ours = [(row[2], row[3], row[4]) for row in found if row[0] == GAMES[0]]
    assert ours == [
        (kind, *words)
        for kind in ("after", "before")
        for words in (
            ("1", "1 (orthonormal)"),
            ("10", "10 (orthonormal)"),
            ("51", "1 (total)"),
            ("510", "10 (total)"),
        )
    ]


def test_atari_has_published_scores_beside_it(tmp_path):
    for env in ("pong", "asterix"):
        for agent in ("c51", "dqn"):
            write_run(tmp_path / "runs" / f"{agent}-{env}", agent, env, level=15.0)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    found = tables(sections)
    rows = [row for row in found["published"].rows if row[:2] == ["pong", "c51"]]
    assert ["pong", "c51", "CleanRL", "not sticky", "", "", "", "19.50", "", "", ""] in rows
    assert rows[0][2:6] == ["Dopamine TF", "sticky actions (0.25)", "-6.10", "14.20"]
    caption = sections[0].pictures[0].caption
    assert "One seed: no interval." in caption
    assert "DQN Zoo at 50 M frames (not sticky)" in caption
    assert "Dopamine" not in caption
    assert "human-normalised" in found["aggregates"].note
    assert found["comparisons"].rows[0][2:] == [alone := f"{number(0.0)} (one seed: no interval)", "–", alone]
    score = final_score(read_curves([tmp_path / "runs" / "c51-pong"])[0])
    (summary,) = summarise(read_curves([tmp_path / "runs"]))
    scale, _ = normalised(summary)
    assert scale.scores[Series("c51")][1] == pytest.approx([(score + 20.7) / (14.6 + 20.7)])
    assert found["scores"].rows[0][2] == number(summary.cells[Series("dqn"), "asterix"].mean)


def test_protocols_are_not_mixed_without_a_word(tmp_path):
    write_run(tmp_path / "runs" / "plain", "c51", "pong")
    write_run(tmp_path / "runs" / "sticky", "c51", "pong", sticky=0.25, seed=1)
    result = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr == (
        "cramerl: runs on pong in runs must be of one protocol to be compared, got plain (not sticky) and sticky "
        "(sticky 0.25); --mix-protocols shows them beside each other\n"
    )
    assert not (tmp_path / "out").exists()
    result = report(tmp_path / "runs", "--out", tmp_path / "out", "--mix-protocols", "--json")
    assert result.returncode == 0, result.stderr
    (found,) = json.loads(result.stdout)["studies"]
    assert [row[1] for row in found["tables"][0]["rows"]] == ["c51, not sticky", "c51, sticky 0.25"]


def test_games_of_different_protocols_have_no_aggregates(tmp_path):
    write_run(tmp_path / "runs" / "a", "c51", "pong", exploration_final=0.01)
    write_run(tmp_path / "runs" / "b", "c51", "asterix")
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "aggregates" not in tables(sections)
    assert any("games were played under different protocols" in note for note in sections[0].notes)


def test_families_in_one_folder_are_sections_of_their_own(tmp_path):
    for env in ("pong", "Breakout-MinAtar", "CartPole-v1"):
        write_run(tmp_path / "runs" / env, "c51", env)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    assert [one.summary.title for one in sections] == ["runs: Atari", "runs: MinAtar", "runs: other"]


def test_runs_of_different_lengths_are_compared_where_the_shortest_ends(tmp_path):
    long = write_run(tmp_path / "runs" / "long", "c51", steps=2000, rows=20, seed=0)
    write_run(tmp_path / "runs" / "short", "dqn", steps=500, rows=5)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    rows = tables(sections)["scores"].rows
    assert [row[5] for row in rows] == ["500", "500"]
    (curve,) = read_curves([long])
    assert rows[1][:3] == ["Breakout-MinAtar", "c51", number(final_score(curve, steps=500))]
    assert any("all are scored at 500, where the shortest ends (short, seed 0)" in note for note in sections[0].notes)


def test_variants_of_an_agent_have_names(tmp_path):
    write_run(tmp_path / "runs" / "a", "u51", lanes=2)
    write_run(tmp_path / "runs" / "b", "u51", lanes=2, n_step=3, double_q=True)
    write_run(tmp_path / "runs" / "c", "s51", lanes=2)
    made = tables_of([tmp_path / "runs"])
    first, second = "u51, double_q off, n_step 1", "u51, double_q on, n_step 3"
    assert [row[1] for row in made["scores"].rows] == ["s51", first, second]
    compared = [row[0] for row in made["comparisons"].rows]
    assert compared == [f"{first} against s51", f"{second} against s51", f"{second} against double_q off, n_step 1"]


def test_variants_without_a_plain_form_are_compared_with_their_nearest(tmp_path):
    """In the order of their numbers; a preset's values have no place of their own among them."""
    for epsilon, steps in ((1e-8, 3), (1e-8, 10), (3e-4, 3), (3e-4, 10), (5e-2, 3)):
        run = tmp_path / "runs" / f"{epsilon} {steps}"
        write_run(run, "u51", lanes=2, n_step=steps, optimiser_epsilon=epsilon, mean_weight=0.1)
    names = [row[0] for row in tables_of([tmp_path / "runs"])["comparisons"].rows]
    assert [name.removeprefix("u51, mean_weight 0.1, ") for name in names] == [
        "n_step 3, optimiser_epsilon 0.0003 against optimiser_epsilon 1e-08",
        "n_step 3, optimiser_epsilon 0.05 against optimiser_epsilon 1e-08",
        "n_step 3, optimiser_epsilon 0.05 against optimiser_epsilon 0.0003",
        "n_step 10, optimiser_epsilon 1e-08 against n_step 3",
        "n_step 10, optimiser_epsilon 0.0003 against n_step 3",
        "n_step 10, optimiser_epsilon 0.0003 against optimiser_epsilon 1e-08",
    ]


def test_runs_that_are_not_finished_are_named(tmp_path):
    write_run(tmp_path / "runs" / "whole", "u51")
    run = write_run(tmp_path / "runs" / "half", "c51", lanes=2)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    write_rows(run, [row for row in rows if row["step"] <= 600])
    lost = write_run(tmp_path / "runs" / "lost", "s51")  # of which another note speaks
    write_rows(lost, [row for row in rows if row["step"] <= 500 and row["seed"] == 0])
    with (lost / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": 600, "frames": 600, "iteration": 0, "seed": 0, "diverged": True}) + "\n")
    (section,) = make_report([tmp_path / "runs"], tmp_path / "out", unfinished=True)
    assert "Not finished: runs/half (600 of 1,000 steps)." in section.notes
    assert [row[1:6:4] for row in tables([section])["scores"].rows] == [["c51", "600"], ["u51", "600"]]
    (section,) = make_report([tmp_path / "runs"], tmp_path / "out")  # one that runs does not cut the others short
    words = "Left out, for others on the game are finished (see --unfinished): runs/half (600 of 1,000 steps)."
    assert words in section.notes
    assert [row[1:6:4] for row in tables([section])["scores"].rows] == [["u51", "1,000"]]
    shutil.rmtree(tmp_path / "runs" / "whole")
    shutil.rmtree(lost)
    (section,) = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "Not finished: runs/half (600 of 1,000 steps)." in section.notes


def test_curves_are_cut_where_logs_have_rows(tmp_path):
    run = write_run(tmp_path / "run", "c51", rows=4, steps=20_000)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row, step in zip(rows, (5008, 10016, 15024, 20000), strict=True):
        row["step"] = step
    write_rows(run, rows)
    (summary,) = summarise(read_curves([run]))
    edges = grid_edges(summary, "Breakout-MinAtar")
    assert edges.tolist() == [0, 5008, 10016, 15024, 20000]
    (curve,) = read_curves([run])
    np.testing.assert_array_equal(on_grid(curve, edges), curve.returns)
    write_run(tmp_path / "long", "c51", rows=100)
    (summary,) = summarise(read_curves([tmp_path / "long"]))
    edges = grid_edges(summary, "Breakout-MinAtar")
    assert (len(edges), edges[0], edges[-1]) == (61, 0, 1000)
    assert set(np.diff(edges)) == {10, 20}


def test_variants_are_compared_with_their_like_and_with_the_plain_agent(tmp_path):
    for agent, settings in (
        ("s51", {}),
        ("s51", {"mean_weight": 0.1}),
        ("u51", {"mean_weight": 0.1, "base_distribution": "zero"}),
    ):
        write_run(tmp_path / "runs" / f"{agent}{len(settings)}", agent, lanes=2, **settings)
    made = tables_of([tmp_path / "runs"])
    ours = "u51, base_distribution zero, mean_weight 0.1"  # named though no other u51 is there
    assert [row[0] for row in made["comparisons"].rows] == [
        f"{ours} against s51, mean_weight 0.1",
        f"{ours} against s51",
        "s51, mean_weight 0.1 against s51",
    ]


def test_only_what_has_played_a_game_is_compared_on_it(tmp_path):
    """The nearest variant, or the plain agent, may have played another game only."""
    played = (("Asterix-MinAtar", 0.0, 1), ("Breakout-MinAtar", 0.1, 1), ("Breakout-MinAtar", 1.0, 3))
    for env, weight, steps in (*played, ("Asterix-MinAtar", 1.0, 1)):
        run = tmp_path / "runs" / f"{env}{weight}{steps}"
        write_run(run, "u51", env, lanes=2, mean_weight=weight, n_step=steps)
    names = [row[:2] for row in tables_of([tmp_path / "runs"])["comparisons"].rows]
    assert names == [
        ["u51, mean_weight 1, n_step 1 against u51, n_step 1", "Asterix-MinAtar"],
        ["u51, mean_weight 1, n_step 3 against mean_weight 0.1, n_step 1", "Breakout-MinAtar"],
    ]


def test_agents_are_alike_in_what_only_one_of_them_varies(tmp_path):
    for agent, steps, high in (
        ("u51", 1, 10.0),
        ("u51", 1, 30.0),
        ("u51", 3, 10.0),
        ("c51", 1, 10.0),
        ("c51", 3, 10.0),
    ):
        write_run(tmp_path / "runs" / f"{agent}{steps}{high}", agent, lanes=2, n_step=steps, v_max=high)
    names = [row[0] for row in tables_of([tmp_path / "runs"])["comparisons"].rows]
    assert [name for name in names if name.startswith("u51") and "c51" in name] == [
        "u51, n_step 1, v_max 10 against c51, n_step 1",
        "u51, n_step 3, v_max 10 against c51, n_step 3",
    ]


def test_variants_of_one_protocol_are_nearer(tmp_path):
    for steps, epsilon in itertools.product((1, 3), (0.05, 0.1)):
        run = tmp_path / "runs" / f"{steps}{epsilon}"
        write_run(run, "u51", lanes=2, n_step=steps, exploration_final=epsilon)
    made = tables_of([tmp_path / "runs"], mix_protocols=True)
    names = [row[0] for row in made["comparisons"].rows]
    assert names == [
        "u51, n_step 1, epsilon 0.1 against epsilon 0.05",
        "u51, n_step 3, epsilon 0.05 against n_step 1",
        "u51, n_step 3, epsilon 0.1 against n_step 1",
        "u51, n_step 3, epsilon 0.1 against epsilon 0.05",
    ]


def test_of_many_values_the_first_and_the_last_are_compared(tmp_path):
    for steps in range(1, 7):
        write_run(tmp_path / "runs" / str(steps), "u51", lanes=2, n_step=steps)
    names = [row[0] for row in tables_of([tmp_path / "runs"])["comparisons"].rows]
    last = [name for name in names if name.startswith("u51, n_step 6 ")]
    assert last == ["u51, n_step 6 against n_step 1", "u51, n_step 6 against n_step 5"]


def test_variants_of_a_plain_agent_are_compared_with_it_only(tmp_path):
    for weight in (0.0, 0.1, 1.0):
        write_run(tmp_path / "runs" / str(weight), "u51", lanes=2, mean_weight=weight)
    made = tables_of([tmp_path / "runs"])
    assert [row[0] for row in made["comparisons"].rows] == [
        "u51, mean_weight 0.1 against u51",
        "u51, mean_weight 1 against u51",
    ]


def test_steps_that_are_no_number_are_refused(tmp_path):
    change_config(write_run(tmp_path / "run"), steps="400")
    with pytest.raises(ValueError, match="its steps must be an integer, got '400'"):
        read_curves([tmp_path / "run"])


def test_scores_name_the_rate_of_each(tmp_path):
    for agent, rate in (("c51", 1e-4), ("s51", 3e-5)):
        write_run(tmp_path / "runs" / agent, agent, lanes=2, learning_rate=rate)
    scores = tables_of([tmp_path / "runs"])["scores"]
    assert scores.columns[-1] == "setting"
    assert [row[-1] for row in scores.rows] == ["learning_rate 0.0001", "learning_rate 3e-05, lambda 10, after"]


def test_variants_are_told_apart_by_settings_and_not_by_their_words(tmp_path):
    folder = "mine, mean_weight 7"  # a name as it may be
    for agent, weights in itertools.product(("c51", "s51"), ("", folder)):
        write_run(tmp_path / "runs" / f"{agent}{len(weights)}", agent, lanes=2, initial_weights=weights)
    made = tables_of([tmp_path / "runs"])
    alike = f"s51, initial_weights {folder} against c51, initial_weights {folder}"
    assert alike in [row[0] for row in made["comparisons"].rows]
    for end in (1, 2):
        write_run(tmp_path / "close" / str(end), "c51", v_max=20.0 + end / 1e7)
    made = tables_of([tmp_path / "close"])
    assert [row[1] for row in made["scores"].rows] == ["c51, v_max 20.0000001", "c51, v_max 20.0000002"]


def test_variants_of_one_agent_differ_in_colour(tmp_path):
    for steps in (1, 3, 5):
        write_run(tmp_path / "runs" / str(steps), "u51", lanes=2, n_step=steps)
    make_report([tmp_path / "runs"], tmp_path / "out")
    curves = page_values((tmp_path / "out" / "report.html").read_text())[0]
    lines = {line["label"]: line["colour"] for line in curves[0]["lines"]}
    assert list(lines) == ["u51, n_step 1", "u51, n_step 3", "u51, n_step 5"]
    assert lines["u51, n_step 1"] == plots.AGENT_COLOURS["u51"]
    assert len(set(lines.values())) == 3


def test_one_agent_has_no_aggregates(tmp_path):
    write_run(tmp_path / "runs" / "a", "u51", lanes=2)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "aggregates" not in tables(sections)
    assert "There are no aggregates: u51 has nothing to be compared with." in sections[0].notes


def test_what_has_no_score_is_said(tmp_path):
    write_run(tmp_path / "runs" / "good", "c51", lanes=2)
    empty = write_run(tmp_path / "runs" / "empty", "s51")
    (empty / "metrics.jsonl").write_text('{"step": 5')
    silent = write_run(tmp_path / "runs" / "silent", "u51")
    write_rows(silent, [{"step": step, "frames": step, "seed": 0, "charts/episodes": 0} for step in (500, 1000)])
    result = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "Left out, for their logs have no such rows: empty, seed 0." in said
    assert "no episode ended in the last 0.2 of the steps: u51 on Breakout-MinAtar, seed 0." in said
    (tmp_path / "runs" / "good" / "metrics.jsonl").unlink()
    result = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "RUNS must have an episode that ended in the last 0.2 of the steps" in result.stderr
    assert (tmp_path / "out" / "report.html").exists()  # the earlier one


def test_unequal_seeds_and_missing_games(tmp_path):
    write_run(tmp_path / "runs" / "a", "dqn", GAMES[0], lanes=4)
    write_run(tmp_path / "runs" / "b", "dqn", GAMES[1], lanes=2)
    write_run(tmp_path / "runs" / "c", "c51", GAMES[0], lanes=3)
    write_run(tmp_path / "runs" / "d", "c51", GAMES[1], lanes=2)
    write_run(tmp_path / "runs" / "e", "s51", GAMES[0], lanes=1)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    found = tables(sections)
    assert [row[0] for row in found["aggregates"].rows] == ["dqn", "c51"]
    assert [row[-1] for row in found["aggregates"].rows] == ["2–4", "2–3"]
    assert f"Aggregates leave out s51: not all of {', '.join(GAMES)} were played." in sections[0].notes
    content = json.loads((tmp_path / "out" / "scores.json").read_text())["studies"][0]
    assert np.shape(content["rliable"]["scores"]["dqn"]) == (2, 2)


@pytest.mark.parametrize("level", [-5.0, 0.0])
def test_scores_that_cannot_be_divided_by(level, tmp_path):
    for agent in ("dqn", "c51"):
        write_run(tmp_path / "runs" / agent, agent, "Pong-misc", level=level, lanes=2)
    sections = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "aggregates" not in tables(sections)
    assert any(
        note.startswith("Aggregates leave out Pong-misc: the score to divide by, ") for note in sections[0].notes
    )


@pytest.mark.parametrize("steps", [99_000, 200_000])
def test_a_legend_has_room_and_an_axis_short_numbers(steps, tmp_path):
    """Six series in one narrow panel."""
    for i, (agent, v_max) in enumerate(itertools.product(("c51", "s51", "u51"), (10.0, 100.0))):
        write_run(tmp_path / f"runs/{i}", agent, steps=steps, v_max=v_max)
    (summary,) = summarise(read_curves([tmp_path / "runs"]))
    drawing = next(figure.drawing for figure in make_figures(summary, None, 0) if figure.name == "curves")
    drawing.draw_without_rendering()
    box, page = drawing.legends[0].get_window_extent(), drawing.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert len(drawing.legends[0].get_texts()) == 6
    axis = drawing.axes[0]
    unit, last = ("million agent steps", 0.2) if steps > 1e5 else ("agent steps", 99_000)
    assert axis.get_xlabel() == unit
    assert max(line.get_xdata().max() for line in axis.get_lines()) == pytest.approx(last)


def test_panels_keep_their_height_above_a_long_legend(tmp_path):
    for i in range(14):
        write_run(
            tmp_path / f"runs/{i}", "u51", n_step=1 + i, v_max=10.0 + i, base_distribution="zero", mean_weight=0.1
        )
    (summary,) = summarise(read_curves([tmp_path / "runs"]))
    drawing = next(figure.drawing for figure in make_figures(summary, None, 0) if figure.name == "curves")
    drawing.draw_without_rendering()
    assert drawing.axes[0].get_window_extent().height > 1.5 * drawing.dpi


def test_a_support_that_is_too_small_is_named(tmp_path):
    for agent, share in (("c51", 0.2), ("u51", 0.3)):
        run = write_run(tmp_path / "runs" / agent, agent, lanes=2)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        write_rows(run, [row | {"dist/clipped_mass": share if row["step"] > 800 else 1 - share} for row in rows])
    note = tables_of([tmp_path / "runs"])["diagnostics"].note
    assert "More than 25% of the mass lay beyond the support and was put on its ends: u51 on Breakout-MinAtar. " in note
    assert "c51" not in note


def test_evaluation_scores(tmp_path):
    run = write_run(tmp_path / "runs" / "a", "dqn")
    row = {"step": 1000, "frames": 1000, "seed": 0, "iteration": 0, "eval/episodic_return": 42.0, "eval/episodes": 5}
    with (run / "metrics.jsonl").open("a") as log:
        log.write(json.dumps(row) + "\n")
    result = report(run, "--out", tmp_path / "out", "--evaluation", "--json")
    (found,) = json.loads(result.stdout)["studies"]
    assert found["tables"][0]["rows"][0][2] == "42.00"


def test_folders_of_others_are_left_alone(study, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    make_report([study / "main"], mine)  # an empty folder will do
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"--out must be new, empty or an earlier report, .* something else \(notes.txt\)"
    ):
        make_report([study / "main"], mine)
    (mine / "notes.txt").unlink()
    (mine / "report.html").write_text("mine too")
    with pytest.raises(ValueError, match="holds files that are not of a report"):
        make_report([study / "main"], mine)
    with pytest.raises(ValueError, match=r"--out must be a folder, .* is a file"):
        make_report([study / "main"], mine / "report.html")
    assert (mine / "report.html").read_text() == "mine too"


def test_a_report_that_fails_leaves_the_old_one(study, tmp_path, monkeypatch):
    out = tmp_path / "out"
    make_report([study / "main"], out)
    before = files(out)
    monkeypatch.setattr("cramerl.report.build.to_html", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_report([study / "rates"], out)
    assert files(out) == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "RUNS must be folders, nowhere is not there"),
        (["nowhere", "--tail", "0"], "must be a number in (0, 1], got '0'"),
        (["nowhere", "--tail", "x"], "must be a number in (0, 1], got 'x'"),
        (["nowhere", "--seed", "-1"], "must be an integer >= 0"),
        ([], "required: RUNS"),
    ],
)
def test_bad_command_lines(arguments, words):
    result = report(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_of_later_versions_do_not_matter(tmp_path):
    run = write_run(tmp_path / "runs" / "a", "dqn")
    change_config(run, a_setting_to_come=[1, {"x": 2}], learning_rates=None)
    assert len(make_report([run], tmp_path / "out")) == 1


def test_intervals_of_few_seeds_are_doubted(tmp_path):
    for lanes, doubted in ((1, False), (2, True), (5, False)):
        write_run(tmp_path / f"runs{lanes}" / "a", "dqn", lanes=lanes)
        (section,) = make_report([tmp_path / f"runs{lanes}"], tmp_path / f"out{lanes}")
        assert any("Fewer than 5 seeds" in note for note in section.notes) == doubted


def test_the_terminal_gets_lines_that_fit(study, tmp_path):
    sections = make_report([study / "main"], tmp_path / "out")
    for width in (40, 200):
        lines = to_text(sections, width).splitlines()
        assert max(map(len, lines)) <= max(width, 32)
    assert sum(line.startswith("  u51") for line in to_text(sections, 200).splitlines()) == 1


def test_numbers_in_words():
    assert [number(x) for x in (0.12345, 1.2345, 123.45, 12345.6, -0.0001, float("nan"))] == [
        *("0.123", "1.23", "123.5", "12,346", "0.000", "–")
    ]
    assert interval(Interval(1234.5, 1.0, 2000.0)) == "1,234 [1, 2,000]"
    assert interval(Interval(1.0, float("nan"), float("nan"))) == "1.00"


def test_the_first_results_can_be_reported(tmp_path):
    results = Path(__file__).parents[2] / "results" / "pong-first"
    if not results.is_dir():
        pytest.skip("there are no results in this copy")
    rows = tables_of([results])["scores"].rows
    assert [(row[1], row[2]) for row in rows] == [("c51", "-16.48"), ("u51", "8.40")]


@pytest.mark.parametrize("out", ["", "."])
def test_the_current_folder_is_not_replaced(out, tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match=r"--out must be another folder than the current one"):
        make_report([run], Path(out))


def test_figures_are_those_that_say_something(tmp_path):
    games = ("Asterix-MinAtar", "Breakout-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")
    for i, env in enumerate(games):
        write_run(tmp_path / "four" / str(i), "c51", env)
        write_run(tmp_path / "four" / f"dqn{i}", "dqn", env)
    (summary,) = summarise(read_curves([tmp_path / "four"]))
    curves, *others = make_figures(summary, normalised(summary)[0], 0)
    assert curves.drawing.axes[0].get_subplotspec().get_geometry()[:2] == (2, 2)
    assert [figure.name for figure in others] == ["aggregates", "profiles"]
    one = [curve for curve in read_curves([tmp_path / "four"]) if curve.env == games[0]]
    (summary,) = summarise(one)  # a run each: a score, and nothing to draw of it
    assert [figure.name for figure in make_figures(summary, normalised(summary)[0], 0)] == ["curves"]
