"""The command `cramerl watch`: trained agents in, a page, a video, a picture or live play out."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cramerl._extras import require_library
from cramerl._files import require_writable
from cramerl.cli.flags import integer_from, probability, require_deep_libraries, show_progress

if TYPE_CHECKING:
    from cramerl.watch.recording import Recording

# As in cramerl.watch.phenomena, which would be slow to import for a help text.
_PHENOMENA = ("double-negative", "compensation", "noise", "disagreement")
_PAGES = (".html", ".htm")
# What a flag that is not given stands for. Flags begin as None, so that one which would be ignored can be refused.
_DEFAULTS = {"episodes": 1, "seed": 0, "fps": 15, "port": 8051}

EXAMPLES = """\
examples:
  cramerl watch runs/s51                              one episode, into out/watch.html
  cramerl watch runs/s51 runs/c51 --highlight compensation both agents on the same frames, opened at the strongest
  moment cramerl watch runs/s51 --video out/s51.mp4          the paper's kind of video (or .gif)
  cramerl watch runs/s51 runs/c51 --picture t=123 --picture-out out/figure2.pdf
  cramerl watch runs/s51 --serve                      live play in the browser
  cramerl watch out/evaluate                          the states that cramerl evaluate looked at

The page is one file and needs no network. Space plays, arrows step, [ and ] jump between the moments found, and
PAGE#t=123 opens at step 123. docs/watch.md says how the moments are measured.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Play an episode with a trained agent and show the distribution of the return it predicts for every action,\n"
        "negative mass in its own colour. The first run plays; further runs judge the same frames."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs or exports; or one of cramerl evaluate")
    add("--out", type=Path, metavar="FILE", help="the page (default: out/watch.html, unless only others are asked for)")
    add(
        "--lane",
        type=_lanes,
        metavar="N[,N]",
        help="of runs that have several: one for all or one for each (default: 0)",
    )
    add("--episodes", type=integer_from(1), metavar="N", help="how many (default: 1)")
    add("--seed", type=integer_from(0, 2**31 - 1), help="of environment and actions (default: 0)")
    add(
        "--epsilon",
        type=probability,
        metavar="X",
        help="fraction of random actions (default: the first run's eval_epsilon)",
    )
    add("--max-steps", type=integer_from(1), metavar="N", help="stop after N steps (default: at the episode's end)")
    add("--highlight", choices=_PHENOMENA, help="mark the moments that show it most, and open at the strongest")
    add("--video", type=Path, metavar="FILE", help="also a video, .mp4 or .gif")
    add("--fps", type=integer_from(1, 120), help="steps a second, video and live (default: 15)")
    add("--picture", type=_place, metavar="t=N", help="also a picture of step N, or 'found': the strongest moment")
    add("--picture-out", type=Path, metavar="FILE", help=".pdf, .png or .svg (default: out/watch.png)")
    add("--serve", action="store_true", help="play live, on a page at this machine's loopback address")
    add("--port", type=integer_from(0, 65535), help="of --serve; 0 finds one (default: 8051)")


def _place(text: str) -> int | str:
    match = re.fullmatch(r"(?:t=)?(\d+)", text)
    if match is None and text != "found":
        raise argparse.ArgumentTypeError(f"must be t=N, a step of the recording, or 'found', got {text!r}")
    return int(match[1]) if match else text


