"""Connections to a Ray cluster: without a dashboard or its messages, and with errors that say what to do."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from typing import Any

from cramerl._extras import load_library

# Seconds to wait for a TCP connection to a cluster.
_TIMEOUT_S = 10


@contextmanager
def connect(address: str | None = None, *, import_from_here: bool = True, **resources: Any) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster while the block runs.

    A connection that this process already has is used and left open. Otherwise the connection is closed at the end, and
    a cluster that was started for the block is shut down.

    Args:
        address: "host:port" of a cluster's head, "ray://host:port", or "auto" for the one that runs on this machine;
            "local" starts one on this machine. None: the connection that this process has, else the cluster that the
            variable RAY_ADDRESS names, else "local".
        import_from_here: whether workers look for modules in the current folder first, as Ray tells them to. If not,
            relative paths have another meaning in workers.
        resources: ``num_cpus`` and the like, for a cluster that is started here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; unset, it warns
    ray = load_library("ray")
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise ValueError(f"address must be None or {here!r}, to which this process is connected, got {address!r}")
        yield ray
        return
    place = None if address == "local" else address or os.environ.get("RAY_ADDRESS")
    if place:
        _require_listener(place)
    settings: dict[str, Any] = {"address": place} if place else {"address": "local", "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with nullcontext() if import_from_here else chdir("/"):
            ray.init(**settings, **({} if place else resources), log_to_driver=False, logging_level=logging.ERROR)
    except SystemExit:  # from Ray's own handler of SIGTERM, which it installs meanwhile
        raise SystemExit(128 + signal.SIGTERM) from None
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        if not place:
            raise
        raise _unreachable(place, str(error).partition("\n")[0]) from None
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's handler would skip the caller's clean-up
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise ValueError soon if nothing listens at the address; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdecimal():
        raise _unreachable(address, "that is not an address")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except TimeoutError:
        raise _unreachable(address, f"no answer in {_TIMEOUT_S} seconds") from None
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None


def _unreachable(address: str, why: str) -> ValueError:
    return ValueError(
        "a Ray cluster's address must be host:port of its head, ray://host:port, or 'auto' for one that runs on this "
        f"machine (`ray start --head` starts one), got {address!r}: {why}"
    )
