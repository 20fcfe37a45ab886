"""Formulas in sentences: what is one and what is not, and how it is set."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl._pages.formulas import set_formulas, to_mathml


def formulas(text):
    return [unescape(found) for found in re.findall(r'alttext="([^"]*)"', str(set_formulas(text)))]


def written(markup):
    """The sentence as it was written."""
    return unescape(re.sub(r'<math alttext="([^"]*)">.*?</math>', r"\1", str(markup)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("T' contracts the C_0 norm by γ, for any P and Q", ["T'", "C_0", "γ", "P", "Q"]),
        ("|Cv|² = v'C'Cv. For v = (1, 0, ..., 0), k = 11: 11", ["|Cv|² = v'C'Cv", "v = (1, 0, ..., 0)", "k = 11"]),
        ("mass √k (7.1414 for k = 51), and", ["√k", "k = 51"]),
        ("a p - q that reads the same", ["p - q"]),
        ("with M_r u not u", ["M_r u", "u"]),
        ("Atoms (0, 1, 2), A = (0, 1, 0), b = 0", ["A = (0, 1, 0)", "b = 0"]),
        ("any λ (see γ = 1/2)", ["λ", "γ = 1/2"]),
        ("it reads 5 <= 45 over R", ["5 <= 45", "R"]),
        ("L51's loss is left/right of the paper's, as DQN's or LSTD's", []),
        ("For equal masses a row of 3 atoms, 0.852 on [-2, 2], and/or I", []),
        ("before, any Φ", ["Φ"]),
    ],
)
def test_what_is_a_formula(text, expected):
    assert formulas(text) == expected
    assert written(set_formulas(text)) == text


@given(st.text(alphabet="aekzCTλ_^²⁻¹'|()[]{}<>=+-*/ .,:;0123&\"\u0304\n", max_size=60))
def test_nothing_is_lost_and_nothing_is_markup(text):
    markup = set_formulas(text)
    assert written(markup) == text
    inside = re.sub(
        r"</?(?:math|m[ionp]|mrow|msub|msup|msubsup|msqrt|mspace)(?: [a-z]+=\"[^\"<>]*\")*>", "", str(markup)
    )
    assert "<" not in inside
    assert ">" not in inside


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("C_λ⁻¹z", "<msubsup><mi>C</mi><mrow><mi>λ</mi></mrow><mrow><mo>−</mo><mn>1</mn></mrow></msubsup><mi>z</mi>"),
        ("√0.8", "<msqrt><mn>0.8</mn></msqrt>"),
        ("F*", "<msup><mi>F</mi><mrow><mo>*</mo></mrow></msup>"),
        ("k <= 2", "<mi>k</mi><mo>≤</mo><mn>2</mn>"),
        ("x < y", "<mi>x</mi><mo>&lt;</mo><mi>y</mi>"),
        ("z\u0304", "<mi>z\u0304</mi>"),
    ],
)
def test_how_it_is_set(formula, expected):
    assert to_mathml(formula) == expected


def test_a_power_in_brackets_loses_them():
    assert to_mathml("N^(-1/2)").startswith("<msup><mi>N</mi><mrow><mo")
    assert "(" not in to_mathml("N^(-1/2)")
