"""Names of trained agents: folders first, then what comes with the package, and sentences for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import python

from cramerl.runs.names import (
    GAMES,
    SHIPPED,
    SHOWN_AGENTS,
    SHOWN_STEPS,
    agent_folder,
    agent_folders,
    initial_folder,
    said_choice,
    shown_steps,
)
from cramerl.runs.trainer import Run


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("breakout/l51", "breakout/l51"),
        ("Breakout-MinAtar/L51", "breakout/l51"),
        ("space-invaders/QR-DQN", "space_invaders/qr"),
        ("SpaceInvaders/HL-Gauss", "space_invaders/hl_gauss"),
        ("SPACE_INVADERS-minatar/u51", "space_invaders/u51"),
        ("seaquest", "seaquest/l51"),
        ("asterix/", "asterix/l51"),
    ],
)
def test_names_are_forgiving(name, folder):
    assert agent_folder(name) == initial_folder(name) == SHIPPED / folder
    assert (SHIPPED / folder / "model.safetensors").is_file()


def test_a_game_is_several_agents_where_several_can_be_shown():
    assert agent_folders("breakout") == [SHIPPED / "breakout" / agent for agent in SHOWN_AGENTS]
    assert agent_folders(["breakout/u51", "Breakout/DQN"]) == [SHIPPED / "breakout/u51", SHIPPED / "breakout/dqn"]
    assert {folder.name for folder in SHIPPED.iterdir()} == set(GAMES)


def test_a_folder_of_the_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breakout/l51").mkdir(parents=True)
    (tmp_path / "breakout/l51/config.json").write_text("{}")
    assert agent_folder("breakout/l51") == Path("breakout/l51")
    assert agent_folders("breakout") == [Path("breakout")]
    assert said_choice("breakout") is None
    assert agent_folder("breakout/c51") == SHIPPED / "breakout/c51"


def test_what_looks_like_a_path_stays_one(tmp_path):
    run = Run(tmp_path / "breakout", 0, False, [])
    missing = ("runs/mine", "pong/l51", "./breakout", "/breakout", "../l51", "runs/breakout/l51", "a.json")
    for path in (*missing, run, tmp_path, Path("breakout")):
        assert agent_folder(path) == Path(getattr(path, "folder", path))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pong", None),
        ("nowhere", None),
        ("brekout", "breakout"),
        ("SpaceInvader/qr", "space_invaders/qr"),
        ("breakout/l52", "breakout/l51"),
        ("freeway/rainbow", "freeway"),
    ],
)
def test_unknown_names_are_a_sentence(name, meant):
    with pytest.raises(ValueError, match=r"^run must be a folder, the name of an agent that comes with") as refused:
        agent_folder(name)
    words = str(refused.value)
    assert f"there is no {name!r}" in words
    assert "there are c51, dqn, hl_gauss, l51, qr, s51, u51 for each of asterix, breakout, freeway, " in words
    assert (f"(did you mean {meant!r}?)" in words) == (meant is not None)


def test_what_is_said_of_a_choice():
    assert said_choice("Breakout") == "Breakout means breakout/l51; there are also c51, dqn, hl_gauss, qr, s51, u51"
    assert said_choice("breakout/l51") is None
    assert said_choice("hf://somebody/something") is None


def test_pages_of_these_agents_end_early_unless_asked():
    theirs, mine = agent_folders("freeway"), [Path("runs/mine")]
    assert shown_steps(theirs, None, None) == SHOWN_STEPS
    for steps in (shown_steps(theirs, 7, None), shown_steps(theirs, None, 1), shown_steps(mine, None, None)):
        assert steps is None
    assert shown_steps([*theirs, *mine], None, None) is None


def test_initial_weights_are_named_in_their_errors():
    with pytest.raises(
        ValueError, match=r"^initial_weights must be a folder, the .* cramerl, but there is no 'brekout' \(did"
    ):
        initial_folder("brekout")


def test_initial_weights_do_not_come_from_a_hub():
    with pytest.raises(ValueError, match=r"^initial_weights must be a folder, .*; cramerl export hf://a/b --out F"):
        initial_folder("hf://a/b")


def test_nothing_heavy_is_imported():
    heavy = "{'jax', 'huggingface_hub', 'safetensors', 'scipy.stats', 'matplotlib'} & set(sys.modules)"
    load = "from cramerl.runs.names import agent_folder; agent_folder('breakout')"
    assert python("-c", f"import sys; {load}; print(sorted({heavy}))").stdout == "[]\n"


def test_a_folder_that_hides_the_agents_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breakout").mkdir()
    with pytest.raises(
        ValueError, match=r"breakout is a folder here that holds no run.* are also called breakout-minatar$"
    ):
        agent_folder("breakout")
    assert agent_folder("breakout-minatar").name == "l51"
    (tmp_path / "breakout" / "config.json").write_text("{}")
    assert agent_folder("breakout").resolve() == tmp_path / "breakout"


def test_an_empty_name_is_no_folder():
    """Not the current one: it may come from a shell variable that nobody set."""
    with pytest.raises(ValueError, match="run must be a folder or a name, got an empty text"):
        agent_folder("")
