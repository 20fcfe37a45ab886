"""Pages from templates."""

import pytest

from cramerl._pages import render


def test_the_base_page_escapes_what_it_is_given():
    page = render("cramerl.reports", "base.html", generator="cramerl test", title="<b>bold</b> & more")
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>&lt;b&gt;bold&lt;/b&gt; &amp; more</title>" in page
    assert ":root { color-scheme: light dark;" in page  # the style sheet, as it is


def test_a_value_the_template_needs_must_be_given():
    jinja2 = pytest.importorskip("jinja2")
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("cramerl.reports", "base.html", generator="cramerl test")


def test_what_a_terminal_would_act_on_is_spelled_out():
    page = render("cramerl.reports", "base.html", generator="cramerl test", title="a\x1b[2Jb\u202e")
    assert "<title>a\\x1b[2Jb\\u202e</title>" in page
