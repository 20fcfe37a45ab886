"""Requests to live play that do not come from its page, and clients that never finish one."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching import serve
from cramerl.watching.play import PlayedStep


class StubPlayer:
    """Plays nothing: its steps are made by hand."""

    epsilon = 0.0

    def steps(self):
        while True:
            yield PlayedStep(np.zeros((6, 8), np.uint8), 0, 0.0, 0.0, 0, False, False, [], [], [])

    def close(self):
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[serve.LiveServer]:
    def assemble(player, steps, tape):
        return dataclasses.replace(make_recording(len(steps)), tape=tape)

    monkeypatch.setattr(serve, "assemble", assemble)
    with serve.LiveServer(0) as made:
        made.live = serve.Live(StubPlayer(), fps=60)
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made
        made.shutdown()
        made.live.close()


def ask(server: serve.LiveServer, path: str = "/steps", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection(serve.HOST, port, timeout=20)
    sent = {"Host": f"{serve.HOST}:{port}"} | {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request("GET", path, headers={name: text.format(port=port) for name, text in sent.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize(
    "headers",
    [{}, {"Host": "localhost:{port}", "Origin": "http://localhost:{port}"}, {"Origin": "http://127.0.0.1:{port}"}]
    + [{"Sec_Fetch_Site": site} for site in ("none", "same-origin")],
)
def test_its_own_page_is_answered(server, headers):
    status, text = ask(server, **headers)
    assert (status, json.loads(text)["unit"]) == (200, "step")


@pytest.mark.parametrize("path", ["/", "/steps?after=1", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:{port}"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_requests_of_other_pages_are_refused(server, path, headers):
    status, text = ask(server, path, **headers)
    assert status == 403
    assert text in ("another page must not ask", f"Host must be 127.0.0.1:{server.server_address[1]}")


def test_a_request_without_a_host_or_with_two_is_refused(server):
    for hosts in ("", "Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(server.server_address, timeout=20) as client:
            client.sendall(f"GET / HTTP/1.0\r\n{hosts}\r\n".format(port=server.server_address[1]).encode())
            assert client.recv(100).startswith(b"HTTP/1.0 403 ")


def wait_until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("path", ["http://[/", "/steps?after=" + "9" * 5000])
def test_a_request_that_makes_no_sense_is_answered(server, capsys, path):
    assert ask(server, path)[0] == 500
    assert not capsys.readouterr().err


def test_a_silent_client_is_dropped(server, monkeypatch):
    assert 0 < (serve._Handler.timeout or 0) <= 10
    monkeypatch.setattr(serve._Handler, "timeout", 0.2)
    with socket.create_connection(server.server_address, timeout=20) as client:
        client.sendall(b"GET / HT")
        assert client.recv(100) == b""


def test_clients_that_never_finish_do_not_keep_others_out(server, monkeypatch):
    monkeypatch.setattr(serve, "_MOST_CONNECTIONS", 4)
    slow = [socket.create_connection(server.server_address, timeout=20) for _ in range(4)]
    wait_until(lambda: len(server._began) == 4)
    with socket.create_connection(server.server_address, timeout=20) as client:
        assert client.recv(100) == b""  # one too many
    monkeypatch.setattr(serve, "_REQUEST_SECONDS", 0.0)
    with socket.create_connection(server.server_address, timeout=20) as client:
        client.settimeout(20)
        assert client.recv(100) in (b"",)  # it comes too early, but the slow ones end
    wait_until(lambda: not server._began)
    assert ask(server)[0] == 200
    assert all(client.recv(100) == b"" for client in slow)
    for client in slow:
        client.close()
