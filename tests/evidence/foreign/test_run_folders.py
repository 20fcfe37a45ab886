"""Folders of CleanRL's and Stable-Baselines3's runs: whose they are, and what their files say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.evidence.curves import walk_folders
from cramerl.evidence.foreign.reading import log_at, logs_in, read_logs


def curves_in(*paths: Path, scores="training", columns=None):
    logs = [log for path in paths for folder, files in walk_folders(path) for log in logs_in(folder, files)]
    return read_logs(logs, scores=scores, columns=columns)


def monitor(file: Path, episodes: list[tuple[float, int, float]], env: str = "CartPole-v1", began: float = 0.0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{r},{length},{t}\n" for r, length, t in episodes)
    file.write_text(f'#{{"t_start": {began}, "env_id": "{env}"}}\nr,l,t\n{rows}')
    return file


def events(folder: Path, **scalars: list[tuple[int, float]]) -> Path:
    """An event file; double underscores in names stand for slashes."""
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(folder))
    writer.add_text("about", "text")
    for name, values in scalars.items():
        for step, value in values:
            writer.add_scalar(name.replace("__", "/"), value, step)
    writer.close()
    return folder


def test_lengths_of_episodes_add_up_to_steps(tmp_path):
    monitor(tmp_path / "ppo/CartPole-v1/3/monitor.csv", [(9.0, 9, 0.1), (20.0, 20, 0.2)])
    (curve,) = curves_in(tmp_path)
    assert (curve.agent, curve.env, curve.seed) == ("ppo", "CartPole-v1", 3)
    assert (curve.steps.tolist(), curve.returns.tolist()) == ([9, 29], [9, 20])
    assert curve.place == "ppo/CartPole-v1/3"
    with pytest.raises(ValueError, match="is a log of another library, which has no settings of cramerl"):
        curve.config  # noqa: B018


def test_monitors_of_parallel_environments_are_one_run(tmp_path):
    """By the time at which episodes ended, as Stable-Baselines3's load_results does it."""
    monitor(tmp_path / "ppo/CartPole-v1/3/0.monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)], began=100.0)
    monitor(tmp_path / "ppo/CartPole-v1/3/1.monitor.csv", [(2.0, 5, 1.5), (4.0, 5, 3.5)], began=100.25)
    (curve,) = curves_in(tmp_path)
    assert (curve.steps.tolist(), curve.returns.tolist()) == ([10, 15, 25, 30], [1, 2, 3, 4])
    (curve,) = read_logs([log_at(tmp_path / f"ppo/CartPole-v1/3/{i}.monitor.csv") for i in (0, 1)])
    assert len(curve.steps) == 4


@pytest.mark.parametrize(
    "folder", ["ppo/CartPole-v1/2", "CartPole-v1/ppo/2", "ppo/CartPole-v1/seed_2", "ppo/CartPole-v1_2"]
)
def test_folders_say_whose_a_monitor_is(tmp_path, folder):
    monitor(tmp_path / folder / "monitor.csv", [(1.0, 1, 1.0)])
    (curve,) = curves_in(tmp_path)
    assert (curve.agent, curve.env, curve.seed) == ("ppo", "CartPole-v1", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r,l,t\n1,1,1\n", "it does not begin with a comment"),
        ("#nothing\nr,l,t\n1,1,1\n", "its comment is not JSON"),
        ("#[]\nr,l,t\n1,1,1\n", "its comment is not JSON"),
        ("#{}\nr,t\n1,1\n", "it has no column 'l'"),
        ("#{}\nr,l,t\n1,0,1\n", "line 3: the length of an episode must be a whole number from 1 on, got 0"),
        ("#{}\nr,l,t\ninf,1,1\n", "the return must be a number"),
    ],
)
def test_damaged_monitors_are_a_sentence(tmp_path, text, message):
    file = tmp_path / "ppo/CartPole-v1/0/monitor.csv"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        curves_in(tmp_path)


def test_monitors_are_no_evaluations(tmp_path):
    monitor(tmp_path / "ppo/CartPole-v1/2/monitor.csv", [(1.0, 1, 1.0)])
    with pytest.raises(ValueError, match="hold training episodes, not evaluations"):
        curves_in(tmp_path, scores="evaluation")


