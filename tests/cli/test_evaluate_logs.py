"""`cramerl evaluate --data`: answers about the policies of a log."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import FROM_A_TERMINAL, refused, run
from small_logs import COLUMNS, QUICK, wards, write_csv, write_parquet

from cramerl.cli.log_flags import in_flags
from cramerl.linear import Log, evaluate_policy, examples
from cramerl.watching.recording import read_evaluation

FILES = {"evaluation.json", "evaluation.png", "model.npz"}


def the_log() -> Log:
    return Log.read(wards(), episode="who", time="day", state="x*,ward", terminated="died|left", discount=0.9)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_parquet(tmp_path_factory.mktemp("data") / "log.parquet")


def test_it_answers_as_the_library_does(data, tmp_path):
    result = run("evaluate", "--data", data, *COLUMNS, *QUICK, "--intervals", "0.8", "--cvar", "0.2", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    settings = {"features": "splines:3", "regularisation": 0.001, "num_atoms": 11, "level": 0.8}
    found = evaluate_policy(the_log(), **settings)
    assert {path.name for path in tmp_path.iterdir()} >= FILES
    content = json.loads((tmp_path / "evaluation.json").read_text())
    (only,) = content["policies"]
    assert only["mean"] == pytest.approx(found.mean._asdict(), rel=1e-12)
    assert [(each["level"], each["value"]) for each in only["cvar"]] == [(0.2, pytest.approx(found.cvar(0.2).value))]
    assert [q["value"] for q in only["quantiles"]] == [found.quantile(q).value for q in (0.05, 0.5, 0.95)]
    assert (only["trust"]["verdict"], only["trust"]["reasons"]) == (found.trust.verdict, list(found.trust.reasons))
    assert content["log"]["columns"]["terminated"] == ["died", "left"]
    assert f"{found.mean.value:.4g}   80% interval {found.mean.low:.4g} to" in result.stdout
    order = ["Return of the policy", "Verdict:", "Other estimates", "episodes;", "Features:", "wrote"]
    places = [result.stdout.index(words) for words in order]
    assert places == sorted(places)


def test_csv_and_parquet_and_parts_of_a_log(data, tmp_path):
    table = wards()
    parts = [{name: column[table["who"] % 2 == which] for name, column in table.items()} for which in (0, 1)]
    files = [write_csv(tmp_path / f"part{i}.csv", part) for i, part in enumerate(parts)]
    answers = []
    for where, given in (("a", data), ("b", write_csv(tmp_path / "log.csv")), ("c", f"{files[0]}, {files[1]}")):
        out = tmp_path / where
        words = ("evaluate", "--data", given, *COLUMNS, *QUICK, "--intervals", "none", "--out", out)
        assert run(*words).returncode == 0
        answers.append(json.loads((out / "evaluation.json").read_text())["policies"][0]["mean"]["value"])
    assert answers == pytest.approx([answers[0]] * 3, rel=1e-9)


def test_several_policies_and_their_differences(data, tmp_path):
    np.save(tmp_path / "even.npy", np.array([0.5, 0.5]))
    policies = ["--policy", "new=new_*", "--policy", f"even={tmp_path / 'even.npy'}", "--policy", "now=log"]
    words = ["--action", "dose", "--propensity", "propensity", *policies, "--out", tmp_path / "out"]
    result = run("evaluate", "--data", data, *COLUMNS, *QUICK, *words)
    assert result.returncode == 0, result.stderr
    for words in (
        "Return of policy new from",
        "Policy new has more than even",
        "Verdict on policy now: ",
        "weighted d",
    ):
        assert words in result.stdout
    log = Log.read(
        wards(), episode="who", time="day", state="x*,ward", terminated="died|left", discount=0.9, action="dose"
    )
    named = {"new": "new_*", "even": np.array([0.5, 0.5]), "now": None}
    found = evaluate_policy(log, named, features="splines:3", regularisation=0.001, num_atoms=11)
    content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert [each["name"] for each in content["policies"]] == list(named)
    assert [(each["first"], each["second"]) for each in content["differences"]] == [
        ("new", "even"),
        ("new", "now"),
        ("even", "now"),
    ]
    for each in content["differences"]:
        expected = found.difference(each["first"], each["second"])
        assert each["mean"]["value"] == pytest.approx(expected.value, rel=1e-9)
        assert each["mean"]["low"] == pytest.approx(expected.low, rel=1e-6)


def test_strict_and_what_is_written_all_the_same(data, tmp_path):
    few = ["--data", write_parquet(tmp_path / "few.parquet", wards(3)), *COLUMNS, *QUICK, "--out", tmp_path / "out"]
    for strict, status in (([], 0), (["--strict"], 3)):
        result = run("evaluate", *few, *strict)
        assert result.returncode == status, result.stderr
        assert "Verdict: do not use." in result.stdout
        assert {path.name for path in (tmp_path / "out").iterdir()} >= FILES
    fine = run("evaluate", "--data", data, *COLUMNS, *QUICK, "--strict", "--out", tmp_path / "fine")
    assert fine.returncode == 0, fine.stdout


def test_rows_that_are_no_episodes(tmp_path):
    process = examples.queue(6)
    steps = process.sample(20_000, seed=0)
    table = {"n": steps.states / 6, "n2": steps.next_states / 6, "cost": steps.rewards}
    data = write_parquet(tmp_path / "log.parquet", table)
    words = ["--state", "n", "--next-state", "n2", "--reward", "cost", "--discount", "0.95", "--features", "splines:7"]
    result = run("evaluate", "--data", data, *words, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "from all states of the log, discount 0.95" in result.stdout
    assert "No column says which rows belong to one episode" in result.stdout
    content = json.loads((tmp_path / "evaluation.json").read_text())
    truth = process.true_values() @ process.stationary_distribution()
    assert content["policies"][0]["mean"]["value"] == pytest.approx(truth, rel=0.03)
    recording = read_evaluation(tmp_path)
    numbers = np.array([int(label) for label in recording.labels])
    means = recording.views[0].values[:, 0]
    np.testing.assert_allclose(means, process.true_values()[steps.states[numbers]], rtol=0.08)


def test_the_terminated_column_is_found_and_lists_are_columns(tmp_path):
    table = {"s": [[1.0, 0.5], [-1.0, 1.0]] * 50, "s2": [[-1.0, 1.0], [0.0, 0.0]] * 50, "reward": [1.0, 2.0] * 50}
    data = write_parquet(tmp_path / "log.parquet", table | {"terminated": [False, True] * 50})
    words = ["--state", "s", "--next-state", "s2", "--discount", "0.5", "--features", "bins:2", "--out", tmp_path]
    assert run("evaluate", "--data", data, *words).returncode == 0
    content = json.loads((tmp_path / "evaluation.json").read_text())
    assert content["log"]["columns"]["terminated"] == ["terminated"]
    assert content["policies"][0]["mean"]["value"] == pytest.approx(2, abs=0.05)  # 1 + 0.5 * 2, and 2


def test_watch_and_report_read_it(data, tmp_path):
    assert run("evaluate", "--data", data, *COLUMNS, *QUICK, "--out", tmp_path / "e").returncode == 0
    assert run("watch", tmp_path / "e", "--out", tmp_path / "w.html").returncode == 0
    assert run("report", tmp_path / "e", "--out", tmp_path / "r").returncode == 0
    assert (tmp_path / "r" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--state must name the columns of the state, got none; the columns are who, day, x0"),
        (["--state", "x*"], "--episode must name the column that tells episodes apart, or --next-state"),
        (
            ["--episode", "whom", "--state", "x*"],
            "--episode must name columns of the log, got 'whom'; its columns are who",
        ),
        (["--state", "x0,x1", "--next-state", "x1,day"], "--next-state must name other columns than state, got 'x1'"),
        ([*COLUMNS[:-1], "1.5"], "--discount must be a number in [0, 1] or a column name, got 1.5"),
        ([*COLUMNS, "--weight", "x0"], "--weight must hold numbers >= 0"),
        ([*COLUMNS, "--features", "waves:3"], "--features must be one of 'columns', 'bins:10'"),
        (
            [*COLUMNS, "--policy", "new_*"],
            "--policy needs the log's actions, which must be discrete: name them with --action",
        ),
        (
            [*COLUMNS, "--action", "dose", "--policy", "x0"],
            "--policy must name a column for each of the actions high, low",
        ),
        ([*COLUMNS, "--policy", "a=log", "--policy", "a=log"], "--policy must have different names, got 'a' twice"),
        ([*COLUMNS, "--v-min", "0"], "--v-min and --v-max must be given together"),
        ([*COLUMNS, "--v-min", "2", "--v-max", "1"], "--v-min must be less than --v-max"),
        ([*COLUMNS, "--intervals", "95"], "--intervals: must be a number in (0, 1), or none, got '95'"),
        ([*COLUMNS, "--cvar", "0.1,0"], "--cvar: must be a number in (0, 1], got '0'"),
        ([*COLUMNS, "--quantiles", "5"], "--quantiles: must be a number in [0, 1], got '5'"),
        (
            [*COLUMNS, "--intervals", "none", "--bootstrap"],
            "--bootstrap makes intervals, which --intervals none leaves",
        ),
        ([*COLUMNS, "--ray"], "--episode is not known with --ray"),
        (["--state", "x0", "--ray"], "--ray needs --state and --next-state"),
    ],
)
def test_bad_input(arguments, sentence, data, tmp_path):
    assert sentence in refused("evaluate", "--data", data, *arguments, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_log_with_two_columns_of_one_name_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table([pa.array([1.0, 2.0])] * 4, names=["x", "x", "reward", "y"])
    pq.write_table(table, tmp_path / "log.parquet")
    words = ("evaluate", "--data", tmp_path / "log.parquet", "--state", "x", "--next-state", "y")
    assert "--data must have columns of different names, got 'x' more than once" in refused(*words)


def test_words_of_the_library_become_flags():
    text = "next_state must name one; set num_atoms higher, or name it in categorical= if they are codes"
    assert (
        in_flags(text)
        == "--next-state must name one; set --atoms higher, or name it in --categorical if they are codes"
    )
    assert in_flags("features of the state; the policy must go") == "features of the state; the policy must go"


def test_a_terminal_that_is_narrow(data, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    result = run("evaluate", "--data", data, *COLUMNS, *QUICK, "--out", tmp_path)
    about = result.stdout.partition("\nwrote ")[0]
    assert max(map(len, about.splitlines())) <= 75  # rows of the answer are no wider


def test_ctrl_c_leaves_nothing_half_written(data, tmp_path):
    words = ["evaluate", "--data", str(data), *COLUMNS, "--bootstrap", "100000", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-c", FROM_A_TERMINAL, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "nothing was left half-written" in process.stderr.read()
    assert not (tmp_path / "out").exists()


def test_a_process_leaves_no_page_of_a_log_behind(data, tmp_path):
    assert run("evaluate", "--data", data, *COLUMNS, *QUICK, "--out", tmp_path).returncode == 0
    result = run("evaluate", "ring", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"removed {tmp_path / 'evaluation.html'}, which was of another evaluation" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"evaluation.json", "evaluation.png"}
    (tmp_path / "evaluation.html").write_text("mine")
    assert run("evaluate", "ring", "--out", tmp_path).returncode == 0
    assert (tmp_path / "evaluation.html").read_text() == "mine"
