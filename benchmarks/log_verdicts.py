"""Does the verdict on an answer from a log tell right answers from wrong ones?

    python benchmarks/log_verdicts.py                   # a table of logs with known truth: errors and verdicts
    python benchmarks/log_verdicts.py --explosions 1000 # small and drifting logs: does a solution explode unnoticed?

A machine wears out, which costs more and more and may end its life; servicing costs something and resets it. An answer
is wrong if its mean is off by a quarter of the standard deviation of the return, or its CDF by 0.2; it is right if its
mean is off by less than a tenth, and its CDF by less than 0.1.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from cramerl import Support
from cramerl.linear import Log, PolicyEvaluation, evaluate_policy

DISCOUNT = 0.95
READ: dict[str, Any] = {"episode": "machine", "time": "day", "state": ["wear", "line"], "categorical": "line"}
READ |= {"action": "action", "terminated": "broke", "propensity": "propensity", "discount": DISCOUNT}
Columns = dict[str, np.ndarray]


def service(wear: np.ndarray, low: float = 0.2, more: float = 0.5) -> np.ndarray:
    """How probable a service is."""
    return np.clip(low + more * wear, 0.0, 1.0)


def play(
    machines: int, seed: int, policy: Callable[..., Any] = service, days: int = 400, hidden: bool = False
) -> Columns:
    """Days of machines in order."""
    rng, parts = np.random.default_rng(seed), []
    who, wear, line = np.arange(machines), rng.random(machines), rng.integers(0, 2, machines)
    for day in range(days):
        chance = policy(wear) if not hidden else np.where(line == 1, 0.8, 0.1)
        action = (rng.random(len(who)) < chance).astype(int)
        reward = (1 - 2 * wear**2 - 0.5 * action) * np.where(line == 1, 0.7, 1.0) + 0.3 * rng.normal(size=len(who))
        broke = rng.random(len(who)) < 0.02 + 0.1 * wear**2
        columns = {"machine": who, "day": np.full(len(who), day), "wear": wear, "line": line, "action": action}
        columns |= {"reward": reward, "broke": broke, "propensity": np.where(action == 1, chance, 1 - chance)}
        parts.append(columns)
        wear = np.clip(wear * (1 - 0.8 * action) + 0.15 * rng.random(len(who)), 0.0, 1.0)[~broke]
        who, line = who[~broke], line[~broke]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return chosen(joined, np.lexsort((joined["day"], joined["machine"])))


def chosen(columns: Columns, rows: Any) -> Columns:
    """Some rows."""
    return {name: values[rows] for name, values in columns.items()}


def returns_of(columns: Columns, discount: float = DISCOUNT) -> np.ndarray:
    """(machines,) discounted sum of each machine's rewards."""
    return np.bincount(columns["machine"], columns["reward"] * discount ** columns["day"])


class Case(NamedTuple):
    """A log, how it is evaluated, and the returns that are true."""

    name: str
    columns: Columns
    truth: np.ndarray
    read: Mapping[str, Any] = MappingProxyType({})
    ask: Mapping[str, Any] = MappingProxyType({})
    unknowable: bool = False


