"""The lines of a run's logs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cramerl.deep.agent import Episode
from cramerl.deep.episodes import Episodes
from cramerl.runs.config import TrainConfig
from cramerl.runs.scores import MUCH_CUT


def log_line(
    heading: dict[str, Any],
    totals: Any,
    exploration: Any,
    updates: int,
    support: tuple[float, float] | None = None,
    episodes_cut: int | None = None,
) -> dict[str, Any]:
    """One line of the log.

    Args:
        heading: step, frames, iteration and what tells the run from others of its group.
        totals: sums since the last line.
        exploration: the current fraction of random actions.
        updates: made so far.
        support: smallest and largest return, of a support that finds itself.
        episodes_cut: how many episodes a reset of the environments cut; None if there was none.
    """
    row = heading | {"charts/episodes": int(totals.episodes), "charts/epsilon": _short(exploration)}
    if totals.episodes:
        row["charts/episodic_return"] = _score(totals.returns / totals.episodes)
        row["charts/episodic_length"] = _short(totals.lengths / totals.episodes)
    if episodes_cut is not None:
        row["charts/episodes_cut"] = episodes_cut
    if totals.blocks:
        tags = {"losses/loss": "loss", "losses/q_values": "q_values"}
        tags |= {"dist/mass": "mass", "dist/negative_mass": "negative_mass"}
        values = {tag: _short(getattr(totals.info, name) / totals.blocks) for tag, name in tags.items()}
        values["dist/clipped_mass"] = _short((totals.info.clipped_below + totals.info.clipped_above) / totals.blocks)
        row |= {tag: value for tag, value in values.items() if math.isfinite(value)}  # dqn and qr have no masses
        row["charts/updates"] = updates
        if support is not None:
            row |= {"dist/v_min": _short(support[0]), "dist/v_max": _short(support[1])}
    return row


def episode_lines(lane: dict[str, Any], episodes: Episodes) -> Iterator[str]:
    """A line for each training episode; ``lane`` is what tells the run from others of its group."""
    own = json.dumps(lane)[1:-1]
    columns = (episodes.steps, episodes.envs, episodes.returns, episodes.lengths, episodes.cut)
    # Made by hand: there may be thousands a second.
    for step, env, score, length, cut in zip(*columns, strict=True):
        kind = "cut" if cut else "training"
        yield (
            f'{{"step": {step}, {own}, "kind": "{kind}", "env_index": {env}, "return": {_score(score)!r}, '
            f'"length": {length}}}\n'
        )


def evaluation_episode_lines(lane: dict[str, Any], step: int, played: Iterable[Episode]) -> Iterator[str]:
    """A line for each evaluation episode of a run."""
    for score, length in played:
        row = {"step": step, **lane, "kind": "evaluation", "return": _score(score), "length": length}
        yield json.dumps(row, allow_nan=False) + "\n"


def warning_of_cuts(config: TrainConfig, cut: int, ended: int) -> str | None:
    """What to say if resets of the environments cut many of the episodes; None if they did not."""
    if cut <= MUCH_CUT * (cut + ended):
        return None
    return (
        f"{cut} of {cut + ended} episodes were cut where the environments were reset, so those that are complete are "
        f"too short on average, and scores may be biased. Raise iteration_steps, now {config.iteration_steps:,}, or "
        "choose checkpoints 'weights' or 'none', which need no resets"
    )


def _short(value: Any) -> float:
    """The value with the digits of single precision, which keeps logs small."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(value)))


def _score(value: Any) -> float:
    """The return of an episode, or a mean of some, in short; ValueError if single precision does not reach so far."""
    score = _short(value)
    if not math.isfinite(score):
        raise ValueError(
            f"returns of episodes must lie within {np.finfo(np.float32).max:.1e} (float32), the environment gave "
            f"{float(value):.1e}: scale its rewards down"
        )
    return score
