"""A small log of wards, whose columns have all kinds of names, for tests of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

COLUMNS = ["--episode", "who", "--time", "day", "--state", "x*, ward", "--terminated", "died|left", "--discount", "0.9"]
"""Flags that name the columns of `wards`."""
QUICK = ["--features", "splines:3", "--regularisation", "0.001", "--atoms", "11"]
"""Flags that spare the choice of features."""


def wards(num_episodes: int = 60, seed: int = 0) -> dict[str, Any]:
    """Rows of patients in wards; some patients' stays are cut."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, num_episodes)
    rows, last = int(lengths.sum()), np.cumsum(lengths) - 1
    how, x0 = rng.integers(3, size=num_episodes), rng.normal(size=rows)
    chance = np.where(x0 > 0, 0.75, 0.25)
    return {
        "who": np.repeat(np.arange(num_episodes), lengths),
        "day": np.concatenate([np.arange(n) for n in lengths]),
        "x0": x0,
        "x1": rng.integers(0, 4, rows) / 2,
        "ward": rng.choice(np.array(["icu", "surgery"]), rows),
        "dose": rng.choice(np.array(["high", "low"]), rows),
        "propensity": np.full(rows, 0.5),
        "reward": x0 + rng.normal(size=rows).round(2),
        "died": np.isin(np.arange(rows), last[how == 0]),
        "left": np.isin(np.arange(rows), last[how == 1]),
        "new_high": chance,
        "new_low": 1 - chance,
    }


def write_parquet(path: Path, table: dict[str, Any] | None = None) -> Path:
    """Write a table, or `wards`, as Parquet."""
    pq.write_table(pa.table(wards() if table is None else table), path)
    return path


def write_csv(path: Path, table: dict[str, Any] | None = None) -> Path:
    """Write a table, or `wards`, as CSV."""
    pyarrow.csv.write_csv(pa.table(wards() if table is None else table), path)
    return path
