"""How often intervals from a log contain the truth, by verdict: simulated patients of ICU-Sepsis.

    python benchmarks/log_coverage.py --logs 500 --episodes 1000 --policies log --jobs 2

Each simulated log is read and evaluated as a user would, and compared with the exact distribution of returns. The
patients' model comes with a package that pip downloads (`examples/log_data.py`). Rows go to a file as they are made, so
that the command can be stopped and repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one thread for each process; set before NumPy is loaded
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
from log_data import DISCOUNT, Hospital

from cramerl.linear import Log, evaluate_policy

MODEL: Any = None
FRACTION, RETURN = 0.25, 0.5


def start() -> None:
    """Load the model once in each process."""
    global MODEL
    MODEL = Hospital()


def policies(model: Hospital) -> dict[str, Any]:
    """Target policies by name: "log" made the log; "N%" is optimal so often, and else that of the clinicians."""
    mixed = {f"{share}%": share / 100 * model.optimal + (1 - share / 100) * model.clinicians for share in (10, 50, 80)}
    return {"log": None, "clinicians": model.clinicians, "random": model.random, "optimal": model.optimal, **mixed}


def figures(values: np.ndarray, probs: np.ndarray) -> dict[str, Any]:
    """Mean, CVaR and CDF of a distribution with few values."""
    order = np.argsort(values)
    left = FRACTION - np.concatenate([[0.0], np.cumsum(probs[order])[:-1]])
    worst = np.clip(np.minimum(probs[order], left), 0.0, None)
    return {"mean": values @ probs, "cvar": values[order] @ worst / FRACTION, "cdf": probs[values <= RETURN].sum()}


def one(task: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """Rows of one simulated log."""
    behaviour, names, episodes, seed = task
    model, known = MODEL, policies(MODEL)
    made_by = {"clinicians": model.clinicians, "random": model.random}[behaviour]
    log = Log.read(
        model.play(made_by, episodes, seed),
        episode="patient",
        time="step",
        state="state",
        categorical="state",
        action="action",
        terminated="over",
        propensity="propensity",
        discount=DISCOUNT,
    )
    found = evaluate_policy(log, {name: known[name] for name in names.split(",")})
    rows = []
    for name, each in found.items():
        values, probs = model.truth(made_by if known[name] is None else known[name])
        true, estimates = (
            figures(values, probs),
            {"mean": each.mean, "cvar": each.cvar(FRACTION), "cdf": each.cdf(RETURN)},
        )
        atoms, heights = each.distribution.support.atoms, np.cumsum(each.distribution.probs)
        truth = np.array([probs[values <= z + 1e-9].sum() for z in atoms])
        row = {"log": behaviour, "policy": name, "episodes": episodes, "seed": seed, "verdict": each.trust.verdict}
        row |= {f"{what}_error": estimate.value - true[what] for what, estimate in estimates.items()}
        row |= {f"{what}_in": bool(e.low <= true[what] <= e.high) for what, e in estimates.items()}
        row |= {f"{what}_se": e.se for what, e in estimates.items()}
        rows.append(row | {"cdf_distance": float(np.abs(heights - truth).max()), "reasons": each.trust.reasons[:-1]})
    return rows


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Rows that are there already."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage by log, policy, size and verdict."""
    cells, lines = defaultdict(list), []
    for row in rows:
        cells[row["log"], row["policy"], row["episodes"], row["verdict"]].append(row)
    lines.append(
        "| log of | policy | episodes | verdict | logs | mean | CVaR 25% | P(G <= 0.5) | error of the mean | CDF |"
    )
    lines.append("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for key in sorted(cells, key=str):
        of = cells[key]
        inside = [f"{100 * np.mean([row[f'{what}_in'] for row in of]):.1f}%" for what in ("mean", "cvar", "cdf")]
        error = f"{np.sqrt(np.mean([row['mean_error'] ** 2 for row in of])):.4f}"
        distance = f"{np.median([row['cdf_distance'] for row in of]):.3f}"
        lines.append(f"| {' | '.join(map(str, key))} | {len(of)} | {' | '.join(inside)} | {error} | {distance} |")
    said = Counter(reason[:70] for row in rows for reason in row["reasons"])
    return "\n".join([*lines, "", *(f"{count:>6} {reason}" for reason, count in said.most_common(8))])


def main() -> None:
    """Simulate, evaluate, and print the table of all rows in the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--logs", type=int, default=20, help="simulated logs (default: %(default)s)")
    add("--episodes", type=int, default=1000, help="patients of a log (default: %(default)s)")
    add("--policies", default="log", help="with commas: log, clinicians, random, optimal, 10%%, 50%%, 80%%")
    add("--behaviour", choices=["clinicians", "random"], default="clinicians", help="who made the log")
    add("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    add("--out", type=Path, default=Path("out/log_coverage.jsonl"), help="rows (default: %(default)s)")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    wanted = options.behaviour, options.policies, options.episodes
    done = {row["seed"] for row in read(options.out) if (row["log"], row["asked"], row["episodes"]) == wanted}
    tasks = [(*wanted, seed) for seed in range(options.logs) if seed not in done]
    with ProcessPoolExecutor(options.jobs, initializer=start) as pool, options.out.open("a") as out:
        for rows in pool.map(one, tasks):
            for row in rows:
                out.write(json.dumps(row | {"asked": options.policies}) + "\n")
            out.flush()
    print(table(list(read(options.out))))


if __name__ == "__main__":
    main()
