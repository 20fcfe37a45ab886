"""Exports on a hub: uploaded in one process and read in another, and a sentence for whatever goes wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import python, run, run_process
from hub_server import TOKEN, Hub, Repository, serve_hub
from untrained import small_config, write_untrained

from cramerl.runs import hub as addresses
from cramerl.runs.agents import load

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as server:
        yield server


@pytest.fixture
def environment(hub, tmp_path) -> dict[str, str]:
    """What processes find: the hub, a token, and a cache of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    more = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "cache"), "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"}
    return kept | more


@pytest.fixture
def command(environment) -> Command:
    return lambda *words, **more: run_process(*words, env=environment | more)


@pytest.fixture
def export(tmp_path) -> Path:
    folder = write_untrained(tmp_path / "run", small_config())
    assert run("export", folder, "--out", tmp_path / "export").returncode == 0
    return tmp_path / "export"


@pytest.fixture
def repository(hub, export) -> Repository:
    """A repository of somebody else, with an export in it."""
    theirs = hub.repositories["them/agent"] = Repository()
    theirs.commit(**contents(export))
    return theirs


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refusal(result: CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    *before, last = result.stderr.splitlines()
    assert all(line.startswith("looking up hf://") for line in before), result.stderr
    return last


@pytest.mark.slow
def test_an_agent_goes_up_and_comes_down(hub, export, command, environment, tmp_path):
    pushed = command("export", tmp_path / "run", "--out", tmp_path / "mine", "--push", "me/agent.v1")
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stderr == ""
    assert pushed.stdout.splitlines()[-1] == (
        "uploaded them to hf://me/agent.v1; anyone who may read it can type: cramerl watch hf://me/agent.v1"
    )
    assert hub.repositories["me/agent.v1"].commits.popitem()[1] == contents(tmp_path / "mine")
    hub.repositories["me/agent.v1"].commit(**contents(tmp_path / "mine"))
    card = (tmp_path / "mine/README.md").read_text()
    assert card.startswith("---\nlibrary_name: cramerl\npipeline_tag: reinforcement-learning\ntags: [")
    assert 'cramerl.load_agent("hf://me/agent.v1")' in card

    script = "import sys, numpy, cramerl; a = cramerl.load_agent(sys.argv[1]); x = numpy.ones((2, 4), numpy.float32); "
    script += "print(a.values(x).tolist())"
    there = python("-c", script, "hf://me/agent.v1", env=environment)
    here = python("-c", script, tmp_path / "run", env=environment)
    assert there.returncode == here.returncode == 0, there.stderr + here.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)

    again = command("export", "hf://me/agent.v1", "--out", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith("looking up hf://me/agent.v1 ...\n")
    weights, theirs = load(export, 0).weights, load(tmp_path / "again", 0).weights
    for name, array in weights.items():
        np.testing.assert_array_equal(theirs[name], array)
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_symlink()]


@pytest.mark.slow
def test_it_is_watched_and_played(repository, command, tmp_path):
    page = tmp_path / "page.html"
    watched = command("watch", "hf://them/agent", "--max-steps", "3", "--out", page, HF_TOKEN="")
    assert watched.returncode == 0, watched.stderr
    assert watched.stderr == "looking up hf://them/agent ...\nwatching hf://them/agent; loading ...\n"
    assert "s51 on CartPole-v1" in page.read_text()
    played = command("play", "hf://them/agent", "--episodes", "1")
    assert "mean score " in played.stdout


@pytest.mark.slow
def test_a_revision_and_a_second_time(hub, repository, command, tmp_path):
    first = repository.find("main")
    repository.tags["v1"] = first
    second = repository.commit(**{"model.safetensors": b"no weights"})
    assert "model.safetensors cannot be used" in refusal(command("export", "hf://them/agent", "--out", tmp_path / "a"))
    words = refusal(command("watch", f"hf://them/agent@{second}", "--picture", "t=9", "--max-steps", "1"))
    assert words.endswith("--picture must be a step from 0 to 0, got 9")
    found = command("export", "hf://them/agent@v1", "--out", tmp_path / "b")
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "b/model.safetensors").read_bytes() == repository.commits[first]["model.safetensors"]
    hub.requests.clear()
    hub.broken = True
    found = command("export", f"hf://them/agent@{first}", "--out", tmp_path / "c")  # it is there already
    assert found.returncode == 0, found.stderr
    assert hub.requests == []
    words = refusal(command("watch", "hf://them/agent@v1"))
    assert words == "cramerl: hf://them/agent@v1 cannot be used, the hub answered with status 500: it is broken"


