"""`cramerl predict`: distributions of new rows."""

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import refused, run
from small_logs import COLUMNS, QUICK, wards, write_csv, write_parquet

from cramerl.linear import Log, evaluate_policy, load_evaluation
from cramerl.measures import cvar, mean, quantile

ROWS = {
    "name": ["a", "b", "c"],
    "x1": [0.5, 1.0, 9.0],
    "ward": ["icu", "surgery", "attic"],
    "x0": [0.0, 1.0, -0.5],
    "new_high": [0.5, 0.75, 0.25],
    "new_low": [0.5, 0.25, 0.75],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An evaluation of two policies."""
    out = tmp_path_factory.mktemp("predict")
    data = write_parquet(out / "log.parquet")
    policies = ["--action", "dose", "--policy", "new=new_*", "--policy", "now=log", "--intervals", "none"]
    assert run("evaluate", "--data", data, *COLUMNS, *QUICK, *policies, "--out", out / "e").returncode == 0
    return out / "e"


@pytest.fixture(scope="module")
def expected():
    named = {"state": "x*,ward", "action": "dose", "terminated": "died|left"}
    log = Log.read(wards(), episode="who", time="day", **named, discount=0.9)
    settings = {"features": "splines:3", "regularisation": 0.001, "num_atoms": 11, "intervals": "none"}
    return evaluate_policy(log, {"new": "new_*", "now": None}, **settings)


@pytest.mark.parametrize("policy", ["new", "now"])
def test_parquet(policy, folder, expected, tmp_path):
    data, out = write_parquet(tmp_path / "new.parquet", ROWS), tmp_path / "predicted.parquet"
    words = ["--policy", policy, "--out", out, "--keep", "na*", "--quantiles", "0.1,0.9", "--cvar", "0.3"]
    result = run("predict", folder, "--data", data, *words)
    assert result.returncode == 0, result.stderr
    found, answer = pq.read_table(out), expected[policy]
    probs, support = answer.predict(ROWS), answer.model.support_
    assert found.column_names == ["name", "mean", "q0.1", "q0.9", "cvar0.3", "probs", "unlike"]
    np.testing.assert_array_equal(np.array(found["probs"].to_pylist()), probs)
    np.testing.assert_array_equal(load_evaluation(folder, policy).predict(ROWS), probs)
    np.testing.assert_array_equal(found["mean"], mean(support, probs))
    np.testing.assert_array_equal(found["q0.9"], quantile(support, probs, 0.9))
    np.testing.assert_array_equal(found["cvar0.3"], cvar(support, probs, 0.3))
    about = json.loads(found.schema.metadata[b"cramerl"])
    assert (about["atoms"], about["verdict"]) == (support.atoms.tolist(), answer.trust.verdict)
    assert found["unlike"].to_pylist()[:2] == ["", ""]
    assert "warning: 1 row is unlike those of the log" in result.stdout
    assert "row 2: x1 is 9, the log has 0 to 1.5; ward has a value that the log never had" in result.stdout
    assert f"wrote {out}" in result.stdout
    assert result.stdout.count("Verdict on the evaluation: ") == 1


def test_csv(folder, expected, tmp_path):
    data, out = write_csv(tmp_path / "new.csv", ROWS), tmp_path / "predicted.csv"
    words = ("predict", folder, "--data", data, "--policy", "new", "--out", out)
    assert run(*words).returncode == 0
    found = pyarrow.csv.read_csv(out)
    atoms = expected["new"].model.support_.atoms
    names = [f"p[{atom:.9g}]" for atom in atoms]
    np.testing.assert_allclose(np.stack([found[name] for name in names], axis=1), expected["new"].predict(ROWS))
    assert "must be a new file or one that cramerl predict wrote" in refused(*words)
    assert run(*words, "--overwrite").returncode == 0


def test_a_table_of_the_first_rows(folder, expected, tmp_path):
    rows = {name: values * 10 for name, values in ROWS.items()}
    data = write_parquet(tmp_path / "new.parquet", rows)
    result = run("predict", folder, "--data", data, "--policy", "now", "--keep", "name")
    assert result.returncode == 0, result.stderr
    header, first, *rest = result.stdout.splitlines()
    assert header.split() == ["row", "name", "mean", "q0.05", "q0.5", "q0.95", "cvar0.1", "cvar0.25"]
    values = mean(expected["now"].model.support_, expected["now"].predict(ROWS))
    assert first.split()[:3] == ["0", "a", f"{values[0]:.4g}"]
    assert rest[1].endswith("unlike the log")
    assert rest[19:21] == ["", "30 rows, discount 0.9"]
    assert "warning: 10 rows are unlike" in result.stdout


def test_the_verdict_is_repeated(tmp_path):
    data = write_parquet(tmp_path / "few.parquet", wards(3))
    assert run("evaluate", "--data", data, *COLUMNS, *QUICK, "--out", tmp_path / "e").returncode == 0
    result = run("predict", tmp_path / "e", "--data", data)
    assert "Verdict on the evaluation: do not use: There are 3 episodes" in result.stdout


def test_an_example_that_comes_with_the_package(tmp_path):
    words = ["--features", "splines:3", "--atoms", "21", "--intervals", "none", "--out", tmp_path]
    assert run("evaluate", "--data", "example:machines", *words).returncode == 0
    result = run("predict", tmp_path, "--data", "example:machines")
    assert "10,503 rows, discount 0.98" in result.stdout
    assert "warning" not in result.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--policy must be one of new, now, the policies that were evaluated, got None"),
        (["--policy", "old"], "--policy must be one of new, now, the policies evaluated, got 'old'"),
        (["--policy", "now", "--out", "x.txt"], "--out must be a .parquet or .csv file, got x.txt"),
        (["--policy", "now", "--keep", "age"], "--keep must name columns of the log, got 'age'; its columns are name"),
        (["--policy", "now", "--quantiles", "2"], "--quantiles: must be a number in [0, 1], got '2'"),
    ],
)
def test_bad_flags(words, sentence, folder, tmp_path):
    data = write_parquet(tmp_path / "new.parquet", ROWS)
    assert sentence in refused("predict", folder, "--data", data, *words, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new.parquet"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ward": None}, "--data must have the columns of the state, 'ward' is missing; it has name, x1, x0"),
        ({"new_low": None}, "--data must have the columns of the policy, 'new_low' is missing"),
        ({"x1": [1.0, None, 2.0]}, "--data must not have missing values, got 1 in column 'x1'"),
        ({"x1": ["a", "b", "c"]}, "--data must name columns of numbers, got 'x1', which holds labels such as"),
        ({"ward": [1, 2, 3]}, "--data must name a column of one type, got 'icu' and 1 in column 'ward'"),
        ({name: [] for name in ROWS}, "--data must hold at least one row, got none"),
    ],
)
def test_bad_data(change, sentence, folder, tmp_path):
    rows = {name: values for name, values in (ROWS | change).items() if values is not None}
    data, out = write_parquet(tmp_path / "new.parquet", rows), tmp_path / "out.parquet"
    assert sentence in refused("predict", folder, "--data", data, "--policy", "new", "--out", out)
    assert not out.exists()


def test_folders_that_are_something_else(folder, tmp_path):
    data = write_parquet(tmp_path / "new.parquet", ROWS)
    sentence = "the folder must be one that cramerl evaluate --data wrote"
    assert sentence in refused("predict", tmp_path, "--data", data)
    (tmp_path / "model.npz").write_bytes((folder / "model.npz").read_bytes())
    assert run("evaluate", "queue", "--out", tmp_path).returncode == 0
    words = ("predict", tmp_path, "--data", data, "--policy", "now")
    assert "belongs to another evaluation than evaluation.json: evaluate again" in refused(*words)


@pytest.mark.parametrize("content", ["[1]", "null", "{", "[" * 100_000])
def test_an_evaluation_file_that_was_changed(content, folder, tmp_path):
    data = write_parquet(tmp_path / "new.parquet", ROWS)
    (tmp_path / "model.npz").write_bytes((folder / "model.npz").read_bytes())
    (tmp_path / "evaluation.json").write_text(content)
    sentence = refused("predict", tmp_path, "--data", data, "--policy", "new")
    assert f"{tmp_path}/evaluation.json cannot be used: it " in sentence
