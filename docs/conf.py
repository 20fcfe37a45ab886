"""Sphinx: Markdown pages and the API from docstrings."""

from cramerl import __version__

project = "cramerl"
author = "The cramerl authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "cramerl"
exclude_patterns = ["_build"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
default_role = "any"
nitpicky = False
