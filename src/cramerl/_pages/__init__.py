"""Pages made from Jinja2 templates: one base page and one base style sheet for everything that cramerl shows."""

from __future__ import annotations

from functools import cache
from typing import Any

from cramerl._extras import load_library
from cramerl._printable import printable

__all__ = ["render"]


def render(package: str, template: str, **values: Any) -> str:
    """Fill in a template.

    Templates are looked up in ``package``'s folder ``templates`` and then beside this module, so that
    ``{% extends "base.html" %}`` finds the base page. Three things are available in every template:

    - values are escaped, in ``.md`` templates too, and control characters spelled out; wrap what is HTML (or Markdown)
      already in ``| safe``;
    - ``{{ asset("page.css") }}`` inserts a file of the package's folder ``assets`` as it is;
    - ``{{ value | tojson }}`` writes compact JSON that is safe inside a ``<script>`` element.

    Args:
        package: the package that holds the template, such as "cramerl.reports".
        template: its file name.
        values: what the template refers to; a name that is missing raises `jinja2.UndefinedError`.
    """
    return _environment(package, template.endswith(".md")).get_template(template).render(**values)


def _html(value: Any) -> Any:
    """A value as text that is still to be escaped, without what a terminal would act on if it showed the page."""
    return printable(value) if type(value) is str else value


def _markdown(value: Any) -> Any:
    """A value as one line of Markdown that is no HTML, no cell of a table, no link and no picture."""
    markup = load_library("markupsafe").Markup
    if isinstance(value, markup):
        return value
    text = printable(" ".join(str(value).split("\n")))
    for mark, written in (("\\", "\\\\"), ("<", "&lt;"), ("|", "\\|"), ("](", "]\\(")):
        text = text.replace(mark, written)
    return markup(text)


@cache
def _environment(package: str, markdown: bool) -> Any:
    jinja2, markupsafe = load_library("jinja2"), load_library("markupsafe")
    places = [(package, "templates"), (package, "assets"), ("cramerl", "_pages")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(*place) for place in places]),
        autoescape=jinja2.select_autoescape(["html", "md"]),
        finalize=_markdown if markdown else _html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    compact = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    environment.globals["asset"] = lambda name: markupsafe.Markup(environment.loader.get_source(environment, name)[0])
    return environment
