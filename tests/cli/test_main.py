"""The command as its user meets it: a real process, its exit status and its words."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest

from cramerl import __version__
from cramerl.cli.main import main as cli


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cramerl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_demo_writes_a_table_a_picture_and_numbers(tmp_path):
    result = run("demo", "--out", str(tmp_path / "new" / "folder"), "--steps", "200")
    assert result.returncode == 0, result.stderr
    assert "1053.48" in result.stdout
    written = json.loads((tmp_path / "new/folder/demo.json").read_text())
    assert written["conditioning"][3]["num_atoms"] == 51
    assert written["conditioning"][3]["raw"] == pytest.approx(4296.0000281, rel=1e-9)
    assert written["measures"]["nearest"]["negative_mass"] == 0
    # Nothing clips: the backup has mean 1 + 0.9 mean, and the nearest distribution mass one.
    means = {name: values["mean"] for name, values in written["measures"].items()}
    assert means["target"] == pytest.approx(1 + 0.9 * means["prediction"])
    raw, s51, u51 = (d["error"] for d in written["descents"])
    assert u51 < 1e-13 < s51 < raw < 1
    assert (tmp_path / "new/folder/demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [["demo"], ["evaluate", "queue"]])
def test_results_do_not_go_into_a_file(words, tmp_path):
    file = tmp_path / "mine"
    file.write_text("mine")
    result = run(*words, "--out", str(file))
    assert result.returncode == 2
    assert result.stderr == f"cramerl: --out must be a folder, {file} is a file\n"
    assert file.read_text() == "mine"


def test_demo_evaluates_a_process(tmp_path):
    result = run("demo", "--out", str(tmp_path), "--steps", "5")
    assert "Mean returns equal LSTD's" in result.stdout
    assert json.loads((tmp_path / "evaluation.json").read_text())["certificate"]["distribution_bound"]["holds"]
    assert (tmp_path / "evaluation.png").read_bytes().startswith(b"\x89PNG")


def test_verify_reproduces_the_errata(tmp_path):
    files = [part for kind in ("json", "html", "markdown") for part in (f"--{kind}", str(tmp_path / f"claims.{kind}"))]
    result = run("verify", *files)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "33 claims" in result.stdout
    assert "10e" in (tmp_path / "claims.json").read_text()
    assert (tmp_path / "claims.html").read_text().lower().startswith("<!doctype html>")
    assert "## Claim 10e" in (tmp_path / "claims.markdown").read_text()
    assert len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 33


def test_verify_fails_when_a_figure_moves():
    """A Gram matrix off by one part in a thousand has to be noticed."""
    code = """
