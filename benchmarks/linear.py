"""Cost of linear policy evaluation.

1. `evaluate` by number of states (sparse, five successors each, five rewards), including the stationary distribution,
   the features' moments, the solve and the values.
2. `evaluate` compared with a straightforward dense NumPy iteration of the paper's process, 400 states, 20 features.
3. `LinearTD`: transitions per second.
4. `DistributionalLSTD`: transitions per second and memory, continuous rewards, in chunks.
5. `evaluate_policy` from a log, with intervals: seconds of the processor and memory by rows, and the ratio to the rows;
   a log of 716 labelled states.
6. Only with --decisions: stationary distributions of chains that mix slowly, and direct compared with Krylov solves.

    python benchmarks/linear.py [--quick] [--states N ...] [--transitions N] [--rows N ...] [--decisions]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from scipy import sparse

from cramerl import Support, backup_matrix
from cramerl.linear import DistributionalLSTD, LinearTD, Log, MarkovRewardProcess, evaluate, evaluate_policy, with_bias
from cramerl.linear.stationary import stationary_distribution


def gigabytes() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def sparse_process(num_states: int, discount: float, rng: np.random.Generator) -> MarkovRewardProcess:
    successors = rng.integers(0, num_states, (num_states, 5))
    weights = rng.dirichlet(np.ones(5), num_states)
    indptr = np.arange(0, 5 * num_states + 1, 5)
    chain = sparse.csr_array((weights.ravel(), successors.ravel(), indptr), shape=(num_states, num_states))
    return MarkovRewardProcess(chain, rng.integers(0, 5, num_states) / 4 - 0.5, discount)


def by_states(sizes: list[int]) -> None:
    print("evaluate, 64 features, 51 atoms, discount 0.99, tolerance 1e-10")
    print(f"{'states':>10}{'seconds':>9}{'products':>10}{'residual':>10}{'us/state':>10}{'GB':>7}")
    support = Support.uniform(-50, 50, 51)
    for size in sizes:
        rng = np.random.default_rng(0)
        process = sparse_process(size, 0.99, rng)
        features = rng.normal(size=(size, 64))
        features[:, 0] = 1.0
        started = time.perf_counter()
        found = evaluate(process, features, support, tol=1e-10)
        found.values  # noqa: B018  (part of the job: values are computed on demand)
        seconds = time.perf_counter() - started
        row = f"{size:>10}{seconds:>9.2f}{found.iterations:>10}{found.residual:>10.1e}"
        print(f"{row}{1e6 * seconds / size:>10.1f}{gigabytes():>7.2f}", flush=True)


def plain_iteration(P, rewards, features, xi, support: Support, discount: float, tol: float) -> np.ndarray:
    """The paper's process written naively: dense matrices, every state backed up, features fitted."""
    k = support.num_atoms
    matrices = np.stack([backup_matrix(support, r, discount) for r in rewards])
    fit = np.linalg.solve(features.T @ (xi[:, None] * features), features.T * xi)
    weights = np.zeros((features.shape[1], k))
    while True:
        masses = features @ weights
        masses = masses + (1 - masses.sum(axis=1, keepdims=True)) / k
        target = np.einsum("xij,xj->xi", matrices, P @ masses)
        following = fit @ target
        if np.abs(following - weights).max() < tol:
            return features @ following
        weights = following


def against_plain(discount: float) -> None:
    rng = np.random.default_rng(0)
    P, rewards = rng.dirichlet(np.ones(400), 400), rng.integers(0, 5, 400) / 4 - 0.5
    features, support = with_bias(rng.normal(size=(400, 19))), Support.uniform(-50, 50, 51)
    process = MarkovRewardProcess(P, rewards, discount)
    xi = process.stationary_distribution()
    started = time.perf_counter()
    slow = plain_iteration(P, rewards, features, xi, support, discount, 1e-12)
    plain = time.perf_counter() - started
    # Both know the stationary distribution; both end with an error of at most 1e-10.
    found, best = evaluate(process, features, support, tol=1e-10), np.inf
    for _ in range(5):
        started = time.perf_counter()
        evaluate(process, features, support, tol=1e-10)
        best = min(best, time.perf_counter() - started)
    np.testing.assert_allclose(found.masses, slow, atol=1e-9)
    row = f"plain {plain:.2f} s, ours {best:.3f} s ({found.method}), ratio {plain / best:.0f}"
    print(f"400 states, 20 features, 5 distinct rewards, 51 atoms, discount {discount}: {row}", flush=True)


def td_rate(num_transitions: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, num_transitions, 64)) / 8
    rewards = rng.uniform(-1, 1, num_transitions)
    for preconditioned in (True, False):
        learner = LinearTD(Support.uniform(-10, 10, 51), 64, 0.9, preconditioned=preconditioned)
        learner.run(X[:10_000], rewards[:10_000], Y[:10_000])
        started = time.perf_counter()
        learner.run(X, rewards, Y)
        rate = num_transitions / (time.perf_counter() - started)
        name = "preconditioned" if preconditioned else "semi-gradient"
        print(f"LinearTD, {name}, 64 features, 51 atoms: {rate:,.0f} transitions a second", flush=True)


