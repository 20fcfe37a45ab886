"""What names a trained agent: a folder, an agent that comes with the package, or a repository of a hub.

All commands and functions that take a trained agent ask here which folder is meant. Nothing heavy is imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cramerl._folders import EVALUATION_FILE
from cramerl.deep.envs.names import MINATAR_GAMES
from cramerl.runs import hub
from cramerl.runs.folder import CONFIG, run_folders
from cramerl.runs.setting import agent_name

SHIPPED = Path(__file__).parents[1] / "shipped"
"""Exports of agents, SHIPPED/GAME/AGENT. How they were made is in results/shipped-agents."""
GAMES = tuple(sorted(re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower() for game in MINATAR_GAMES))
SHOWN_AGENTS = ("l51", "s51", "c51")
"""What a game's name stands for where several can be shown. L51 plays: better than S51, and with negative mass."""
SHOWN_STEPS = 300
"""Steps after which the page of agents that come with the package ends: some of their episodes have 10,000."""
_NAME = re.compile(r"[^/\\.]+(/[^/\\.]+)?")


def agent_folder(run: Any) -> Path:
    """The folder of one trained agent; of a game that several agents were trained in, the folder of its L51.

    Args:
        run: a folder, what `cramerl.train` returned, the name of an agent that comes with the package ("breakout/l51"),
            or "hf://USER/NAME", which is downloaded. A `Path` is always a folder.
    """
    return _folders(run, SHOWN_AGENTS[:1])[0]


def agent_folders(runs: Any) -> list[Path]:
    """The folders of the agents to show side by side; a game's name stands for `SHOWN_AGENTS`.

    Args:
        runs: one of what `agent_folder` takes, or several.
    """
    if isinstance(runs, (str, Path)) or hasattr(runs, "folder"):
        runs = [runs]
    return [folder for run in runs for folder in _folders(run, SHOWN_AGENTS)]


def initial_folder(name: str | Path) -> Path:
    """The folder of initial weights. A run that somebody sent must not download, so it is not one of a hub."""
    if hub.is_address(name):
        raise ValueError(
            f"initial_weights must be a folder, or the name of an agent that comes with cramerl, got {name!r}; cramerl "
            f"export {name} --out FOLDER makes one"
        )
    return _folders(name, SHOWN_AGENTS[:1], "initial_weights")[0]


def said_choice(name: str) -> str | None:
    """What to say where one agent is used and only its game was named."""
    folder = agent_folder(name) if not hub.is_address(name) else None
    if folder is None or not is_shipped([folder]) or "/" in name:
        return None
    others = [agent for agent in _agents(folder.parent.name) if agent != folder.name]
    return f"{name} means {_name(folder)}; there are also {', '.join(others)}"


def is_shipped(folders: Iterable[Path]) -> bool:
    """Whether all of these folders come with the package."""
    return all(folder.is_relative_to(SHIPPED) for folder in folders)


def shown_steps(folders: Iterable[Path], max_steps: int | None, episodes: int | None) -> int | None:
    """Where the recording of agents that come with the package ends, unless its length was asked for."""
    return SHOWN_STEPS if max_steps is None and episodes is None and is_shipped(folders) else None


def _name(folder: Path) -> str:
    return folder.relative_to(SHIPPED).as_posix()


def _folders(run: Any, agents: tuple[str, ...], argument: str = "run") -> list[Path]:
    if hub.is_address(run):
        return [hub.download(run)]
    if isinstance(run, str) and not run.strip():
        raise ValueError(f"{argument} must be a folder or a name, got an empty text")
    path = run_folders(run)[0]
    if isinstance(run, str) and path.is_dir():
        _require_nothing_hidden(run.rstrip("/"), path)
    if not isinstance(run, str) or path.is_dir() or not _NAME.fullmatch(run.rstrip("/")):
        return [path]
    name = run.rstrip("/")
    game, slash, agent = name.partition("/")
    found = _game(game)
    near = difflib.get_close_matches(_plain(game), list(map(_plain, GAMES)), n=1)
    if found is None and slash and not near:  # such as runs/mine, a folder that is missing
        return [path]
    if found is None or (slash and agent_name(agent) not in _agents(found)):
        meant = found or (_game(near[0]) if near else None)
        raise ValueError(f"{argument} must be {_allowed(name, meant, agent, hubs=argument == 'run')}")
    return [SHIPPED / found / one for one in ([agent_name(agent)] if slash else agents)]


def _require_nothing_hidden(name: str, path: Path) -> None:
    """Refuse a folder that is no run, but has the name of agents that come with cramerl: those may be meant."""
    game = _game(name.partition("/")[0])
    if (
        game is None
        or any((path / file).exists() for file in (CONFIG, EVALUATION_FILE))
        or any(path.glob(f"*/{CONFIG}"))
    ):
        return
    other = name.replace(name.partition("/")[0], f"{game.replace('_', '-')}-minatar", 1)
    raise ValueError(
        f"{name} is a folder here that holds no run, and it hides the agents of this name that come with cramerl: they "
        f"are also called {other}"
    )


def _allowed(name: str, game: str | None, agent: str, *, hubs: bool) -> str:
    """What to type instead of a name that nothing has, with the game that was meant."""
    hint = ""
    if game is not None:
        agents = difflib.get_close_matches(agent.lower(), _agents(game), n=1, cutoff=0.5) if agent else []
        hint = f" (did you mean {'/'.join([game, *agents])!r}?)"
    place = f", or {hub.SCHEME}USER/NAME" if hubs else ""
    return (
        f"a folder, the name of an agent that comes with cramerl{place}, but there is no {name!r}{hint}; there "
        f"are {', '.join(_agents(GAMES[0]))} for each of {', '.join(GAMES)}, as in {GAMES[1]}/{SHOWN_AGENTS[0]}"
    )


def _agents(game: str) -> list[str]:
    return sorted(folder.name for folder in (SHIPPED / game).iterdir() if not folder.name.startswith("."))


def _game(word: str) -> str | None:
    """The game that is meant by "Breakout-MinAtar" or "space-invaders"."""
    return {_plain(game): game for game in GAMES}.get(_plain(word).removesuffix("minatar"))


def _plain(word: str) -> str:
    return re.sub(r"[-_ ]", "", word).lower()