def test_a_link_in_a_folder_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "logs/ppo/CartPole-v1/0"
    folder.mkdir(parents=True)
    (folder / "monitor.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="is a link, and links in such a folder are not followed"):
        curves_in(tmp_path / "logs")
    (folder / "monitor.csv").unlink()
    os.mkfifo(folder / "monitor.csv")
    with pytest.raises(ValueError, match="must be a regular file"):
        curves_in(tmp_path / "logs")


def test_runs_of_cleanrl_go_by_their_names(tmp_path):
    events(tmp_path / "CartPole-v1__dqn_jax__4__1700000000", charts__episodic_return=[(10, 1.0), (30, 3.0)])
    events(tmp_path / "ALE/Pong-v5__c51__1__1700000000", charts__episodic_return=[(10, -21.0)])
    pong, cart = curves_in(tmp_path)
    assert (pong.agent, pong.env, pong.seed) == ("c51", "ALE/Pong-v5", 1)
    assert (cart.agent, cart.env, cart.seed) == ("dqn_jax", "CartPole-v1", 4)
    assert cart.place == "CartPole-v1__dqn_jax__4__1700000000"
    assert (cart.steps.tolist(), cart.returns.tolist()) == ([10, 30], [1, 3])
    assert (pong.protocol.family, cart.protocol.family, pong.frames.tolist()) == ("Atari", "other", [40])


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9:-]|_(?!_)){0,20}[A-Za-z0-9]", fullmatch=True), st.integers(0, 10**6))
def test_names_of_cleanrl_are_taken_apart(agent, seed):
    from cramerl.evidence.foreign.run_folders import _event_name

    assert _event_name(Path(f"/runs/Pong-v5__{agent}__{seed}__1700000000")) == (agent, "Pong-v5", seed)


def test_runs_of_stable_baselines(tmp_path):
    scalars = {"rollout__ep_rew_mean": [(10, 1.0)], "eval__mean_reward": [(10, 7.0)], "time__fps": [(10, 99.0)]}
    events(tmp_path / "dqn/CartPole-v1/5/DQN_1", **scalars)
    (training,) = curves_in(tmp_path)
    assert (training.agent, training.env, training.seed) == ("dqn", "CartPole-v1", 5)
    assert "mean over the last 100 episodes" in training.remarks[0]
    (evaluation,) = curves_in(tmp_path, scores="evaluation")
    assert (training.returns.tolist(), evaluation.returns.tolist()) == ([1], [7])
    (named,) = curves_in(tmp_path, columns={"return": "time/fps"})
    assert named.returns.tolist() == [99]


def test_other_tags_and_other_folders_are_a_sentence(tmp_path):
    events(tmp_path / "a/b/0", mine__score=[(10, 1.0)])
    with pytest.raises(ValueError, match=r"say which are returns, as in columns return=TAG; it has: mine/score$"):
        curves_in(tmp_path / "a")
    events(tmp_path / "somewhere", charts__episodic_return=[(10, 1.0)])
    with pytest.raises(ValueError, match="must be named so that its agent, environment and seed are known"):
        curves_in(tmp_path / "somewhere")


def test_a_run_that_logged_nothing_yet_is_empty(tmp_path):
    events(tmp_path / "CartPole-v1__dqn__4__1700000000")
    (curve,) = curves_in(tmp_path)
    assert curve.last_step == 0


def test_a_run_that_logged_twice_in_a_folder_is_one(tmp_path):
    folder = tmp_path / "CartPole-v1__dqn__4__1700000000"
    events(folder, charts__episodic_return=[(10, 1.0)])
    (first,) = folder.iterdir()
    first.rename(folder / "events.out.tfevents.1")
    events(folder, charts__episodic_return=[(20, 2.0), (30, float("nan"))])
    (curve,) = curves_in(tmp_path, folder)
    assert curve.steps.tolist() == [10, 20, 30]
    assert curve.episodes.tolist() == [1, 1, 0]


def test_a_monitor_that_was_opened_again_keeps_its_order(tmp_path):
    """Its clock starts anew; the returns of before and after must not be mixed."""
    episodes = [(float(i), 10, float(i % 50)) for i in range(100)]
    monitor(tmp_path / "ppo" / "CartPole-v1" / "0" / "monitor.csv", episodes)
    (curve,) = curves_in(tmp_path)
    assert curve.returns.tolist() == [float(i) for i in range(100)]
    assert any("the clock starts again" in remark for remark in curve.remarks)
