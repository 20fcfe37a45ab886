"""What happens on the machine where a job of a sweep is done: its child process, and its folder.

Nothing here knows who sends the jobs; `sweep_ray` makes an actor of `Worker`.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cramerl._version import __version__
from cramerl.runs.folder import RunFolder
from cramerl.sweep.execute import STOPPED, child_environment, last_line, log_file
from cramerl.sweep.folder import RECORD, clear_folder, locked
from cramerl.sweep.mirror import StoredRun

_COMMAND = ("-m", "cramerl.cli.child")
_LOCK_SECONDS = 180.0  # more than a child has to stop after its parent is gone
_TAIL_BYTES = 1 << 16
_SHARED = ("JAX_", "XLA_")  # variables that runs depend on
_THREADS = "_NUM_THREADS"


class Order(NamedTuple):
    """What a worker is to do.

    Attributes:
        out: folder of the sweep, as whoever sends the order names it.
        folder: of the cell, below it.
        arguments: the words after ``cramerl``.
        fresh: the folder begins anew.
        variables: environment variables that the run depends on, see `variables_of`.
        gpus: share of an accelerator, or how many.
        storage: URL of the copies of the sweep's runs; None where every machine sees ``out``.
        scratch: folder for runs whose copies are in a storage; "" for the machine's own temporary one.
        version: of cramerl.
    """

    out: str
    folder: str
    arguments: list[str]
    fresh: bool
    variables: dict[str, str]
    gpus: float = 0.0
    storage: str | None = None
    scratch: str = ""
    version: str = __version__


class Outcome(NamedTuple):
    """How a child ended.

    Attributes:
        status: its exit status, negative for a signal.
        words: the last it said.
        output: the end of what it said, where that is not in the sweep's folder.
    """

    status: int
    words: str
    output: str = ""


class Worker:
    """Does one job in a child process. `stop` and `kill` may be called from other threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def place(self) -> str:
        """Where this is."""
        return f"{socket.gethostname()} (process {os.getpid()})"

    def run(self, order: Order) -> Outcome:
        """Do a job, and wait for it."""
        if order.version != __version__:
            raise ValueError(
                f"every machine must have cramerl {order.version}, as the one that runs the sweep; {self.place()} has "
                f"{__version__}"
            )
        return self._in_place(order) if order.storage is None else self._in_scratch(order, order.storage)

    def stop(self) -> None:
        """Let the child stop with a checkpoint."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the child at once."""
        self._signal(signal.SIGKILL)

    def _in_place(self, order: Order) -> Outcome:
        out = Path(order.out)
        if not (out / RECORD).is_file():
            raise ValueError(
                f"{self.place()} does not see {out}: put the sweep on a file system that all machines share, or give "
                "--storage URL"
            )
        _wait_for(out / order.folder)
        if order.fresh:
            clear_folder(out / order.folder)
        log = log_file(out, order.folder)
        return Outcome(self._train([], order.arguments, log, order), last_line(log))

    def _in_scratch(self, order: Order, storage: str) -> Outcome:
        """Bring the run here, train it, and let the child copy it back after every iteration."""
        attempt = uuid.uuid4().hex
        stored = StoredRun(f"{storage}/{order.folder}", attempt)
        stored.claim()
        with _scratch(order.scratch, attempt) as (place, lock):
            folder, log = place / "run", place / "log"
            if not order.fresh:
                stored.pull(folder, checkpoints=True)
            where = str(Path(order.out) / order.folder)
            words = [str(folder) if word == where else word for word in order.arguments]
            status = self._train(["--copy", str(folder), stored.url, attempt], words, log, order, lock)
            output = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
            return Outcome(status, last_line(log), output)

    def _train(self, before: list[str], words: list[str], log: Path, order: Order, *keep_open: int) -> int:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output, self._guard:
            output.write(f"$ {shlex.join(['cramerl', *words])}  # {self.place()}\n".encode())
            output.flush()
            if self._stopped:
                return STOPPED
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, *before, *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(order),
                pass_fds=keep_open,
            )
        status = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def _signal(self, number: int) -> None:
        with self._guard:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that a run depends on and that go with it to other machines; accelerators are theirs."""
    names = [name for name in environment if name.startswith(_SHARED) or name.endswith(_THREADS)]
    return {name: environment[name] for name in names if name != "JAX_PLATFORMS"}


def _environment(order: Order) -> dict[str, str]:
    """This machine's variables, but those that runs depend on as they are where the sweep was started.

    Ray sets threads to the CPUs of an actor, and sums in another order are other sums.
    """
    own = {name: text for name, text in os.environ.items() if not name.endswith(_THREADS)}
    if order.gpus == 0:
        own["JAX_PLATFORMS"] = "cpu"  # an accelerator that is there belongs to others
    return child_environment(own | order.variables, 1 / order.gpus if order.gpus else 1)


def _wait_for(folder: Path) -> None:
    """Wait until nobody trains there: a child whose worker was lost takes a while to stop with its checkpoint."""
    end = time.monotonic() + _LOCK_SECONDS
    while folder.is_dir():
        try:
            with RunFolder(folder).locked():
                return
        except ValueError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


@contextmanager
def _scratch(root: str, attempt: str) -> Iterator[tuple[Path, int]]:
    """A folder of this machine for one attempt, and its lock; what attempts that were killed left goes.

    Those of other nodes too where the folder is this machine's own: a Ray that is started anew is another node.
    """
    place = Path(root) if root else Path(tempfile.gettempdir()) / f"cramerl-{os.getuid()}"
    base = place / _node()
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with (place / ".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # nobody clears away what another has just made
            for left in [path for path in (base if root else place).glob("*" if root else "*/*") if path.is_dir()]:
                with suppress(ValueError, OSError), locked(left):  # held as long as its worker or its child lives
                    shutil.rmtree(left, ignore_errors=True)
            for node in [] if root else [path for path in place.iterdir() if path.is_dir()]:
                with suppress(OSError):  # in use
                    node.rmdir()
            base.mkdir(exist_ok=True)
            lock = stack.enter_context(locked(base / attempt))
        try:
            yield base / attempt, lock
        finally:
            shutil.rmtree(base / attempt, ignore_errors=True)


def _node() -> str:
    """A name of this machine; nodes of one cluster may be on one."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return ray.get_runtime_context().get_node_id()[:12]
    return socket.gethostname()
