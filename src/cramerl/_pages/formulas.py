"""Formulas in plain sentences, set as MathML, which browsers draw without scripts or fonts from elsewhere.

A formula is a run of words that no English sentence has, such as ``C_λ⁻¹z = b``. What is in doubt stays text: then the
page shows it as it was written.
"""

from __future__ import annotations

import re
from typing import Any

from cramerl._extras import load_library

_NAMES = ("cos", "cot", "diag", "mass", "sin", "sup")
_OPERATORS = {"<=": "≤", ">=": "≥", "->": "→", "...": "…", "-": "−"}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−", strict=True))
_PAIRS = {")": "(", "]": "[", "}": "{"}
_ENGLISH = ("a", "A", "I")  # letters that are words too
_NUMBER = r"\d+(?:\.\d+)?"
_LETTER = r"[^\W\d_]\u0304?"
_TOKEN = re.compile(rf"{_NUMBER}|\.\.\.|<=|>=|->|{'|'.join(_NAMES)}|{_LETTER}|\s+|.")
# What no English word has: a sign, a prime, a bracket or a stroke beside a single letter.
_SIGNS = re.compile(
    r"[α-ωΑ-Ω√∇ℓ²³⁻¹=^_|<>\u0304]|[A-Za-z]'|[A-Za-z][(*]|[+·]|->|\b[A-Za-z][-/][A-Za-z\d]\b|\b\d/[A-Za-z]\b"
)
_WORDS = re.compile(r"[^\W\d_]{4}|^[^\w|]*[A-Za-z]{2,}[^\w|]*$|[A-Za-z]\d|'s\b|[A-Za-z]-[A-Za-z]{2}")
_WEAK = re.compile(rf"[\[({{|]*-?(?:{_NUMBER}(?:/{_NUMBER})?|\.\.\.|[-+/]|[aAI])[\])}}|,]*(?:/\d+)?")
_OPERATOR = re.compile(r"(?:^|\s)[-+/·=<>]+$")


def set_formulas(text: str) -> Any:
    """A sentence as markup: formulas as ``<math>`` with the original in ``alttext``, everything else escaped."""
    markup = load_library("markupsafe").Markup
    found = markup("")
    for part, is_formula in _split(text):
        found += markup('<math alttext="{}">{}</math>').format(part, markup(to_mathml(part))) if is_formula else part
    return found


def to_mathml(formula: str) -> str:
    """The inside of a ``<math>`` element."""
    tokens = [token for token in _TOKEN.findall(formula) if not token.isspace()]
    for i, token in enumerate(tokens):
        if token == "-" and (i == 0 or tokens[i - 1] in ("(", "[", "{", ",", "=")):
            tokens[i] = _OPERATORS["-"]  # a sign, which stands close to its number
    found: list[str] = []
    while tokens:
        found.append(_take(tokens))
    return "".join(found)


def _take(tokens: list[str]) -> str:
    """Take one symbol, with what is below and above it, from the front of the tokens."""
    token = tokens.pop(0)
    if token == "√" and tokens:
        return f"<msqrt>{_take(tokens)}</msqrt>"
    base, below, above = _symbol(token), "", ""
    while tokens:
        if tokens[0] == "_" and len(tokens) > 1:
            below = _symbol(tokens[1])
            del tokens[:2]
        elif tokens[0] == "^" and len(tokens) > 1:
            del tokens[0]
            above += _group(tokens)
        elif tokens[0] in _RAISED:
            above += _raised(tokens)
        elif tokens[0] == "*":
            above += _symbol(tokens.pop(0))
        else:
            break
    return _with_scripts(base, below, above)


def _with_scripts(base: str, below: str, above: str) -> str:
    if below and above:
        return f"<msubsup>{base}<mrow>{below}</mrow><mrow>{above}</mrow></msubsup>"
    if below:
        return f"<msub>{base}<mrow>{below}</mrow></msub>"
    return f"<msup>{base}<mrow>{above}</mrow></msup>" if above else base


