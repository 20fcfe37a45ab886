"""Make the pictures of README.md and the documentation from the folder of `make demo`: `make pictures`.

Figures come from the commands in their captions; pages are photographed in a real browser.
"""

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import CHROMIUM, DRIVER, open_chromium, problems  # noqa: E402 - after the path
from PIL import Image  # noqa: E402

from cramerl.cli.main import main  # noqa: E402

MOST_BYTES, MOST_FILM_BYTES = 300_000, 1_500_000
FILM_WIDTH, FILM_HEIGHT, FILMED = 1280, 684, range(30, 76)
# Of docs/logs.md: the folders of evaluations whose pages are photographed, the pictures, and their heights.
LOGS = (("shop", "log-shop.png", 860), ("recommender", "log-recommender.png", 610))


def photograph(browser, page: Path, out: Path, *, height: int, at: str = "") -> None:
    """Photograph a page as it opens, 1280 pixels wide, from the top of the element ``at``, unfolded."""
    size = {"width": 1280, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    light = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
    browser.get(page.resolve().as_uri())
    if at:
        script = "const part = document.querySelector(arguments[0]); part.open = true; part.scrollIntoView()"
        browser.execute_script(f"{script}; scrollBy(0, -12)", at)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    complaints = problems(browser)
    if complaints:
        sys.exit(f"{page} does not load: {complaints[0]}")
    browser.save_screenshot(str(out))
    shrink(out)


def shrink(picture: Path) -> None:
    """Reduce a picture to 256 colours, so that the repository stays small."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)
    if picture.stat().st_size > MOST_BYTES:
        sys.exit(f"{picture} has {picture.stat().st_size:,} bytes; {MOST_BYTES:,} are allowed")


def run(*arguments: object) -> None:
    """Run a cramerl command; exit if it fails."""
    if main([str(argument) for argument in arguments]):
        sys.exit(f"failed: cramerl {' '.join(map(str, arguments))}")


def make_pong(trained: Path, out: Path) -> None:
    """Photograph the page of an agent that plays Pong."""
    with tempfile.TemporaryDirectory() as folder, open_chromium(Path(folder) / "profile") as browser:
        page = Path(folder) / "pong.html"
        run("watch", trained, "--highlight", "double-negative", "--out", page)
        photograph(browser, page, out / "watch-pong.png", height=1000)


def make_asterix(trained: Path, out: Path) -> None:
    """Draw one step of an agent that plays Asterix."""
    figure = out / "watch-asterix.png"
    shown = ("--highlight", "double-negative", "--picture", "strongest")
    run("watch", trained, *shown, "--picture-out", figure, "--overwrite")
    shrink(figure)


def make_logs(evaluated: Path, out: Path) -> None:
    """Copy the picture, or photograph the top of the page, of each evaluation in docs/logs.md."""
    folders = ["hospital", *(folder for folder, _, _ in LOGS)]
    if missing := [name for name in folders if not (evaluated / name / "evaluation.html").exists()]:
        sys.exit(f"OUT must be the folder of the evaluations in docs/logs.md, but {evaluated} has no {missing[0]}")
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(evaluated / "hospital" / "evaluation.png", out / "log-hospital.png")
    shrink(out / "log-hospital.png")
    with tempfile.TemporaryDirectory() as profile, open_chromium(Path(profile)) as browser:
        for folder, name, height in LOGS:
            photograph(browser, evaluated / folder / "evaluation.html", out / name, height=height)


def make_readme(out: Path) -> None:
    """Photograph the pages that the commands of README.md make."""
    with tempfile.TemporaryDirectory() as folder, open_chromium(Path(folder) / "profile") as browser:
        machines, runs, report = (Path(folder) / name for name in ("machines", "compare", "report"))
        run("evaluate", "--data", "example:machines", "--policy", "careful=careful_*", "--out", machines)
        photograph(browser, machines / "evaluation.html", out / "log-machines.png", height=700)
        seeds = ("--seeds", "0-4", "--steps", "3e4")
        run("sweep", runs, "--agents", "dqn,c51,l51", "--envs", "CartPole-v1", *seeds)
        run("report", runs, "--out", report)
        photograph(browser, report / "report.html", out / "compare.png", height=670)


def make_animation(out: Path) -> None:
    """Film the page of `cramerl watch breakout` while it plays: the animation of README.md."""
    size = {"width": FILM_WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    with tempfile.TemporaryDirectory() as folder, open_chromium(Path(folder) / "profile") as browser:
        page = Path(folder) / "watch.html"
        run("watch", "breakout", "--out", page)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        light = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
        browser.get(page.resolve().as_uri())
        frames = []
        for step in FILMED:
            browser.execute_async_script(
                "player.go(arguments[0]).then(() => requestAnimationFrame(arguments[1]))", step
            )
            picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
            frames.append(picture.crop((0, 0, FILM_WIDTH, FILM_HEIGHT)))
        if complaints := problems(browser):
            sys.exit(f"{page} does not play: {complaints[0]}")
    palette = frames[0].quantize(64, dither=Image.Dither.NONE)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    film = out / "watch-breakout.gif"
    frames[0].save(film, save_all=True, append_images=frames[1:], duration=160, loop=0, optimize=True)
    if film.stat().st_size > MOST_FILM_BYTES:
        sys.exit(f"{film} has {film.stat().st_size:,} bytes; {MOST_FILM_BYTES:,} are allowed")


def make(demo: Path, out: Path) -> None:
    """Make all pictures of the demonstration."""
    pair = [demo / "runs" / agent for agent in ("s51", "c51")]
    missing = [path for path in (demo / "demo.png", demo / "report" / "report.html", *pair) if not path.exists()]
    if missing:
        sys.exit(f"DEMO must be a folder of make demo, but {demo} has no {missing[0].relative_to(demo)}")
    if CHROMIUM is None or DRIVER is None:
        sys.exit("Chromium is not installed; make browser installs it")
    out.mkdir(parents=True, exist_ok=True)
    for name in ("demo.png", "evaluation.png"):
        shutil.copy(demo / name, out / name)
        shrink(out / name)
    shown = ["--seed", 1, "--highlight", "compensation"]
    figure = out / "watch-figure.png"
    run(
        "watch",
        *pair,
        *shown,
        "--picture",
        "strongest",
        "--picture-out",
        figure,
        "--out",
        demo / "watch.html",
        "--overwrite",
    )
    shrink(figure)
    with tempfile.TemporaryDirectory() as profile, open_chromium(Path(profile)) as browser:
        photograph(browser, demo / "watch.html", out / "watch.png", height=900)
        photograph(
            browser, demo / "report" / "report.html", out / "report.png", height=800, at="#study-0-distributions"
        )
    make_readme(out)
    make_animation(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "demo",
        type=Path,
        metavar="DEMO",
        nargs="?",
        default=ROOT / "out" / "demo",
        help="the folder of make demo",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder (default: docs/images)")
    for game in ("pong", "asterix"):
        text = f"make only the picture of this run of Atari's {game.title()}, which needs its weights"
        parser.add_argument(f"--{game}", type=Path, metavar="RUN", help=text)
    text = "make only the pictures of docs/logs.md, from this folder of its evaluations"
    parser.add_argument("--logs", type=Path, metavar="OUT", help=text)
    parser.add_argument("--film", action="store_true", help="make only the animation of README.md")
    options = parser.parse_args()
    if options.film:
        make_animation(options.out)
    if options.logs:
        make_logs(options.logs, options.out)
    if options.pong:
        make_pong(options.pong, options.out)
    if options.asterix:
        make_asterix(options.asterix, options.out)
    if not (options.film or options.pong or options.asterix or options.logs):
        make(options.demo, options.out)
