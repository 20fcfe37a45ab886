"""Which names of environments in logs of other libraries mean Atari games."""

from __future__ import annotations

import re

_GAMES = """
    adventure air_raid alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk bowling
    boxing breakout carnival centipede chopper_command crazy_climber defender demon_attack double_dunk elevator_action
    enduro fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond journey_escape kangaroo krull
    kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong pooyan private_eye qbert riverraid
    road_runner robotank seaquest skiing solaris space_invaders star_gunner surround tennis time_pilot tutankham
    up_n_down venture video_pinball wizard_of_wor yars_revenge zaxxon
"""
_ATARI = {game.replace("_", ""): game for game in _GAMES.split()}
_NAME = re.compile(r"(ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?(?:-(?:ram-)?v\d+)?")


def atari_game(env: str) -> str | None:
    """The Atari game that a name means, None if it means something else.

    Unlike `game_name`, this does not take every bare word for a game: other libraries' names may be anything.

    Example:
        >>> [atari_game(name) for name in ("BeamRiderNoFrameskip-v4", "ALE/Pong-v5", "beamrider", "maze", "Pong-misc")]
        ['beam_rider', 'pong', 'beam_rider', None, None]
    """
    match = _NAME.fullmatch(env)
    if match is None:
        return None
    game = match[2].lower().replace("_", "")
    return _ATARI.get(game) or (game if match[1] else None)
