"""If the newest weights of a run cannot be used, everything that uses others says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.numpy
from commands import run
from untrained import small_config, write_untrained

import cramerl
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.runs.agents import export_agent

NOTE = r"the weights of .*run are those of step 100, and not its newest: checkpoint 000002 cannot be used: state.saf"
SAID = "are those of step 100, and not its newest: checkpoint 000002 cannot be used: state.safetensors has been altered"


@pytest.fixture
def damaged(tmp_path) -> Path:
    """A run whose newest checkpoint, of three, has one byte that is wrong."""
    folder = write_untrained(tmp_path / "run", small_config(steps=200))
    store = CheckpointStore(folder / "checkpoints")
    saved = store.latest()
    for iteration in (1, 2):
        arrays = {name: array + iteration for name, array in saved.arrays.items()}
        store.save({**saved.info, "iteration": iteration, "step": 100 * iteration}, arrays)
    rows = [{"step": step, "charts/episodes": 1, "charts/episodic_return": float(step)} for step in (50, 100, 150, 200)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "checkpoints/000002/state.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return folder


@pytest.mark.filterwarnings("default::UserWarning")
def test_commands_say_it(damaged, tmp_path):
    played = run("play", damaged, "--episodes", 1)
    assert (played.returncode, SAID in played.stderr) == (0, True), played.stderr
    watched = run("watch", damaged, "--max-steps", 3, "--out", tmp_path / "page.html")
    assert (watched.returncode, SAID in watched.stdout) == (0, True), watched.stderr
    page = (tmp_path / "page.html").read_text()
    assert SAID in page
    assert str(tmp_path) not in page
    reported = run("report", damaged, "--out", tmp_path / "report")
    assert reported.returncode == 0, reported.stderr
    words = " ".join((tmp_path / "report/tables.md").read_text().split())
    assert "Seed 0 after 100 steps of training plays" in words
    assert f"The weights of run {SAID}" in words


@pytest.mark.filterwarnings("default::UserWarning")
def test_an_export_says_it_and_has_the_score_of_its_weights(damaged, tmp_path):
    exported = run("export", damaged, "--out", tmp_path / "agent")
    assert (exported.returncode, exported.stderr.startswith("cramerl: the weights of ")) == (0, True), exported.stderr
    assert SAID in exported.stderr
    card = (tmp_path / "agent/README.md").read_text()
    assert "| trained | 100 steps |" in card
    assert "| mean return | 100.00 (training episodes in the steps after 50, 100 in all) |" in card
    weights = safetensors.numpy.load_file(tmp_path / "agent/model.safetensors")
    older = safetensors.numpy.load_file(damaged / "checkpoints/000001/state.safetensors")
    assert {name: array.tolist() for name, array in weights.items()} == {
        name.removeprefix("params."): array.tolist() for name, array in older.items()
    }


def test_functions_warn(damaged, tmp_path):
    for call in (cramerl.load_agent, lambda run: export_agent(run, tmp_path / "agent")):
        with pytest.warns(UserWarning, match=NOTE):
            call(damaged)


def test_whole_runs_are_loaded_without_a_word(tmp_path):
    folder = write_untrained(tmp_path / "run", small_config())
    cramerl.load_agent(folder)  # a warning would be an error
    assert "cannot be used" not in run("play", folder, "--episodes", 1).stderr
