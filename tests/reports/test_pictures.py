"""The pictures of README and documentation: small, in use, and beside the command that makes them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = sorted((ROOT / "docs" / "images").iterdir())
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = [
    (page, match.start(), match[1])
    for page in PAGES
    for match in re.finditer(r"!\[[^\]]*\]\(((?:docs/)?images/[^)]+)\)", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_images_are_small_shown_and_made_by_make_pictures(image):
    assert image.stat().st_size < (1_500_000 if image.suffix == ".gif" else 300_000)
    assert any(Path(target).name == image.name for _, _, target in SHOWN)
    assert f'"{image.name}"' in (ROOT / "docs" / "pictures.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "place", "target"), SHOWN, ids=lambda part: getattr(part, "name", str(part)))
def test_beside_every_picture_is_its_command(page, place, target):
    """In the paragraph after it."""
    caption = page.read_text(encoding="utf-8")[place:].split("\n\n")[1]
    assert re.search(r"`cramerl (demo|evaluate|watch|report)", caption), caption


def test_a_folder_without_a_demonstration_is_refused(tmp_path):
    command = [sys.executable, str(ROOT / "docs" / "pictures.py"), str(tmp_path), "--out", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == f"DEMO must be a folder of make demo, but {tmp_path} has no demo.png\n"
    assert not (tmp_path / "out").exists()


def test_the_documentation_asks_no_other_server(tmp_path):
    """Formulas are drawn by the browser; the spellings of ours are those that docutils knows."""
    pages = {
        "index.md": r"$z_1 < \dots < z_K$" + "\n\n" + r"$$\Big( \|q\|^2 \Big)$$",
        "bad.md": "---\norphan: true\n---\n\n# Bad\n\n$\\nothing$\n",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(f"# Title\n\n{text}\n" if name == "index.md" else text)
    command = [sys.executable, "-m", "sphinx", "-q", "-c", str(ROOT / "docs"), "-b", "html", str(tmp_path)]
    result = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("WARNING") == 1
    assert "formula '\\\\nothing': Unknown LaTeX command" in result.stderr
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<math ") == 2
    assert 'display="block"' in page
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*", page)
    assert (tmp_path / "out" / "_static" / "formulas.css").is_file()
