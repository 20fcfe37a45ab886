"""Small logs as tables, what they hold by a slow reader, and comparing blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES: dict[str, Any] = {
    "episode": "who",
    "time": "t",
    "state": ["x*", "ward"],
    "action": "a",
    "reward": "r",
    "terminated": "died|left",
    "truncated": "cut",
    "discount": "g",
    "weight": "w",
    "propensity": "p",
}


def table(num_episodes: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    """A log with all kinds of columns; a third of its episodes are cut."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, num_episodes)
    rows, last = int(lengths.sum()), np.cumsum(lengths) - 1
    how = rng.integers(3, size=num_episodes)
    flags = {name: np.zeros(rows, dtype=bool) for name in ("died", "left", "cut")}
    for column, which in zip(flags.values(), range(3), strict=True):
        column[last[how == which]] = True
    return {
        "who": np.repeat(1000 + 3 * np.arange(num_episodes), lengths),
        "t": np.concatenate([10 * np.arange(n) for n in lengths]) + rng.integers(9, size=rows),
        "x0": rng.normal(size=rows),
        "x1": rng.normal(size=rows),
        "ward": rng.choice(np.array(["icu", "emergency", "surgery"]), size=rows),
        "a": rng.integers(4, size=rows) * 10,
        "r": rng.normal(size=rows),
        **flags,
        "g": rng.uniform(0.5, 1, size=rows),
        "w": rng.uniform(0, 2, size=rows),
        "p": rng.uniform(0.1, 1, size=rows),
    }


def flat(blocks: Any) -> dict[str, np.ndarray]:
    """The transitions of all blocks, with their states and next states in place of row numbers."""
    parts: dict[str, list[np.ndarray]] = {}
    for block in blocks:
        of = block.observations
        found = {"numbers": of.numbers[block.current], "codes": of.codes[block.current]}
        found |= {"next_numbers": of.numbers[block.following], "next_codes": of.codes[block.following]}
        names = [name for name in block._fields if name not in ("observations", "current", "following")]
        found |= {name: getattr(block, name) for name in names if getattr(block, name) is not None}
        for name, array in found.items():
            parts.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def assert_same_blocks(found: Any, expected: Any) -> None:
    """Array by array, block by block."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.observations.numbers, other.observations.numbers)
        np.testing.assert_array_equal(one.observations.codes, other.observations.codes)
        for name in one._fields[1:]:
            if getattr(other, name) is None:
                assert getattr(one, name) is None
            else:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
                assert getattr(one, name).dtype == getattr(other, name).dtype, name
