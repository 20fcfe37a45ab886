"""`cramerl report`, as its user meets it: what is written, printed and refused."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from study_runs import column, files, read_rows, summary_of, tables_of, write_rows, write_run

import cramerl
from cramerl.claims import projection
from cramerl.cli.main import main
from cramerl.cli.report import write_demo_report
from cramerl.evidence.curves import final_score, read_curves
from cramerl.evidence.scores import Series
from cramerl.evidence.statistics import bootstrap_interval
from cramerl.evidence.summary import Scoring
from cramerl.reports.build import make_report
from cramerl.reports.tables import interval_text

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")
AGENTS = ("dqn", "c51", "s51", "u51")


def in_process(capsys, *arguments: object) -> tuple[int, str, str]:
    """The command in this process: its status, output and errors."""
    try:
        status = main(["report", *map(str, arguments)])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    return status, *capsys.readouterr()


def test_what_is_written_and_printed(written):
    result, out = written
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert f"wrote {out / 'report.html'}" in result.stdout
    for word in ("main", "lambda", "rates", "u51", "IQM", "note: Several settings of an agent were tried"):
        assert word in result.stdout
    names = set(files(out))
    assert {"report.html", "tables.md", "scores.json", "dopamine/main-Asterix-MinAtar.json"} <= names
    for name in ("main-curves", "main-aggregates", "main-profiles", "rates-rates", "lambda-penalties"):
        assert {f"figures/{name}.svg", f"figures/{name}.png"} <= names
    assert not {"figures/main-rates.svg", "figures/lambda-aggregates.svg"} & names
    assert list(out.parent.iterdir()) == [out]


def test_the_same_runs_give_the_same_bytes(written, main_report):
    """In another process, and beside other studies."""
    first, again = files(written[1]), files(main_report[1])
    for name, content in again.items():
        if name.startswith(("figures/", "dopamine/")):
            assert first[name.replace("/", "/main-", 1)] == content
    (study,) = json.loads(again["scores.json"])["studies"]
    assert study in json.loads(first["scores.json"])["studies"]
    assert again["tables.md"].partition(b"## main\n")[2] in first["tables.md"]
    assert re.findall(b'class="values">.*', again["report.html"])[0] in first["report.html"]


def test_pdfs_and_the_seed_of_the_bootstrap(tmp_path):
    run = write_run(tmp_path / "run", seeds=12, level=1e6)  # so that intervals have many digits
    for name in ("a", "b"):
        make_report([run], tmp_path / name, Scoring(seed=1), pdf=True)
    found = files(tmp_path / "a")
    assert found == files(tmp_path / "b")
    assert found["figures/curves.pdf"].startswith(b"%PDF")
    assert b"Date" not in found["figures/curves.pdf"]
    scores = [tables_of(summary_of(run, seed=seed))["scores"].rows[0][2] for seed in (0, 1)]
    assert scores[0] not in found["tables.md"].decode()
    assert scores[1] in found["tables.md"].decode()


def test_scores_are_those_of_the_curves(main_report, study):
    out = main_report[1]
    (content,) = json.loads((out / "scores.json").read_text())["studies"]
    assert content["rliable"]["games"] == list(GAMES)
    curves = read_curves([study / "main"])
    for agent in AGENTS:
        expected = np.array([[final_score(c) for c in curves if (c.agent, c.env) == (agent, env)] for env in GAMES]).T
        assert np.array(content["rliable"]["scores"][agent]) == pytest.approx(expected)
        assert np.array(content["rliable"]["curves"][agent]).shape == (3, 2, 20)
    assert len(content["runs"]) == 24
    group = summary_of(study / "main").best[Series("u51"), GAMES[0]]
    text = (out / "tables.md").read_text()
    assert f"| {GAMES[0]} | u51 | {interval_text(bootstrap_interval('mean', group.scores))} |" in text
    rows = json.loads((out / "dopamine" / "Asterix-MinAtar.json").read_text())
    assert len(rows) == 4 * 3 * 2
    assert set(rows[0]) == {"Iteration", "Value", "Agent", "Game", "Seed"}


def test_the_best_setting_is_shown(study):
    found = tables_of(summary_of(study / "rates"))
    assert all(row[2] == "0.0005" and row[-1] == "yes" for row in found["rates"].rows)
    assert len(found["rates"].rows) == 2
    assert found["scores"].rows[0][-1] == "learning_rate 0.0005 (best of 2)"
    assert found["scores"].columns[-1] == "best setting"


def test_claims_whose_figures_moved_are_an_error(tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path / "run")
    claim = dataclasses.replace(projection.STATEMENTS[0].check(), passed=False)
    monkeypatch.setattr("cramerl.claims.verify", lambda: [claim])
    status, out, _ = in_process(capsys, run, "--out", tmp_path / "out", "--verify")
    assert status == 1
    assert f"FIGURES HAVE MOVED in {claim.id}." in out
    assert json.loads((tmp_path / "out" / "scores.json").read_text())["theory"]["passed"] is False


def test_the_demonstration_ends_with_a_page(tmp_path):
    write_run(tmp_path / "runs" / "s51")
    page = write_demo_report(tmp_path)
    assert write_demo_report(tmp_path) == page  # replaces the first
    assert page == tmp_path / "report" / "report.html"
    assert "Learning curves" in page.read_text()
    assert 'id="theory"' not in page.read_text()


def test_evaluation_scores_as_json(tmp_path, capsys):
    run = write_run(tmp_path / "runs" / "a", "dqn")
    row = {"step": 1000, "frames": 1000, "seed": 0, "iteration": 0, "eval/episodic_return": 42.0, "eval/episodes": 5}
    write_rows(run, [*read_rows(run), row])
    status, out, err = in_process(capsys, run, "--out", tmp_path / "out", "--evaluation", "--json")
    assert status == 0, err
    (found,) = json.loads(out)["studies"]
    assert found["tables"][0]["rows"][0][2] == "42.00"


def test_a_report_that_fails_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    run, out = write_run(tmp_path / "runs" / "good"), tmp_path / "out"
    make_report([run], out)
    before = files(out)
    (run / "metrics.jsonl").unlink()
    status, _, err = in_process(capsys, run, "--out", out)
    assert status == 2
    assert err == "cramerl: no run has an episode that ended in the last 0.2 of its steps\n"
    monkeypatch.setattr("cramerl.reports.build.to_html", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_report([write_run(tmp_path / "other")], out)
    assert files(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "other", "out"}


def test_other_folders_are_not_replaced(tmp_path):
    run, mine = write_run(tmp_path / "run"), tmp_path / "mine"
    mine.mkdir()
    make_report([run], mine)  # an empty folder will do
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"^out must be new, empty or an earlier report, .* something else \(notes.txt\)"
    ):
        make_report([run], mine)
    (mine / "notes.txt").unlink()
    (mine / "report.html").write_text("mine too")
    with pytest.raises(ValueError, match="contains files that are not part of a report"):
        make_report([run], mine)
    with pytest.raises(ValueError, match=r"^out must be a folder, .* is a file"):
        make_report([run], mine / "report.html")
    assert (mine / "report.html").read_text() == "mine too"


@pytest.mark.parametrize("out", ["", "."])
def test_the_current_folder_is_not_replaced(out, tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match=r"^out must not be the current folder"):
        make_report([run], Path(out))


def test_a_page_of_others_is_replaced_only_if_asked(tmp_path, capsys):
    run, out = write_run(tmp_path / "run"), tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    status, _, err = in_process(capsys, run, "--out", out)
    assert status == 2
    assert err.endswith("is something else: choose another, or add --overwrite\n")
    assert (out / "report.html").read_text() == "mine"
    (out / "notes.txt").write_text("mine")
    assert in_process(capsys, run, "--out", out, "--overwrite")[0] == 2  # it would be lost
    (out / "notes.txt").unlink()
    for flag in ("--overwrite", "--json"):
        assert in_process(capsys, run, "--out", out, flag)[0] == 0
    said = in_process(capsys, run, "--out", out)[1]
    assert f"\nreplaced {out / 'report.html'}\n" in said


def test_it_says_at_once_what_it_does(tmp_path, capsys, monkeypatch):
    said = []
    monkeypatch.setattr("cramerl.cli.report.show_progress", said.append)
    assert in_process(capsys, write_run(tmp_path / "run"), "--out", tmp_path / "out")[0] == 0
    assert said[0] == "reading runs ..."
    assert said[-1] == ""


def test_the_last_lines_are_commands_worth_typing(tmp_path, capsys):
    for agent in ("c51", "s51"):
        write_run(tmp_path / "runs" / agent, agent)
    flags = ("--out", tmp_path / "out", "--no-distributions")
    *_, last = in_process(capsys, tmp_path / "runs", *flags)[1].splitlines()
    assert last == f"to read it:             open {tmp_path / 'out' / 'report.html'}"
    for agent in ("c51", "s51"):
        (tmp_path / "runs" / agent / "checkpoints" / "1").mkdir(parents=True)
        (tmp_path / "runs" / agent / "checkpoints" / "1" / "manifest.json").write_text("{}")
    *_, last = in_process(capsys, tmp_path / "runs", *flags)[1].splitlines()
    assert last == f"to see its predictions: cramerl watch {tmp_path / 'runs' / 's51'}"


@pytest.mark.parametrize("flag", ["--claims", "--verify"])
def test_claims_are_shown_only_if_asked(flag, tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path / "run")
    monkeypatch.setattr("cramerl.claims.verify", lambda: [projection.STATEMENTS[0].check()])
    status, out, _ = in_process(capsys, run, "--out", tmp_path / "out", flag)
    assert (status, out.count("1 claim of the paper")) == (0, 1)
    assert 'id="theory"' in (tmp_path / "out" / "report.html").read_text()
    assert in_process(capsys, run, "--out", tmp_path / "out")[0] == 0
    assert 'id="theory"' not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "cramerl: nowhere does not exist"),
        (["nowhere", "--tail", "0"], "must be a number in (0, 1], got '0'"),
        (["nowhere", "--tail", "x"], "must be a number in (0, 1], got 'x'"),
        (["nowhere", "--seed", "-1"], "must be an integer >= 0"),
        ([], "required: RUNS"),
    ],
)
def test_bad_command_lines(arguments, words, capsys):
    status, _, err = in_process(capsys, *arguments)
    assert status == 2
    assert words in err
    assert "Traceback" not in err


def test_results_of_this_repository_can_be_reported():
    results = Path(__file__).parents[2] / "results" / "atari" / "pong"
    if not results.is_dir():
        pytest.skip("this copy has no results")
    scores = tables_of(summary_of(results))["scores"]
    assert list(zip(column(scores, 1), column(scores, 2), strict=True)) == [
        ("dqn", "-10.88"),
        ("c51", "-13.73"),
        ("s51", "10.23"),
        ("u51", "16.03"),
    ]


def test_a_report_from_python_is_that_of_the_command(tmp_path):
    runs = [write_run(tmp_path / "runs" / agent, agent) for agent in ("s51", "c51")]
    page = cramerl.report(tmp_path / "runs", tmp_path / "a", distributions=False)
    assert page == tmp_path / "a" / "report.html"
    assert cramerl.report(runs, tmp_path / "b", distributions=False).read_bytes() == page.read_bytes()


@pytest.mark.parametrize("env", [r"gym:$\frac$", "gym:<img src=x onerror=alert(1)>-v0", "gym:a|b](http://x.example)\\"])
def test_names_are_text_and_nothing_else(env, tmp_path):
    """No formula in figures, no HTML, link or cell in tables.md."""
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"{seed}", "s51", env, seed=seed)
    make_report([tmp_path / "runs"], tmp_path / "out", pdf=True)
    tables = (tmp_path / "out/tables.md").read_text()
    assert "<" not in tables
    assert "](http" not in tables
    for table in re.findall(r"(?:^\|.*\n)+", tables, re.MULTILINE):
        cells = {len(re.sub(r"\\.", "", line).split("|")) for line in table.splitlines()}
        assert len(cells) == 1, table
    assert list((tmp_path / "out/figures").glob("*.pdf"))
