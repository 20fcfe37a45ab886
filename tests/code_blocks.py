"""The blocks of code in Markdown pages: what they hold, what they print, and whether an output is the one shown."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = {page.name: page for page in sorted((ROOT / "docs").glob("*.md"))}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SEPARATORS = ("&&", ";")


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page that name a language, in order."""
    text = PAGES[page].read_text(encoding="utf-8")
    return [Block(text.count("\n", 0, found.start()) + 1, *found.groups()) for found in BLOCK.finditer(text)]


def commands(block: str) -> list[list[str]]:
    """The words of each command of a block for a shell, without comments and without variables set before it."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for separator, group in itertools.groupby(words, lambda word: word in SEPARATORS):
            command = list(group)
            while command and re.match(r"[A-Z_]+=", command[0]):
                command.pop(0)
            if command and not separator:
                found.append(command)
    return found


def inline_commands(page: str) -> list[list[str]]:
    """The words of each ``cramerl`` command that stands in the prose of a page."""
    text = BLOCK.sub("", PAGES[page].read_text(encoding="utf-8"))
    spans = re.findall(r"`(cramerl [a-z]+\b[^`]*)`", re.sub(r"\n(?!\n)", " ", text))
    return [shlex.split(span) for span in spans]


def shows(shown: str, printed: str, *, digits: bool = True) -> bool:
    """Whether a shown output is part of what was printed.

    A line of three dots stands for any number of lines, three dots within a line for any text of it. Trailing blanks
    do not count. Without ``digits`` any number stands for any other, and the width of columns does not count.
    """
    shown, printed = ("\n".join(map(str.rstrip, text.rstrip().split("\n"))) for text in (shown, printed))
    if not digits:
        shown, printed = (re.sub(r" +", " ", re.sub(r"-?\d[\d,.]*\d|-?\d", "0", text)) for text in (shown, printed))
    pattern = re.escape(shown).replace(r"\ ", " ").replace("\\\n", "\n")
    pattern = re.sub(r"^\\\.\\\.\\\.\n", "(?:.*\n)*?", pattern, flags=re.MULTILINE)
    pattern = re.sub(r"\n\\\.\\\.\\\.$", "(?:\n.*)*", pattern).replace(r"\.\.\.", ".*")
    return re.search(rf"^{pattern}$", printed, re.MULTILINE) is not None
