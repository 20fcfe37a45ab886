"""What a folder says is data: no module that it names is imported unless the user says that it may be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import refused, run
from untrained import small_config, write_untrained

import cramerl
from cramerl.deep.envs.names import imported_module
from cramerl.runs.group import as_group
from cramerl.runs.presets import preset
from cramerl.sweep.job import JobFile
from cramerl.sweep.train_job import train_job


@pytest.fixture
def evil(tmp_path, monkeypatch) -> Iterator[Path]:
    """A run whose settings name a module; the file beside it is written if that is imported."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/evil_games.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'PWNED')!r}).write_text('x')\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "lib")
    yield name_module(write_untrained(tmp_path / "run", small_config(env="gym:CartPole-v1")))
    sys.modules.pop("evil_games", None)


def name_module(folder: Path, env: str = "evil_games:CartPole-v1") -> Path:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"env": env}))
    return folder


@pytest.mark.parametrize(
    "words", [["play"], ["resume"], ["watch", "--out", "page.html"], ["watch", "--serve", "--port", "0"]]
)
def test_no_command_imports_a_module_that_a_folder_names(evil, tmp_path, words):
    command, *flags = words
    sentence = refused(command, evil, *flags, cwd=tmp_path)
    assert sentence == (
        "cramerl: the folder names the environment 'evil_games:CartPole-v1', which runs the Python module "
        "'evil_games': if you trust whoever wrote the folder, add --trust-modules (in Python: trust_modules=True)"
    )
    assert not (tmp_path / "PWNED").exists()


def test_report_never_imports_it(evil, tmp_path):
    (evil / "metrics.jsonl").write_text('{"step": 100, "charts/episodes": 1, "charts/episodic_return": 1.0}\n')
    result = run("report", evil, "--out", tmp_path / "report", "--unfinished")
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "PWNED").exists()
    assert "which runs the Python module" in (tmp_path / "report/report.html").read_text()
    assert "unrecognized arguments: --trust-modules" in refused("report", evil, "--trust-modules")


def test_python_functions_do_not_either(evil, tmp_path):
    for call in (cramerl.resume, lambda run: cramerl.watch(run, tmp_path / "page.html")):
        with pytest.raises(ValueError, match=r"in Python: trust_modules=True"):
            call(evil)
    cramerl.load_agent(evil)  # which needs no environment
    assert not (tmp_path / "PWNED").exists()


def test_with_the_flag_it_is_imported(evil, tmp_path):
    result = run("play", evil, "--episodes", 1, "--trust-modules")
    assert (result.returncode, (tmp_path / "PWNED").read_text()) == (0, "x"), result.stderr


def test_a_sweep_resumes_with_the_module_of_its_command_line_only(evil, tmp_path):
    """The folder of a job may have come out of a storage."""
    asked = preset("smoke", "s51", "gym:CartPole-v1")
    job = JobFile(evil, as_group(asked), tmp_path / "log")
    with pytest.raises(ValueError, match="which runs the Python module 'evil_games'"):
        train_job(job)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("gym:evil:CartPole-v1", "evil"),
        ("evil:CartPole-v1", "evil"),
        ("GYM:CartPole-v1", "GYM"),
        ("evil:Breakout-MinAtar", "evil"),
        ("gym:GymV26Environment-v0", "gym"),
        ("gym:GymV21Environment", "gym"),
        ("phys2d/CartPole-v1", None),
        ("ALE/Pong-v5", None),
        ("Breakout-MinAtar", None),
    ],
)
def test_names_that_import_modules_are_known(name, module):
    assert imported_module(name) == module