def _lanes(text: str) -> list[int]:
    if re.fullmatch(r"\d+(,\d+)*", text) is None:
        raise argparse.ArgumentTypeError(f"must be numbers from 0 with commas between, got {text!r}")
    return [int(lane) for lane in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Write what was asked for, or play live."""
    from cramerl.watch.process import is_evaluation

    evaluated = [run for run in options.runs if is_evaluation(run)]
    _check_flags(options, evaluated)
    _check_outputs(options)
    for name, value in _DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if evaluated:
        return _watch_process(options, evaluated[0])
    for run in options.runs:
        _require_run(run)  # says what is wrong before libraries are loaded for seconds
    require_deep_libraries()
    return _serve(options) if options.serve else _watch_agents(options)


def _check_flags(options: argparse.Namespace, evaluated: list[Path]) -> None:
    """Flags that do not go together, and those that would be ignored."""
    if evaluated and len(options.runs) > 1:
        raise ValueError(f"an evaluation is watched alone, got {evaluated[0]} and {len(options.runs) - 1} more")
    if evaluated and options.serve:
        raise ValueError(f"--serve needs an agent that plays, {evaluated[0]} holds the evaluation of a process")
    if options.serve:
        _refuse(options, "a recording and not to --serve", "out", "video", "picture", "picture_out", "highlight")
        _refuse(options, "a recording and not to --serve", "max_steps", "episodes")
        return
    if evaluated:
        _refuse(
            options, "agents that play and not to an evaluation", "episodes", "seed", "epsilon", "max_steps", "lane"
        )
    _refuse(options, "--serve", "port")
    if not options.video:
        _refuse(options, "--video or --serve", "fps")
    if options.picture is None and options.picture_out:
        raise ValueError("--picture-out needs --picture t=N, the step to draw")
    if options.picture == "found" and options.highlight is None:
        raise ValueError("--picture found needs --highlight, the phenomenon to look for")
    if isinstance(options.picture, int) and options.max_steps and options.picture >= options.max_steps:
        raise ValueError(f"--picture must be a step from 0 to {options.max_steps - 1}, got {options.picture}")
    if options.highlight == "disagreement" and len(options.runs) < 2:
        raise ValueError("--highlight disagreement needs two runs or more, got one")


def _refuse(options: argparse.Namespace, owner: str, *names: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} belongs to {owner}, and would be ignored here: leave it out")


def _check_outputs(options: argparse.Namespace) -> None:
    """What is written: files of the right kind, with the libraries that write them, where files can be written."""
    from cramerl.watch import picture, video

    if options.serve:
        return
    if options.picture is not None:
        require_library("matplotlib")
        options.picture_out = options.picture_out or Path("out/watch.png")
        picture.require_suffix("--picture-out", options.picture_out, picture.SUFFIXES)
    if options.video:
        picture.require_suffix("--video", options.video, video.SUFFIXES)
        require_library("PIL")
        if options.video.suffix.lower() == ".mp4":
            require_library("av")
    if options.out is None and options.video is None and options.picture is None:
        options.out = Path("out/watch.html")
    if options.out:
        picture.require_suffix("--out", options.out, _PAGES)
    for path in filter(None, (options.out, options.video, options.picture_out)):
        require_writable(path)


def _require_run(run: Path) -> None:
    """A folder that holds settings and may hold weights."""
    from cramerl.runs.folder import EXPORTED_WEIGHTS, load_config

    if not run.is_dir():
        there = "is a file" if run.exists() else "is not there"
        raise ValueError(f"RUN must be a folder of cramerl train, export or evaluate, {run} {there}")
    config = load_config(run)
    if config.checkpoints == "none" and not (run / EXPORTED_WEIGHTS).is_file() and not (run / "checkpoints").is_dir():
        raise ValueError(f"{run} holds no weights: it was trained with --checkpoints none")


def _watch_process(options: argparse.Namespace, folder: Path) -> int:
    from cramerl.watch.process import read_evaluation

    _write(options, read_evaluation(folder))
    return 0


def _watch_agents(options: argparse.Namespace) -> int:
    from cramerl.watch.play import load_watched, record

    show_progress("loading ...")
    recording = record(
        load_watched(options.runs, options.lane),
        episodes=options.episodes,
        epsilon=options.epsilon,
        seed=options.seed,
        max_steps=options.max_steps,
        on_progress=show_progress,
    )
    print(f"{recording.title}: {'; '.join(recording.facts)}")
    _write(options, recording)
    return 0


def _write(options: argparse.Namespace, recording: Recording) -> None:
    from cramerl.watch import page, phenomena, picture, video

    found: list[int] = []
    if options.highlight:
        score = phenomena.require_phenomenon(options.highlight, phenomena.scores(recording))
        found = phenomena.find(score)
        _print_moments(options.highlight, recording.unit, found, score)
    step = options.picture
    if step == "found":
        if not found:
            raise ValueError(f"--picture found: no {recording.unit} shows {options.highlight}")
        step = found[0]
    if step is not None:
        print(f"wrote {picture.write_picture(recording, step, options.picture_out)}")
    if options.video:
        print(f"wrote {video.write_video(recording, options.video, fps=options.fps, on_progress=show_progress)}")
    if options.out:
        show_progress("packing ...")
        path = page.write_page(recording, options.out, highlight=options.highlight)
        show_progress("")
        size = path.stat().st_size
        print(f"wrote {path} ({f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{size / 1e3:.0f} kB'})")


def _print_moments(name: str, unit: str, found: list[int], score: Any) -> None:
    if not found:
        print(f"{name}: no {unit} shows it")
        return
    each = ", ".join(f"t={step} ({score[step]:.3g})" for step in found)
    print(f"{name}, the strongest first: {each}")


def _serve(options: argparse.Namespace) -> int:
    from cramerl.watch import serve
    from cramerl.watch.play import Player, load_watched

    with serve.LiveServer(options.port) as server:
        show_progress("loading ...")
        player = Player(load_watched(options.runs, options.lane), epsilon=options.epsilon, seed=options.seed)
        server.live = serve.Live(player, options.fps)
        show_progress("")
        print(f"live at {server.address}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
        finally:
            server.live.close()
    return 0
