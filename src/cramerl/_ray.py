"""One door to a Ray cluster: quiet, without a dashboard, and with errors that say what to do."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cramerl._extras import load_library

# Seconds in which a cluster that is there answers.
_PATIENCE = 10
# How a client of HTTP/2, on which gRPC and Ray stand, begins: a fixed line and an empty frame of settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextmanager
def connect(address: str | None = None, **resources: Any) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster for as long as the block lasts.

    A connection that this process has already is used and left open. What the block opened it closes, and a cluster it
    started ends with it.

    Args:
        address: "host:port" of a cluster's head, "ray://host:port", or "auto" for the one that runs on this machine.
            None: the connection this process has, else the cluster that the variable RAY_ADDRESS names, else one
            that is started on this machine; "local": one that is started.
        resources: ``num_cpus`` and the like, for a cluster that is started.
    """
    ray = load_ray()
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
        ray.init(
            **settings,
            **({} if place else resources),
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except SystemExit:  # Ray's own handler of SIGTERM, which it sets meanwhile
        raise SystemExit(128 + signal.SIGTERM) from None
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        if not place:
            raise
        raise _unreachable(place, str(error).partition("\n")[0]) from None
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own, which leaves the caller's clean-up out
    try:
        yield ray
    finally:
        ray.shutdown()


def load_ray() -> Any:
    """The module ``ray``, told to send no statistics; ValueError with what to install where it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what it warns of is its own future default
    return load_library("ray")


def _require_listener(address: str) -> None:
    """Raise ValueError soon where no cluster listens, for which Ray itself would wait for minutes or for ever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdecimal():
        raise _unreachable(address, "that is not an address")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as line:
            line.sendall(_GREETING)
            answer = line.recv(9)
    except TimeoutError:
        raise _unreachable(address, f"no answer in {_PATIENCE} seconds") from None
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None
    if answer[3:4] != b"\x04":  # settings, with which a server of gRPC begins
        raise _unreachable(address, "something else than Ray answers there")


def _unreachable(address: str, why: str) -> ValueError:
    return ValueError(
        f"a Ray cluster's address must be host:port of its head, ray://host:port, or 'auto' for one that runs on this "
        f"machine (`ray start --head` starts one), got {address!r}: {why}"
    )
