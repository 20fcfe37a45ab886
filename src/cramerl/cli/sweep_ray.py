"""The part of the sweep command for a Ray cluster: its flags, and from flags to an executor."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cramerl.cli.flags import integer_from

if TYPE_CHECKING:
    from cramerl.sweep.mirror import Storage
    from cramerl.sweep.ray import RayJobs

_ONLY = ("cpus_per_run", "gpus_per_run", "retries", "storage", "scratch", "pull")
_RETRIES = 3


def add_ray_flags(sweep: argparse.ArgumentParser) -> None:
    """Add the flags of a cluster."""
    group = sweep.add_argument_group(
        "many machines (extra ray)",
        "Cells are done by workers of a Ray cluster; those of a lost worker or machine are resumed elsewhere. Records "
        "are the same as on one machine. The same command goes on, with or without --ray.",
    )
    add = group.add_argument
    add(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="do it on a Ray cluster: host:port of its head, ray://host:port, or auto for one that runs here; without "
        "an address $RAY_ADDRESS, else one is started here",
    )
    add("--cpus-per-run", type=_share(whole_above=math.inf), metavar="X", help="CPUs of a cell (default: 2, or all)")
    add(
        "--gpus-per-run",
        type=_share(whole_above=1),
        metavar="X",
        help="GPUs of a cell, or a fraction of one (default: 1 if the cluster has any)",
    )
    add(
        "--retries",
        type=integer_from(0, 1000),
        metavar="N",
        help="how often a cell may be lost in a row without another iteration done, before it has failed (default: "
        f"{_RETRIES})",
    )
    add(
        "--storage",
        metavar="URL",
        help="keep checkpoints and records in s3://..., gs://..., file:///... or another place that fsspec knows, "
        "copied after every iteration; OUT gets the records. Without it every machine must see OUT",
    )
    add("--scratch", metavar="DIR", help="with --storage: where machines train (default: their temporary folder)")
    add(
        "--pull",
        choices=("records", "all"),
        help="with --storage: what OUT gets; all: checkpoints too, for play, watch and export (default: records)",
    )


def require_ray_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored."""
    given = [name for name in _ONLY if getattr(options, name) is not None]
    if options.ray is None and given:
        raise ValueError(f"{_flag(given[0])} belongs to --ray and would be ignored here: leave it out, or give --ray")
    for name in ("scratch", "pull"):
        if name in given and options.storage is None:
            raise ValueError(f"{_flag(name)} belongs to --storage and would be ignored here: leave it out")


class Cluster:
    """A cluster that a command line asks for, connected.

    Args:
        ray: the module.
        options: the command line.
    """

    def __init__(self, ray: Any, options: argparse.Namespace):
        from cramerl.sweep.ray import share_of

        self._ray, self._options = ray, options
        self._share = share_of(ray.nodes(), options.cpus_per_run, options.gpus_per_run, must_fit=options.jobs is None)
        self.retries = _RETRIES if options.retries is None else options.retries
        self.storage = storage_of(options)

    def executor(self) -> tuple[RayJobs, int | Callable[[], int]]:
        """What does jobs there, and how many at once."""
        from cramerl.sweep.ray import RayJobs

        jobs = RayJobs(self._ray, self._options.out, self._share, self.storage, self._options.scratch or "")
        return jobs, self._options.jobs or jobs.slots


def storage_of(options: argparse.Namespace) -> Storage | None:
    """Where checkpoints are kept, unless that is OUT."""
    if options.storage is None:
        return None
    from cramerl.sweep.mirror import Storage

    return Storage(options.storage, options.out, checkpoints=options.pull == "all")


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[Cluster | None]:
    """The cluster that is asked for; None for this machine's own processes, and where nothing is to be done."""
    if options.ray is None or options.dry_run:
        yield None
        return
    from cramerl._ray import connect

    print(f"connecting to {options.ray} ..." if options.ray else "starting Ray ...", file=sys.stderr)
    with connect(options.ray or None) as ray:
        yield Cluster(ray, options)


def _share(whole_above: float) -> Callable[[str], float]:
    """A type of argument: a number of CPUs or GPUs."""

    def share(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < 1e4 or (value > whole_above and value != int(value)):
            whole = "" if whole_above == math.inf else f", whole above {whole_above:g}"
            raise argparse.ArgumentTypeError(f"must be a number >= 0{whole}, got {text!r}")
        return value

    return share


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
