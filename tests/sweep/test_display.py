"""What is shown of a sweep while it runs."""

from __future__ import annotations

import io
import json

import pytest
from sweep_folders import asked, put_run

from cramerl.runs.group import RunGroup
from cramerl.runs.presets import preset
from cramerl.sweep.display import sweep_display
from cramerl.sweep.execute import State
from cramerl.sweep.plan import Job, wanted_runs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_display_counts_jobs_and_knows_the_time_left(stream, tmp_path, monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "150")):
        monkeypatch.setenv(name, value)
    group = RunGroup.of(preset("smoke", "s51", "pong", steps=1000), seed=range(4))
    jobs = [Job(f"pong/{i}", group) for i in range(3)]
    timing = put_run(tmp_path, "pong/0", group, 0) / "timing.jsonl"
    out, now = stream(), [0.0]
    with sweep_display(out, tmp_path, 5, clock=lambda: now[0]) as show:
        show(State([], {}, jobs[:1], jobs[1:], False))
        now[0] = 60.0
        timing.write_text(json.dumps({"step": 600, "charts/SPS": 45.0}) + "\n")
        show(State([], {}, jobs[:1], jobs[1:], False))
        show(State(["pong/0"], {"pong/1": "it broke"}, jobs[2:], [], True))
    text = out.getvalue()
    # 4 runs of 600 steps in a minute are 40 a second; 4 x 400 + 2 x 4000 are left.
    assert "5/8 jobs done, 1 running, 2 waiting  45 steps/s  4 min left" in text
    for line in (
        "training pong/0",
        "finished pong/0",
        "failed pong/1: it broke",
        "stopping jobs with checkpoints; Ctrl-C again ends them at once",
    ):
        assert text.count(f"{line}\n") == 1
    assert ("\033[" in text) == (stream is Terminal)
    assert ("pong/0  step 600/1,000 of 4 runs  45 steps/s" in text) == (stream is Terminal)


def test_jobs_without_full_checkpoints_are_not_said_to_keep_them(tmp_path):
    (config,) = wanted_runs(asked(envs="pong", seeds="0", changes={"checkpoints": "weights"}))
    out = io.StringIO()
    with sweep_display(out, tmp_path, 0) as show:
        show(State([], {}, [Job("pong/x", RunGroup((config,)))], [], True))
    assert "stopping jobs (without full checkpoints); Ctrl-C" in out.getvalue()
