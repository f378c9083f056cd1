"""Regular expressions of clients: the syntax of RE2, and the time that a match takes."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.broker.handling.patterns import InvalidPattern, Pattern

PIECES = [
    *("a", "b", "-", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)", r"\d", r"\w", r"\W", "a*", "b+", "a?", "(ab)*", "a{2}"),
    *("b{1,2}", "(a|b){0,2}", "a{2,}", "^", "$", r"\b", r"\B", "|", "(?i:A)", r"\-", "[a-b-]", "a*?", "x{0}"),
]
TEXTS = st.text("ab-1A\n x", max_size=8)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.lists(TEXTS, min_size=1, max_size=4))
def test_a_match_is_that_of_python(text: str, words: list[str]) -> None:
    pattern = Pattern(text)
    # Python's $ holds before a last newline as well; \Z does not.
    known = re.compile(text.replace("$", r"\Z"), re.ASCII)
    for word in words:
        if not word and "\\B" in text:
            continue  # Python before 3.14 finds no \\B in an empty text.
        assert pattern.matches(word) == (known.fullmatch(word) is not None), (text, word)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[",
            "(",
            ")",
            "*",
            "a**",
            "a{2}{3}",
            "a{1001}",
            "a{3,2}",
            r"\1x",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "a++",
            "[b-a]",
        ),
        *(r"\k", "(?P<>a)", "(?z)", r"\p{Nope}", "[[:nope:]]", "\\", "(?P<a", r"\x{110000}", "(a{500}){500}"),
        "(" * 500,
    ],
)
def test_what_re2_refuses_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (".*tv2", "A-tv2", "A-tv2x"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\p{Lu}\pL", "Äß", "äß"),
        ("[[:alpha:]]+", "ab", "a1"),
        ("(?i)orders", "OrDerS", "order"),
        (r"\x41\x{42}\103", "ABC", "abc"),
        ("a{,2}", "a{,2}", "aa"),
        ("(?s).", "\n", ""),
        ("", "", "a"),
        ("(?P<name>x)(?<other>y)", "xy", "x"),
    ],
)
def test_the_syntax_of_re2(text: str, yes: str, no: str) -> None:
    pattern = Pattern(text)
    assert pattern.matches(yes)
    assert not pattern.matches(no)


def test_no_expression_takes_long() -> None:
    """Python's matcher takes 2^30 steps and more for these."""
    for text in ("(a*)*b", "(a|a)*b", "(a|aa)+$c", "(.*)(.*)(.*)(.*)(.*)(.*)x", "((a{0,20}){0,20})b"):
        began = time.monotonic()
        assert not Pattern(text).matches("a" * 30_000)
        assert time.monotonic() - began < 5, text


def test_a_match_pauses() -> None:
    steps = 0
    for _ in Pattern("(a{0,20}){0,20}b").matching("a" * 30_000):
        steps += 1
    assert steps > 3
