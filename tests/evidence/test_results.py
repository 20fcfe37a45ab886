"""results/: its recorded commands match its runs, and presets have the settings it chose."""

import io
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lenient import lenient
from sweep_folders import put_run

from cramerl.cli.main import main
from cramerl.evidence.curves import final_score, read_curves
from cramerl.runs.presets import preset
from cramerl.sweep.folder import write_record
from cramerl.sweep.plan import wanted_runs

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(RESULTS.glob("*/sweep.json"))
GAMES = ("Asterix-MinAtar", "Breakout-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")


def marks(record):
    """Those of many commands are for CI."""
    return pytest.mark.slow if record.parent.name.startswith("defaults-") else ()


@pytest.mark.parametrize(
    "record", [pytest.param(record, marks=marks(record), id=record.parent.name) for record in RECORDS]
)
def test_recorded_commands_make_the_runs_that_are_there(record, monkeypatch, capsys):
    # A preset that changes makes them other commands.
    monkeypatch.chdir(RESULTS.parent)
    asked = set()
    for command in json.loads(record.read_text())["commands"]:
        _, *words = shlex.split(command)
        with lenient():  # what is left is built once
            assert main([*words, "--dry-run"]) == 0
        summary, *left = capsys.readouterr().out.splitlines()
        assert f"{len(left)} to do" in summary
        assert not any((Path(line.partition(": ")[0]) / "weights.json").exists() for line in left)
        value = dict(itertools.pairwise(words))
        asked |= set(itertools.product(value["--agents"].split(","), value["--envs"].split(",")))
    configs = [json.loads(path.read_text()) for path in record.parent.glob("*/*/config.json")]
    assert {(config["agent"], config["env"]) for config in configs} <= asked


PARTS = (
    "rates",
    "report",
    "penalties",
    "variants",
    "means",
    "steps",
    "atari",
    "pong",
    "atari-rates",
    "longer",
)