def cases() -> list[Case]:
    """Logs that are right, and logs with every mistake that comes to mind."""
    rng, log, truth = np.random.default_rng(0), play(1000, 1), returns_of(play(20_000, 2))
    often = lambda wear: service(wear, 0.5, 0.5)  # noqa: E731
    never = lambda wear: service(wear, 0.0, 0.0)  # noqa: E731
    table = lambda policy: lambda state: np.stack([1 - policy(state[:, 0]), policy(state[:, 0])], 1)  # noqa: E731
    long_truth = lambda policy: returns_of(play(20_000, 3, policy))  # noqa: E731
    last = np.append(log["machine"][1:] != log["machine"][:-1], True)
    early = chosen(log, log["day"] < 5)
    own = returns_of(log)
    code = rng.permutation(1000)
    numbered = log | {"wear": code[(log["wear"] * 999).astype(int)].astype(float), "line": np.zeros(len(last), int)}
    noise = log | {f"n{j}": rng.normal(size=len(last)) for j in range(40)}
    shuffled = chosen(log, rng.permutation(len(last))) | {"machine": log["machine"], "day": log["day"]}
    rare = log | {"reward": np.where(rng.random(len(last)) < 0.001, 1000.0, 0.0)}
    many = play(20_000, 4)
    rare_truth = returns_of(many | {"reward": np.where(rng.random(len(many["day"])) < 0.001, 1000.0, 0.0)})
    heavy = rng.pareto(2.5, len(last)) * 0.2
    heavy_truth = returns_of(many | {"reward": many["reward"] + rng.pareto(2.5, len(many["day"])) * 0.2})
    ageing = chosen(play(1000, 5), slice(None)) | {}
    ageing |= {"age": ageing["day"] / 10.0, "sqrt_age": np.sqrt(ageing["day"])}
    fading = ageing | {"reward": np.exp(-ageing["day"] / 5) + 0.1 * rng.normal(size=len(ageing["day"]))}
    fading = chosen(fading | {"broke": np.zeros(len(ageing["day"]), bool)}, ageing["day"] < 10)
    forever = np.exp(-np.arange(2000) / 5) @ 0.99 ** np.arange(2000) + 0.1 / np.sqrt(1 - 0.99**2) * rng.normal(
        size=9999
    )
    half_moved = play(500, 6), play(500, 7, often)
    moved = {
        name: np.concatenate([a, b + (500 if name == "machine" else 0)])
        for (name, a), b in zip(half_moved[0].items(), half_moved[1].values(), strict=True)
    }
    survivors = np.isin(log["machine"], np.flatnonzero(own > np.quantile(own, 0.3)))
    long_lives = np.isin(log["machine"], log["machine"][log["day"] >= 15])
    named = lambda columns: columns | {"machine": np.unique(columns["machine"], return_inverse=True)[1]}  # noqa: E731
    safe = log | {"reward": np.ones(len(last)), "broke": np.zeros(len(last), bool)}
    late = {"state": ["wear", "line"]}
    confounded = play(1000, 8, hidden=True)
    both = {"truncated": None}
    return [
        Case("1,000 machines, as they are", log, truth),
        Case("100 machines", play(100, 11), truth),
        Case("30 machines", play(30, 12), truth),
        Case("8 machines", play(8, 13), truth),
        Case("3 machines", play(3, 14), truth),
        Case("cut after 5 days, and said so", early, truth, both),
        Case("cut after 5 days, taken for the end", early | {"broke": early["broke"] | (early["day"] == 4)}, truth),
        Case("the column of ends forgotten", log, truth, {"terminated": None}),
        Case("raw columns as features", log, truth, {}, {"features": "columns"}),
        Case("40 columns of noise beside the state", noise, truth, {"state": ["wear", "line", "n*"]}),
        Case(
            "40 columns of noise, 30 machines",
            chosen(noise, log["machine"] < 30),
            truth,
            {"state": ["wear", "line", "n*"]},
        ),
        Case("only noise as state", noise, truth, {"state": ["n*"], "categorical": ()}),
        Case("a random number for each state", numbered, truth),
        Case("the line alone as state", log, truth, {"state": ["line"]}),
        Case("rows shuffled within the log", shuffled, truth),
        Case("survivors only", named(chosen(log, survivors)), truth, {}, {}, True),
        Case("long lives only", named(chosen(log, long_lives)), truth, {}, {}, True),
        Case("policy changed half-way", moved, truth, {}, {}, True),
        Case("a rare reward of 1,000", rare, rare_truth),
        Case("heavy tails", log | {"reward": log["reward"] + heavy}, heavy_truth),
        Case("a support given too small", log, truth, {}, {"support": Support.uniform(0.0, 3.0, 51)}),
        Case("5 atoms", log, truth, {}, {"num_atoms": 5}),
        Case("regularisation of 1", log, truth, {}, {"regularisation": 1.0}),
        Case(
            "rewards that fade with age, cut",
            fading,
            forever,
            {"state": ["age", "sqrt_age"], "categorical": (), "terminated": None, "discount": 0.99},
        ),
        Case("a machine that never failed", chosen(safe, log["day"] < 20), np.full(9999, 20.0), both),
        Case("another policy: service more often", log, long_truth(often), {}, {"policy": table(often)}),
        Case("another policy: never service", log, long_truth(never), {}, {"policy": table(never)}),
        Case("another policy, 30 machines", play(30, 15), long_truth(often), {}, {"policy": table(often)}),
        Case(
            "a policy the log never took",
            play(1000, 16, never),
            long_truth(lambda w: np.ones_like(w)),
            {},
            {"policy": np.array([0.0, 1.0])},
        ),
        Case(
            "another policy, actions chosen by what is not in the log",
            confounded,
            long_truth(often),
            {"state": ["wear"], "categorical": ()},
            {"policy": table(often)},
            True,
        ),
        Case("start states the log never had", log, truth + 3, late, {"start": np.array([[9.0, 1.0], [7.0, 0.0]])}),
        Case("the wrong discount", log, returns_of(play(20_000, 2), 0.99), {}, {}, True),
    ]


