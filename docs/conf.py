"""Sphinx: Markdown pages and the API from docstrings. The site is complete in itself: it asks no other server."""

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

from cramerl import __version__

project = "cramerl"
author = copyright = "The cramerl authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "cramerl"
html_math_renderer = "mathml"
html_static_path = html_css_files = ["formulas.css", "figures.css"]
html_extra_path = ["playground.html"]
# A page that was opened as a file may not fetch the pages that it found, for an excerpt of each.
html_js_files = [
    (None, {"body": "if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false"})
]
exclude_patterns = ["_build"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
default_role = "any"
nitpicky = False

SPELLINGS = {r"\dots": r"\ldots", r"\Big": r"\Bigl"}  # what docutils calls by other names


def put_formula(translator, node):
    """A formula as MathML, which browsers draw themselves; MathJax would be fetched from another server."""
    block = isinstance(node, nodes.math_block)
    tag = "div" if block else "span"
    tex = re.sub(r"\\[a-zA-Z]+", lambda name: SPELLINGS.get(name[0], name[0]), node.astext())
    try:
        formula = latex2mathml.tex2mathml(tex, as_block=block)
        # A bar alone does not know which side it closes: it would stretch by itself, with room around it.
        formula = re.sub("<mo[^>]*>([|‖∥])</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', formula)
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        formula = f"<code>{translator.encode(node.astext())}</code>"
    start = translator.starttag(node, tag, "", CLASS="math notranslate nohighlight")
    translator.body.append(f"{start}{formula}</{tag}>")
    raise nodes.SkipNode


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (put_formula, None), (put_formula, None))
