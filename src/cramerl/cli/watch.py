"""`cramerl watch`: show what trained agents predict, as a page, a video, a picture or live."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from cramerl._extras import require_library
from cramerl.cli.flags import (
    Outputs,
    add_overwrite_flag,
    add_trust_flag,
    given_flags,
    integer_from,
    probability,
    require_deep_libraries,
    say,
    say_download,
    show_progress,
)
from cramerl.runs.folder import EXPORTED_WEIGHTS, load_config
from cramerl.runs.names import SHOWN_STEPS, agent_folders, shown_steps
from cramerl.watching import page, phenomena, picture, video
from cramerl.watching.recording import MADE_BY, Recording, is_evaluation, read_evaluation

_PAGE = Path("out/watch.html")
_PAGES = (".html", ".htm")
_CUT = f"default: when the episode ends; {SHOWN_STEPS} with agents that come with cramerl, unless --episodes is given"
_DEFAULTS = {"episodes": 1, "seed": 0, "fps": 15, "port": 8051}
# The flags that each way of watching uses. They have no default in the parser: one that is given but not used is an
# error, because the user expects an effect.
_OUTPUTS = {"out", "overwrite", "highlight", "video", "fps", "picture", "picture_out"}
_PLAY = {"lane", "seed", "epsilon", "trust_modules"}
_USED = {
    "--serve": _PLAY | {"fps", "port"},
    "an evaluation": _OUTPUTS,
    "a recording": _OUTPUTS | _PLAY | {"episodes", "max_steps"},
}

EXAMPLES = """\
examples:
  cramerl watch breakout                 agents that come with cramerl: L51 plays,
                                         S51 and C51 predict from the same frames
  cramerl watch breakout/u51 breakout/dqn
                                         others of them; games: asterix, breakout,
                                         freeway, seaquest, space_invaders
  cramerl watch hf://USER/NAME           an export on the Hugging Face Hub
  cramerl watch runs/s51                 one episode, into out/watch.html
  cramerl watch runs/s51 runs/c51 --highlight compensation
                                         both agents on the same frames, opened
                                         at the strongest step
  cramerl watch runs/s51 --video out/s51.mp4
                                         the paper's kind of video (or .gif)
  cramerl watch runs/s51 runs/c51 --picture t=123 --picture-out out/figure2.pdf
  cramerl watch runs/s51 --serve         live play in the browser
  cramerl watch out/evaluate             the states that cramerl evaluate evaluated

The page is one file and needs no network. Space plays, the arrow keys move,
[ and ] jump between highlighted steps, and PAGE#t=123 opens at step 123.
docs/watch.md defines the phenomena. Agents of other libraries get the same page
from cramerl.Recorder.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Play an episode with a trained agent and show the distribution of the return\n"
        "that it predicts for every action, negative mass in its own colour. The first\n"
        "run plays; the others predict from the same frames."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folders of runs or exports, GAME or GAME/AGENT of those that come with cramerl, hf://USER/NAME, or one "
        "folder of cramerl evaluate",
    )
    playing = parser.add_argument_group("playing")
    add = playing.add_argument
    text = "which run of a group: one for all folders, or one each (default: 0)"
    add("--lane", type=_lanes, metavar="N[,N]", help=text)
    add("--episodes", type=integer_from(1), metavar="N", help="how many (default: 1)")
    add("--max-steps", type=integer_from(1), metavar="N", help=f"stop after N steps ({_CUT})")
    add("--seed", type=integer_from(0, 2**31 - 1), help="of environment and actions (default: 0)")
    add("--epsilon", type=probability, metavar="X", help="fraction of random actions (default: the run's eval_epsilon)")
    add_trust_flag(playing)
    add = parser.add_argument_group("output").add_argument
    add("--out", type=Path, metavar="FILE", help="the page (default: out/watch.html, unless another output is given)")
    add_overwrite_flag(parser)
    add("--highlight", choices=phenomena.PHENOMENA, help="mark the strongest steps of a phenomenon, and open there")
    add("--video", type=Path, metavar="FILE", help="a video, .mp4 or .gif")
    add("--fps", type=integer_from(1, 120), help="steps per second, video and live (default: 15)")
    add("--picture", type=_step, metavar="t=N", help="a picture of step N, or of the 'strongest' highlighted step")
    add("--picture-out", type=Path, metavar="FILE", help=".pdf, .png or .svg (default: out/watch.png)")
    add = parser.add_argument_group("live play").add_argument
    add("--serve", action="store_true", help="play live, on a page at this machine's loopback address")
    add("--port", type=integer_from(0, 65535), help="of --serve; 0 finds a free one (default: 8051)")


