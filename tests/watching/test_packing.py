"""What is packed into a page is what was recorded, and fits."""

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching.packing import PAGE_BYTES, pack, pack_distributions
from cramerl.watching.page import to_html
from cramerl.watching.recording import Tape, make_view


def unpack_distributions(chunks, size):
    """Do what the script of the page does."""
    rows = []
    for _, steps, text in chunks:
        planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(2, -1)
        whole = (planes[0].astype(np.uint16) | planes[1].astype(np.uint16) << 8).view(np.int16).reshape(steps, size)
        rows.append(np.cumsum(whole, axis=0, dtype=np.int16))
    return np.concatenate(rows)


def unpack_floats(text):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<f4").ravel()


def test_packed_numbers_are_the_recorded_ones():
    made = make_recording(views=("s51", "c51", "qr"))
    packed = json.loads(json.dumps(pack(made), allow_nan=False))
    for view, sent in zip(made.views, packed["views"], strict=True):
        distributions = unpack_distributions(sent["distributions"], 3 * sent["size"]) * sent["precision"]
        np.testing.assert_allclose(
            distributions.reshape(view.distributions.shape), view.distributions, atol=0.51 * sent["precision"]
        )
        np.testing.assert_array_equal(unpack_floats(sent["numbers"]["values"]).reshape(-1, 3), view.values)
        np.testing.assert_array_equal(unpack_floats(sent["numbers"]["negative"]), view.negative)
    assert packed["views"][0]["precision"] == 1e-4
    np.testing.assert_array_equal(unpack_floats(packed["numbers"]["realised"]), made.realised)


def test_chunks_begin_where_the_ones_before_them_end():
    packed = pack(make_recording(1500), start=7)
    for chunks in (packed["picture"]["chunks"], packed["views"][0]["distributions"]):
        starts, steps = [chunk[0] for chunk in chunks], [chunk[1] for chunk in chunks]
        assert starts == [7 + sum(steps[:i]) for i in range(len(chunks))]
        assert sum(steps) == 1500
    assert len(packed["picture"]["chunks"]) > 1


def test_distributions_wrap_around_and_back_and_are_cut_at_what_16_bits_hold():
    distributions = np.array([3.2, -3.2, 3.2, 9.0]).reshape(4, 1, 1)
    chunks = [(0, one.steps, base64.b64encode(one.data)) for one in pack_distributions(distributions, 1e-4)]
    np.testing.assert_allclose(unpack_distributions(chunks, 1).ravel() * 1e-4, [3.2, -3.2, 3.2, 3.2767], atol=1e-6)
    made = make_recording(views=("c51",))
    large = made.views[0]._replace(distributions=made.views[0].distributions * 50)
    sent = pack(replace(made, views=[large]))["views"][0]
    assert 32_767 * sent["precision"] > large.distributions.max()


def test_if_a_page_would_be_too_large_its_bars_stand_for_several_steps():
    made = make_recording(2000, views=("s51", "c51", "dqn"), actions=6)
    sent = pack(made, page_bytes=700_000, exact=[17, 1234])
    assert len(json.dumps(sent)) < 700_000
    (fact,) = [fact for fact in sent["facts"] if fact.startswith("the bars stand for ")]
    every = int(fact.split()[4])
    for view, one in zip(made.views, sent["views"], strict=True):
        distributions = unpack_distributions(one["distributions"], 6 * one["size"]) * one["precision"]
        for step in (0, every, 17, 1234):
            np.testing.assert_allclose(
                distributions[step], view.distributions[step].ravel(), atol=0.51 * one["precision"]
            )
        held = [step for step in range(2000) if step % every and step not in (17, 1234)]
        np.testing.assert_array_equal(distributions[held], distributions[np.array(held) - 1])


def test_if_pictures_would_take_most_of_the_page_they_stand_for_several_steps(rng):
    pictures = rng.integers(0, 3, (40, 40, 50), dtype=np.uint8)
    made = replace(make_recording(40), tape=Tape((40, 50), pictures))
    sent = pack(made, page_bytes=20_000)
    assert "each picture stands for 4 steps" in sent["facts"]
    start, steps, text = sent["picture"]["chunks"][0]
    assert (start, steps) == (0, 40)
    shown = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(-1, 40, 50)
    np.testing.assert_array_equal(np.bitwise_xor.accumulate(shown, axis=0)[:9], pictures[[0, 0, 0, 0, 4, 4, 4, 4, 8]])
    assert pack(made)["facts"] == made.facts


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "actions"), [(9_000, 6), (3_000, 18)])
def test_two_noisy_agents_for_the_length_of_an_atari_episode_stay_under_25_mb(rng, steps, actions):
    """Masses that are all new at each step: harder to pack than any agent's.

    A part of the 27,000 steps has to fit into the same part of the page, which is harder: the overhead stays.
    """
    atoms, page_bytes = np.linspace(-10, 10, 51), PAGE_BYTES * steps // 27_000
    made = make_recording(1)
    tape, shown = Tape((210, 160)), rng.integers(0, 3, (210, 160), dtype=np.uint8)
    for t in range(steps):
        shown[t % 210, :4] = t % 3
        tape.append(shown)
    action, nothing = rng.integers(0, actions, steps).astype(np.int32), np.zeros(steps, np.float32)
    noisy = []
    for name in ("a", "b"):
        distributions = 0.02 + 0.03 * rng.standard_normal((steps, actions, 51), np.float32)
        noisy.append(make_view(name, atoms, distributions, rng.random((steps, actions)), action))
    columns = {"action": action, "reward": nothing, "score": nothing, "episode": action * 0, "realised": nothing}
    names = [f"action {i}" for i in range(actions)]
    made = replace(made, **columns, tape=tape, views=noisy, actions=names)
    size = len(to_html(pack(made, page_bytes=page_bytes)).encode())
    assert page_bytes / 5 < size < page_bytes
