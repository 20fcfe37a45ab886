"""Text that may come from somebody else, as a terminal may be given it: without what moves the cursor, or worse."""

from __future__ import annotations

import unicodedata
from typing import Any

_ACTING = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, direction and the like, halves of characters, separators of lines


def printable(text: str) -> str:
    r"""Text in which characters that a terminal acts on are written as in Python, but for line ends and tabs.

    Example:
        >>> print(printable("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in _ACTING else ascii(letter)[1:-1]
        for letter in text
    )


class PrintableStream:
    """A stream to a terminal that writes only what is printable. What may move the cursor goes to ``unfiltered``.

    Args:
        stream: such as standard output.
    """

    def __init__(self, stream: Any):
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Write text, with what a terminal would act on spelled out."""
        self.unfiltered.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)