def _group(tokens: list[str]) -> str:
    """What is raised by ``^``: one symbol, or what is in brackets."""
    if tokens[0] != "(":
        return _symbol(tokens.pop(0))
    end = tokens.index(")") if ")" in tokens else len(tokens)
    inside = tokens[1:end]
    del tokens[: end + 1]
    return "".join(map(_symbol, inside))


def _raised(tokens: list[str]) -> str:
    digits = ""
    while tokens and tokens[0] in _RAISED:
        digits += _RAISED[tokens.pop(0)]
    sign = "<mo>−</mo>" if digits.startswith("−") else ""
    return f"{sign}<mn>{digits.lstrip('−')}</mn>"


def _symbol(token: str) -> str:
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token in _NAMES:
        return f'<mi>{token}</mi><mspace width="0.17em"></mspace>'
    if token[0].isalpha():
        return f"<mi>{token}</mi>"
    escaped = {"'": "′", "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;"}.get(token, token)
    style = ' stretchy="false"' if token in "()[]{}|" else ""
    style += ' lspace="0" rspace="0"' if token in ("'", "/", "|", _OPERATORS["-"]) else ""
    return f"<mo{style}>{_OPERATORS.get(token, escaped)}</mo>"


def _split(text: str) -> list[tuple[str, bool]]:
    """The text in parts that are formulas and parts that are not."""
    parts, run = [], ""
    for word in re.findall(r"\s*\S+|\s+$", text):
        kind = _kind(word.strip())
        if kind and _goes_on(run, word.strip()):
            run += word
            continue
        parts += _trimmed(run)
        run = word if kind else ""
        parts += [] if kind else [(word, False)]
    parts += _trimmed(run)
    merged: list[tuple[str, bool]] = []
    for part, is_formula in parts:
        if merged and not is_formula and not merged[-1][1]:
            part = merged.pop()[0] + part
        merged.append((part, is_formula))
    return [part for part in merged if part[0]]


def _kind(word: str) -> bool:
    """Whether a word can be part of a formula."""
    if _WORDS.search(re.sub("|".join(_NAMES), "", word)):
        return bool(re.fullmatch(r"\W*(?:[A-Za-z]'*){1,3}'[,.;:)]*", word)) and not word.endswith("'s")
    return bool(_SIGNS.search(word) or _WEAK.fullmatch(word.rstrip(".;:")) or _single(word))


def _goes_on(run: str, word: str) -> bool:
    """Whether a word belongs to the formula before it: punctuation and a bracket after a symbol begin another."""
    if _depth(run) > 0:
        return True
    return not run.endswith((",", ".", ";", ":")) and not (
        word.startswith(("(", "[", "{")) and run.strip() and not _OPERATOR.search(run)
    )


def _single(word: str) -> bool:
    """Whether a word is one letter that is no word of English."""
    core = word.strip(".,;:()[]{}").replace("\u0304", "")
    return len(core) == 1 and core.isalpha() and core not in _ENGLISH


def _depth(text: str) -> int:
    return sum(text.count(one) for one in "([{") - sum(text.count(one) for one in ")]}")


def _trimmed(run: str) -> list[tuple[str, bool]]:
    """A run as formula, between what does not belong to it: spaces, punctuation, lone brackets and operators."""
    core, before, after = run, "", ""
    while core:
        last, first = core[-1], core[0]
        if last in " \t.,;:" or (last in ")]}" and _depth(core) < 0):
            core, after = core[:-1], last + after
        elif first.isspace() or (first in "([{" and _depth(core) > 0):
            core, before = core[1:], before + first
        elif word := re.search(r"(?:^|\s)([-+/=]|[aAI])$", core):
            if word[1].isalpha() and _OPERATOR.search(core[: word.start(1)].rstrip()):
                break
            core, after = core[: word.start(1)], word[1] + after
        elif word := re.match(r"([-+/=]|[aAI](?! [-+=<>]))(?=\s|$)", core):
            core, before = core[word.end() :], before + word[1]
        else:
            break
    if core and (_depth(core) or core.count("|") % 2):
        shorter = " ".join(core.split(" ")[:-1])
        return [(before, False), *_trimmed(shorter), (core[len(shorter) :], False), (after, False)]
    return [(before, False), (core, bool(_SIGNS.search(core) or any(map(_single, core.split())))), (after, False)]
