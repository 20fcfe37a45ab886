"""Which family an environment belongs to, decided by its name alone: this module imports nothing heavy."""

from __future__ import annotations

import re
from typing import Literal

Family = Literal["gymnax", "atari", "gymnasium"]

# What gymnax's ids look like. A name that Gymnasium has too, such as CartPole-v1, means gymnax's environment.
_GYMNAX_CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
_GYMNAX = re.compile(r"\w+-(MinAtar|bsuite|misc)")
_ATARI = re.compile(r"ALE/(\w+)-v5|(\w+)NoFrameskip-v4|(\w+)")


def env_family(name: str) -> Family:
    """The family of an environment; ``gym:NAME`` is always Gymnasium's.

    Any ``ALE/...`` and any bare word is taken for an Atari game, even a misspelt one: the error that suggests similar
    games is then the useful one.

    Example:
        >>> env_family("Breakout-MinAtar"), env_family("pong"), env_family("Taxi-v3")
        ('gymnax', 'atari', 'gymnasium')
    """
    if name in _GYMNAX_CLASSIC or _GYMNAX.fullmatch(name):
        return "gymnax"
    return "atari" if name.startswith("ALE/") or _ATARI.fullmatch(name) else "gymnasium"


def game_name(name: str) -> str | None:
    """The Atari game a name refers to, in snake case as ALE names its ROM; None if it is not written like a game.

    Only the game is read from a registered id: settings such as sticky actions are arguments of `AtariEnvs`.

    Example:
        >>> game_name("ALE/SpaceInvaders-v5"), game_name("SpaceInvaders"), game_name("CartPole-v1")
        ('space_invaders', 'space_invaders', None)
    """
    match = _ATARI.fullmatch(name) if isinstance(name, str) else None
    return re.sub(r"(?<!^)(3D|[A-Z])", r"_\1", match[match.lastindex or 0]).lower() if match else None


def is_minatar(name: str) -> bool:
    """Whether a gymnax environment shows small pictures of zeros and ones: the MinAtar games and Pong-misc."""
    return name == "Pong-misc" or bool(re.fullmatch(r"\w+-MinAtar", name))
