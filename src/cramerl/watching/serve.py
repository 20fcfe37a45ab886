"""Live play on the loopback address: the page asks for new steps, and the agent plays while somebody watches.

Every page of the web can send requests to the loopback address. Those that do not come from our page are refused, by
the names they carry, and nobody can keep a connection for long.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cramerl.watching.packing import pack
from cramerl.watching.page import to_html
from cramerl.watching.play import PlayedStep, Player, assemble
from cramerl.watching.recording import Tape

HOST = "127.0.0.1"
_KEPT_STEPS = 2_000  # for a page that is opened late or was asleep
_PART_STEPS = 200  # most steps in one answer
_SILENT_SECONDS, _REQUEST_SECONDS = 5.0, 20.0  # that a client may be silent, and that it may take in all
_MOST_CONNECTIONS = 32
_IDLE_SECONDS = 5.0  # without a request, after which the agent pauses


class Live:
    """Plays in a thread and packs the steps that were played.

    Args:
        player: the agents and their environment.
        fps: steps per second.
    """

    def __init__(self, player: Player, fps: int):
        self._player, self._fps = player, fps
        self._playing = player.steps()
        self._steps: deque[PlayedStep] = deque(maxlen=_KEPT_STEPS)
        self._count = 0
        self._lock = threading.Lock()  # of the two above: one thread plays, others answer requests
        self._asked = time.monotonic()
        self._stop = threading.Event()
        self.failure: Exception | None = None
        self._play_one()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def page(self) -> str:
        """The page, opened at the newest step."""
        data = self.part(self._count - 2)
        return to_html(data | {"live": True, "fps": self._fps, "open": data["start"]})

    def part(self, after: int) -> dict[str, Any]:
        """Steps after a given one, packed; those that are no longer kept are left out."""
        self._asked = time.monotonic()
        if self.failure is not None:
            raise self.failure
        with self._lock:
            oldest = self._count - len(self._steps)
            start = max(after + 1, oldest, 0)
            chosen = list(self._steps)[start - oldest :][:_PART_STEPS]
        if not chosen:
            return {"steps": 0, "played": self._count}
        tape = Tape(chosen[0].picture.shape, (step.picture for step in chosen))
        recording = assemble(self._player, chosen, tape)
        data = pack(recording, start=start)
        data["facts"] = [f"live, fraction of random actions {self._player.epsilon:.3g}", *recording.facts[2:]]
        return data

    def close(self) -> None:
        """Stop playing."""
        self._stop.set()
        self._thread.join()
        self._player.close()

    def _play(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            if time.monotonic() - self._asked < _IDLE_SECONDS:
                try:
                    self._play_one()
                except Exception as error:  # the next request reports it
                    self.failure = error
                    return
            due = max(due + 1 / self._fps, time.monotonic() - 1)
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _play_one(self) -> None:
        step = next(self._playing)
        with self._lock:
            self._steps.append(step)
            self._count += 1


class LiveServer(ThreadingHTTPServer):
    """A server on the loopback address. It takes its port at once and answers when ``live`` is set.

    Args:
        port: 0 for any free port.
    """

    daemon_threads = True
    live: Live | None = None

    def __init__(self, port: int):
        self._began: dict[socket.socket, float] = {}  # of each open connection
        self._guard = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ValueError(f"port must be free, but {port} is not ({error.strerror}); port 0 finds one") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore pages that were closed before the answer was complete."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; while there are too many connections, end those that take too long, or else this one."""
        with self._guard:
            if len(self._began) >= _MOST_CONNECTIONS:
                for other, began in self._began.items():
                    if time.monotonic() - began > _REQUEST_SECONDS:
                        with suppress(OSError):
                            other.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
            full = len(self._began) >= _MOST_CONNECTIONS
            if not full:
                self._began[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then forget the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._began.pop(request, None)

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def refusal(self, headers: Message) -> str | None:
        """Why a request is not answered, from what its browser says about it; None if it may come from our page."""
        port = self.server_address[1]
        hosts = [f"{name}:{port}" for name in (HOST, "localhost")] + [HOST, "localhost"] * (port == 80)
        if headers.get_all("Host", []) not in [[host] for host in hosts]:  # a name that resolves to this machine
            return f"Host must be {hosts[0]}"
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if origin not in (None, *(f"http://{host}" for host in hosts)) or site not in ("none", "same-origin"):
            return "another page must not ask"
        return None


class _Handler(BaseHTTPRequestHandler):
    timeout = _SILENT_SECONDS

    def do_GET(self) -> None:
        """Answer with the page at /, and with new steps at /steps?after=N."""
        live = self.server.live  # type: ignore[attr-defined] - a LiveServer
        status, kind = 200, "text/plain"
        try:
            url = urlsplit(self.path)
            after = parse_qs(url.query).get("after", ["-1"])[0]
            if (refusal := self.server.refusal(self.headers)) is not None:  # type: ignore[attr-defined] - a LiveServer
                status, text = 403, refusal
            elif url.path == "/":
                kind, text = "text/html", live.page()
            elif url.path != "/steps":
                status, text = 404, "not found; the page is at /"
            elif not after.removeprefix("-").isdecimal():
                status, text = 400, f"after must be an integer, got {after}"
            else:
                kind, text = "application/json", json.dumps(live.part(int(after)), allow_nan=False)
        except Exception as error:
            status, text = 500, f"{error}"
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: pages ask three times a second."""
