"""Optional libraries: what is missing is named, and what is not used is not imported."""

import importlib.util
import sys

import pytest

from cramerl._extras import load_library, require_library


def write(folder, **modules):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for refuse in (load_library, require_library):
        with pytest.raises(ValueError, match=r"optuna is not installed; install it with: pip install 'cramerl\[optuna"):
            refuse("optuna")


def test_a_library_loads_without_what_it_may_never_use(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, drawing="colour = 'red'", game="import drawing\ndef draw(): return drawing.colour")
    game = load_library("game", without=("drawing",))
    assert "drawing" not in sys.modules
    assert game.draw() == "red"
    assert sys.modules["drawing"].__file__ == str(tmp_path / "drawing.py")


def test_a_library_whose_own_library_is_missing_says_so_itself(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, broken="import nowhere_to_be_found")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        load_library("broken")
