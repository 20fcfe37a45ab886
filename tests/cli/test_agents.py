"""Agents from the command line, as their user meets them: train, stop, resume, play, export."""

import io
import json
import signal
import subprocess
import sys

import pytest
from study_runs import write_run
from tiny import SMALL, TINY

from cramerl.cli.train import describe_run
from cramerl.runs.config import SETTINGS, TrainConfig
from cramerl.runs.progress import progress_display
from cramerl.runs.trainer import Run, Status


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cramerl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a few seconds, and what the command said."""
    folder = tmp_path_factory.mktemp("runs") / "my run"
    result = run("train", "s51", "CartPole-v1", *TINY, "--out", str(folder), "--eval-episodes", "1e0")
    assert result.returncode == 0, result.stderr
    return folder, result


def test_training_writes_a_run_and_says_what_to_do_with_it(trained):
    folder, result = trained
    assert "trained s51 on CartPole-v1: 600 steps" in result.stdout
    assert "in the last fifth of the steps" in result.stdout
    assert "in 1 evaluation episodes" in result.stdout
    assert f"cramerl play '{folder}'" in result.stdout
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_units"] == [8]
    assert config["eval_episodes"] == 1
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 6 + 2


@pytest.mark.parametrize("updates", [0, 7])
def test_a_run_that_has_not_learned_says_so(updates, tmp_path):
    folder = write_run(tmp_path / "run", "s51", min_replay_steps=5_000)
    (folder / "environment.json").write_text("{}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row | ({"charts/updates": updates} if updates else {}) for row in rows]
    words = list(describe_run(Run(folder, 1000, True, rows), finished_before=False))
    sentence = "it has not learned yet: no update is made in the first 5,000 steps (min_replay_steps)"
    assert (sentence in words) == (not updates)


def test_a_sentence_of_ours_has_no_note_of_jax_behind_it(tmp_path):
    near = ("--v-min", "1", "--v-max", "1.0000000001", "--out", str(tmp_path / "run"))
    result = run("train", "c51", "CartPole-v1", *TINY, *near)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("differ in float32, got Support.uniform(1.0, 1.0000000001, 11)")
    assert "JAX" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_piped_progress_is_plain_lines(trained):
    lines = trained[1].stderr.splitlines()
    assert "CartPole-v1 (gymnax, preset smoke): 600 steps, 4 environments, into " in lines[0]
    assert lines[1] == "step 0/600"
    assert lines[-1].startswith("step 600/600  ")
    for word in ("steps/s", "return ", "loss ", "mass "):
        assert word in lines[-1]
    assert "\033" not in trained[1].stderr


def test_play_a_run_and_its_export(trained, tmp_path):
    folder, _ = trained
    played = run("play", str(folder), "--episodes", "3", "--epsilon", "0", "--seed", "7")
    assert played.returncode == 0, played.stderr
    *episodes, mean = played.stdout.splitlines()
    assert len(episodes) == 3
    assert mean.startswith("mean score ")
    assert "(standard error): s51 on CartPole-v1" in mean

    exported = run("export", str(folder), "--out", str(tmp_path / "agent"))
    assert exported.returncode == 0, exported.stderr
    assert {line.removeprefix(f"wrote {tmp_path}/agent/") for line in exported.stdout.splitlines()} == {
        "config.json",
        "model.safetensors",
        "README.md",
    }
    again = run("play", str(tmp_path / "agent"), "--episodes", "3", "--epsilon", "0", "--seed", "7", "--json")
    record = json.loads(again.stdout)
    scores = [episode["score"] for episode in record["episodes"]]
    assert [f"{score:,.2f}" for score in scores] == [line.split()[3] for line in episodes]
    assert record["mean"] == pytest.approx(sum(scores) / 3)


def test_one_episode_has_no_standard_error(capsys):
    from argparse import Namespace

    from cramerl.cli.play import print_episodes
    from cramerl.deep.agent import Episode

    for as_json in (True, False):
        options = Namespace(json=as_json, epsilon=0.0, seed=0, lane=0)
        print_episodes(options, TrainConfig(agent="s51", env="pong"), [Episode(-21.0, 764)])
        words = capsys.readouterr().out
        assert ('"standard_error": null' if as_json else "mean score -21.00 (one episode): s51 on pong") in words


def test_resume_makes_a_run_longer_and_says_when_there_is_nothing_to_do(trained, tmp_path):
    import shutil

    folder = shutil.copytree(trained[0], tmp_path / "run")
    before = (folder / "metrics.jsonl").read_text()
    done = run("resume", str(folder))
    assert done.returncode == 0, done.stderr
    assert "the run was finished already, after 600 steps; --steps N makes it longer" in done.stdout
    assert (folder / "metrics.jsonl").read_text() == before
    longer = run("resume", str(folder), "--steps", "9e2")
    assert longer.returncode == 0, longer.stderr
    assert "900 steps" in longer.stdout
    assert (folder / "metrics.jsonl").read_text().startswith(before)


# SIGINT is ignored in processes started in the background; a terminal does not do that, so put the default back.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_ctrl_c_and_resume_write_what_an_uninterrupted_run_writes(tmp_path):
    settings = ["s51", "gym:CartPole-v1", *TINY, "--steps", "4e3", "--iteration-steps", "2000"]
    settings += ["--replay-steps", "3000"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    command = [sys.executable, "-c", FROM_A_TERMINAL, "train", *settings, "--out", str(stopped)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        try:
            words = next(line for line in process.stderr if "loss" in line)
            process.send_signal(signal.SIGINT)
            words += process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == 130, words
    assert "stopping with a checkpoint; Ctrl-C again stops at once\n" in words
    assert f"to continue from its last checkpoint: cramerl resume {stopped}" in words
    assert "Traceback" not in words
    assert list((stopped / "checkpoints").glob("*/manifest.json"))
    lines = (stopped / "metrics.jsonl").read_bytes()
    assert 0 < len(lines.splitlines()) < 40

    resumed = run("resume", str(stopped))
    assert resumed.returncode == 0, resumed.stderr
    assert run("train", *settings, "--out", str(whole)).returncode == 0
    assert (stopped / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (whole / "metrics.jsonl").read_bytes().startswith(lines)


def test_a_loss_that_is_not_finite(tmp_path):
    """The loop is real; only the settings are mad."""
    result = run("train", "dqn", "CartPole-v1", *SMALL, "--out", str(tmp_path / "run"), "--learning-rate", "1e30")
    assert result.returncode == 1, result.stderr
    assert "cramerl: the loss is not finite at update" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_lane_that_is_lost_is_named_and_the_others_can_be_played(tmp_path):
    rates = ["--learning-rate", "1e-3,1e30", "--checkpoints", "weights"]
    result = run("train", "dqn", "CartPole-v1", *SMALL, *rates, "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "diverged: run 1 (learning_rate 1e+30, seed 0): the loss is not finite at update" in result.stderr
    assert "2 runs were trained: 0 (learning_rate 0.001, seed 0), 1 (learning_rate 1e+30, seed 0)" in result.stdout
    assert "1 of them diverged, their loss is no longer finite: 1 (learning_rate 1e+30, seed 0)" in result.stdout
    played = run("play", "run", "--lane", "0", "--episodes", "1", "--json", cwd=tmp_path)
    assert json.loads(played.stdout)["lane"] == 0
    for command in (["play", "run"], ["export", "run", "--out", "there"]):
        refused = run(*command, "--lane", "1", cwd=tmp_path)
        assert refused.returncode == 2
        assert refused.stderr.endswith("in run, got 1, which diverged: its loss was not finite\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "s51"], "the following arguments are required: ENV"),
        (["train", "s52", "CartPole-v1"], "agent must be one of dqn, c51, s51, u51, qr, hl_gauss, got 's52'"),
        (["train", "s51", ""], "env must be the name of an environment, got ''"),
        (["train", "s51", "NoSuchGame-v0"], "got 'NoSuchGame-v0'"),
        (["train", "s51", "ALE/Pnog-v5"], "did you mean 'pong'"),
        (["train", "s51", "CartPole-v1", "--preset", "fast"], "preset must be one of paper, icml"),
        (["train", "s51", "CartPole-v1", "--steps", "1.5"], "steps must be an integer, got '1.5'"),
        (["train", "s51", "CartPole-v1", "--num-envs", "0"], "num_envs must be an integer >= 1 and <= 65536, got 0"),
        (["train", "s51", "CartPole-v1", "--v-min", "-1e1", "--v-max", "-20"], "v_min must be less than v_max, got"),
        (["train", "s51", "CartPole-v1", "--double-q", "maybe"], "double_q must be true or false, got 'maybe'"),
        (
            ["train", "dqn", "CartPole-v1", "--mean-weight", "0.1"],
            "cramerl: mean_weight is a setting of s51, u51 and would be ignored by dqn: leave it out",
        ),
        (["train", "s51", "CartPole-v1", "--network", "resnet"], "network must be one of auto, nature"),
        (["train", "s51", "CartPole-v1", "--batchsize", "3"], "--batchsize 3; did you mean --batch-size?"),
        (["train", "s51", "CartPole-v1", "--preset", "smoke", "--config", "x.json"], "not allowed with argument"),
        (
            ["train", "s51", "CartPole-v1", "--config", "x.json"],
            "--config must be a file of settings, x.json cannot be read: No such file or directory",
        ),
        (["train", "s51", "CartPole-v1", "--track", "wandb"], "wandb is not installed"),
        (["resume", "nowhere"], "nowhere has no config.json"),
        (["play", "nowhere"], "nowhere has no config.json"),
        (["play", "nowhere", "--epsilon", "2"], "--epsilon: must be a number in [0, 1], got '2'"),
        (["play", "nowhere", "--episodes", "0"], "--episodes: must be an integer >= 1, got '0'"),
        (["export", "nowhere"], "required: --out"),
        (["export", "nowhere", "--out", "there"], "nowhere has no config.json"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    if "wandb" in arguments and python("import wandb").returncode == 0:
        pytest.skip("wandb is installed")
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    *usage, last = result.stderr.splitlines()
    assert sentence in last
    assert not usage or usage[0].startswith("usage: ")
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = run("train", "s51", "CartPole-v1", *TINY, "--out", str(tmp_path))
    assert result.returncode == 2
    assert f"out must be a new or empty folder, {tmp_path} exists and is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("library", ["jax", "ale_py", "safetensors"])
def test_a_missing_extra_is_named(library, tmp_path):
    hide = (
        f"import sys; sys.modules[{library!r}] = None; from cramerl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    result = python(hide, "train", "s51", "CartPole-v1", "--out", str(tmp_path / "out"))
    assert result.returncode == 2
    assert f"{library} is not installed; install it with: pip install 'cramerl[deep]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_settings_printed_are_settings_read(tmp_path):
    changes = [
        "--double-q",
        "--no-clip-rewards",
        "--life-loss-ends",
        "false",
        "--v-min",
        "-1e1",
        "--hidden-units",
        "3,4",
    ]
    printed = run("train", "c51", "pong", "--preset", "machado", *changes, "--print-config", cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    config = json.loads(printed.stdout)
    assert config["double_q"] is True
    assert config["clip_rewards"] is config["life_loss_ends"] is False
    assert (config["v_min"], config["hidden_units"], config["sticky"]) == (-10.0, [3, 4], 0.25)
    (tmp_path / "settings.json").write_text(printed.stdout)
    again = run("train", "c51", "pong", "--config", "settings.json", "--print-config", cwd=tmp_path)
    assert again.stdout == printed.stdout
    changed = run("train", "c51", "qbert", "--config", "settings.json", "--seed", "3", "--print-config", cwd=tmp_path)
    assert json.loads(changed.stdout) == config | {"env": "qbert", "seed": 3}
    other = run("train", "qr", "qbert", "--config", "settings.json", "--print-config", cwd=tmp_path)
    assert other.returncode == 2
    assert "AGENT must be c51, as in settings.json" in other.stderr
    ignored = run(
        "train", "c51", "pong", "--config", "settings.json", "--mean-weight", "1", "--print-config", cwd=tmp_path
    )
    assert ignored.returncode == 2
    assert "mean_weight is a setting of s51, u51 and would be ignored by c51" in ignored.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_help_explains_every_setting():
    words = run("train", "--help").stdout
    flat = " ".join(words.split())
    for name, setting in SETTINGS.items():
        if name not in ("agent", "env"):
            assert f"--{name.replace('_', '-')} " in words
        if name != "preset":
            assert setting.help.replace("-", "") in flat.replace("- ", "").replace("-", "")
    for command in ("resume", "play", "export"):
        assert run(command, "--help").returncode == 0


def test_help_settings_and_the_package_need_no_jax():
    heavy = ["jax", "gymnax", "gymnasium", "ale_py", "rich", "optax", "safetensors"]
    code = f"""
