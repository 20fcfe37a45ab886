"""`cramerl watch` on the command line: a page, a video, a picture, live play, and errors."""

import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import FROM_A_TERMINAL, refused, run
from lenient import lenient
from untrained import small_config, write_untrained

import cramerl
from cramerl._files import is_made_by
from cramerl.runs.trainer import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two agents of the same game, a group of two, one of another game, and one without weights."""
    folder = tmp_path_factory.mktemp("runs")
    write_untrained(folder / "s51", small_config("s51"))
    write_untrained(folder / "qr", small_config("qr"))
    write_untrained(folder / "other", small_config("s51", "Acrobot-v1"))
    write_untrained(folder / "group", small_config("s51", seed=0), small_config("s51", seed=1))
    shutil.rmtree(write_untrained(folder / "none", small_config("s51", checkpoints="none")) / "checkpoints")
    return folder


def test_a_page_a_video_and_a_picture(runs, tmp_path):
    out = tmp_path / "new" / "page.html"
    result = run(
        *("watch", runs / "s51", runs / "qr", "--max-steps", "12", "--highlight", "disagreement", "--out", out),
        *("--video", tmp_path / "a.mp4", "--picture", "strongest", "--picture-out", tmp_path / "a.svg"),
    )
    assert result.returncode == 0, result.stderr
    assert "s51 and qr on CartPole-v1: score " in result.stdout
    assert "s51 plays; qr predicts from the same frames" in result.stdout
    assert "disagreement, strongest first: t=" in result.stdout
    for path in (out, tmp_path / "a.mp4", tmp_path / "a.svg"):
        assert path.stat().st_size > 1000
        assert f"wrote {path}" in result.stdout
        assert is_made_by(path, "cramerl watch")
    assert list(out.parent.iterdir()) == [out]


def test_the_last_words_are_a_command_worth_typing(runs, tmp_path):
    first = run("watch", runs / "s51", runs / "qr", "--max-steps", "12", "--seed", "3", cwd=tmp_path)
    assert first.stderr.startswith(f"watching {runs / 's51'} and {runs / 'qr'}; loading ...\n")
    *_, look, words = first.stdout.splitlines()
    assert look == "to look at it: open out/watch.html in a browser"
    said, command = words.split(": cramerl ")
    assert said == "to open it where the agents disagree most"
    second = run(*shlex.split(command), cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "disagreement, strongest first: t=" in second.stdout
    assert "replaced out/watch.html" in second.stdout
    said, command = second.stdout.splitlines()[-1].split(": cramerl ")
    assert said == "to draw that step as a figure"
    assert "wrote out/watch.png" in run(*shlex.split(command), cwd=tmp_path).stdout
    assert run("evaluate", "random-walk", "--out", tmp_path / "walk").returncode == 0
    last = run("watch", tmp_path / "walk", "--out", tmp_path / "walk.html")
    assert f"to look at it: open {tmp_path / 'walk.html'} in a browser" in last.stdout
    assert last.stdout.splitlines()[-1].startswith("to ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_it_says_fits_into_the_terminal(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    words = ("watch", runs / "s51", runs / "qr", "--max-steps", "30", "--highlight", "disagreement")
    whole = run(*words, "--out", tmp_path / "a.html").stdout
    assert "s51 plays; qr predicts from the same frames" in whole  # a pipe gets whole lines
    monkeypatch.setattr("commands.io", SimpleNamespace(StringIO=Terminal))
    wrapped = run(*words, "--out", tmp_path / "b.html").stdout
    prose = [line for line in wrapped.splitlines() if str(tmp_path) not in line and str(runs) not in line]
    assert len(prose) > 4
    assert max(map(len, prose)) <= 60
    assert " ".join(wrapped.split()).startswith(" ".join(whole.splitlines()[0].split()))


def test_it_speaks_before_it_loads_what_takes_long():
    script = "import sys, cramerl.cli.watch; print(sorted({'jax', 'scipy.stats', 'matplotlib'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_the_same_seed_gives_the_same_page(runs, tmp_path):
    for name in ("a", "b"):
        result = run("watch", runs / "s51", "--max-steps", "15", "--out", tmp_path / f"{name}.html", "--epsilon", "0.3")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_from_python_is_that_of_the_command(runs, tmp_path, lenient_jax):
    made = cramerl.watch(runs / "s51", tmp_path / "a.html", max_steps=15, epsilon=0.3)
    assert run("watch", runs / "s51", "--max-steps", "15", "--epsilon", "0.3", "--out", tmp_path / "b.html").stdout
    assert made.read_bytes() == (tmp_path / "b.html").read_bytes()
    again = run("watch", runs / "s51", "--max-steps", "3", "--out", made, "--video", tmp_path / "a.gif")
    assert f"replaced {made} (" in again.stdout
    assert f"wrote {tmp_path / 'a.gif'}" in again.stdout
    assert is_made_by(tmp_path / "a.gif", "cramerl watch")
    trained = [Run(runs / name, 0, False, []) for name in ("s51", "qr")]
    both = cramerl.watch(trained, tmp_path / "c.html", max_steps=3, highlight="disagreement")
    assert "s51 and qr on CartPole-v1" in both.read_text()


def test_a_recording_is_what_the_agent_says(runs, lenient_jax):
    from cramerl.deep.agent import play_episodes
    from cramerl.measures import clipped_mass
    from cramerl.runs.agents import load_agent
    from cramerl.runs.build import make_envs
    from cramerl.runs.folder import load_config
    from cramerl.watching.play import load_watched, record

    agent, seen = load_agent(runs / "s51"), []
    envs = make_envs(load_config(runs / "s51"), 1)
    played = play_episodes(agent, envs, 2, epsilon=0.2, seed=3, on_step=lambda *step: seen.append(step))
    made = record(load_watched([runs / "s51", runs / "qr"]), episodes=2, epsilon=0.2, seed=3)
    real = [step for step in seen if not step[2].first[0]]  # the step that only starts an episode is not shown
    observations = np.concatenate([step[0] for step in real])
    np.testing.assert_array_equal(made.action, [int(step[1][0]) for step in real])
    np.testing.assert_allclose(made.views[0].distributions, agent.distributions(observations)[1], atol=1e-5)
    np.testing.assert_allclose(made.views[0].values, agent.values(observations), atol=1e-4)
    for number, one in enumerate(played):
        mine = made.episode == number
        assert (mine.sum(), made.score[mine][-1] + made.reward[mine][-1]) == (one.length, one.score)
    following = agent.distributions(real[3][2].frames)[1][0]  # after the fourth step
    best = following[agent.values(real[3][2].frames)[0].argmax()]
    clipped = clipped_mass(agent.support, real[3][2].rewards[0], 0.99, best)
    assert load_config(runs / "s51").discount == 0.99
    assert made.views[0].clipped[3] == pytest.approx(clipped, abs=1e-6)
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
    assert "nothing does not exist" in words
    assert "config.json is a file" in refused("watch", s51 / "config.json")
    assert "has no config.json" in refused("watch", tmp_path)
    assert "has no weights: it was trained with --checkpoints none" in refused("watch", runs / "none")
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
    assert "--video has no effect on --serve" in refused("watch", s51, "--serve", "--video", tmp_path / "a.mp4")
    (tmp_path / "folder.html").mkdir()
    assert "new or a regular file" in refused("watch", s51, "--out", tmp_path / "folder.html")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.html"]
    words = refused("watch", s51, runs / "other")
    assert "runs must be of one game" in words
    assert "has environment CartPole-v1" in words


@pytest.mark.parametrize(
    "flags", [["--out", "a.html"], ["--video", "a.gif"], ["--picture", "0", "--picture-out", "a.pdf"]]
)
def test_files_of_others_are_replaced_only_if_asked(runs, flags, tmp_path, lenient_jax):
    mine = tmp_path / flags[-1]
    mine.write_text("mine")
    words = refused("watch", runs / "s51", *flags, cwd=tmp_path)
    assert words.startswith(f"cramerl: {flags[-2]} must be a new file or one that cramerl watch wrote, {flags[-1]} is")
    with pytest.raises(ValueError, match=r"^out must be a new file or one that cramerl watch wrote, .*overwrite=True$"):
        cramerl.watch(runs / "s51", mine, max_steps=3)
    assert mine.read_text() == "mine"
    if flags[0] == "--picture":
        done = run("watch", runs / "s51", *flags, "--max-steps", "3", "--overwrite", cwd=tmp_path)
        assert done.stdout.endswith(f"replaced {flags[-1]}\n")
        assert is_made_by(mine, "cramerl watch")


def test_a_pipe_or_a_device_is_not_replaced(runs, tmp_path):
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    assert "new or a regular file" in refused("watch", runs / "s51", "--max-steps", "3", "--out", pipe)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder that even root cannot write to")
def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_played(runs):
    result = run("watch", runs / "s51", "--max-steps", "3", "--out", "/proc/page.html")
    assert result.returncode == 2
    assert "folder that can be written to" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--port", "5"), "--port has no effect on a recording; leave it out"),
        (("--fps", "5"), "--fps needs --video or --serve"),
        (("--picture", "strongest"), "--picture strongest needs --highlight"),
        (("--serve", "--episodes", "2"), "--episodes has no effect on --serve; leave it out"),
        (("--lane", "0,1"), "lanes must be one number, or one for each of 1 runs, got 2"),
        (("--lane", "x"), "must be integers >= 0, separated by commas"),
        (("--lane", "1"), "lane must be one of 0"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(runs, flags, words):
    assert words in refused("watch", runs / "s51", *flags)


def test_flags_of_play_are_refused_for_an_evaluation(tmp_path):
    assert run("evaluate", "random-walk", "--out", tmp_path).returncode == 0
    for flags in (("--seed", "1"), ("--epsilon", "0.5"), ("--max-steps", "3"), ("--episodes", "1"), ("--lane", "0")):
        assert f"{flags[0]} has no effect on an evaluation" in refused("watch", tmp_path, *flags)
    assert "--serve needs an agent" in refused("watch", tmp_path, "--serve")
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
    assert "trained with num_actions 2, but Acrobot-v1 has num_actions 3" in refused("watch", changed)
    unwritable = tmp_path / "file"
    unwritable.touch()
    assert "folder that can be written to" in refused("watch", runs / "s51", "--out", unwritable / "page.html")


def test_runs_of_a_group_are_watched_by_their_lanes(runs, tmp_path):
    from cramerl.runs.agents import load_agent
    from cramerl.watching.play import load_watched

    group = runs / "group"
    with lenient():
        first, second = load_watched([group, group], [0, 1])
        own = load_agent(group, lane=1)
    assert [first.name, second.name] == ["s51 (group, lane 0)", "s51 (group, lane 1)"]
    seen = np.ones((1, *own.spec.observation_shape), np.float32)
    with lenient():
        np.testing.assert_array_equal(second.agent.values(seen), own.values(seen))
        assert not np.array_equal(first.agent.values(seen), own.values(seen))
    result = run("watch", group, "--lane", "1", "--max-steps", "3", "--out", tmp_path / "a.html")
    assert result.returncode == 0, result.stderr
    assert " kB)" in result.stdout


def test_live_play_on_loopback(runs):
    words = ["watch", str(runs / "s51"), "--serve", "--port", "0", "--fps", "60"]
    command = [sys.executable, "-c", FROM_A_TERMINAL, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        address = process.stdout.readline().split()[2]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b'"live":true' in answer.read()
        after, steps = -1, 0
        for _ in range(200):
            time.sleep(0.05)
            with urllib.request.urlopen(f"{address}steps?after={after}", timeout=30) as answer:
                part = json.load(answer)
            if part["steps"]:
                assert part["start"] == after + 1
                after, steps = part["start"] + part["steps"] - 1, steps + part["steps"]
            if steps > 10:
                break
        assert steps > 10
        taken = refused("watch", runs / "s51", "--serve", "--port", address.rstrip("/").rpartition(":")[2])
        assert "port must be free" in taken
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_refused_before_anything_is_loaded(runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port must be free, but {port} is not" in refused("watch", runs / "s51", "--serve", "--port", port)


def test_several_agents_of_one_kind_go_by_their_folders(runs):
    from cramerl.watching.play import load_watched

    with lenient():
        names = [one.name for one in load_watched([runs / "s51", runs / "s51", runs / "qr"])]
    assert names == ["s51 (s51)", "s51 (s51) 2", "qr"]


def test_agents_that_come_with_the_package(tmp_path, lenient_jax):
    result = run("watch", "space-invaders", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "watching space-invaders; loading ...\n"
    assert "l51, s51 and c51 on SpaceInvaders-MinAtar: score " in result.stdout
    assert "after 300 steps (cut off before the end of the episode)" in result.stdout
    assert "l51 plays; s51 and c51 predict from the same frames" in result.stdout
    assert "shown for 300 steps; --episodes 1 plays on until the episode ends" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("to open it where the agents disagree most: cramerl watch space-")
    made = cramerl.watch("SpaceInvaders", tmp_path / "python.html")
    assert made.read_bytes() == (tmp_path / "out/watch.html").read_bytes()


def test_agents_that_come_with_the_package_are_chosen_by_name(tmp_path):
    result = run("watch", "breakout/u51", "breakout/dqn", "--max-steps", "3", cwd=tmp_path)
    assert "u51 and dqn on Breakout-MinAtar: score " in result.stdout
    assert "shown for" not in result.stdout
    words = refused("watch", "brekout", cwd=tmp_path)
    assert "there is no 'brekout' (did you mean 'breakout'?); there are c51, dqn" in words
    assert "runs must be of one game" in refused("watch", "breakout", "freeway", cwd=tmp_path)
