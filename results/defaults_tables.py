"""Prints, as a page in markdown, what `defaults.sh` has found out so far: means over seeds, 95 % bootstrap intervals.

python results/defaults_tables.py > docs/study/defaults.md
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cramerl.cli.main import exit_status
from cramerl.evidence.curves import Curve, final_score, read_curves
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.reports.tables import interval_text
from cramerl.runs.config import AGENTS

Scores = dict[int, float]  # by seed
VARIED = ("n_step", "q_lambda", "q_lambda_greedy", "next_distribution")
USUAL = (1, 0, 1, "signed")
OWN = "finds itself"
CLASSIC = "Acrobot-v1", "CartPole-v1", "MountainCar-v0"
FOLDERS = (
    "defaults-minatar",
    "defaults-classic",
    "defaults-pong-misc",
    "defaults-lunarlander",
    "defaults-atari",
    "defaults-confirm",
)


def scores_of(curves: Iterable[Curve]) -> Scores:
    """The scores of the runs that are finished, by seed; NaN if a run diverged or no episode ended at its end."""
    return {curve.config.seed: final_score(curve) for curve in curves if curve.finished}


def mean_text(scores: Scores) -> str:
    """A mean with its interval, and what is wrong with it."""
    values = [value for value in scores.values() if np.isfinite(value)]
    if not values:
        return "" if not scores else "no score"
    text = interval_text(bootstrap_interval("mean", values))
    lost = len(scores) - len(values)
    return f"{text} ({lost} of {len(scores)} without a score)" if lost else text


def complete(scores: Scores) -> bool:
    """Whether there are runs, and all of them have a score."""
    return bool(scores) and bool(np.isfinite([*scores.values()]).all())


def difference(first: Scores, second: Scores) -> Interval | None:
    """The first mean minus the second; None if a run of either has no score."""
    if not complete(first) or not complete(second):
        return None
    return bootstrap_interval("difference_of_means", list(first.values()), list(second.values()))


def support(curve: Curve) -> str:
    """Its support, as a heading."""
    low, high = ends(curve)
    return OWN if low is None or high is None else f"[{low:g}, {high:g}]"


def ends(curve: Curve) -> tuple[float | None, float | None]:
    """Its support."""
    return curve.config.v_min, curve.config.v_max


def plain(curve: Curve) -> bool:
    """Whether a run differs from others of its agent and environment in nothing but the support."""
    return curve.config.n_step == 1 and (curve.env in CLASSIC or curve.config.next_distribution == "signed")


def table(rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; the first row is its head."""
    head, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *rest])


def supports_table(curves: Sequence[Curve], env: str) -> tuple[str, int, int]:
    """The supports of an environment, a row for each agent; how many agents there are, and how many are below."""
    mine = [curve for curve in curves if curve.env == env and plain(curve)]
    with_support = [curve for curve in mine if curve.agent not in ("dqn", "qr")]
    by_hand = [curve for curve in with_support if None not in ends(curve)]
    by_hand.sort(key=lambda curve: (curve.config.v_max or 0.0) - (curve.config.v_min or 0.0))
    heads = [OWN, *dict.fromkeys(map(support, by_hand))]
    rows = [["agent", "seeds", *heads, "finds itself, minus the best by hand", "below it"]]
    compared = below = 0
    for agent in (agent for agent in AGENTS if any(curve.agent == agent for curve in mine)):
        its = [curve for curve in mine if curve.agent == agent]
        if agent in ("dqn", "qr"):
            scores = scores_of(its)
            rows.append([f"`{agent}`", str(len(scores)), mean_text(scores), *[""] * (len(heads) + 1)])
            continue
        found = {head: scores_of(curve for curve in its if support(curve) == head) for head in heads}
        row = [f"`{agent}`", "/".join(dict.fromkeys(str(len(scores)) for scores in found.values()))]
        row += [mean_text(found[head]) for head in heads]
        rivals = [scores for head, scores in found.items() if head != OWN and complete(scores)]
        best = max(rivals, key=lambda scores: float(np.mean([*scores.values()])), default={})
        own = found.get(OWN, {})
        apart = difference(own, best)
        if apart is None:
            row += ["", "**runs have no score**" if own and not complete(own) else ""]
        else:
            compared, below = compared + 1, below + (apart.high < 0)
            row += [interval_text(apart), "**yes**" if apart.high < 0 else "no"]
        rows.append(row)
    return table(rows), compared, below


def settings_table(curves: Sequence[Curve], agent: str) -> str:
    """Settings of an agent whose supports find themselves: scores in every environment, and gains over one step."""
    mine = [curve for curve in curves if curve.agent == agent and curve.config.v_min is None]
    envs = list(dict.fromkeys(curve.env for curve in mine))
    values = sorted(set(map(settings, mine)))
    values.sort(key=lambda one: one != USUAL)
    rows = [["settings", *envs]]
    for one in values:
        same = [(name, value) for name, value, default in zip(VARIED, one, USUAL, strict=True) if value != default]
        row = [", ".join(f"`{name}` {value}" for name, value in same) or "one step, signed"]
        for env in envs:
            there = [curve for curve in mine if curve.env == env]
            scores = scores_of(curve for curve in there if settings(curve) == one)
            apart = difference(scores, scores_of(curve for curve in there if settings(curve) == USUAL))
            gain = "" if apart is None or one == USUAL else f"; gain {interval_text(apart)}"
            row.append(f"{mean_text(scores)}{gain}")
        rows.append(row)
    return table(rows)


def settings(curve: Curve) -> tuple[Any, ...]:
    """What the second kind of table compares."""
    return tuple(getattr(curve.config, name) for name in VARIED)


INTRODUCTION = """# Defaults, measured

The first tables of each part compare supports that find themselves with supports chosen by hand. The others compare
settings of agents whose supports find themselves. A score is the mean return of the training episodes that end in the
last fifth of the steps, with a 95 % bootstrap interval over seeds. Of the supports chosen by hand the best is chosen
by the seeds that it is compared on, which favours it; `defaults-confirm` repeats some of the comparisons it won, with
seeds of their own.

`results/defaults.sh` made the runs, and each folder's `sweep.json` has their commands. This page is what `python
results/defaults_tables.py` prints. What follows from it stands in
[decisions](../decisions.md#supports-that-find-themselves).
"""


def main() -> int:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    help_text = "folders of sweeps (default: results/defaults-*)"
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help=help_text)
    options = parser.parse_args()
    beside = Path(__file__).parent
    folders = options.folders or [beside / name for name in FOLDERS if any((beside / name).glob("*/*/config.json"))]
    print(INTRODUCTION)
    for folder in folders:
        curves = read_curves([folder])
        steps = " or ".join(f"{number:,}" for number in sorted({curve.config.steps for curve in curves}))
        tables = {env: supports_table(curves, env) for env in dict.fromkeys(curve.env for curve in curves)}
        compared, below = (sum(counts) for counts in zip(*(found[1:] for found in tables.values()), strict=True))
        print(f"## {folder.name}\n\n{steps} steps. Below the best support by hand: {below} of {compared}.\n")
        for env, (text, *_) in tables.items():
            print(f"### Supports on {env}\n\n{text}\n")
        varied = [curve for curve in curves if curve.env not in CLASSIC and settings(curve) != USUAL]
        for agent in (agent for agent in AGENTS if any(curve.agent == agent for curve in varied)):
            print(f"### Settings of {agent}, whose supports find themselves\n\n{settings_table(curves, agent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