def lstd_rate(num_transitions: int, chunk: int = 200_000) -> None:
    learner = DistributionalLSTD(Support.uniform(-10, 10, 51), discount=0.9)
    started, done = time.perf_counter(), 0
    making = 0.0
    while done < num_transitions:
        before = time.perf_counter()
        rng = np.random.default_rng(done)
        X, Y = rng.normal(size=(2, chunk, 64))
        X[:, 0] = Y[:, 0] = 1.0
        rewards = rng.uniform(-1, 1, chunk)
        making += time.perf_counter() - before
        learner.partial_fit(X, rewards, Y, np.zeros(chunk, dtype=bool))
        done += chunk
    learner.solve()
    seconds = time.perf_counter() - started - making
    row = f"{done:,} transitions in {seconds:.1f} s ({done / seconds:,.0f} a second), {gigabytes():.2f} GB"
    print(f"DistributionalLSTD, 64 features, continuous rewards: {row}", flush=True)


def log_of_columns(rows: int, columns: int = 199, length: int = 20) -> Log:
    """Episodes of numbers that follow each other, with a continuous reward at every step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows // length, length, columns))
    for t in range(1, length):
        x[:, t] = 0.7 * x[:, t - 1] + 0.7 * x[:, t]
    x = x.reshape(-1, columns)
    table = {"who": np.arange(len(x)) // length, "x": x, "r": x[:, 0] + 0.3 * rng.normal(size=len(x))}
    table["died"] = np.arange(len(x)) % length == length - 1
    return Log.read(table, episode="who", state="x", reward="r", terminated="died")


def log_of_labels(rows: int, states: int = 716) -> Log:
    """Episodes of nine steps on average through labelled states, with a reward of one at the end of most."""
    rng = np.random.default_rng(0)
    last = rng.random(rows) < 1 / 9
    last[-1] = True
    table = {"who": np.cumsum(last) - last, "x": rng.integers(states, size=rows), "r": 1.0 * last, "died": last}
    table["r"] *= rng.random(rows) < 0.7
    names = {"episode": "who", "state": "x", "categorical": "x", "reward": "r", "terminated": "died"}
    return Log.read(table, **names)


def logs(sizes: list[int], labelled: int) -> None:
    print("evaluate_policy with intervals, 199 columns and a constant, 51 atoms")
    print(f"{'rows':>10}{'seconds':>9}{'processor':>11}{'us/row':>8}{'GB':>7}")
    for size in sizes:
        log = log_of_columns(size)
        wall, busy = time.perf_counter(), time.process_time()
        evaluate_policy(log, features="columns", discount=0.95, num_atoms=51)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        print(f"{size:>10}{wall:>9.1f}{busy:>11.1f}{1e6 * busy / size:>8.1f}{gigabytes():>7.2f}", flush=True)
        del log
    wall, busy = time.perf_counter(), time.process_time()
    found = evaluate_policy(log_of_labels(labelled), discount=0.99)
    seconds = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - busy:.1f} s of the processor"
    print(f"716 labelled states, {labelled:,} rows, {found.model.support_.num_atoms} atoms, read too: {seconds}")


def slow_chains(rng: np.random.Generator) -> None:
    """A grid of 300 x 300 with random drifts, and a birth-death chain of a million states."""
    side = 300
    x, y = np.divmod(np.arange(side**2), side)
    moves = [(x, y + 1), (x + 1, y), (x, y - 1), (x - 1, y)]
    targets = [np.clip(a, 0, side - 1) * side + np.clip(b, 0, side - 1) for a, b in moves]
    weights = rng.dirichlet(np.ones(4), side**2)
    rows = np.tile(np.arange(side**2), 4)
    grid = sparse.csr_array((weights.T.ravel(), (rows, np.concatenate(targets))), shape=(side**2, side**2))
    n = 1_000_000
    up, states = rng.uniform(0.4, 0.6, n), np.arange(n)
    columns = np.concatenate([np.minimum(states + 1, n - 1), np.maximum(states - 1, 0)])
    line = sparse.csr_array((np.concatenate([up, 1 - up]), (np.tile(states, 2), columns)), shape=(n, n))
    for name, chain in (("grid 300 x 300", grid), ("birth-death, 1,000,000", line)):
        started = time.perf_counter()
        distribution = stationary_distribution(chain)
        seconds, change = time.perf_counter() - started, float(np.abs(chain.T @ distribution - distribution).sum())
        print(f"stationary distribution, {name}: {seconds:.1f} s, one step changes {change:.1e}", flush=True)


def direct_or_krylov(rng: np.random.Generator) -> None:
    support = Support.uniform(-50, 50, 51)
    for num_features in (6, 20):
        process = MarkovRewardProcess(rng.dirichlet(np.ones(400), 400), rng.integers(0, 5, 400) / 4 - 0.5, 0.99)
        features = with_bias(rng.normal(size=(400, num_features - 1)))
        evaluate(process, features, support)
        for method in ("direct", "krylov"):
            best = np.inf
            for _ in range(5):
                started = time.perf_counter()
                evaluate(process, features, support, method=method, tol=1e-10)
                best = min(best, time.perf_counter() - started)
            print(f"{51 * num_features} unknowns, {method}: {1e3 * best:.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    parser.add_argument("--states", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--transitions", type=int, default=10_000_000, help="for DistributionalLSTD")
    parser.add_argument("--rows", nargs="+", type=int, default=[100_000, 1_000_000], help="of logs")
    parser.add_argument("--decisions", action="store_true", help="only the figures in docs/decisions.md")
    options = parser.parse_args()
    if options.decisions:
        slow_chains(np.random.default_rng(0))
        direct_or_krylov(np.random.default_rng(0))
        return
    by_states([2000] if options.quick else options.states)
    against_plain(0.9 if options.quick else 0.99)
    td_rate(50_000 if options.quick else 500_000)
    lstd_rate(200_000 if options.quick else options.transitions)
    logs([4000] if options.quick else options.rows, 20_000 if options.quick else 185_000)


if __name__ == "__main__":
    main()
