"""A real Minari dataset as a log: its transitions are those that were played."""

from __future__ import annotations

import gc
import pickle
import warnings

import numpy as np
import pytest
from log_tables import assert_same_blocks, flat

from cramerl.linear import Log
from cramerl.linear.logs import log as log_module


def collected(name: str, env_name: str, folder, monkeypatch, **options) -> list[np.ndarray]:
    """Play some episodes of an environment into a dataset, and return what was played."""
    gymnasium, minari = pytest.importorskip("gymnasium"), pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # minari's, about metadata that a test does without
        env = minari.DataCollector(gymnasium.make(env_name, **options), data_format="arrow")
        seen = []
        for seed in range(12):
            observation, _ = env.reset(seed=seed)
            env.action_space.seed(seed)
            over = False
            while not over:
                action = env.action_space.sample()
                following, reward, terminated, truncated, _ = env.step(action)
                seen.append((observation, action, reward, following, terminated, truncated, seed))
                observation, over = following, terminated or truncated
        env.create_dataset(name)
        env.close()
        del env
        gc.collect()  # its temporary folder complains when it is collected
    return [np.array(column) for column in zip(*seen, strict=True)]


@pytest.mark.parametrize("most_bytes", [1 << 30, 10], ids=["memory", "files"])
def test_transitions_are_those_that_were_played(tmp_path, monkeypatch, most_bytes):
    played = collected("cartpole/log-v0", "CartPole-v1", tmp_path, monkeypatch, max_episode_steps=15)
    observation, action, reward, following, terminated, truncated, episode = played
    monkeypatch.setattr(log_module, "_MOST_BYTES", most_bytes)
    log = Log.read("minari:cartpole/log-v0")
    found = flat(log.blocks(40))
    np.testing.assert_array_equal(found["numbers"], observation)
    np.testing.assert_array_equal(found["next_numbers"][~terminated], following[~terminated])
    np.testing.assert_array_equal(found["actions"], action)
    np.testing.assert_array_equal(found["rewards"], reward)
    np.testing.assert_array_equal(found["terminated"], terminated)
    np.testing.assert_array_equal(found["episode"], episode)
    np.testing.assert_array_equal(found["weights"], 1)
    assert truncated.any()
    assert terminated.any()
    assert log.counts.dropped == 0
    assert log.counts.truncated == (truncated & ~terminated).sum()
    assert log.schema.number_names == ("observation0", "observation1", "observation2", "observation3")
    assert_same_blocks(pickle.loads(pickle.dumps(log)).blocks(40), log.blocks(40))
    some = Log.read(pytest.importorskip("minari").load_dataset("cartpole/log-v0"), state="observation0", action=None)
    np.testing.assert_array_equal(flat(some.blocks())["numbers"], observation[:, :1])


def test_discrete_observations_are_codes(tmp_path, monkeypatch):
    played = collected("cliff/log-v0", "CliffWalking-v1", tmp_path, monkeypatch, max_episode_steps=20)
    log = Log.read("minari:cliff/log-v0")
    (levels,) = log.schema.levels
    np.testing.assert_array_equal(np.array(levels)[flat(log.blocks())["codes"][:, 0]], played[0])
    assert log.schema.category_names == ("observation",)


def test_no_such_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"source must be a Minari dataset on this machine .* got 'no/such-v0'"):
        Log.read("minari:no/such-v0")
