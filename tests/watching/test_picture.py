"""Pictures and videos of a recording."""

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching import picture, video


def test_the_distributions_of_a_picture_have_one_scale():
    figure = picture.make_figure(make_recording(views=("s51", "qr")), 17)
    _, left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_xlim()[0] < -10


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_picture_of_two_agents(tmp_path, suffix):
    path = picture.write_picture(make_recording(views=("s51", "qr")), 17, tmp_path / f"figure{suffix}")
    assert path.stat().st_size > 5000


def test_a_picture_of_no_step_or_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="step must be a step from 0 to 39, got 40"):
        picture.write_picture(make_recording(), 40, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"path must be a file that ends in .pdf, .png, .svg, got .*a.jpg"):
        picture.write_picture(make_recording(), 4, tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"path must be a file that ends in .mp4, .gif, got .*a.avi"):
        video.write_video(make_recording(), tmp_path / "a.avi")


def test_a_video_has_a_frame_for_each_step(tmp_path):
    av, image = pytest.importorskip("av"), pytest.importorskip("PIL.Image")
    made = make_recording(20, views=("s51", "dqn"))
    with av.open(str(video.write_video(made, tmp_path / "a.mp4", fps=30))) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 30
    assert len(frames) == 20
    with image.open(video.write_video(made, tmp_path / "a.gif")) as moving:
        assert moving.n_frames == 20
        moving.seek(17)
        still = np.asarray(moving.convert("RGB")).astype(int)
    orange = abs(still - [0xD5, 0x5E, 0]).sum(axis=-1) < 30
    assert orange.sum() > 300  # the negative bars
    assert abs(frames[17].astype(int) - still).mean() < 6
