"""A stand-in for the Hugging Face Hub on this machine: the part of its HTTP interface that an export needs."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"


@dataclass
class Repository:
    """Files of each commit, the newest last, and tags."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    private: bool = False
    sizes: dict[str, int] = field(default_factory=dict)  # what the hub says, if that is not true

    def commit(self, **files: bytes) -> str:
        """Add a commit with these files beside those that there are."""
        before = next(reversed(self.commits.values()), {})
        name = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[name] = before | files
        return name

    def find(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit names."""
        if revision == "main":
            return next(reversed(self.commits), None)
        return self.tags.get(revision, revision if revision in self.commits else None)


class Hub(ThreadingHTTPServer):
    """The server; tests put repositories into it and read them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.broken = False

    @property
    def address(self) -> str:
        """What HF_ENDPOINT is."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        assert isinstance(self.server, Hub)
        return self.server

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _handle(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.hub.broken:
            return self._answer(500, {"error": "it is\nbroken"})
        if token and token != TOKEN:
            return self._answer(401, {"error": "no such user"}, "Invalid credentials in Authorization header")
        words = path.strip("/").split("/")
        if self.command == "POST":
            return self._write(words, body, token)
        if path == "/api/whoami-v2":
            return self._answer(200, {"name": "me", "type": "user"})
        if words[:2] == ["api", "models"]:
            return self._info("/".join(words[2:4]), "/".join(words[5:]) or "main", token)
        if words[2:3] != ["resolve"]:
            return self._answer(404, {"error": "Not found"})
        return self._file("/".join(words[:2]), words[3], "/".join(words[4:]), token)

    def _write(self, words: list[str], body: bytes, token: str) -> None:
        if not token:
            return self._answer(401, {"error": "Invalid username or password."})
        if words == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] == "others":
                return self._answer(403, {"error": "You don't have the rights to create a model"})
            known = name in self.hub.repositories
            self.hub.repositories.setdefault(name, Repository())
            return self._answer(409 if known else 200, {"url": f"{self.hub.address}/{name}", "id": name})
        if words == ["api", "validate-yaml"]:
            return self._answer(200, {"errors": [], "warnings": []})
        repository = self.hub.repositories["/".join(words[2:4])]
        if words[4] == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False, "oid": None} for name in names]
            return self._answer(200, {"files": modes})
        lines = [json.loads(line) for line in body.splitlines()]
        files = [line["value"] for line in lines if line["key"] == "file"]
        commit = repository.commit(**{file["path"]: base64.b64decode(file["content"]) for file in files})
        place = f"{self.hub.address}/{'/'.join(words[2:4])}/commit/{commit}"
        return self._answer(200, {"commitUrl": place, "commitOid": commit})

    def _info(self, name: str, revision: str, token: str) -> None:
        repository = self._readable(name, token)
        if repository is None:
            return self._answer(404 if token else 401, {"error": "Repository not found"}, code="RepoNotFound")
        commit = repository.find(revision)
        if commit is None:
            return self._answer(404, {"error": "Invalid rev id"}, code="RevisionNotFound")
        files = repository.commits[commit]
        siblings = [{"rfilename": file, "size": repository.sizes.get(file, len(files[file]))} for file in files]
        return self._answer(200, {"_id": "1", "id": name, "sha": commit, "private": False, "siblings": siblings})

    def _file(self, name: str, revision: str, file: str, token: str) -> None:
        repository = self._readable(name, token)
        commit = repository and repository.find(revision)
        if repository is None or not commit or file not in repository.commits[commit]:
            return self._answer(404, {"error": "Entry not found"}, code="EntryNotFound")
        content = repository.commits[commit][file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        return self._send(200, content, headers)

    def _readable(self, name: str, token: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        return None if repository is None or (repository.private and not token) else repository

    def _answer(self, status: int, content: dict[str, Any], message: str = "", code: str = "") -> None:
        headers = {"Content-Type": "application/json"}
        headers |= {"X-Error-Message": message} if message else {}
        headers |= {"X-Error-Code": code} if code else {}
        self._send(status, json.dumps(content).encode(), headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A hub while the block runs."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