def errors(found: PolicyEvaluation, truth: np.ndarray) -> tuple[float, float]:
    """Error of the mean in standard deviations of the return, and the largest of the CDF between atoms."""
    answer = found.distribution
    support = answer.support
    points = np.quantile(truth, np.linspace(0.02, 0.98, 49))
    heights = np.interp(points, support.atoms, np.cumsum(answer.probs) - 0.5 * answer.probs)
    # A jump of the true CDF is compared with its middle, as the masses of atoms are.
    true = 0.5 * (np.searchsorted(np.sort(truth), points, "left") + np.searchsorted(np.sort(truth), points, "right"))
    spread = max(float(truth.std()), 1e-3 * abs(float(truth.mean())))
    return (found.mean.value - float(truth.mean())) / spread, float(np.abs(heights - true / len(truth)).max())


def compare() -> None:
    """Print the table and count misses and false alarms."""
    print("| log | error of the mean (sd) | largest error of the CDF | verdict | |\n| --- | ---: | ---: | --- | --- |")
    counts = {"missed": 0, "false alarm": 0, "cannot be known": 0}
    for case in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = evaluate_policy(Log.read(case.columns, **READ | dict(case.read)), **case.ask)
                mean, height = errors(found, case.truth)
                verdict = found.trust.verdict
            except ValueError as error:
                print(f"| {case.name} | | | refused: {error} | |")
                continue
        wrong, right = abs(mean) > 0.25 or height > 0.2, abs(mean) < 0.1 and height < 0.1
        word = "missed" if wrong and verdict == "use" else "false alarm" if right and verdict == "do not use" else ""
        word = "cannot be known" if case.unknowable and word == "missed" else word
        counts[word] = counts.get(word, 0) + 1
        print(f"| {case.name} | {mean:+.2f} | {height:.2f} | {verdict} | {word} |", flush=True)
    print(", ".join(f"{name}: {number}" for name, number in counts.items() if name))


def explode(logs: int) -> None:
    """Random small logs, half of them drifting: count solutions with masses above ten and the verdicts on them."""
    large = unnoticed = refused = 0
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        columns = play(int(rng.integers(4, 40)), seed, days=int(rng.integers(3, 40)))
        ask: dict[str, Any] = {"features": str(rng.choice(["columns", "splines:8", "rbf:30", "fourier:4", "bins:10"]))}
        ask |= {
            "intervals": "none",
            "num_atoms": int(rng.choice([11, 21, 51])),
            "regularisation": float(rng.choice([0, 1e-6, 1e-3])),
        }
        read = dict(READ)
        if seed % 2:
            columns |= {"age": columns["day"] * 1.0, "sum": np.cumsum(columns["reward"])}
            read |= {"state": ["wear", "line", "age", "sum"], "terminated": None, "discount": 0.99}
        if seed % 3 == 0:
            ask["policy"] = np.array([0.0, 1.0]) if seed % 2 else np.array([0.9, 0.1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = evaluate_policy(Log.read(columns, **read), **ask)
            except ValueError:
                refused += 1
                continue
            seen = found._rows.of_states(next(found.log.blocks()).observations) @ found.model.weights_
            if float(np.abs(seen).max()) > 10:
                large += 1
                unnoticed += found.trust.verdict != "do not use"
    print(f"{logs} logs: {refused} refused, {large} with masses above 10, {unnoticed} of them not called 'do not use'")


def main() -> None:
    """Print one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--explosions", type=int, metavar="N", help="try N small and drifting logs instead")
    options = parser.parse_args()
    explode(options.explosions) if options.explosions else compare()


if __name__ == "__main__":
    main()
