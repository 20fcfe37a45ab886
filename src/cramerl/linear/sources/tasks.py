"""Map and reduce on a Ray cluster, with results that do not depend on which worker did what or how often."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cramerl.linear.transitions import S

# Sums that one task merges: they are in shared memory, and the result in the task's own.
_MERGED_AT_ONCE = 8
# How often a task may lose its worker or node before the work is given up.
_RETRIES = 20

OnProgress = Callable[[str], None]


class Tasks:
    """Work for a cluster, through a connected module ``ray``."""

    def __init__(self, ray: Any, on_progress: OnProgress | None = None):
        self._ray, self._on_progress = ray, on_progress or (lambda text: None)
        self._merge = ray.remote(_merged).options(max_retries=_RETRIES)

    def mapped(self, function: Callable[..., Any], shared: Sequence[Any], items: Sequence[Any], what: str) -> list[Any]:
        """The function of the shared arguments and each of the items, in their order."""
        task = self._ray.remote(function).options(max_retries=_RETRIES)
        given = [self._ray.put(argument) for argument in shared]
        with plain_errors(self._ray):
            return self._finished([task.remote(*given, item) for item in items], what)

    def total(self, function: Callable[..., Any], shared: Sequence[Any], items: Sequence[Any], what: str) -> Any:
        """The sums that the function gives for each item beside a small number, merged in the order of the items."""
        task = self._ray.remote(function).options(num_returns=2, max_retries=_RETRIES)
        given = [self._ray.put(argument) for argument in shared]
        pairs = [task.remote(*given, item) for item in items]
        counts, level = [count for count, _ in pairs], [part for _, part in pairs]
        del pairs  # drops the references, so that sums leave the store once they are merged
        while len(level) > 1:
            level = [self._merge.remote(*level[i : i + _MERGED_AT_ONCE]) for i in range(0, len(level), _MERGED_AT_ONCE)]
        with plain_errors(self._ray):
            self._finished(counts, what)
            return copy.deepcopy(self._ray.get(level[0]))  # objects in the store are read-only

    def _finished(self, tasks: list[Any], what: str) -> list[Any]:
        """Results of tasks; on an error or Ctrl-C the tasks that are still running are cancelled."""
        waiting, ray = tasks, self._ray
        try:
            while waiting:
                done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
                ray.get(done)  # raises an error at once, not when all tasks are done
                self._on_progress(f"{what}: {len(tasks) - len(waiting)} of {len(tasks)}")
            return ray.get(tasks)
        except BaseException:
            for task in waiting:
                ray.cancel(task)
            raise


@contextmanager
def plain_errors(ray: Any) -> Iterator[None]:
    """Raise a worker's error as it was raised there, and one sentence for work that could not be recovered."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: Any = error
        while isinstance(cause, ray.exceptions.RayError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if "No module named 'cramerl" in str(error):
            raise ValueError("every machine of the cluster must have cramerl: pip install 'cramerl[ray]'") from None
        if cause is None:
            raise ChildProcessError(f"the cluster lost a part of the work and could not repeat it: {error}") from error
        raise cause from None


def _merged(first: S, *others: S) -> S:
    whole = copy.deepcopy(first)
    for other in others:
        whole.merge(other)
    return whole