def words_of_the_script(folder: Path, **environment: str) -> list[list[str]]:
    """What the earlier study would do, said by a copy of it: a process for each sweep would take half a minute."""
    (folder / "results").mkdir()
    script = Path(shutil.copy(RESULTS / "study.sh", folder / "results" / "study.sh"))
    said = script.with_name("cramerl")
    said.write_text('#!/bin/sh\necho "$@"\n')
    said.chmod(0o755)
    env = os.environ | environment | {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    found = subprocess.run([script, *PARTS], env=env, capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in found.stdout.splitlines()]


def test_the_earlier_study_is_what_is_there(tmp_path, monkeypatch, capsys):
    sweeps = words_of_the_script(tmp_path, MORE="--dry-run")
    monkeypatch.chdir(RESULTS.parent)
    for words in sweeps:
        assert main(words) == 0
        assert capsys.readouterr().out.endswith(", 0 to do\n")
    planned = ("study-", "defaults-", "shipped-")
    earlier = {f"results/{record.parent.name}" for record in RECORDS if not record.parent.name.startswith(planned)}
    assert {words[1] for words in sweeps} == earlier


def test_more_seeds_are_for_reporting_and_not_for_choosing(tmp_path):
    sweeps = words_of_the_script(tmp_path, SEEDS="0-99")
    extended = {words[1] for words in sweeps if words[words.index("--seeds") + 1] == "0-99"}
    assert extended == {f"results/{name}" for name in ("minatar", "pong-misc", "atari", "atari-longer", "atari-rates")}
    assert all("0-99" in words for words in sweeps if words[1] in extended)


@pytest.fixture(scope="module")
def next_jobs():
    return runpy.run_path(str(RESULTS / "next_jobs.py"))


def lines_of(script: str, folder: Path, **environment: str) -> list[str]:
    """The sweeps that a script hands on."""
    python = folder / "python3"
    python.write_text("#!/bin/sh\ncat\n")
    python.chmod(0o755)
    (folder / "results").mkdir()
    copy = shutil.copy(RESULTS / script, folder / "results")
    env = os.environ | environment | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run([copy], env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def requests_of(lines, next_jobs):
    found = [next_jobs["read_line"](line) for line in lines]
    return [one.request for one in found], [one.waits for one in found]


def test_the_plan_has_equal_search_and_fresh_seeds(tmp_path, next_jobs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    requests, waits = requests_of(lines_of("study.sh", tmp_path), next_jobs)
    runs = {request.name: wanted_runs(request.sweep) for request in requests}
    searched = Counter((run.agent, run.env) for name in runs if name.startswith("search-") for run in runs[name])
    assert set(searched.values()) == {4 * 2 * 3}  # rates, variants, seeds
    assert len(searched) == 7 * 5
    assert [bool(wait) for wait in waits] == [request.name == "report" for request in requests]
    assert len(runs["report"]) == 7 * 5 * 20
    assert all(
        run.sticky == 0.1 and run.steps == 2_000_000 for name in runs if "atari" not in name for run in runs[name]
    )
    assert sum(len(runs[name]) for name in runs if name.startswith("atari")) == 5 * (1 + 2 * 4 + 2 * 4)
    first = [run.env for run in runs["atari-seeds-1-2"] if run.seed == 1]
    assert list(dict.fromkeys(first))[:2] == ["pong", "breakout"]


def test_the_report_gets_the_settings_of_the_search(tmp_path, next_jobs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = lines_of("study.sh", tmp_path, RESULTS=str(tmp_path / "out"), TINY="1")
    requests, _ = requests_of(lines, next_jobs)
    agenda = next_jobs["make_agenda"](requests)
    out = tmp_path / "out" / "study-search"
    for request in requests:
        if request.out == out:
            write_record(out, agenda.plans[out], "cramerl sweep", [], {})
    for one in agenda.work:
        if one.request.out == out:
            put_run(out, one.job.folder, one.job.group, score=2.0 if one.job.group.first.double_q else 1.0)
    requests, waits = requests_of(lines, next_jobs)
    assert not any(waits)
    (report,) = [request for request in requests if request.name == "report"]
    found = wanted_runs(report.sweep)
    for agent in ("c51", "l51"):
        settings = {(run.double_q, run.learning_rate, run.v_min) for run in found if run.agent == agent}
        assert len(settings) == 1
        assert {(double, low) for double, _, low in settings} == {(True, None)}


# A child that has trained at once, or never ends if it is to train S51.
CHILD = """
import json, pathlib, sys, time
job = json.load(open(sys.argv[1]))
folder = pathlib.Path(job["folder"])
folder.mkdir(parents=True)
(folder / "config.json").write_text(json.dumps(job["settings"]))
if job["settings"]["agent"] == "s51":
    time.sleep(60)
row = {"step": 2000, "frames": 2000, "iteration": 0, "charts/epsilon": 0.1, "charts/episodes": 2}
lines = [json.dumps(row | lane | {"charts/episodic_return": 5.0}) for lane in job["settings"].get("runs", [{}])]
(folder / "metrics.jsonl").write_text("\\n".join(lines) + "\\n")
"""


@pytest.mark.parametrize("speed", [100, pytest.param(1e9, marks=pytest.mark.slow)])
def test_jobs_that_fit_are_done_and_then_what_waited_for_them(tmp_path, next_jobs, monkeypatch, capsys, speed):
    monkeypatch.setitem(next_jobs["main"].__globals__, "CHILD", ["-c", CHILD])
    monkeypatch.setattr("cramerl.sweep.together.START_SECONDS", 0.0)
    usual = "--envs Breakout-MinAtar --preset smoke --checkpoints none --jobs 2 --speed"
    rates = f"{tmp_path / 'rates'} --agents dqn --seeds 0 --learning-rate 1e-4,1e-3"
    lines = [f"rates {rates} {usual} 1e9", f"stays {tmp_path / 'long'} --agents s51 --seeds 0 {usual} {speed}"]
    report = f"report {tmp_path / 'report'} --agents dqn --seeds 1 --best-of {tmp_path / 'rates'} {usual} 1e9"
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*lines, report])))
    monkeypatch.setattr("sys.argv", ["next_jobs.py", "--minutes", "0.1" if speed > 100 else "0.5"])
    assert next_jobs["main"]() == 0
    said = capsys.readouterr()
    assert "rates: 1 done, 0 to do" in said.out
    assert "stays: 0 done, 1 to do" in said.out
    assert not (tmp_path / "long" / "Breakout-MinAtar" / "s51__seed-0").exists()  # it was stopped, or not started
    assert ("training" in said.err and "s51__seed-0" in said.err) == (speed > 100)
    record = json.loads((tmp_path / "rates" / "sweep.json").read_text())
    assert [job["folder"] for job in record["jobs"]] == ["Breakout-MinAtar/dqn__seed-0__learning-rate-0.0001_0.001"]
    if speed == 100:
        assert "report: 1 done, 0 to do" in said.out


