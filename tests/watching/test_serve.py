"""Pages that come from a server: live play, and any web server."""

import dataclasses
import functools
import http.server
import threading
import time
from contextlib import contextmanager

import chromium as chromium_tools
import numpy as np
from watch_recordings import make_recording

from cramerl.watching import serve
from cramerl.watching.page import write_page
from cramerl.watching.play import PlayedStep

chromium_tools.require_chromium()

from selenium.webdriver.common.keys import Keys  # noqa: E402 - after the check above
from watch_page import Page  # noqa: E402


class StubPlayer:
    """Plays nothing: its steps are made by hand."""

    epsilon = 0.0

    def steps(self):
        while True:
            yield PlayedStep(np.zeros((6, 8), np.uint8), 0, 0.0, 0.0, 0, False, False, [], [], [])

    def close(self):
        pass


@contextmanager
def live_page(chromium, monkeypatch, fps):
    """Live play of a stub."""

    def assemble(player, steps, tape):
        return dataclasses.replace(make_recording(len(steps)), tape=tape)

    monkeypatch.setattr(serve, "assemble", assemble)
    with serve.LiveServer(0) as server:
        server.live = serve.Live(StubPlayer(), fps=fps)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Page(chromium, server.address), server
        finally:
            chromium.get("about:blank")
            server.shutdown()
            server.live.close()


def test_live_play_continues_while_it_is_watched(chromium, monkeypatch):
    with live_page(chromium, monkeypatch, fps=60) as (shown, server):
        shown.wait(lambda: shown.step > 30)
        shown.press(Keys.HOME)  # looking back stops following
        first = shown.run("return player.store.first")
        shown.at(first)
        time.sleep(0.2)
        assert shown.step == first
        length = shown.run("return player.store.steps")
        shown.wait(lambda: shown.run("return player.store.steps") > length)  # what is new still arrives
        assert {url.rpartition("/")[0] for url in shown.requests()} == {server.address.rstrip("/")}
        assert shown.problems() == []


def test_live_play_keeps_up_with_a_fast_agent(chromium, monkeypatch):
    with live_page(chromium, monkeypatch, fps=50) as (shown, _):
        assert shown.run("return document.getElementById('speed').value") == "50"
        shown.wait(lambda: shown.step > 60)
        assert shown.run("return player.store.last - player.step") < 60
        shown.run("player.go(player.store.first)")  # behind, and still playing
        assert shown.run("return player.rate()") == 75
        shown.run("player.speed = 10")
        assert shown.run("return player.rate()") == 10


def test_a_page_works_from_a_web_server_too(chromium, tmp_path):
    write_page(make_recording(20), tmp_path / "page.html")
    folder = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/page.html"
        shown = Page(chromium, address, "#t=3")
        assert shown.step == 3
        assert [url.partition("#")[0] for url in shown.requests()] == [address]
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass
