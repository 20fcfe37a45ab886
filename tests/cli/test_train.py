"""`cramerl train`: settings, what it prints, and what it refuses."""

import importlib.util
import json
import signal
import subprocess
import sys
import time

import pytest
from commands import FROM_A_TERMINAL, python, refused, run
from study_runs import write_run
from tiny import SMALL, TINY

from cramerl.cli.settings import setting_words
from cramerl.cli.train import describe_run
from cramerl.runs.config import ALIASES, SETTINGS, TrainConfig
from cramerl.runs.parsing import parse_setting
from cramerl.runs.trainer import Run

# Runs a command until it imports JAX.
SAID_BEFORE_JAX = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "jax":
            sys.exit("jax was not imported before")
from cramerl.cli.main import main
import importlib.util
importlib.util.find_spec = lambda name: sys
sys.meta_path.insert(0, Stop())
main(sys.argv[1:])
"""


def test_training_writes_a_run_and_says_what_to_do_with_it(trained):
    folder, result = trained
    assert "trained s51 on CartPole-v1: 600 steps" in result.stdout
    assert " in training, in the steps after 400 (" in result.stdout  # a line of the log stands for 200 steps
    assert "in 1 evaluation episodes, as play has them: with few random actions and without learning" in result.stdout
    assert "it will not learn" not in result.stderr
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


def test_a_run_that_will_not_learn_says_so_before_it_begins(tmp_path):
    result = run("train", "dqn", "CartPole-v1", "--steps", "40", "--checkpoints", "none", "--out", tmp_path / "run")
    early, *later = result.stderr.splitlines()[1:]
    sentence = "it will not learn: no update is made in the first 1,000 steps (min_replay_steps)"
    assert early.endswith(f"; compiling; {sentence}")
    assert later
    assert " in training, in all steps (" in result.stdout or "mean return" not in result.stdout


def test_a_sentence_of_ours_has_no_note_of_jax_behind_it(tmp_path):
    near = ("--v-min", "1", "--v-max", "1.0000000001", "--out", str(tmp_path / "run"))
    result = run("train", "c51", "CartPole-v1", *TINY, *near)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("differ in float32, got Support.uniform(1.0, 1.0000000001, 11)")
    assert "JAX" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_piped_progress_is_plain_lines(trained):
    lines = trained[1].stderr.splitlines()
    assert lines[0] == "training s51 on CartPole-v1; loading ..."
    assert "CartPole-v1 (gymnax, preset smoke): 600 steps, 4 environments, into " in lines[1]
    assert lines[2] == "step 0/600"
    assert lines[-1].startswith("step 600/600  ")
    for word in ("steps/s", "return ", "loss ", "mass "):
        assert word in lines[-1]
    assert "\033" not in trained[1].stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_libraries_are_loaded_leaves_nothing(number, tmp_path):
    command = [sys.executable, "-c", FROM_A_TERMINAL, "train", "s51", "CartPole-v1", *TINY, "--out", tmp_path / "run"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "training s51 on CartPole-v1; loading ...\n"
        time.sleep(0.5)
        process.send_signal(number)
        words = process.communicate(timeout=60)[1]
    assert (process.returncode, words) == (128 + number, "\ncramerl: stopped before training started\n")
    assert not list(tmp_path.iterdir())


def test_two_games_of_one_name_are_told_apart(tmp_path):
    words = python("-c", SAID_BEFORE_JAX, "train", "s51", "Breakout", "--out", tmp_path / "run").stderr
    assert words.startswith(
        "training s51 on Breakout (Atari's game; Breakout-MinAtar is a small one of the same name);"
    )
    assert "jax was not imported before" in words


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
        (["s51"], "the following arguments are required: ENV"),
        (["s52", "CartPole-v1"], "agent must be one of dqn, c51, s51, u51, l51, qr, hl_gauss, got 's52'"),
        (["s51", ""], "env must be the name of an environment, got ''"),
        (["s51", "NoSuchGame-v0"], "got 'NoSuchGame-v0'"),
        (["s51", "ALE/Pnog-v5"], "did you mean 'pong'"),
        (["s51", "CartPole-v1", "--preset", "fast"], "preset must be one of paper, icml"),
        (["s51", "CartPole-v1", "--steps", "1.5"], "steps must be an integer, got '1.5'"),
        (["s51", "CartPole-v1", "--num-envs", "0"], "num_envs must be an integer >= 1 and <= 65536, got 0"),
        (["s51", "CartPole-v1", "--v-min", "-1e1", "--v-max", "-20"], "v_min must be less than v_max, got"),
        (["s51", "CartPole-v1", "--double-q", "maybe"], "double_q must be true or false, got 'maybe'"),
        (
            ["dqn", "CartPole-v1", "--mean-weight", "0.1"],
            "cramerl: mean_weight is a setting of s51, u51 and would be ignored by dqn: leave it out",
        ),
        (["s51", "FrozenLake-v1", "--env-option", "slippery"], "env_options must be KEY=VALUE, got 'slippery'"),
        (
            ["s51", "FrozenLake-v1", "--env-option", "slippery=false"],
            "options must be arguments of 'FrozenLake-v1', got {'slippery': False}: TypeError: ",
        ),
        (
            ["s51", "pong", "--env-option", "mode=1"],
            "env_options is a setting of gymnax and Gymnasium environments and would be ignored by pong: leave it out",
        ),
        (["s51", "CartPole-v1", "--network", "resnet"], "network must be one of auto, nature"),
        (
            ["s51", "CartPole-v1", "--batchsize", "3"],
            "--batchsize 3; did you mean --batch-size? (transitions per update)",
        ),
        (["s51", "CartPole-v1", "--batch", "3"], "--batch 3; did you mean --batch-size?"),
        (
            ["s51", "CartPole-v1", "--lr", "1e-3", "--learning-rate", "1e-4"],
            "argument --learning-rate: learning_rate must be given once, got --lr and --learning-rate",
        ),
        (
            ["s51", "CartPole-v1", "--eval-period-steps", "100"],
            "eval_episodes must be at least 1 with eval_period_steps = 100, or nothing is evaluated, got 0",
        ),
        (["s51", "CartPole-v1", "--epsilon=0.1"], "--epsilon=0.1; did you mean --exploration-final? (epsilon of"),
        (["s51", "CartPole-v1", "--target-update", "9"], "did you mean --target-period-steps?"),
        (["s51", "CartPole-v1", "--device", "cpu"], "the environment variable JAX_PLATFORMS, such as cpu, chooses"),
        (["s51", "CartPole-v1", "--step", "9"], "--step 9; did you mean --steps?"),
        (["CartPole-v1", "s51"], "agent must come before env, got agent 'CartPole-v1' and env 's51'"),
        (["s51", "Cartpole"], "got 'Cartpole'; did you mean 'CartPole-v1'?"),
        (["s51", "lunarlander-v2"], "did you mean 'LunarLander-v3'?"),
        (["s51", "CartPole-v1", "--preset", "smoke", "--config", "x.json"], "not allowed with argument"),
        (
            ["s51", "CartPole-v1", "--config", "x.json"],
            "--config must be a file of settings, x.json cannot be read: No such file or directory",
        ),
        (["s51", "CartPole-v1", "--track", "wandb"], "wandb is not installed"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    if "wandb" in arguments and importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed")
    assert sentence in refused("train", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = python("-c", SAID_BEFORE_JAX, "train", "s51", "CartPole-v1", *TINY, "--out", tmp_path)
    sentence = (
        f"cramerl: out must be a new or empty folder, {tmp_path} exists and is not empty; choose another, or remove it"
    )
    assert result.stderr == f"{sentence}\n"  # before JAX is imported
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    written = write_run(tmp_path / "a run", "s51")
    assert f"to continue its run: cramerl resume '{written}'" in refused("train", "s51", "pong", "--out", written)


@pytest.mark.parametrize("library", ["jax", "ale_py", "safetensors"])
def test_a_missing_extra_is_named(library, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    words = refused("train", "s51", "CartPole-v1", "--out", tmp_path / "out")
    assert f"{library} is not installed; install it with: pip install 'cramerl[deep]'" in words
    assert not (tmp_path / "out").exists()


def test_names_and_flags_of_others_are_understood(tmp_path):
    flags = ["--lr", "1e-3", "--gamma", "0.9", "--total-timesteps", "1e4", "--atoms", "11", "--wandb"]
    config = json.loads(run("train", "QR-DQN", "breakout-minatar", *flags, "--print-config").stdout)
    ours = ["--learning-rate", "1e-3", "--discount", "0.9", "--steps", "1e4", "--num-atoms", "11", "--track", "wandb"]
    assert config == json.loads(run("train", "qr", "Breakout-MinAtar", *ours, "--print-config").stdout)
    assert (config["agent"], config["env"], config["track"]) == ("qr", "Breakout-MinAtar", "wandb")
    for alias, name in ALIASES.items():
        value = next(v for v in ("2", "0.5", "20000", "adam", "after") if _accepts(name, v))
        wide = ["--v-max", "9"] if name == "v_min" else ["--v-min", "-9"] if name == "v_max" else []
        words = ["train", "s51", "CartPole-v1", f"--{alias.replace('_', '-')}", value, *wide, "--print-config"]
        assert json.loads(run(*words).stdout)[name] == parse_setting(name, value), alias


def _accepts(name: str, text: str) -> bool:
    try:
        TrainConfig(**{"v_min": -9.0, "v_max": 9.0, name: parse_setting(name, text)})
    except ValueError:
        return False
    return True


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


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_help_shows_the_settings_that_people_change(command):
    words = run(command, "--help").stdout
    flags = {name: f"\n  --{name.replace('_', '-')} " in words for name in SETTINGS}
    other = {"agent", "env", "preset", "seed"}
    assert {name for name, shown in flags.items() if shown} - other == {
        name for name, setting in SETTINGS.items() if setting.common
    } - other
    assert "--help-all" in words
    assert "--lr" not in words


def test_help_of_an_agent_in_an_environment_shows_their_values():
    words = " ".join(run("train", "U51", "cartpole-v1", "--steps", "1e4", "--seed", "3-5", "--help").stdout.split())
    assert "agent steps of the whole run (here: 10000)" in words
    assert (
        "step size of the optimiser; several, separated by commas, train at once (gymnax only) (here: 0.001)" in words
    )
    assert "(here: 3,4,5)" in words
    assert "widened while learning (here: none)" in words
    every = run("train", "dqn", "CartPole-v1", "--help-all").stdout
    assert "\n  --dqn-loss " in every
    for unused in ("num-atoms", "mass-penalty", "noop-max"):
        assert f"\n  --{unused} " not in every
    assert "agent must be one of dqn" in refused("train", "s52", "CartPole-v1", "--help")


def test_help_explains_every_setting():
    words = run("train", "--help-all").stdout
    flat = " ".join(words.split())
    for name, setting in SETTINGS.items():
        if name not in ("agent", "env"):
            assert f"{setting_words(name, '')[0]} " in words
        if name != "preset":
            assert setting.help.replace("-", "") in flat.replace("- ", "").replace("-", "")


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
    for arguments in (
        ["train", "--help"],
        ["train", "u51", "CartPole-v1", "--help-all"],
        ["train", "s51", "pong", "--print-config"],
    ):
        assert python("-c", code, *arguments).stderr == "0 []\n"


def test_names_are_loaded_when_first_used():
    code = """
import sys, cramerl
before = [m for m in sys.modules if m.startswith("cramerl.runs")]
listed = {*cramerl.__all__, "train", "load_agent"} <= set(dir(cramerl))
from cramerl import *
print(before, listed, preset("smoke", "u51", "CartPole-v1").agent, hasattr(cramerl, "nothing"), "jax" in sys.modules)
"""
    assert python("-c", code).stdout == "[] True u51 False False\n"


def test_training_from_python_without_the_extra_says_what_to_install():
    hide = "import sys; sys.modules['jax'] = None; import cramerl; cramerl.train"
    last = python("-c", hide).stderr.splitlines()[-1]
    assert last == "ImportError: cramerl.train needs jax; install it with: pip install 'cramerl[deep]'"
