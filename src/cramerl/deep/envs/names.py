"""Which family an environment belongs to, decided by its name alone: this module imports nothing heavy."""

from __future__ import annotations

import re
from typing import Any, Literal

Family = Literal["gymnax", "atari", "gymnasium"]

# What gymnax's ids look like. A name that Gymnasium has too, such as CartPole-v1, means gymnax's environment.
_GYMNAX_CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
MINATAR_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_BSUITE = ("Catch", "DeepSea", "MemoryChain", "UmbrellaChain", "DiscountingChain", "MNISTBandit", "SimpleBandit")
_MISC = ("FourRooms", "MetaMaze", "PointRobot", "BernoulliBandit", "GaussianBandit", "Reacher", "Swimmer", "Pong")
GYMNAX_NAMES = (
    *_GYMNAX_CLASSIC,
    *(f"{name}-{suite}" for suite, names in (("MinAtar", MINATAR_GAMES), ("bsuite", _BSUITE)) for name in names),
    *(f"{name}-misc" for name in (*_MISC, "FrozenLake")),
)
"""The ids that gymnax registers."""
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


def env_name(name: Any) -> Any:
    """The name of an environment with its letters in the right case; other names are returned as they are.

    A name without its version is an error that says what is meant, because a version is part of what is trained on.

    Example:
        >>> env_name("cartpole-v1"), env_name("Breakout-Minatar"), env_name("ale/Pong-v5"), env_name("Pong")
        ('CartPole-v1', 'Breakout-MinAtar', 'ALE/Pong-v5', 'Pong')
    """
    if not isinstance(name, str):
        return name
    known = {one.lower(): one for one in GYMNAX_NAMES}
    versions = {one.partition("-")[0].lower(): one for one in _GYMNAX_CLASSIC}
    if name.lower() in versions:
        raise ValueError(
            f"env must be an environment's whole name, got {name!r}; did you mean {versions[name.lower()]!r}?"
        )
    name = known.get(name.lower(), name)
    return f"ALE/{name[4:]}" if name.lower().startswith("ale/") else name


def imported_module(name: str) -> str | None:
    """The module that Gymnasium imports to make an environment, if the name, or one of its options, says which.

    Example:
        >>> imported_module("my_games:Maze-v0"), imported_module("gym:CartPole-v1"), imported_module("pong")
        ('my_games', None, None)
    """
    if env_family(name) != "gymnasium":
        return None
    module, colon, _ = name.removeprefix("gym:").partition(":")
    if colon:
        return module
    return "gym" if module.startswith("GymV") else None  # whose option env_id may name a module


def sibling(name: str) -> str | None:
    """The small game of gymnax that has the same name as an Atari game, if there is one.

    Example:
        >>> sibling("breakout"), sibling("ALE/Pong-v5"), sibling("qbert"), sibling("Breakout-MinAtar")
        ('Breakout-MinAtar', 'Pong-misc', None, None)
    """
    game = game_name(name) if env_family(name) == "atari" else None
    small = {game_name(one): f"{one}-MinAtar" for one in MINATAR_GAMES} | {"pong": "Pong-misc"}
    return small.get(game)


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
