"""docs/tour.ipynb: its cells are those of examples/tour.py, run from top to bottom, and print what it shows."""

import importlib.util
from pathlib import Path

import nbformat
import pytest
from code_blocks import shows

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = nbformat.read(DOCS / "tour.ipynb", as_version=4)


@pytest.fixture(scope="module")
def make_tour():
    spec = importlib.util.spec_from_file_location("make_tour", DOCS / "make_tour.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(notebook):
    """What each cell of code says in words."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
        for cell in cells
    ]


def drawings(notebook, kind):
    """The outputs of a kind that hold a drawing."""
    outputs = [output.get("data", {}).get(kind, "") for cell in notebook.cells for output in cell.get("outputs", [])]
    return [one for one in outputs if "<svg " in one or (one and kind == "image/png")]


def test_its_cells_are_those_of_the_program(make_tour):
    again = "make it again with: python docs/make_tour.py"
    assert [(cell.cell_type, cell.source) for cell in NOTEBOOK.cells] == [
        (cell.cell_type, cell.source) for cell in make_tour.cells()
    ], again


def test_it_is_small_and_draws():
    assert (DOCS / "tour.ipynb").stat().st_size < 300_000
    assert len(drawings(NOTEBOOK, "text/html")) == 3  # a policy, a process, an agent
    assert len(drawings(NOTEBOOK, "image/png")) == 3


@pytest.mark.slow
def test_it_runs_and_shows_the_same(make_tour):
    found = make_tour.run()
    for shown, now in zip(printed(NOTEBOOK), printed(found), strict=True):
        assert shows(shown, now, digits=False)
    for kind in ("text/html", "image/png"):
        assert len(drawings(found, kind)) == len(drawings(NOTEBOOK, kind))
