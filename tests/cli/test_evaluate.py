"""`cramerl evaluate`: processes, tabular environments and logs."""

import json
import os

import numpy as np
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
        (["queue", "--ray"], "--ray belongs to --data and would be ignored here"),
        (["queue", "--discount", "x"], "--discount must be a number for a process, got 'x'"),
        (["queue", "--policy", "a", "--policy", "b"], "--policy must be given once for a process, got a and b"),
        (["--data", "x", "--bias"], "--bias belongs to a process and would be ignored here"),
        (["--data", "x", "--method", "direct"], "--method belongs to a process and would be ignored here"),
        (["--data", "nowhere.parquet", "--state", "a", "--next-state", "b"], "nowhere.parquet"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("evaluate", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["pickle", "archive", "header", "huge", "empty", "pipe", "device"])
def test_policies_that_are_no_numbers(kind, tmp_path):
    path = tmp_path / "policy.npy"
    if kind == "pickle":
        np.save(path, np.array([{}], dtype=object))
    elif kind == "archive":
        with path.open("wb") as file:
            np.savez(file, np.zeros(3))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        headers = {"header": b"((((", "huge": b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }"}
        data = headers.get(kind)
        path.write_bytes(b"" if data is None else b"\x93NUMPY\x01\x00" + bytes([len(data), 0]) + data)
    sentence = "policy must be a file of numbers, got "
    assert sentence in refused("evaluate", "FrozenLake-v1", "--policy", path, "--out", tmp_path / "out")


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_was_made_for_nothing_goes_again(there, tmp_path):
    out = tmp_path / "a" / "b"
    if there:
        out.mkdir(parents=True)
    assert "discount" in refused("evaluate", "queue", "--discount", "1", "--out", out)
    assert out.exists() == out.parent.exists() == there
