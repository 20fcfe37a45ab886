"""The function `cramerl.watch`: from a trained agent to a page that shows what it predicts while it plays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cramerl._files import require_replaceable
from cramerl.runs.names import agent_folders, shown_steps
from cramerl.watching.page import write_page
from cramerl.watching.play import load_watched, record
from cramerl.watching.recording import MADE_BY, is_evaluation, read_evaluation


def watch(
    runs: Any,
    out: str | Path = "out/watch.html",
    *,
    highlight: str | None = None,
    episodes: int | None = None,
    max_steps: int | None = None,
    epsilon: float | None = None,
    seed: int = 0,
    lanes: Sequence[int] | None = None,
    overwrite: bool = False,
    trust_modules: bool = False,
) -> Path:
    """Play with a trained agent and write a page of what it predicts, as the command ``cramerl watch`` does.

    Args:
        runs: the folder of a run or an export, what `cramerl.train` returned, or a name, see `cramerl.load_agent`;
            several: the first one plays, the others predict from the same frames. A game's name, such as "breakout",
            shows three agents that come with the package. Or the folder of an evaluation, whose states are shown.
        out: the page, one HTML file; an earlier page is replaced.
        highlight: a phenomenon to mark, at whose strongest step the page opens (`cramerl.watching.phenomena`).
        episodes: how many are played; None: one.
        max_steps: stop after this many steps, even within an episode; None: after 100,000 for each episode, and after
            300 with agents that come with the package, unless ``episodes`` is given.
        epsilon: fraction of random actions; None: the run's ``eval_epsilon``.
        seed: of the environment and the random actions.
        lanes: which run of each folder that holds a group; one number counts for all.
        overwrite: whether ``out`` may replace a file that is not such a page.
        trust_modules: whether the folder may name a module to import, as in "MODULE:Env-v0"; only if you trust it.

    Returns:
        The page.

    Example:
        >>> import cramerl
        >>> run = cramerl.train("s51", "CartPole-v1")  # doctest: +SKIP
        >>> cramerl.watch(run, "out/cartpole.html")  # doctest: +SKIP
        >>> cramerl.watch("breakout")  # doctest: +SKIP
    """
    folders = agent_folders(runs)
    require_replaceable("out", Path(out), MADE_BY, overwrite=overwrite)
    if len(folders) == 1 and is_evaluation(folders[0]):
        return write_page(read_evaluation(folders[0]), out, highlight=highlight)
    max_steps = max_steps or shown_steps(folders, max_steps, episodes)
    playing = {"episodes": episodes or 1, "epsilon": epsilon, "seed": seed, "max_steps": max_steps}
    playing |= {"trust_modules": trust_modules}
    return write_page(record(load_watched(folders, lanes), **playing), out, highlight=highlight)