def test_defaults_are_compared_with_ten_seeds(tmp_path, next_jobs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    requests, _ = requests_of(lines_of("defaults.sh", tmp_path), next_jobs)
    again = [request for request in requests if request.name.startswith("confirm-")]
    runs = [run for request in requests if request not in again for run in wanted_runs(request.sweep)]
    supports = Counter((run.agent, run.env) for run in {(r.agent, r.env, r.v_min, r.v_max): r for r in runs}.values())
    assert set(supports.values()) == {4, 1}
    assert [pair for pair, number in supports.items() if number == 1] == [("dqn", "Acrobot-v1")]
    assert len(supports) == 5 * 11 + 1
    assert {run.seed for run in runs} == set(range(7100, 7110))
    assert {run.agent for run in runs if run.q_lambda} == {"u51", "l51"}
    assert {run.agent for run in runs if run.next_distribution == "rearranged"} == {"s51", "u51"}
    assert {run.seed for request in again for run in wanted_runs(request.sweep)} == set(range(7110, 7120))


def test_tables_say_where_a_support_by_hand_is_better(tmp_path, next_jobs, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = lines_of("defaults.sh", tmp_path, RESULTS=str(tmp_path / "out"), TINY="1", SEEDS="0-3")
    lines = [line for line in lines if "Breakout" in line and "rearranged" not in line and "confirm" not in line]
    requests, _ = requests_of(lines, next_jobs)
    agenda = next_jobs["make_agenda"](requests)
    out = tmp_path / "out" / "defaults-minatar"
    for request in requests:
        write_record(out, agenda.plans[out], f"cramerl sweep {request.name} --envs Breakout-MinAtar --seeds", [], {})
    for one in agenda.work:
        config = one.job.group.first
        if config.env == "Breakout-MinAtar":
            score = 9.0 if config.v_max == 30 and config.agent == "c51" else 5.0 if config.v_max is None else 3.0
            put_run(out, one.job.folder, one.job.group, score=score)
    monkeypatch.setattr("sys.argv", ["defaults_tables.py", str(out)])
    tables = runpy.run_path(str(RESULTS / "defaults_tables.py"))
    assert tables["main"]() == 0
    printed = capsys.readouterr().out
    assert "| `c51` | 4 | 5.00 [5.00, 5.00] | 3.00 [3.00, 3.00] | 9.00 [9.00, 9.00] |" in printed
    assert "| -4.00 [-4.00, -4.00] | **yes** |" in printed
    assert printed.count("| 2.00 [2.00, 2.00] | no |") == 4
    assert "Below the best support by hand: 1 of 5." in printed
    assert "gain" in printed  # of three steps over one


@pytest.mark.parametrize("parts", [["rates", "nonsense"], [""], ["*"], ["rates report"], ["rates\nreport"]])
def test_the_script_of_the_study_refuses_parts_before_it_does_any(parts):
    found = subprocess.run([RESULTS / "study.sh", *parts], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.endswith(f"longer; got '{parts[-1]}'\n")
    assert not found.stdout


@cache
def curves_of(folder):
    """The runs of several agents, read once."""
    return read_curves([folder])


@pytest.mark.parametrize(
    ("agent", "sweep"),
    [("dqn", "rates"), ("c51", "rates"), ("s51", "rates"), ("u51", "means"), ("qr", "rates")],
)
def test_minatar_preset_has_the_rate_that_did_best_over_the_games(agent, sweep):
    rates: dict[float, dict[str, float]] = {}
    for game in GAMES:
        found: dict[float, list[float]] = {}
        for curve in curves_of(RESULTS / f"minatar-{sweep}" / game):
            if curve.agent == agent:
                found.setdefault(curve.config.learning_rate, []).append(final_score(curve))
        best = max(map(np.mean, found.values()))
        for rate, scores in found.items():
            rates.setdefault(rate, {})[game] = float(np.mean(scores) / best)
    over_games = {rate: np.mean(list(shares.values())) for rate, shares in rates.items() if len(shares) == len(GAMES)}
    config = preset("minatar", agent, GAMES[0])
    assert config.learning_rate == max(over_games, key=over_games.__getitem__)
    if agent == "u51":
        assert (config.base_distribution, config.mean_weight) == ("zero", 0.1)


DOCS = RESULTS.parent / "docs"
INTERVAL = re.compile(r"(-?[\d.,]*\d)(?:\s|<br>)\[(-?[\d.,]*\d),\s(-?[\d.,]*\d)\]")


def intervals_in(text):
    return {tuple(found) for found in INTERVAL.findall(text.replace("&nbsp;", " "))}


def negated(interval):
    middle, low, high = (number[1:] if number.startswith("-") else f"-{number}" for number in interval)
    return middle, high, low


def test_intervals_on_the_pages_of_the_study_are_those_of_its_tables():
    sources = ("comparisons.csv", "tables.md", "defaults.md")
    known = set.union(*(intervals_in((DOCS / "study" / name).read_text()) for name in sources))
    for page, least in ((DOCS / "study.md", 30), (DOCS / "study" / "findings.md", 30)):
        found = intervals_in(page.read_text())
        assert len(found) >= least
        assert not {one for one in found if one not in known and negated(one) not in known}


def test_figures_of_the_study_are_shown_and_made():
    shown = set()
    for page in (DOCS / "study.md", DOCS / "study" / "findings.md"):
        shown |= set(re.findall(r"figures/([\w-]+\.svg)", page.read_text()))
    assert shown == {path.name for path in (DOCS / "study" / "figures").iterdir()}


def test_the_page_says_how_much_of_the_plan_is_done(tmp_path, next_jobs, monkeypatch):
    monkeypatch.chdir(RESULTS.parent)
    requests, _ = requests_of(lines_of("study.sh", tmp_path), next_jobs)
    jobs = next_jobs["make_agenda"](requests)
    done = sum(jobs.done)
    assert f"{done} of its {done + len(jobs.work)} jobs are done" in (DOCS / "study.md").read_text()


@pytest.mark.slow
def test_the_files_of_the_study_are_those_of_its_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["study_page.py", str(tmp_path)])
    assert runpy.run_path(str(RESULTS / "study_page.py"))["main"]() == 0
    for name in ("comparisons.csv", "scores.csv"):
        assert (tmp_path / name).read_bytes() == (DOCS / "study" / name).read_bytes()
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        path.name for path in (DOCS / "study" / "figures").iterdir()
    }
    folders = {line.partition(",")[0] for line in (tmp_path / "scores.csv").read_text().splitlines()}
    assert "study-search" in folders
    assert "shipped-agents" not in folders
