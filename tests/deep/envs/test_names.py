"""The family of an environment and the game it names, against the libraries' own lists."""

import subprocess
import sys

import gymnasium
import gymnax
import pytest
from ale_py import roms
from ale_py.registration import rom_id_to_name

from cramerl.deep.envs.names import GYMNAX_NAMES, env_family, env_name, game_name, is_minatar, sibling


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("CartPole-v1", "gymnax"),
        ("Breakout-MinAtar", "gymnax"),
        ("Pong-misc", "gymnax"),
        ("gym:CartPole-v1", "gymnasium"),
        ("gym:Breakout-MinAtar", "gymnasium"),
        ("gym:PongNoFrameskip-v4", "gymnasium"),
        ("gym:ALE/Pong-v5", "gymnasium"),
        ("Taxi-v3", "gymnasium"),
        ("somewhere:Thing-v0", "gymnasium"),
        ("Breakout-Minatar", "gymnasium"),
        ("pong", "atari"),
        ("Pong", "atari"),
        ("ALE/Pong-v5", "atari"),
        ("PongNoFrameskip-v4", "atari"),
        ("PnogNoFrameskip-v4", "atari"),  # misspelt games: the error then suggests similar ones
        ("ALE/Pnog-v5", "atari"),
        ("ALE/Pong-v4", "atari"),
        ("pnog", "atari"),
        ("gym:pong", "gymnasium"),
    ],
)
def test_families_by_name(name, family):
    assert env_family(name) == family


def test_every_environment_of_gymnax_is_known():
    assert {env_family(name) for name in gymnax.registered_envs} == {"gymnax"}
    shared = [name for name in gymnasium.registry if env_family(name) == "gymnax"]
    assert set(shared) <= set(gymnax.registered_envs)
    minatar = [name for name in gymnax.registered_envs if is_minatar(name)]
    assert minatar == [name for name in gymnax.registered_envs if "MinAtar" in name or name == "Pong-misc"]
    assert not any(is_minatar(name) for name in ("gym:Breakout-MinAtar", "pong", "FourRooms-misc"))


def test_every_game_of_ale_is_known_by_each_of_its_names():
    for rom in roms.get_all_rom_ids():
        name = rom_id_to_name(rom)
        for spelled in (rom, name, f"ALE/{name}-v5", f"{name}NoFrameskip-v4"):
            assert (env_family(spelled), game_name(spelled)) == ("atari", rom)


@pytest.mark.parametrize("name", ["ALE/Pong-v4", "Breakout-MinAtar", "CartPole-v1", "gym:pong", "", None])
def test_names_that_are_not_games(name):
    assert game_name(name) is None


def test_nothing_heavy_is_imported():
    heavy = ["jax", "gymnax", "gymnasium", "ale_py"]
    code = f"import sys, cramerl.deep.envs.names; print([x for x in {heavy} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_case_does_not_matter_and_the_rest_of_a_name_does():
    assert sorted(GYMNAX_NAMES) == sorted(gymnax.registered_envs)
    for name in gymnax.registered_envs:
        assert env_name(name.lower()) == env_name(name.upper()) == name
    for name in ("pong", "Pong", "ALE/Pong-v5", "gym:cartpole-v1", "Taxi-v3", "", 3):
        assert env_name(name) == name
    assert env_name("ale/pong-v5") == "ALE/pong-v5"
    for written in ("CartPole", "cartpole", "MOUNTAINCAR"):
        with pytest.raises(ValueError, match=f"got '{written}'; did you mean '(CartPole-v1|MountainCar-v0)'?"):
            env_name(written)
    for rom in roms.get_all_rom_ids():
        assert env_name(rom) == rom


def test_small_games_of_the_same_name():
    found = {name: sibling(name) for name in ("Breakout", "ALE/SpaceInvaders-v5", "pong", "qbert", "Breakout-MinAtar")}
    assert list(found.values()) == ["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Pong-misc", None, None]
    for rom in roms.get_all_rom_ids():
        small = sibling(rom)
        assert small is None or small in gymnax.registered_envs
