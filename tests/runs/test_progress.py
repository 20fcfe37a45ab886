"""The display of a training's progress: plain lines, or live in a terminal."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from commands import python

from cramerl.runs.progress import progress_display
from cramerl.runs.trainer import Status


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, **{name.replace("_", "/", 1): value for name, value in values.items()}}


def learning(step: int, message: str | None = None) -> Status:
    figures = row(step, charts_episodic_return=3.414, losses_loss=0.01234, dist_mass=1.0)
    return Status(step, 1_000_000, 4, 2900.0, figures, message)


def test_plain_lines_come_every_ten_seconds_and_know_the_time_left():
    out, now = io.StringIO(), [0.0]
    with progress_display(out, clock=lambda: now[0]) as report:
        report(Status(0, 1_000_000, 4, 0.0, None))
        for second in range(1, 200):
            now[0] = second
            filling = Status(1000 * second, 1_000_000, 4, 1000.0, row(1000 * second))
            report(filling if second <= 20 else learning(20_000 + 100 * (second - 20)))
        report(learning(20_000 + 100 * 179, "a message"))
    lines = out.getvalue().splitlines()
    assert lines[0] == "step 0/1,000,000"
    assert lines[1] == "step 10,000/1,000,000  4,000 frames/s (1,000 steps/s)"
    assert lines[3] == ("step 20,100/1,000,000  11,600 frames/s (2,900 steps/s)  return 3.41  loss 0.0123  mass 1.000")
    # 100 steps a second since learning began: (1,000,000 - 21,100) / 100 s.
    assert lines[4] == (
        "step 21,100/1,000,000  400 frames/s (100 steps/s)  return 3.41  loss 0.0123  mass 1.000  2.7 h left"
    )
    assert lines[-2] == "a message"
    assert lines[-1].startswith("step 37,900/1,000,000")
    assert len(lines) == 3 + 1 + 17 + 2


def test_dqn_has_no_mass_to_show():
    out = io.StringIO()
    with progress_display(out) as report:
        report(Status(10, 20, 1, 5.0, row(10, losses_loss=1.0, dist_mass=float("nan"))))
    assert out.getvalue() == "step 10/20  5 steps/s  loss 1\n"


def test_a_terminal_gets_a_live_display(monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    out, now = Terminal(), [0.0]
    with progress_display(out, clock=lambda: now[0]) as report:
        report(Status(0, 1_000_000, 4, 0.0, None))
        report(learning(500_000))
        now[0] = 10
        report(learning(510_000, "[half] done"))
    words = out.getvalue()
    assert "\033[" in words
    assert "step 510,000/1,000,000  8 min left" in words
    assert "4,000 frames/s (1,000 steps/s)  return 3.41  loss 0.0123  mass 1.000" in words
    assert "[half] done\n" in words
    monkeypatch.setenv("TERM", "dumb")
    plain = Terminal()
    with progress_display(plain) as report:
        report(learning(500_000))
    assert "\033" not in plain.getvalue()


def test_a_report_from_a_signal_handler_within_a_report(tmp_path):
    """The message comes through whatever the display was doing; nothing is entered twice."""
    with (tmp_path / "words").open("w") as out:

        class Interrupted:
            def write(self, words: str) -> int:
                if "step" in words:
                    report(learning(1, "stopping"))
                return out.write(words)

            def __getattr__(self, name: str):
                return getattr(out, name)

        with progress_display(Interrupted()) as report:
            report(learning(1))
    assert "stopping" in (tmp_path / "words").read_text()
    assert (tmp_path / "words").read_text().count("loss") == 1


def test_a_notebook_overwrites_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    out = io.StringIO()
    with progress_display(out, clock=lambda: 0.0) as report:
        report(Status(0, 20, 1, 0.0, None, "a message that is longer than the line before"))
        report(Status(10, 20, 1, 5.0, row(10, losses_loss=1.0)))
        report(Status(20, 20, 1, 5.0, row(20), "the end"))
    parts = out.getvalue().split("\r")
    assert [part.rstrip(" ") for part in parts] == [
        "",
        "a message that is longer than the line before\n",
        "step 0/20",
        "step 10/20  5 steps/s  loss 1",
        "the end" + " " * 22 + "\n",
        "step 20/20  5 steps/s  loss 1\n",
    ]


@pytest.mark.parametrize(("flags", "shown"), [([], False), (["-i"], True)])
def test_progress_is_shown_to_people(flags, shown):
    code = "from cramerl.runs.progress import is_interactive; print(is_interactive())"
    assert python(*flags, "-c", code, stdin=subprocess.DEVNULL).stdout == f"{shown}\n"
