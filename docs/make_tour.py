"""Write docs/tour.ipynb: the cells of examples/tour.py with what they print and draw.

``python docs/make_tour.py`` runs the cells from top to bottom in a kernel and stops at the first error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
SOURCE, TARGET = ROOT / "examples" / "tour.py", ROOT / "docs" / "tour.ipynb"


def cells() -> list[nbformat.NotebookNode]:
    """The cells of the program: texts without their comment signs, code as it stands."""
    found = []
    for number, part in enumerate(re.split(r"^# %%", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]):
        first, _, body = part.partition("\n")
        if "[markdown]" in first:
            cell = nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            cell = nbformat.v4.new_code_cell(body.strip())
        cell["id"] = f"cell-{number}"
        found.append(cell)
    return found


def run() -> nbformat.NotebookNode:
    """The notebook with its outputs."""
    notebook = nbformat.v4.new_notebook(cells=cells())
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(ROOT)}},
    ).execute()
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    )
    return notebook


if __name__ == "__main__":
    nbformat.write(run(), TARGET)
    sys.stdout.write(f"wrote {TARGET}\n")
