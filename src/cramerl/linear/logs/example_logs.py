"""Logs that come with the package: `Log.read("example:machines")`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cramerl.linear.logs.machines import FILE
from cramerl.linear.logs.tables import ArrayTable

PREFIX = "example:"


class MachinesTable(ArrayTable):
    """The log that `cramerl.linear.logs.machines` makes."""

    NAMES: ClassVar[dict[str, Any]] = {
        "episode": "machine",
        "time": "week",
        "state": ["wear", "load", "site"],
        "action": "action",
        "reward": "reward",
        "terminated": "scrapped|sold",
        "discount": 0.98,
        "propensity": "propensity",
    }
    """The columns that `Log.read` takes, unless others are named."""

    def __init__(self):
        with np.load(FILE, allow_pickle=False) as arrays:
            super().__init__({name: arrays[name] for name in arrays.files})


_EXAMPLES = {"machines": MachinesTable}


def open_example(source: Any) -> ArrayTable | None:
    """The table of an example; None for anything but a text that begins with ``example:``."""
    if not isinstance(source, str) or not source.startswith(PREFIX):
        return None
    name = source.removeprefix(PREFIX)
    if name not in _EXAMPLES:
        known = ", ".join(PREFIX + example for example in _EXAMPLES)
        raise ValueError(f"source must be one of the examples {known}, got {source!r}")
    return _EXAMPLES[name]()
