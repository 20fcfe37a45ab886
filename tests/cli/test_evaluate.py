"""`cramerl evaluate`: processes, tabular environments and logs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import refused, run, run_process

from cramerl.linear import examples


def test_evaluate_a_gymnasium_table(tmp_path):
    np.save(tmp_path / "policy.npy", np.full(16, 2))
    arguments = ["--policy", str(tmp_path / "policy.npy"), "--features", "fourier:4", "--out", str(tmp_path)]
    result = run("evaluate", "FrozenLake-v1", *arguments, "--discount", "0.9", "--v-min", "0", "--v-max", "1")
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert len(written["values"]) == 16
    assert written["support"][0] == 0
    assert "Theorem 1" in result.stdout


def test_a_discount_close_to_one(tmp_path):
    ends = ["--v-min", "-1", "--v-max", "1000001"]
    result = run("evaluate", "ring", "--discount", "0.999999", *ends, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "evaluation.json").read_text())
    np.testing.assert_allclose(written["values"], examples.ring(discount=0.999999).true_values(), rtol=1e-6)


@pytest.mark.parametrize(("env_id", "command"), [("FrozenLake-v1", run_process), ("CliffWalking-v1", run)])
def test_evaluate_without_options(env_id, command, tmp_path):
    result = command("evaluate", env_id, "--out", tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_log_of_lists_and_its_mass(tmp_path):
    table = {"s": [[1.0, 0.5], [-1.0, 1.0]] * 50, "reward": [1.0, 2.0] * 50, "terminated": [False, True] * 50}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    arguments = ["--data", str(tmp_path / "log.parquet"), "--state", "s", "--next-state", "s", "--out", str(tmp_path)]
    result = run("evaluate", *arguments, "--no-bias", "--discount", "0.5")
    assert "returns end where 'terminated' says so" in result.stdout, result.stderr
    assert json.loads((tmp_path / "evaluation.json").read_text())["certificate"]["mass_size"] < 2


def test_columns_that_depend_on_the_constant_that_is_added(tmp_path):
    pq.write_table(
        pa.table({"a": [0.0, 1.0] * 50, "b": [1.0, 0.0] * 50, "reward": [1.0] * 100}), tmp_path / "log.parquet"
    )
    log, out = tmp_path / "log.parquet", tmp_path / "o"
    words = ["--data", log, "--state", "a,b", "--next-state", "a,b", "--out", out, "--v-min", "0", "--v-max", "100"]
    result = run("evaluate", *words)
    assert result.returncode == 2
    assert result.stderr == (
        "cramerl: --state must name columns that are linearly independent of each other and of the constant feature, "
        "which --no-bias leaves out, got a,b\n"
    )
    assert not out.exists()
    assert run("evaluate", *words, "--no-bias").returncode == 0


def test_evaluate_a_log(tmp_path):
    process = examples.queue(6)
    steps = process.sample(20_000, seed=0)
    table = {"n": steps.states / 6, "n2": steps.next_states / 6, "cost": steps.rewards}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    arguments = ["--data", str(tmp_path / "log.parquet"), "--state", "n", "--next-state", "n2", "--reward", "cost"]
    result = run("evaluate", *arguments, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "20,000 transitions" in result.stdout
    assert "Mean returns equal those of ordinary LSTD" in result.stdout
    written = json.loads((tmp_path / "evaluation.json").read_text())
    masses = np.array([1.0, 0.5]) @ np.array(written["weights"])
    assert masses.sum() == pytest.approx(1)
    assert masses @ np.array(written["support"]) == pytest.approx(process.true_values()[3], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "either a process to evaluate or --data FILE"),
        (["queue", "--features", "wavelets:3"], "features must be one of tabular, aggregation:N"),
        (["queue", "--discount", "1"], "discount must lie in [0, 1), got 1.0"),
        (["queue", "--policy", "x.npy"], "policy must be 'uniform' for queue, which has no actions"),
        (["queue", "--v-min", "3", "--v-max", "1"], "v_min must be less than v_max"),
        (["queue", "--state", "x"], "--state belongs to --data and would be ignored here"),
        (["FrozenLake-v1", "--policy", "best"], "policy must be 'uniform' or a .npy or .csv file, got 'best'"),
        (["FrozenLake-v1", "--policy", "missing.npy"], "missing.npy"),
        (["a:b:c"], "id of a tabular Gymnasium environment, got 'a:b:c'"),
        (["CartPole-v1"], "table env.unwrapped.P, got 'CartPole-v1'"),
        (["NoSuchGame-v0"], "id of a tabular Gymnasium environment"),
        (["--data", "x", "--features", "rbf:3"], "--features belongs to a process and would be ignored here"),
        (["--data", "nowhere.parquet"], "--data needs --state and --next-state"),
        (["--data", "nowhere.parquet", "--state", "a", "--next-state", "b"], "nowhere.parquet"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("evaluate", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_was_made_for_nothing_goes_again(there, tmp_path):
    out = tmp_path / "a" / "b"
    if there:
        out.mkdir(parents=True)
    assert "discount" in refused("evaluate", "queue", "--discount", "1", "--out", out)
    assert out.exists() == out.parent.exists() == there


def test_a_log_with_two_columns_of_one_name_is_refused(tmp_path):

    table = pa.table([pa.array([1.0, 2.0])] * 4, names=["x", "x", "reward", "y"])
    pq.write_table(table, tmp_path / "log.parquet")
    words = ("evaluate", "--data", tmp_path / "log.parquet", "--state", "x", "--next-state", "y")
    assert "columns must have different names" in refused(*words)
