"""`cramerl watch` as its user meets it: a page, a video, a picture, live play, and a sentence for what is wrong."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from lenient import lenient
from tiny import TINY

from cramerl.cli.main import main

COMMAND = [sys.executable, "-m", "cramerl"]


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments) -> Result:
    """A command, in this process: what it imports and compiles is there for the next."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with lenient(), redirect_stdout(out), redirect_stderr(err):
            status = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        status = stop.code
    finally:
        signal.signal(signal.SIGTERM, before)
    return Result(status, out.getvalue(), err.getvalue())


def refused(*arguments) -> str:
    """The sentence that a command says in place of doing anything."""
    result = run(*arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two agents that learned the same game a little, and one that learned another."""
    folder = tmp_path_factory.mktemp("runs")
    for name, agent, env, *more in (
        ("s51", "s51", "CartPole-v1"),
        ("qr", "qr", "CartPole-v1"),
        ("other", "s51", "Acrobot-v1"),
        ("lanes", "s51", "CartPole-v1", "--lanes", "2"),
        ("none", "s51", "CartPole-v1", "--checkpoints", "none"),
    ):
        result = run("train", agent, env, *TINY, "--out", folder / name, *more)
        assert result.returncode == 0, result.stderr
    return folder


def test_a_page_a_video_and_a_picture(runs, tmp_path):
    out = tmp_path / "new" / "page.html"
    result = run(
        *("watch", runs / "s51", runs / "qr", "--max-steps", "12", "--highlight", "disagreement", "--out", out),
        *("--video", tmp_path / "a.mp4", "--picture", "found", "--picture-out", tmp_path / "a.svg"),
    )
    assert result.returncode == 0, result.stderr
    assert "s51 and qr on CartPole-v1: score " in result.stdout
    assert "s51 plays; qr judges the same" in result.stdout
    assert "disagreement, the strongest first: t=" in result.stdout
    for path in (out, tmp_path / "a.mp4", tmp_path / "a.svg"):
        assert path.stat().st_size > 1000
        assert f"wrote {path}" in result.stdout
    assert list(out.parent.iterdir()) == [out]


def test_the_same_seed_gives_the_same_page(runs, tmp_path):
    for name in ("a", "b"):
        result = run("watch", runs / "s51", "--max-steps", "15", "--out", tmp_path / f"{name}.html", "--epsilon", "0.3")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_recording_is_what_the_agent_says(runs, lenient_jax):
    from cramerl.deep.agent import play_episodes
    from cramerl.runs.agents import load_agent
    from cramerl.runs.build import make_envs
    from cramerl.runs.folder import load_config
    from cramerl.watch.play import load_watched, record

    agent, seen = load_agent(runs / "s51"), []
    envs = make_envs(load_config(runs / "s51"), 1)
    played = play_episodes(agent, envs, 2, epsilon=0.2, seed=3, on_step=lambda *step: seen.append(step))
    made = record(load_watched([runs / "s51", runs / "qr"]), episodes=2, epsilon=0.2, seed=3)
    real = [step for step in seen if not step[2].first[0]]  # the step that only starts an episode is not shown
    length = min(one.length for one in played)
    observations = np.concatenate([step[0] for step in real[:length]])
    np.testing.assert_array_equal(made.action[:length], [int(step[1][0]) for step in real[:length]])
    np.testing.assert_allclose(made.views[0].distributions[:length], agent.distributions(observations)[1], atol=1e-5)
    np.testing.assert_allclose(made.views[0].values[:length], agent.values(observations), atol=1e-4)
    first = made.episode == 0
    assert made.score[first][-1] + made.reward[first][-1] == played[0].score
    assert made.episode[-1] == 1
    assert made.views[1].kind == "quantiles"


def test_an_export_and_an_evaluation(runs, tmp_path):
    assert run("export", runs / "s51", "--out", tmp_path / "agent").returncode == 0
    assert run("watch", tmp_path / "agent", "--max-steps", "3", "--out", tmp_path / "a.html").returncode == 0
    assert run("evaluate", "random-walk", "--out", tmp_path / "walk").returncode == 0
    result = run("watch", tmp_path / "walk", "--out", tmp_path / "walk.html")
    assert result.returncode == 0, result.stderr
    assert "distribution of the return" in (tmp_path / "walk.html").read_text()


def test_bad_input_is_a_sentence(runs, tmp_path):
    s51 = runs / "s51"
    words = refused("watch", tmp_path / "nothing")
    assert "RUN must be a folder of cramerl train, export or evaluate" in words
    assert "nothing is not there" in words
    assert "config.json is a file" in refused("watch", s51 / "config.json")
    assert "has no config.json" in refused("watch", tmp_path)
    assert "holds no weights: it was trained with --checkpoints none" in refused("watch", runs / "none")
    assert "--highlight disagreement needs two runs or more, got one" in refused(
        "watch", s51, "--highlight", "disagreement"
    )
    assert "must be a file that ends in .mp4, .gif" in refused("watch", s51, "--video", tmp_path / "a.avi")
    assert "--picture-out needs --picture" in refused("watch", s51, "--picture-out", tmp_path / "a.png")
    assert "must be t=N" in refused("watch", s51, "--picture", "x")
    picture = ("--picture", "t=50", "--picture-out", tmp_path / "a.png")
    assert "--picture must be a step from 0 to 4, got 50" in refused("watch", s51, "--max-steps", "5", *picture)
    one = ("--picture", "t=9999", "--picture-out", tmp_path / "a.png", "--epsilon", "1")
    assert "--picture must be a step from 0 to" in refused("watch", s51, *one)  # where only the episode's end tells
    assert "must be a file that ends in .html, .htm, got" in refused("watch", s51, "--out", tmp_path / "a.mp4")
    assert "--video belongs to a recording" in refused("watch", s51, "--serve", "--video", tmp_path / "a.mp4")
    (tmp_path / "folder.html").mkdir()
    assert "new or an ordinary file" in refused("watch", s51, "--out", tmp_path / "folder.html")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.html"]
    words = refused("watch", s51, runs / "other")
    assert "runs to watch together must be of one game" in words
    assert "has actions 2" in words


def test_a_pipe_or_a_device_is_not_replaced(runs, tmp_path):
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    assert "new or an ordinary file" in refused("watch", runs / "s51", "--max-steps", "3", "--out", pipe)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder that even root cannot write to")
def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_played(runs):
    result = run("watch", runs / "s51", "--max-steps", "3", "--out", "/proc/page.html")
    assert result.returncode == 2
    assert "folder that can be written to" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--port", "5"), "--port belongs to --serve,"),
        (("--fps", "5"), "--fps belongs to --video or --serve,"),
        (("--serve", "--episodes", "2"), "--episodes belongs to a recording and not to --serve,"),
        (("--lane", "0,1"), "--lane must be one number or one for each of 1 runs, got 2"),
        (("--lane", "x"), "must be numbers from 0 with commas between"),
        (("--lane", "1"), "lane must be one of 0"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(runs, flags, words):
    assert words in refused("watch", runs / "s51", *flags)


def test_flags_of_play_are_refused_for_an_evaluation(tmp_path):
    assert run("evaluate", "random-walk", "--out", tmp_path).returncode == 0
    for flags in (("--seed", "1"), ("--epsilon", "0.5"), ("--max-steps", "3"), ("--episodes", "1"), ("--lane", "0")):
        assert f"{flags[0]} belongs to agents that play" in refused("watch", tmp_path, *flags)
    assert "--serve needs an agent that plays" in refused("watch", tmp_path, "--serve")
    assert "an evaluation is watched alone" in refused("watch", tmp_path, tmp_path)


def test_records_that_are_broken_are_a_sentence(runs, tmp_path):
    def copy(name):
        return shutil.copytree(runs / "s51", tmp_path / name)

    broken = copy("settings")
    (broken / "config.json").write_text("{")
    assert "config.json cannot be used" in refused("watch", broken)
    broken = copy("weights")
    for file in (broken / "checkpoints").rglob("*.safetensors"):
        file.write_bytes(b"no weights")
    assert str(broken) in refused("watch", broken)
    changed = copy("environment")
    spec = json.loads((changed / "environment.json").read_text())
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"env": "Acrobot-v1"}))
    assert spec["num_actions"] == 2
    assert "agent and environment do not match: Acrobot-v1 has num_actions 3" in refused("watch", changed)
    unwritable = tmp_path / "file"
    unwritable.touch()
    assert "folder that can be written to" in refused("watch", runs / "s51", "--out", unwritable / "page.html")


def test_lanes_are_watched_by_their_numbers(runs, tmp_path):
    from cramerl.runs.agents import load_agent
    from cramerl.watch.play import load_watched

    lanes = runs / "lanes"
    with lenient():
        first, second = load_watched([lanes, lanes], [0, 1])
        own = load_agent(lanes, lane=1)
    assert [first.name, second.name] == ["s51 (lanes, lane 0)", "s51 (lanes, lane 1)"]
    seen = np.zeros((1, *own.spec.observation_shape), np.float32)
    with lenient():
        np.testing.assert_array_equal(second.agent.values(seen), own.values(seen))
        assert not np.array_equal(first.agent.values(seen), own.values(seen))
    result = run("watch", lanes, "--lane", "1", "--max-steps", "3", "--out", tmp_path / "a.html")
    assert result.returncode == 0, result.stderr
    assert " kB)" in result.stdout


def test_live_play_on_loopback(runs):
    # Where tests run in the background Ctrl-C is ignored, and that is inherited.
    heard = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); import cramerl.cli.main as cli; "
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{heard}sys.exit(cli.main())",
            "watch",
            str(runs / "s51"),
            str(runs / "qr"),
            "--serve",
            "--port",
            "0",
            "--fps",
            "60",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().split()[2]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b'"live":true' in answer.read()
        after, steps = -1, 0
        for _ in range(200):
            time.sleep(0.1)
            with urllib.request.urlopen(f"{address}steps?after={after}", timeout=30) as answer:
                part = json.load(answer)
            if part["steps"]:
                assert part["start"] == after + 1
                after, steps = part["start"] + part["steps"] - 1, steps + part["steps"]
            if steps > 30:
                break
        assert steps > 30
        taken = refused("watch", runs / "s51", "--serve", "--port", address.rstrip("/").rpartition(":")[2])
        assert "--port must be a free port" in taken
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"{port} is taken; --port 0 finds a free one" in refused(
            "watch", runs / "s51", "--serve", "--port", port
        )


def test_several_agents_of_one_kind_go_by_their_folders(runs):
    from cramerl.watch.play import load_watched

    with lenient():
        names = [one.name for one in load_watched([runs / "s51", runs / "s51", runs / "qr"])]
    assert names == ["s51 (s51)", "s51 (s51) 2", "qr"]