@pytest.mark.slow
def test_its_settings_name_no_module(repository, export, command, tmp_path):
    settings = json.loads((export / "config.json").read_text()) | {"env": "evil_games:CartPole-v1"}
    repository.commit(**{"config.json": json.dumps(settings).encode()})
    (tmp_path / "evil_games.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')")
    for words in (["watch", "hf://them/agent", "--out", tmp_path / "page.html"], ["play", "hf://them/agent"]):
        result = command(*words, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        assert result.returncode == 2
        assert "the folder names the environment 'evil_games:CartPole-v1', which runs the Python" in result.stderr
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.slow
def test_what_cannot_be_read_is_a_sentence(hub, repository, command):
    def asked(address: str, **more: Any) -> str:
        return refusal(command("watch", address, **more)).removeprefix(f"cramerl: {address} ")

    hidden = hub.repositories["them/hidden"] = Repository(private=True)
    hidden.commit(**{"config.json": b"{}"})
    hub.repositories["them/other"] = Repository()
    hub.repositories["them/other"].commit(**{"README.md": b"a model of another kind"})
    missing = "is not on the hub, or it is private and your token cannot read it (hf auth login)"
    assert asked("hf://them/nothing") == missing
    assert asked("hf://them/hidden", HF_TOKEN="") == missing
    assert asked("hf://them/hidden") == "is not an export of cramerl: it has no model.safetensors"
    assert asked("hf://them/other") == "is not an export of cramerl: it has no config.json"
    assert asked("hf://them/agent@v9") == "has no such revision"
    refused = "is refused by the hub, with status 401: its token is wrong or has no right to this (hf auth login)"
    assert asked("hf://them/agent", HF_TOKEN="hf_wrong") == refused
    offline = "cannot be reached, there is no connection to the hub: "
    assert asked("hf://them/agent", HF_ENDPOINT="http://127.0.0.1:9").startswith(offline)
    assert asked("hf://them/agent", HF_HUB_OFFLINE="1").startswith(offline)
    repository.sizes["model.safetensors"] = 5 << 30
    assert asked("hf://them/agent") == "must have at most 4,294,967,296 bytes, model.safetensors is larger"
    assert not [request for request in hub.requests if "/resolve/" in request]


@pytest.mark.slow
def test_what_cannot_be_written_is_a_sentence(hub, command, export, tmp_path):
    def pushed(place: str, **more: Any) -> str:
        return refusal(command("export", export, "--out", tmp_path / "out", "--push", place, **more))

    words = pushed("me/agent", HF_TOKEN="")
    needs = "push needs a token of the hub to write hf://me/agent: hf auth login, or the variable HF_TOKEN"
    assert words == f"cramerl: {needs}"
    assert "hf://me/agent is refused by the hub, with status 401" in pushed("me/agent", HF_TOKEN="hf_wrong")
    assert "cannot be reached" in pushed("me/agent", HF_ENDPOINT="http://127.0.0.1:9")
    assert not (tmp_path / "out").exists()
    words = pushed("others/agent")
    assert "hf://others/agent is refused by the hub, with status 403" in words
    assert words.endswith(f"; the export is in {tmp_path / 'out'}")
    assert contents(tmp_path / "out").keys() == contents(export).keys()
    assert hub.repositories == {}


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://me", "hf://me/a/b", "hf://me/../a", "hf://../a", "hf://me/a@", "hf://me/a@../b", "hf://me/ä"],
)
def test_addresses_that_are_none(text):
    with pytest.raises(ValueError, match=r"^run must be hf://USER/NAME or hf://USER/NAME@REVISION, got"):
        addresses.parse_address(text)
    with pytest.raises(ValueError, match=r"^push must be USER/NAME, a repository of the hub, got"):
        addresses.parse_push(text)


def test_addresses():
    assert addresses.parse_address("hf://me/a.b-c@refs/pr/1") == ("me", "a.b-c", "refs/pr/1")
    assert str(addresses.parse_push("me/a")) == str(addresses.parse_push("hf://me/a")) == "hf://me/a"
    with pytest.raises(ValueError, match="push must be USER/NAME"):
        addresses.parse_push("me/a@v1")


def test_a_missing_library_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    hint = r"huggingface_hub is not installed; install it with: pip install 'cramerl\[hub\]'"
    for use in (lambda: addresses.download("hf://me/a"), lambda: addresses.require_token(addresses.parse_push("me/a"))):
        with pytest.raises(ValueError, match=hint):
            use()
