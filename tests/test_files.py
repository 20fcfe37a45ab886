"""Files are written whole or not at all, and only regular files are replaced."""

import os
from pathlib import Path

import pytest

from cramerl._files import is_made_by, require_replaceable, require_writable, write_json, write_text, write_whole


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "numbers.json"
    path.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    link, target, screen = (tmp_path / name for name in ("link", "target", "screen"))
    link.symlink_to(target)
    for words in ("first", "second"):
        assert write_text(link, words) == link
        assert (link.is_symlink(), target.read_text()) == (True, words)
    screen.symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    with pytest.raises(OSError, match="is not a file that can be replaced"):
        write_text(screen, "words")
    with pytest.raises(ValueError, match=r"must be new or a regular file, got .*screen"):
        require_writable(screen)
    assert screen.is_symlink()


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is not a file that can be replaced"):
        write_text(pipe, "words")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("a.html", '<meta name="generator" content="cramerl watch 1.0">', "<p>I like cramerl watch</p>"),
        ("a.json", '{"made_by": "cramerl watch"}', '{"notes": "cramerl watch"}'),
        ("a.md", "This page is made by `cramerl watch FILE`.", "Try cramerl watch."),
        ("a.png", "PNG Software cramerl watch", "PNG Software another"),
        (
            "a.html",
            '<meta name="generator" content="cramerl watch">',
            '<meta name="generator" content="cramerl report">',
        ),
        ("a.gif", "cramerl watch", ""),
    ],
)
def test_a_file_is_replaced_by_what_made_it(name, ours, theirs, tmp_path):
    path = tmp_path / name
    assert not require_replaceable("out", path, "cramerl watch")
    path.write_text(ours)
    assert is_made_by(path, "cramerl watch")
    assert require_replaceable("out", path, "cramerl watch")
    path.write_text(theirs)
    for argument, way in (("out", "overwrite=True"), ("--out", "--overwrite")):
        with pytest.raises(
            ValueError, match=f"^{argument} must be a new file or one that cramerl watch wrote, .* {way}$"
        ):
            require_replaceable(argument, path, "cramerl watch")
    assert require_replaceable("out", path, "cramerl watch", overwrite=True)


def test_a_link_with_the_name_of_the_temporary_file_is_not_written_through(tmp_path):
    (tmp_path / "outside").write_text("of the user")
    (tmp_path / f".config-{os.getpid()}.json").symlink_to(tmp_path / "outside")
    write_json(tmp_path / "config.json", {})
    assert (tmp_path / "outside").read_text() == "of the user"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "outside"]


def test_who_made_a_pipe_is_not_asked(tmp_path):
    os.mkfifo(tmp_path / "report.html")
    assert not is_made_by(tmp_path / "report.html", "cramerl report")