import sys, cramerl.cramer as cramer, cramerl.claims.distance as distance
true = cramer.cramer_gram
distance.cramer_gram = lambda support, penalty: 1.001 * true(support, penalty)
from cramerl.cli.main import main
sys.exit(main(["verify", "--json"]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    assert len(json.loads(result.stdout)["claims"]) == 33


def test_evaluate_a_gymnasium_table(tmp_path):
    import numpy as np

    np.save(tmp_path / "policy.npy", np.full(16, 2))
    arguments = ["--policy", str(tmp_path / "policy.npy"), "--features", "fourier:4", "--out", str(tmp_path)]
    result = run("evaluate", "FrozenLake-v1", *arguments, "--discount", "0.9", "--v-min", "0", "--v-max", "1")
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert len(written["values"]) == 16
    assert written["support"][0] == 0
    assert "Theorem 1" in result.stdout


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_evaluate_without_options(env_id, tmp_path):
    result = run("evaluate", env_id, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr


def test_a_log_of_lists_and_its_mass(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"s": [[1.0, 0.5], [-1.0, 1.0]] * 50, "reward": [1.0, 2.0] * 50, "terminated": [False, True] * 50}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    arguments = ["--data", str(tmp_path / "log.parquet"), "--state", "s", "--next-state", "s", "--out", str(tmp_path)]
    result = run("evaluate", *arguments, "--no-bias", "--discount", "0.5")
    assert "returns end where 'terminated' says so" in result.stdout, result.stderr


def test_columns_that_depend_on_the_constant_that_is_added(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"a": [0.0, 1.0] * 50, "b": [1.0, 0.0] * 50, "reward": [1.0] * 100}), tmp_path / "log.parquet"
    )
    words = [
        "--data",
        str(tmp_path / "log.parquet"),
        "--state",
        "a,b",
        "--next-state",
        "a,b",
        "--out",
        str(tmp_path / "o"),
    ]
    result = run("evaluate", *words, "--v-min", "0", "--v-max", "100")
    assert result.returncode == 2
    assert result.stderr == (
        "cramerl: --state must name columns that are linearly independent of each other and of the constant feature, "
        "which --no-bias leaves out, got a,b\n"
    )
    assert not (tmp_path / "o").exists()
    assert run("evaluate", *words, "--v-min", "0", "--v-max", "100", "--no-bias").returncode == 0


def test_evaluate_a_log(tmp_path):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cramerl.linear import examples

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


def test_help_and_version():
    assert run("--version").stdout == f"cramerl {__version__}\n"
    for arguments in (["--help"], ["demo", "--help"]):
        result = run(*arguments)
        assert result.returncode == 0
        assert "demo" in result.stdout


def test_the_command_line_starts_without_heavy_libraries():
    heavy = ["numpy", "scipy", "jax", "torch", "matplotlib"]
    code = f"import sys, cramerl.cli.main as c; c.make_parser(); print([m for m in {heavy} if m in sys.modules])"
    # The package itself needs NumPy; nothing else may come with it.
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['numpy']"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "required: COMMAND"),
        (["dmeo"], "invalid choice"),
        (["demo", "--atoms", "2"], "--atoms: must be an integer >= 3, got '2'"),
        (["demo", "--steps", "many"], "--steps: must be an integer >= 1, got 'many'"),
        (["demo", "--steps", "5", "--out", __file__], Path(__file__).name),
        (["evaluate"], "either a process to evaluate or --data FILE"),
        (["evaluate", "queue", "--features", "wavelets:3"], "features must be one of tabular, aggregation:N"),
        (["evaluate", "queue", "--discount", "1"], "discount must lie in [0, 1), got 1.0"),
        (["evaluate", "queue", "--policy", "x.npy"], "policy must be 'uniform' for queue, which has no actions"),
        (
            ["evaluate", "FrozenLake-v1", "--policy", "best"],
            "policy must be 'uniform' or a .npy or .csv file, got 'best'",
        ),
        (["evaluate", "FrozenLake-v1", "--policy", "missing.npy"], "missing.npy"),
        (["evaluate", "a:b:c"], "id of a tabular Gymnasium environment, got 'a:b:c'"),
        (["evaluate", "CartPole-v1"], "table env.unwrapped.P, got 'CartPole-v1'"),
        (["evaluate", "NoSuchGame-v0"], "id of a tabular Gymnasium environment"),
        (["evaluate", "queue", "--v-min", "3", "--v-max", "1"], "v_min must be less than v_max"),
        (["evaluate", "queue", "--state", "x"], "--state belongs to --data and would be ignored here"),
        (
            ["evaluate", "--data", "x", "--features", "rbf:3"],
            "--features belongs to a process and would be ignored here",
        ),
        (["evaluate", "--data", "nowhere.parquet"], "--data needs --state and --next-state"),
        (["evaluate", "--data", "nowhere.parquet", "--state", "a", "--next-state", "b"], "nowhere.parquet"),
        (["verify", "--json", "a", "--html", "./a"], "--json, --html and --markdown must be different files, got a"),
        (["verify", "--json", "/proc/claims.json"], "in a folder that can be written to, got /proc/claims.json"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_was_made_for_nothing_goes_again(there, tmp_path):
    out = tmp_path / "a" / "b"
    if there:
        out.mkdir(parents=True)
    result = run("evaluate", "queue", "--discount", "1", "--out", str(out))
    assert result.returncode == 2
    assert out.exists() == out.parent.exists() == there


def test_a_missing_extra_is_named(tmp_path):
    hide = (
        "import sys; sys.modules['matplotlib'] = None; from cramerl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", hide, "demo", "--out", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "matplotlib is not installed; install it with: pip install 'cramerl[plot]'" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_terminal_without_accents_and_a_closed_pipe(tmp_path):
    import os

    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = run("demo", "--steps", "5", "--out", str(tmp_path), env=plain)
    assert result.returncode == 0
    assert "Cram?r" in result.stdout
    command = f"{sys.executable} -m cramerl demo --steps 5 --out {tmp_path}/piped | true"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert piped.stderr == ""
    assert (tmp_path / "piped/demo.png").exists()


# SIGINT is ignored in processes started in the background; a terminal does not do that, so put the default back.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_stops_cleanly(tmp_path):
    arguments = ["demo", "--steps", "100000000", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-c", FROM_A_TERMINAL, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        try:
            _, words = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopped" in words
    assert not list((tmp_path / "out").iterdir())


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


def test_a_failed_write_keeps_the_old_file(tmp_path):
    from cramerl._files import write_whole

    path = tmp_path / "numbers.json"
    path.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    from cramerl._files import require_writable, write_text

    link, target, screen = (tmp_path / name for name in ("link", "target", "screen"))
    link.symlink_to(target)
    for words in ("first", "second"):
        assert write_text(link, words) == link
        assert (link.is_symlink(), target.read_text()) == (True, words)
    screen.symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    with pytest.raises(OSError, match="is not a file that can be replaced"):
        write_text(screen, "words")
    with pytest.raises(ValueError, match=r"must be new or a regular file, got .*screen"):
        require_writable(screen)
    assert screen.is_symlink()


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    from cramerl._files import write_text

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is not a file that can be replaced"):
        write_text(pipe, "words")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
