"""The ``cramerl`` command as a whole: help, what it imports, signals and errors."""

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace

import pytest
from commands import python, refused, run, run_process

from cramerl import __version__
from cramerl.cli.main import COMMANDS
from cramerl.cli.main import main as cli


def test_help_and_version():
    assert run_process("--version").stdout == f"cramerl {__version__}\n"
    for arguments in ([], *([command] for command in COMMANDS)):
        result = run(*arguments, "--help")
        assert result.returncode == 0
        assert "demo" in result.stdout or arguments


@pytest.mark.parametrize(("arguments", "sentence"), [([], "required: COMMAND"), (["dmeo"], "invalid choice")])
def test_bad_input(arguments, sentence):
    assert sentence in refused(*arguments)


@pytest.mark.parametrize("words", [["demo"], ["evaluate", "queue"]])
def test_results_do_not_go_into_a_file(words, tmp_path):
    file = tmp_path / "mine"
    file.write_text("mine")
    assert refused(*words, "--out", file) == f"cramerl: --out must be a folder, {file} is a file"
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["demo", "--out", "."], "demo.png"),
        (["demo", "--out", "."], "evaluation.json"),
        (["evaluate", "queue", "--out", "."], "evaluation.png"),
        (["verify", "--html", "a.html"], "a.html"),
        (["verify", "--json", "a.json"], "a.json"),
        (["verify", "--markdown", "a.md"], "a.md"),
    ],
)
def test_files_of_others_are_not_replaced(words, name, tmp_path):
    (tmp_path / name).write_text("{}")
    sentence = refused(*words, cwd=tmp_path)
    assert sentence.startswith(f"cramerl: {words[-2]} must be a new file or one that cramerl ")
    assert sentence.endswith(f"wrote, {name} is something else: choose another, or add --overwrite")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "{}")]


def test_what_a_command_wrote_is_replaced_and_it_says_so(tmp_path):
    for word in ("wrote", "replaced"):
        lines = run("evaluate", "ring", "--out", tmp_path).stdout.splitlines()
        assert lines[-2:] == [f"{word} {tmp_path / name}" for name in ("evaluation.json", "evaluation.png")]
    (tmp_path / "evaluation.json").write_text("mine")
    assert run("evaluate", "ring", "--out", tmp_path, "--overwrite").returncode == 0
    assert (tmp_path / "evaluation.json").read_text() != "mine"


def test_the_command_line_starts_without_heavy_libraries():
    heavy = ["numpy", "scipy", "jax", "torch", "matplotlib"]
    code = f"import sys, cramerl.cli.main as c; c.make_parser(); print([m for m in {heavy} if m in sys.modules])"
    # The package itself needs NumPy; nothing else may come with it.
    assert python("-c", code).stdout == "['numpy']\n"


def test_reports_can_be_made_where_jax_is_not_installed():
    code = "import sys; sys.modules['jax'] = None; import cramerl.reports.build, cramerl.evidence.summary"
    assert python("-c", code).returncode == 0


def test_a_reader_that_has_closed_its_pipe_causes_no_complaint():
    command = f"{sys.executable} -m cramerl train s51 pong --print-config | true; exit ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (piped.returncode, piped.stderr) == (141, "")


def test_a_library_does_not_change_what_sigterm_means(monkeypatch):
    """Ray makes another exit of it while it waits."""

    def waiting(options):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except SystemExit:
            raise SystemExit(1) from None

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("cramerl.cli.main._parse", lambda arguments: Namespace(run=waiting))
    try:
        assert cli([]) == 143
    finally:
        signal.signal(signal.SIGTERM, before)


LOST = """
import gc, os, signal, sys, time
from argparse import Namespace
import cramerl.cli.main as command
from cramerl.runs import stop_signals
signal.signal(signal.SIGINT, signal.default_int_handler)
stop_signals._AGAIN_SECONDS = 0.1
number = getattr(signal, sys.argv[1])

def in_a_callback(options):
    gc.callbacks.append(lambda *_: os.kill(os.getpid(), number))
    gc.collect()
    gc.callbacks.clear()
    time.sleep(30)

def in_a_bare_except(options):
    os.kill(os.getpid(), number)

def forever(options):
    while True:
        try:
            in_a_bare_except(options)
            time.sleep(30)
        except BaseException:
            pass

command._parse = lambda arguments: Namespace(run=globals()[sys.argv[2]])
sys.exit(command.main([]))
"""


@pytest.mark.parametrize("work", ["in_a_callback", "forever"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_others_lose_ends_the_command_all_the_same(name, work):
    """JAX's callback of the garbage collector loses exceptions, and so does every bare except."""
    ended = python("-c", LOST, name, work)
    said = "\ncramerl: stopped; nothing was left half-written\n" if name == "SIGINT" else ""
    assert ended.returncode == 128 + getattr(signal, name)
    assert ended.stderr in ((said,) if work == "in_a_callback" else (said, ""))


@pytest.mark.parametrize(
    "words", [["train", "s51", "pong", "--steps=--"], ["play", "x", "--episodes=--"], ["--version=--"]]
)
def test_two_dashes_are_no_value(words):
    assert refused(*words).endswith("must have a value, got '--'")


def test_ctrl_c_while_numpy_is_imported_ends_quietly():
    """A finder of modules sends the signal when NumPy is asked for."""
    code = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
import cramerl_start
sys.argv = ["cramerl", "--version"]
cramerl_start.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
