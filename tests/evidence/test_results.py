"""results/: its recorded commands match its runs, and presets have the settings it chose."""

import itertools
import json
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cramerl.cli.main import main
from cramerl.evidence.curves import final_score, read_curves
from cramerl.runs.presets import preset

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(RESULTS.glob("*/sweep.json"))
GAMES = ("Asterix-MinAtar", "Breakout-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.parent.name)
def test_recorded_commands_make_the_runs_that_are_there(record, monkeypatch, capsys):
    # A preset that changes makes them other commands.
    monkeypatch.chdir(RESULTS.parent)
    asked = set()
    for command in json.loads(record.read_text())["commands"]:
        _, *words = shlex.split(command)
        assert main([*words, "--dry-run"]) == 0
        summary, *left = capsys.readouterr().out.splitlines()
        assert f"{len(left)} to do" in summary
        assert not any((Path(line.partition(": ")[0]) / "weights.json").exists() for line in left)
        value = dict(itertools.pairwise(words))
        asked |= set(itertools.product(value["--agents"].split(","), value["--envs"].split(",")))
    configs = [json.loads(path.read_text()) for path in record.parent.glob("*/*/config.json")]
    assert {(config["agent"], config["env"]) for config in configs} <= asked


def words_of_the_script(folder: Path, **environment: str) -> list[list[str]]:
    """What it would do, said by a copy of it: a process for each of its sweeps would take half a minute."""
    (folder / "results").mkdir()
    script = Path(shutil.copy(RESULTS / "study.sh", folder / "results" / "study.sh"))
    said = script.with_name("cramerl")
    said.write_text('#!/bin/sh\necho "$@"\n')
    said.chmod(0o755)
    env = os.environ | environment | {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    found = subprocess.run([script], env=env, capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in found.stdout.splitlines()]


def test_the_script_of_the_study_finds_what_is_there(tmp_path, monkeypatch, capsys):
    sweeps = words_of_the_script(tmp_path, MORE="--dry-run")
    monkeypatch.chdir(RESULTS.parent)
    for words in sweeps:
        assert main(words) == 0
        assert capsys.readouterr().out.endswith(", 0 to do\n")
    assert {words[1] for words in sweeps} == {f"results/{record.parent.name}" for record in RECORDS}


def test_more_seeds_are_for_reporting_and_not_for_choosing(tmp_path):
    sweeps = words_of_the_script(tmp_path, SEEDS="0-99")
    extended = {words[1] for words in sweeps if words[words.index("--seeds") + 1] == "0-99"}
    assert extended == {f"results/{name}" for name in ("minatar", "pong-misc", "atari", "atari-longer", "atari-rates")}
    assert all("0-99" in words for words in sweeps if words[1] in extended)


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


def test_the_scores_on_the_page_of_the_study_are_those_of_its_tables():
    study = RESULTS.parent / "docs" / "study.md"
    tables = study.with_name("study").joinpath("tables.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in study.read_text().split("## Parts of the study")[0].splitlines()]
    scores = [cell for name, *cells in rows if name.startswith(("DQN", "C51", "QR", "S51", "U51")) for cell in cells]
    assert len(scores) == 7 * 5 + 4 * 5
    assert all(f"| {score} |" in tables for score in scores)
