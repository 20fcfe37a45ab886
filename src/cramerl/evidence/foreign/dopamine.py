"""Dopamine's rows: the JSON of its published baselines, and what `cramerl report` writes. Its pickles stay closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cramerl._folders import LOG_BYTES, parse_json, read_inside
from cramerl.evidence.foreign.games import atari_game
from cramerl.evidence.foreign.run_logs import Points, RunLog, RunName, name_text, seed_of

_REMARK = "{}: steps are Dopamine's iterations, and each iteration counts the same."
PICKLES_TO_CSV = """\
import pathlib, pickle
logs = pickle.loads(pathlib.Path("logs/log_199").read_bytes()).values()
rows = [f"dqn,Pong,0,{250_000 * (i + 1)},{one['train_average_return'][0]}" for i, one in enumerate(logs)]
pathlib.Path("dqn.csv").write_text("\\n".join(["agent,env,seed,step,return", *rows]))
"""


def is_pickle(file: Path) -> bool:
    """Whether a file is a log of Dopamine that is pickled, by its name."""
    name = file.name
    return file.suffix in (".pkl", ".pickle") or (name.startswith("log_") and name[4:].isdecimal())


def pickle_advice(file: Path) -> str:
    """Why a pickle is not opened, and what to do."""
    return (
        f"{file} is a pickled log, as Dopamine writes it. Pickles are never opened here, because they run code of "
        f"whoever wrote them. If you trust it, write a CSV file from it in Python, with the names of its run:\n"
        f"{PICKLES_TO_CSV}then: cramerl report dqn.csv"
    )


def read_dopamine(file: Path) -> list[RunLog]:
    """The runs in a file of rows with an Iteration, a Value and an Agent.

    The game is that of the rows or, as in Dopamine's files, the name of the file. Where rows have no seed, the runs of
    an agent follow one another, and a run begins where the iteration does not rise.
    """
    place = file.resolve()
    try:
        rows = parse_json(read_inside(place.parent, place.name, most=LOG_BYTES >> 4))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as Dopamine's rows: {error}") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{file} must be a list of Dopamine's rows, which have an Iteration, a Value and an Agent")
    game = atari_game(file.stem) or file.stem  # Dopamine's beamrider is beam_rider
    found: dict[RunName, Points] = {}
    last: dict[tuple[str, str], tuple[int, int]] = {}  # of each agent and game, its latest run and iteration
    for line, row in enumerate(rows, start=1):
        try:
            name, iteration = _run_of(row, game, last)
            found.setdefault(name, Points()).add(iteration + 1, row["Value"])  # its episodes end with the iteration
        except KeyError as error:
            raise ValueError(f"{file} row {line} has no {error.args[0]}; rows have Iteration, Value, Agent") from None
        except ValueError as error:
            raise ValueError(f"{file} row {line}: {error}") from None
    remark = _REMARK.format(file.name)
    return [points.log(name, file, "iteration", [remark]) for name, points in found.items()]


def _run_of(row: dict[str, Any], game: str, last: dict[tuple[str, str], tuple[int, int]]) -> tuple[RunName, int]:
    agent, env = name_text(row["Agent"], "agent"), name_text(row.get("Game", game), "game")
    iteration = row["Iteration"]
    if not isinstance(iteration, int) or isinstance(iteration, bool) or iteration < 0:
        raise ValueError(f"Iteration must be a whole number from 0 on, got {iteration!r:.60}")
    if "Seed" in row:
        return RunName(agent, env, seed_of(row["Seed"])), iteration
    run, before = last.get((agent, env), (0, -1))
    run += iteration <= before
    last[agent, env] = run, iteration
    return RunName(agent, env, run), iteration
