"""Cost of Ray: the same sweep in processes of this machine and on a Ray cluster of this machine, in one run.

Both train the same runs, equally many at once and in turns, and their records are compared. Prints the wall times of
the whole command (the start of the cluster separately) and their ratio. A third sweep copies its runs to a folder
through fsspec after every iteration.

    python benchmarks/ray_sweep.py [--quick] [--runs N] [--jobs N] [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # the default, 15, would let other processes slow down Ray alone

SETTINGS = ["--agents", "dqn", "--envs", "CartPole-v1", "--preset", "smoke", "--max-lanes", "1"]
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=int(sys.argv[1]))
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def sweep(out: Path, words: list[str]) -> float:
    """Seconds of the command."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "cramerl", "sweep", str(out), *SETTINGS, *words]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def records(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("*/*/metrics.jsonl")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs of few steps, one round")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        options.runs, options.steps, options.rounds = 2, 20_000, 1
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    start = time.perf_counter()
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(-(-options.jobs // 2))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    print(f"start of a cluster of three nodes: {time.perf_counter() - start:.1f} s")
    steps = str(options.steps)
    words = ["--seeds", f"0-{options.runs - 1}", "--steps", steps, "--iteration-steps", str(options.steps // 4)]
    words += ["--jobs", str(options.jobs)]
    on_ray = ["--ray", address, "--cpus-per-run", "1"]
    ways = {"local": [], "ray": on_ray, "ray, storage": [*on_ray, "--storage", f"file://{folder}/bucket-ROUND"]}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    try:
        sweep(folder / "warm", [*words, "--jobs", "1", "--seeds", "0"])  # compiles
        for number in range(options.rounds):
            seen = []
            for way, more in ways.items():
                out = folder / f"{way}-{number}"
                seconds[way].append(sweep(out, [*words, *(word.replace("ROUND", str(number)) for word in more)]))
                seen.append(records(out))
            assert seen[0] == seen[1] == seen[2], "the records differ"
            assert len(seen[0]) == options.runs
    finally:
        cluster.stdin.close()
        cluster.wait()
    base = statistics.median(seconds["local"])
    print(f"{options.runs} runs of {options.steps:,} steps, {options.jobs} at once, medians of {options.rounds}")
    print("metrics.jsonl of all three: the same bytes")
    for way, times in seconds.items():
        middle = statistics.median(times)
        print(f"{way:14} {middle:7.1f} s   ratio {middle / base:.3f}   from {min(times):.1f} to {max(times):.1f} s")


if __name__ == "__main__":
    main()