def _step(text: str) -> int | str:
    match = re.fullmatch(r"(?:t=)?(\d+)", text)
    if match is None and text != "strongest":
        raise argparse.ArgumentTypeError(f"must be t=N, a step of the recording, or 'strongest', got {text!r}")
    return int(match[1]) if match else text


def _lanes(text: str) -> list[int]:
    if re.fullmatch(r"\d+(,\d+)*", text) is None:
        raise argparse.ArgumentTypeError(f"must be integers >= 0, separated by commas, got {text!r}")
    return [int(lane) for lane in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Write the outputs, or play live."""
    words, options.runs = options.runs, _folders(options.runs)
    evaluated = next((run for run in options.runs if is_evaluation(run)), None)
    _check_flags(options, evaluated)
    again = _again(options, words)
    cut = None if options.serve else shown_steps(options.runs, options.max_steps, options.episodes)
    options.max_steps = options.max_steps or cut
    for name, value in _DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if evaluated:
        outputs = _check_outputs(options)
        _announce(words)
        return _write(options, read_evaluation(evaluated), outputs, again)
    for run in options.runs:  # before libraries are loaded, which takes seconds
        if not run.is_dir():
            found = "is a file" if run.exists() else "does not exist"
            raise ValueError(f"RUN must be a folder of cramerl train, export or evaluate, but {run} {found}")
        weights = (run / EXPORTED_WEIGHTS).is_file() or (run / "checkpoints").is_dir()
        if load_config(run).checkpoints == "none" and not weights:
            raise ValueError(f"{run} has no weights: it was trained with --checkpoints none")
    require_deep_libraries()
    if options.serve:
        return _serve(options, words)
    outputs = _check_outputs(options)
    _announce(words)
    if cut:
        _compile_quickly()
    from cramerl.watching.play import load_watched, record

    settings = {name: getattr(options, name) for name in ("episodes", "epsilon", "seed", "max_steps", "trust_modules")}
    recording = record(load_watched(options.runs, options.lane), **settings, on_progress=show_progress)
    say(f"{recording.title}: {'; '.join(recording.facts)}")
    if len(recording) == cut:
        say(f"agents that come with cramerl are shown for {cut} steps; --episodes 1 plays on until the episode ends")
    return _write(options, recording, outputs, again)


def _compile_quickly() -> None:
    """Leave out XLA's optimisations, which take seconds, where programs run for a few hundred steps only."""
    if "jax" not in sys.modules:
        os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()


def _folders(words: list[str]) -> list[Path]:
    """The folders that are meant, downloaded where they are on a hub."""
    for word in words:
        say_download(word)
    return agent_folders(words)


def _announce(words: list[str]) -> None:
    """Say what is done before libraries are loaded, which takes seconds."""
    print(f"watching {' and '.join(words)}; loading ...", file=sys.stderr, flush=True)


def _again(options: argparse.Namespace, runs: list[str]) -> str:
    """The command that plays the same episode again, without what it writes."""
    words = ["cramerl", "watch", *runs]
    for name in ("lane", "episodes", "max_steps", "seed", "epsilon"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, value)) if name == "lane" else str(value)]
    return shlex.join(words + ["--trust-modules"] * options.trust_modules)


def _check_flags(options: argparse.Namespace, evaluated: Path | None) -> None:
    """Refuse flags that do not go together, and flags without effect."""
    if evaluated and len(options.runs) > 1:
        raise ValueError(f"an evaluation is watched alone, got {evaluated} and {len(options.runs) - 1} more")
    if evaluated and options.serve:
        raise ValueError(f"--serve needs an agent, but {evaluated} is an evaluation")
    way = "--serve" if options.serve else "an evaluation" if evaluated else "a recording"
    for flag in given_flags(options, sorted(set().union(*_USED.values()) - _USED[way])):
        raise ValueError(f"{flag} has no effect on {way}; leave it out")
    if options.fps and not options.video and not options.serve:
        raise ValueError("--fps needs --video or --serve")
    if options.picture is None and options.picture_out:
        raise ValueError("--picture-out needs --picture t=N, the step to draw")
    if options.picture == "strongest" and options.highlight is None:
        raise ValueError("--picture strongest needs --highlight, the phenomenon to look for")
    if isinstance(options.picture, int) and options.max_steps and options.picture >= options.max_steps:
        raise ValueError(f"--picture must be a step from 0 to {options.max_steps - 1}, got {options.picture}")
    if options.highlight == "disagreement" and len(options.runs) < 2:
        raise ValueError("--highlight disagreement needs two runs or more, got one")


