"""Exports the best run of each agent and environment, in 16 bits: the agents that come with the package.

    python3 results/keep_agents.py results/study-search --out agents

The best run is the one with the highest score among all that are finished: it shows what the agent can do, and is no
evidence about the agent. OUT/ENV/AGENT is replaced if a better run is found, so the folders of several sweeps can be
given one after the other.
"""

import argparse
import json
import math
import shutil
import sys
from pathlib import Path

from cramerl._files import write_json
from cramerl.evidence.curves import Curve, final_score, read_curves
from cramerl.runs.agents import export_agent
from cramerl.runs.folder import RunFolder

SCORE = "score.json"


def best_runs(sweeps: list[Path]) -> dict[tuple[str, str], tuple[float, Curve]]:
    """The finished run with the highest score of each environment and agent, among those with weights."""
    best: dict[tuple[str, str], tuple[float, Curve]] = {}
    for curve in read_curves(sweeps):
        score = final_score(curve)
        if math.isnan(score) or not curve.finished or not (curve.source / "checkpoints").is_dir():
            continue
        key = (curve.env, curve.agent)
        if key not in best or score > best[key][0]:
            best[key] = (score, curve)
    return best


def main() -> int:
    """Export what is better than what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", type=Path, metavar="SWEEP", help="folders with runs that kept weights")
    parser.add_argument("--out", type=Path, required=True, help="folder of the exports")
    options = parser.parse_args()
    for (env, agent), (score, curve) in sorted(best_runs(options.sweeps).items()):
        place = options.out / env / agent
        if (place / SCORE).is_file() and json.loads((place / SCORE).read_text())["score"] >= score:
            continue
        shutil.rmtree(place, ignore_errors=True)
        lane = RunFolder(curve.source).group.configs.index(curve.config)
        export_agent(curve.source, place, lane=lane, half=True)
        write_json(place / SCORE, {"score": score, "run": str(curve.source), "lane": lane})
        print(f"{env} {agent}: {score:.1f}, seed {curve.seed}, learning rate {curve.config.learning_rate:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
