"""Names from the folders of others do not move the cursor of a terminal."""

from __future__ import annotations

import io

import pytest
from commands import refused, run
from study_runs import write_run

from cramerl._printable import PrintableStream, printable
from cramerl.runs.config import TrainConfig
from cramerl.runs.progress import ProgressBars

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp\r\x00"


def test_only_what_a_terminal_acts_on_is_replaced():
    assert printable("Cramér, 10 µs, naïve 漢字\t\n") == "Cramér, 10 µs, naïve 漢字\t\n"
    assert printable(HOSTILE) == r"\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp\r\x00"


def test_a_stream_is_filtered_and_is_the_stream_otherwise():
    inner = io.StringIO()
    stream = PrintableStream(inner)
    print(HOSTILE, file=stream)
    assert inner.getvalue() == printable(HOSTILE) + "\n"
    assert stream.getvalue() == inner.getvalue()


def test_progress_shows_names_as_they_are_written():
    inner = io.StringIO()
    bars = ProgressBars(PrintableStream(inner), 0.0)
    bars.say(HOSTILE)
    bars.show(HOSTILE)
    bars.close()
    assert inner.getvalue() == 2 * (printable(HOSTILE) + "\n")


def test_commands_print_names_of_folders_so(tmp_path):
    """A report of a study whose folder has such a name, and an error that names it."""
    name = HOSTILE.replace("\x00", "")
    write_run(tmp_path / name / "a", "s51")
    write_run(tmp_path / name / "b", "s51", seed=1)
    result = run("report", tmp_path / name, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert printable(name) in result.stdout
    for text in (result.stdout, result.stderr, refused("play", tmp_path / name)):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


@pytest.mark.parametrize("name", ["env", "preset", "initial_weights"])
def test_settings_have_no_control_characters(name):
    with pytest.raises(ValueError, match=rf"^{name} must be text without control characters, got 'gym:\\x1b"):
        TrainConfig(**{name: "gym:\x1b[2J"})