def _check_outputs(options: argparse.Namespace) -> Outputs:
    """Check that the files have known suffixes, may be written, and that the libraries for them are installed."""
    outputs = Outputs(MADE_BY, overwrite=options.overwrite)
    if not (options.out or options.video or options.picture is not None):
        options.out = _PAGE
    if options.picture is not None:
        options.picture_out = options.picture_out or Path("out/watch.png")
    encoder = "av" if options.video and options.video.suffix.lower() == ".mp4" else "PIL"
    for flag, path, suffixes, libraries in (
        ("--out", options.out, _PAGES, ("jinja2",)),
        ("--video", options.video, video.SUFFIXES, ("matplotlib", encoder)),
        ("--picture-out", options.picture_out, picture.SUFFIXES, ("matplotlib",)),
    ):
        if path:
            picture.require_suffix(flag, path, suffixes)
            require_library(*libraries)
            outputs.check(flag, path)
    return outputs


def _write(options: argparse.Namespace, recording: Recording, outputs: Outputs, again: str) -> int:
    strongest: list[int] = []
    if options.highlight:
        score = phenomena.scores(recording)[options.highlight]
        strongest = phenomena.strongest_steps(score)
        steps = ", ".join(f"t={step} ({score[step]:.3g})" for step in strongest)
        say(f"{options.highlight}, strongest first: {steps}" if strongest else f"{options.highlight}: not found")
    step = options.picture
    if step == "strongest":
        if not strongest:
            raise ValueError(f"--picture strongest: no {recording.unit} shows {options.highlight}")
        step = strongest[0]
    if step is not None:
        if step >= len(recording):
            raise ValueError(f"--picture must be a {recording.unit} from 0 to {len(recording) - 1}, got {step}")
        say(outputs.say(picture.write_picture(recording, step, options.picture_out)))
    if options.video:
        say(outputs.say(video.write_video(recording, options.video, fps=options.fps, on_progress=show_progress)))
    if options.out:
        show_progress("packing ...")
        path = page.write_page(recording, options.out, highlight=options.highlight)
        show_progress("")
        size = path.stat().st_size
        say(f"{outputs.say(path)} ({f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{size / 1e3:.0f} kB'})")
        say(f"to look at it: open {shlex.quote(str(path))} in a browser")
    if hint := _next_command(options, recording, again, found=bool(strongest)):
        say(hint)
    return 0


def _next_command(options: argparse.Namespace, recording: Recording, again: str, *, found: bool) -> str | None:
    """What is worth typing after a page was written."""
    if not options.out:
        return None
    if options.highlight:
        where = f"{again} --highlight {options.highlight} --picture strongest"
        return f"to draw that step as a figure: {where}" if found and options.picture is None else None
    scores = phenomena.scores(recording)
    shown = [name for name in reversed(scores) if phenomena.strongest_steps(scores[name], 1)]
    if shown:
        out = "" if options.out == _PAGE else f" --out {shlex.quote(str(options.out))}"
        return f"to open it where {phenomena.IN_WORDS[shown[0]]}: {again} --highlight {shown[0]}{out}"
    if recording.unit == "state":
        return f"to put it into a report: cramerl report {shlex.quote(str(options.runs[0]))}"
    return f"to see it live: {shlex.join(['cramerl', 'watch', *map(str, options.runs)])} --serve"


def _serve(options: argparse.Namespace, words: list[str]) -> int:
    from cramerl.watching import serve
    from cramerl.watching.play import Player, load_watched

    with serve.LiveServer(options.port) as server:
        _announce(words)
        settings = {name: getattr(options, name) for name in ("epsilon", "seed", "trust_modules")}
        player = Player(load_watched(options.runs, options.lane), **settings)
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
