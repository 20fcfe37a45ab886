"""Cost of `fit_ray` against `fit_parquet` on the same files, in one run on one machine.

1. With one core each: what Ray itself costs, as a ratio.
2. With all cores, and the memory of the worker that needed most.
3. A product of the iteration where the moments are too large to keep: one pass.

    python benchmarks/ray_evaluation.py [--quick] [--features D ...] [--transitions N] [--rounds N] [--folder FOLDER]
"""

# ruff: noqa: E402 (threads are counted when NumPy is loaded)
from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # as Ray sets for its workers: a core is a core on both sides

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cramerl import Support
from cramerl._ray import connect
from cramerl.linear import DistributionalLSTD, fit_parquet, fit_ray
from cramerl.linear.sources.layout import Layout
from cramerl.linear.sources.parquet import ParquetRows
from cramerl.linear.sources.ray import ray_rows
from cramerl.linear.transitions import RowTotals, few_rows
from cramerl.projections import backup

FILES = 8
SUPPORT = Support.uniform(-60, 60, 51)


def write_log(folder: Path, num_features: int, transitions: int) -> dict[str, Any]:
    """Files of float32 columns with continuous rewards; returns the names of the columns."""
    columns, following = ([f"{name}{j}" for j in range(num_features)] for name in "xy")
    for i in range(FILES):
        rng = np.random.default_rng(i)
        table: dict[str, Any] = {"reward": rng.normal(size=transitions // FILES)}
        for x, y in zip(columns, following, strict=True):
            table[x] = rng.normal(size=len(table["reward"])).astype(np.float32)
            table[y] = 0.5 * table[x] + 0.5 * rng.normal(size=len(table[x])).astype(np.float32)
        table["x0"] = table["y0"] = np.ones(len(table["reward"]), dtype=np.float32)
        table["end"] = rng.random(len(table["reward"])) < 0.05
        pq.write_table(pa.table(table), folder / f"{i}.parquet", row_group_size=100_000)
    return {"features": columns, "reward": "reward", "next_features": following, "terminated": "end"}


class Cost(NamedTuple):
    """What a fit took, and the model that came out."""

    seconds: float
    core_seconds: float
    model: Any


def costs(rounds: int, *works: Callable[[], Any]) -> list[Cost]:
    """For each work the best of its rounds, which take turns; cores of all processes from here down are counted."""
    best = [Cost(np.inf, np.inf, None)] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            started, used = time.perf_counter(), core_seconds()
            model = work()
            took = time.perf_counter() - started, core_seconds() - used
            best[i] = Cost(min(best[i].seconds, took[0]), min(best[i].core_seconds, took[1]), model)
    return best


def family() -> list[Path]:
    """Folders in /proc of this process and all below it: Ray's workers among them."""
    parents: dict[str, list[Path]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            parents.setdefault(parent, []).append(process)
    found = [Path(f"/proc/{os.getpid()}")]
    for process in found:
        found += parents.get(process.name, [])
    return found


def core_seconds() -> float:
    ticks = 0
    for process in family():
        with suppress(OSError):
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def worker_megabytes() -> float:
    """The most memory that any of Ray's workers has had, what it shares with the object store included."""
    peaks = [0.0]
    for process in family():
        with suppress(OSError):
            if b"ray::" in (process / "cmdline").read_bytes():
                peaks.append(int((process / "status").read_text().partition("VmHWM:")[2].split()[0]) / 1024)
    return max(peaks)


def compare(folder: Path, names: dict[str, Any], num_features: int, transitions: int, rounds: int) -> None:
    size = sum(file.stat().st_size for file in folder.glob("*.parquet"))
    print(f"\n{num_features} features, 51 atoms, {transitions:,} transitions in {FILES} files ({size / 1e6:.0f} MB)")
    heads = ("seconds", "ratio", "core-seconds", "ratio", "rows/core-second", "worker MB", "difference")
    print(" " * 40 + "".join(f"{head:>{len(head) + 3}}" for head in heads), flush=True)
    layout = Layout(**names)

    def line(words: str, found: Cost, alone: Cost) -> None:
        values = [f"{found.seconds:.2f}", f"{found.seconds / alone.seconds:.2f}", f"{found.core_seconds:.2f}"]
        values += [f"{found.core_seconds / alone.core_seconds:.2f}", f"{transitions / found.core_seconds:,.0f}"]
        values += [f"{worker_megabytes():.0f}" if "Ray" in words else ""]
        values += ["" if found.model is None else f"{np.abs(found.model.weights_ - alone.model.weights_).max():.0e}"]
        cells = (f"{value:>{len(head) + 3}}" for head, value in zip(heads, values, strict=True))
        print(f"{words:<40}{''.join(cells)}", flush=True)

    for cores in sorted({1, os.cpu_count() or 1}):
        with connect("local", num_cpus=cores) as ray:
            ray.get([ray.remote(lambda: time.sleep(0.5)).remote() for _ in range(cores)])  # workers are started
            for kind, support in (("support given", SUPPORT), ("support chosen", None)):
                alone, together = costs(
                    rounds,
                    lambda support=support: fit_parquet(DistributionalLSTD(support), folder, **names),
                    lambda support=support: fit_ray(DistributionalLSTD(support), folder, **names),
                )
                line(f"this machine, {kind}", alone, alone)
                line(f"Ray, {cores} core{'s'[: cores - 1]}, {kind}", together, alone)
            with ray_rows(folder, layout) as source:
                alone, together = costs(
                    rounds,
                    lambda: ParquetRows(folder, layout, None).total(one_product(num_features)) and None,
                    lambda source=source: source.total(one_product(num_features)) and None,
                )
            line("this machine, one product by a pass", alone, alone)
            line(f"Ray, {cores} core{'s'[: cores - 1]}, one product by a pass", together, alone)


def one_product(num_features: int) -> RowTotals:
    """What a pass adds up where the moments are too large to keep."""
    weights, support = np.zeros((num_features, SUPPORT.num_atoms)), SUPPORT

    def function(part: Any) -> list[Any]:
        distributions = np.where(part.ended[:, None], 0.0, part.next_features @ weights)
        return [part.features.T @ backup(support, part.rewards, part.discounts(0.99), distributions)]

    return RowTotals(function, (np.add,), few_rows(8 * max(num_features, support.num_atoms)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--features", nargs="+", type=int, default=[8, 64], metavar="D")
    parser.add_argument("--transitions", type=int, default=2_000_000, metavar="N", help="for each number of features")
    parser.add_argument("--rounds", type=int, default=4, help="of which the best counts")
    parser.add_argument("--folder", type=Path, help="for the files, while this runs (default: a temporary one)")
    options = parser.parse_args()
    for num_features in options.features:
        rows = 80_000 if options.quick else options.transitions // FILES * FILES
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            names = write_log(Path(folder), num_features, rows)
            compare(Path(folder), names, num_features, rows, options.rounds)


if __name__ == "__main__":
    main()
