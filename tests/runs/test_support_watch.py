"""What is said of the ends of a support."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cramerl.runs.config import TrainConfig
from cramerl.runs.support_watch import SupportWatch

GIVEN = TrainConfig(agent="c51", v_min=-1.0, v_max=1.0, num_atoms=5)  # spacing 0.5


def totals(value: float = 0.0, below: float = 0.0, above: float = 0.0, blocks: int = 2) -> Any:
    info = SimpleNamespace(q_values=blocks * value, clipped_below=blocks * below, clipped_above=blocks * above)
    return SimpleNamespace(info=info, blocks=blocks)


def said(total: Any, realised: list[float], config: TrainConfig = GIVEN) -> list[str]:
    support = (-1.0, 1.0)
    return list(SupportWatch(config).warnings(support, total, np.array(realised)))


@pytest.mark.parametrize(
    ("total", "realised", "start"),
    [
        (totals(), [1.4, -1.4], None),
        (totals(blocks=0), [1.6], "a realised return, 1.6, lies above v_max = 1: returns beyond it"),
        (totals(), [0.0, -1.6, -1.7], "a realised return, -1.7, lies below v_min = -1: returns beyond it"),
        (totals(value=1.1), [], "the mean value 1.1 is above v_max = 1: "),
        (totals(value=-1.1), [], "the mean value -1.1 is below v_min = -1: "),
        (totals(value=1.1, above=0.3), [9.0], "30% of the target mass lies above v_max = 1: "),
        (totals(below=0.2, above=0.2), [], None),
    ],
)
def test_each_end(total, realised, start):
    words = said(total, realised)
    assert len(words) == (start is not None)
    assert all(one.startswith(start) for one in words)


def test_each_end_is_named_once():
    watch = SupportWatch(GIVEN)
    both = [list(watch.warnings((-1.0, 1.0), totals(), np.array([-5.0, 5.0]))) for _ in range(2)]
    assert [len(words) for words in both] == [2, 0]


def test_a_support_that_finds_itself_and_none_at_all():
    assert said(totals(), [5.0], TrainConfig(agent="c51")) == []
    assert list(SupportWatch(TrainConfig(agent="dqn")).warnings(None, totals(), np.array([5.0]))) == []