import sys
from cramerl.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
import cramerl
cramerl.TrainConfig, cramerl.preset
print(status, [m for m in {heavy} if m in sys.modules], file=sys.stderr)
"""
    for arguments in (["train", "--help"], ["train", "s51", "pong", "--print-config"]):
        assert python(code, *arguments).stderr == "0 []\n"


def test_names_are_loaded_when_first_used():
    code = """
import sys, cramerl
before = [m for m in sys.modules if m.startswith("cramerl.runs")]
listed = {*cramerl.__all__, "train", "load_agent"} <= set(dir(cramerl))
from cramerl import *
print(before, listed, preset("smoke", "u51", "CartPole-v1").agent, hasattr(cramerl, "nothing"), "jax" in sys.modules)
"""
    assert python(code).stdout == "[] True u51 False False\n"


def test_training_from_python_without_the_extra_says_what_to_install():
    hide = "import sys; sys.modules['jax'] = None; import cramerl; cramerl.train"
    last = python(hide).stderr.splitlines()[-1]
    assert last == "ImportError: cramerl.train needs jax; install it with: pip install 'cramerl[deep]'"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, **{name.replace("_", "/", 1): value for name, value in values.items()}}


def learning(step: int, message: str | None = None) -> Status:
    figures = row(step, charts_episodic_return=3.414, losses_loss=0.01234, dist_mass=1.0)
    return Status(step, 1_000_000, 4, 2900.0, figures, message)


def test_plain_lines_come_every_ten_seconds_and_know_the_time_left():
    out, now = io.StringIO(), [0.0]
    with progress_display(out, clock=lambda: now[0]) as report:
        report(Status(0, 1_000_000, 4, 0.0, None))
        for second in range(1, 200):
            now[0] = second
            filling = Status(1000 * second, 1_000_000, 4, 1000.0, row(1000 * second))
            report(filling if second <= 20 else learning(20_000 + 100 * (second - 20)))
        report(learning(20_000 + 100 * 179, "a message"))
    lines = out.getvalue().splitlines()
    assert lines[0] == "step 0/1,000,000"
    assert lines[1] == "step 10,000/1,000,000  4,000 frames/s (1,000 steps/s)"
    assert lines[3] == ("step 20,100/1,000,000  11,600 frames/s (2,900 steps/s)  return 3.41  loss 0.0123  mass 1.000")
    # 100 steps a second since learning began: (1,000,000 - 21,100) / 100 s.
    assert lines[4] == (
        "step 21,100/1,000,000  400 frames/s (100 steps/s)  return 3.41  loss 0.0123  mass 1.000  2.7 h left"
    )
    assert lines[-2] == "a message"
    assert lines[-1].startswith("step 37,900/1,000,000")
    assert len(lines) == 3 + 1 + 17 + 2


def test_dqn_has_no_mass_to_show():
    out = io.StringIO()
    with progress_display(out) as report:
        report(Status(10, 20, 1, 5.0, row(10, losses_loss=1.0, dist_mass=float("nan"))))
    assert out.getvalue() == "step 10/20  5 steps/s  loss 1\n"


def test_a_terminal_gets_a_live_display(monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    out, now = Terminal(), [0.0]
    with progress_display(out, clock=lambda: now[0]) as report:
        report(Status(0, 1_000_000, 4, 0.0, None))
        report(learning(500_000))
        now[0] = 10
        report(learning(510_000, "[half] done"))
    words = out.getvalue()
    assert "\033[" in words
    assert "step 510,000/1,000,000  8 min left" in words
    assert "4,000 frames/s (1,000 steps/s)  return 3.41  loss 0.0123  mass 1.000" in words
    assert "[half] done\n" in words
    monkeypatch.setenv("TERM", "dumb")
    plain = Terminal()
    with progress_display(plain) as report:
        report(learning(500_000))
    assert "\033" not in plain.getvalue()


def test_a_report_from_a_signal_handler_within_a_report(tmp_path):
    """The message comes through whatever the display was doing; nothing is entered twice."""
    with (tmp_path / "words").open("w") as out:

        class Interrupted:
            def write(self, words: str) -> int:
                if "step" in words:
                    report(learning(1, "stopping"))
                return out.write(words)

            def __getattr__(self, name: str):
                return getattr(out, name)

        with progress_display(Interrupted()) as report:
            report(learning(1))
    assert "stopping" in (tmp_path / "words").read_text()
    assert (tmp_path / "words").read_text().count("loss") == 1
