"""Which names mean Atari games."""

import pytest

from cramerl.evidence.foreign.games import _ATARI, atari_game


def test_the_games_are_those_of_ale():
    roms = pytest.importorskip("ale_py.roms")
    assert set(_ATARI.values()) <= set(roms.get_all_rom_ids())
    for game in _ATARI.values():
        title = "".join(word.capitalize() for word in game.split("_"))
        assert {atari_game(name) for name in (game, f"ALE/{title}-v5", f"{title}NoFrameskip-v4", title)} == {game}


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar", "Pong-misc", "procgen", "coinrun", "", "a b"])
def test_other_names_are_not_games(name):
    assert atari_game(name) is None
