"""A real Minari dataset: its transitions are those that were played, and a truncated end is not an end."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

from cramerl import Support
from cramerl.linear import DistributionalLSTD, fit_logs, read_minari
from cramerl.linear.transitions import Rows


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """Episodes of a real environment: a cut after 15 steps, or a fall before."""
    gymnasium = pytest.importorskip("gymnasium")
    minari = pytest.importorskip("minari")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # minari's, about metadata that a test does without
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        env = minari.DataCollector(gymnasium.make("CartPole-v1", max_episode_steps=15), data_format="arrow")
        seen, rng = [], np.random.default_rng(0)
        for seed in range(20):
            observation, _ = env.reset(seed=seed)
            over = False
            while not over:
                action = 1 if seed % 3 == 0 else int(rng.integers(2))  # always to the right falls soon
                following, reward, terminated, truncated, _ = env.step(action)
                seen.append((observation, reward, following, terminated, truncated))
                observation, over = following, terminated or truncated
        env.create_dataset("cartpole/test-v0")
        env.close()
        del env
        gc.collect()  # its temporary folder complains when it is collected
        yield [np.array(column) for column in zip(*seen, strict=True)]


def quadratic(observations: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(observations), 1)), observations, observations**2], axis=1)


@pytest.mark.parametrize("chunk_rows", [1, 40, 10_000])
def test_minari_transitions_are_those_that_were_played(cartpole, chunk_rows):
    observation, reward, following, terminated, truncated = cartpole
    assert truncated.sum() > 5
    assert terminated.sum() > 5
    chunks = list(read_minari("cartpole/test-v0", quadratic, chunk_rows=chunk_rows))
    assert len(chunks) == (20 if chunk_rows == 1 else 1 if chunk_rows == 10_000 else len(chunks))
    played = Rows(quadratic(observation), reward, quadratic(following), terminated)
    together = [np.concatenate(arrays) for arrays in zip(*chunks, strict=True)]
    for found, wanted in zip(together, played[:4], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)  # observations are float32
    np.testing.assert_array_equal(together[3], terminated)  # a cut is not an end
    support = Support.uniform(0, 10, 11)
    model = fit_logs(DistributionalLSTD(support, 0.9), chunks)
    direct = DistributionalLSTD(support, 0.9).fit(*played[:4])
    np.testing.assert_allclose(model.predict(played.features), direct.predict(played.features), atol=1e-4)


def test_minari_objects_and_bad_arguments(cartpole):
    minari = pytest.importorskip("minari")
    dataset = minari.load_dataset("cartpole/test-v0")
    assert sum(len(rewards) for _, rewards, _, _ in read_minari(dataset, quadratic)) == len(cartpole[1])
    with pytest.raises(ValueError, match=r"dataset must be a Minari dataset on this machine .* got 'no/such-v0'"):
        read_minari("no/such-v0", quadratic)
    with pytest.raises(ValueError, match="dataset must be a MinariDataset or the name of one, got int"):
        read_minari(3, quadratic)
    with pytest.raises(
        ValueError, match=r"feature_function must return one row .* observations of an episode, got shape"
    ):
        next(read_minari(dataset, lambda observations: observations[:-1]))
    with pytest.raises(ValueError, match=r"chunk_rows must be an integer >= 1, got 1\.5"):
        read_minari(dataset, quadratic, chunk_rows=1.5)  # pyright: ignore[reportArgumentType]
