"""`cramerl export`: the files of an agent that can be shared."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors
from commands import refused, run, run_process
from lenient import lenient
from untrained import small_config, write_untrained

from cramerl.deep.checkpoint import CheckpointStore
from cramerl.runs.agents import export_agent, load, load_agent
from cramerl.runs.names import SHIPPED


def test_an_export_names_its_files(tmp_path):
    folder, out = write_untrained(tmp_path / "run", small_config()), tmp_path / "agent"
    exported = run_process("export", folder, "--out", out)
    assert exported.returncode == 0, exported.stderr
    names = {"config.json", "model.safetensors", "README.md"}
    assert set(exported.stdout.splitlines()) == {f"wrote {out / name}" for name in names}
    assert {path.name for path in out.iterdir()} == names


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "required: --out"),
        (["./nowhere", "--out", "there"], "nowhere has no config.json"),
        (["nowhere", "--out", "there"], "there is no 'nowhere'; there are c51, dqn"),
        (["breakout/l52", "--out", "there"], "there is no 'breakout/l52' (did you mean 'breakout/l51'?); there are"),
        (
            ["breakout/l51", "--out", "there", "--push", "me"],
            "push must be USER/NAME, a repository of the hub, got 'me'",
        ),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("export", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_exports_of_an_agent_are_the_same_bytes(tmp_path):
    folder = write_untrained(tmp_path / "run", small_config())
    for number in range(4):  # safetensors writes its metadata in an order of chance
        run("export", folder, "--out", tmp_path / f"{number}")
    assert len({(tmp_path / f"{number}/model.safetensors").read_bytes() for number in range(4)}) == 1
    with safetensors.safe_open(tmp_path / "0/model.safetensors", framework="numpy") as file:
        assert file.metadata()["cramerl-agent"] == "2"


def test_half_as_many_bits(tmp_path, rng):
    config = dataclasses.replace(small_config(v_min=-10.1, v_max=9.3), hidden_units=(128, 128))  # not in 16 bits
    folder = write_untrained(tmp_path / "run", config)
    for name, flags in (("whole", []), ("half", ["--half"]), ("again", ["--half"])):
        source = tmp_path / "half" if name == "again" else folder
        assert run("export", source, *flags, "--out", tmp_path / name).returncode == 0
    whole, half, again = (tmp_path / name / "model.safetensors" for name in ("whole", "half", "again"))
    assert 0.5 * whole.stat().st_size < half.stat().st_size < 0.6 * whole.stat().st_size
    assert again.read_bytes() == half.read_bytes()
    exact, rounded = (load(path.parent, 0).weights for path in (whole, half))
    assert {array.dtype for array in rounded.values()} == {np.dtype(np.float32)}
    assert {"support.low", "support.spacing"} < exact.keys()
    for name, array in exact.items():
        if name.startswith("support."):
            assert rounded[name] == array
        else:
            np.testing.assert_array_equal(rounded[name], array.astype(np.float16))
    with lenient():
        agents = [load_agent(path.parent) for path in (whole, half)]
        seen = rng.normal(size=(20, *agents[0].spec.observation_shape)).astype(np.float32)
        (atoms, masses), (their_atoms, their_masses) = (agent.distributions(seen) for agent in agents)
    np.testing.assert_array_equal(their_atoms, atoms)
    np.testing.assert_allclose(their_masses, masses, atol=2e-3 * np.abs(masses).max())
    assert not np.array_equal(their_masses, masses)
    assert "mean score " in run("play", tmp_path / "half", "--episodes", "1").stdout


@pytest.mark.parametrize("value", [7e4, -7e4, np.inf])
def test_weights_beyond_16_bits_are_refused(tmp_path, value):
    folder = write_untrained(tmp_path / "run", small_config())
    store = CheckpointStore(folder / "checkpoints")
    saved = store.latest()
    name = next(name for name in saved.arrays if name.endswith("bias"))
    saved.arrays[name][0] = value
    store.save(saved.info | {"iteration": 1, "rows": None}, saved.arrays)
    words = refused("export", folder, "--half", "--out", tmp_path / "out")
    assert "half must be false: " in words
    assert "has weights beyond what 16 bits can hold" in words
    assert not (tmp_path / "out").exists()
    with jax.numpy_dtype_promotion("standard"):
        assert export_agent(folder, tmp_path / "out")


def test_an_agent_that_comes_with_the_package(tmp_path):
    """Written again in 16 bits, it has the same weights."""
    result = run("export", "Freeway", "--half", "--out", tmp_path / "agent")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("cramerl: Freeway means freeway/l51; there are also c51, dqn, ")
    theirs, mine = load(SHIPPED / "freeway/l51", 0), load(tmp_path / "agent", 0)
    assert mine.config == theirs.config
    assert set(mine.weights) == set(theirs.weights)
    for name, array in theirs.weights.items():
        np.testing.assert_array_equal(mine.weights[name], array)
