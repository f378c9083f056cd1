"""Regular expressions of clients: what RE2/J says of them, how long they take at most, and when RE2 is loaded."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kraft import limits
from kraft.handling.patterns import InvalidPattern, Matching, Pattern, weight_of
from kraft.limits import (
    PATTERN_CHARACTERS,
    PATTERN_PROGRAM_BYTES,
    PATTERN_STEPS,
    PATTERN_STEPS_PER_UNIT,
    PATTERN_UNITS_PER_PORTION,
    PATTERN_WEIGHT,
)

DATA: Final = Path(__file__).parents[2] / "data" / "client_patterns.jsonl.gz"
NEWER: Final = frozenset("ᲀꭰꞮᲐ𞤀𞤢ࣿ😀₿㋿🫠Ꭰაɪ")
"""Characters that the tables of RE2/J, which are those of Unicode 6.0, do not have or have in another class, or of
which they lack the other case.
"""
REPEATED: Final = {
    *("(a{100}){100}", "((a{10}){10}){11}", "(a{0,40}){0,40}", "(a{500}){500}", "(?:a{1000}){2}", "(a{2,}){600}"),
    "(?:(?:a?){100}){11}",
}
"""Repetitions of repetitions beyond 1,000 in all."""
SCRIPTS: Final = {r"\p{Adlam}", r"\p{Wancho}", r"\p{Vithkuqi}", r"\p{Kawi}", r"\p{Zanabazar_Square}", r"\p{Unknown}"}
"""Names of scripts that one of the two does not know."""
FOLDED: Final = {r"(?i)\p{Ll}"}
"""RE2/J leaves out most capital letters."""
MOVED: Final = {r"\p{Common}", r"\p{Arabic}"}
"""Arabic digits have changed their script."""
HANGING: Final = {"(?i)ᲀ"}
"""RE2/J never ends to compile it."""
LISTED: Final = REPEATED | SCRIPTS | FOLDED | MOVED | HANGING
"""`docs/differences.md` has them."""


def recorded() -> tuple[list[str], dict[str, str]]:
    """The texts, and what RE2/J says of each pattern: "refused", "hangs", or a digit for each text."""
    first, *rows = map(json.loads, gzip.decompress(DATA.read_bytes()).splitlines())
    return first["texts"], {row["pattern"]: row["kafka"] for row in rows}


def said(text: str, texts: list[str]) -> str:
    try:
        pattern = Pattern(text)
    except InvalidPattern:
        return "refused"
    return "".join(str(int(pattern.matches(one))) for one in texts)


def test_patterns_match_as_those_of_the_jvm() -> None:
    texts, verdicts = recorded()
    old = [at for at, one in enumerate(texts) if not NEWER & set(one)]
    differing: set[str] = set()
    for text, kafkas in verdicts.items():
        if len(text) > PATTERN_CHARACTERS:
            continue
        ours = said(text, texts)
        if ours != kafkas and (len(ours) != len(kafkas) or any(ours[at] != kafkas[at] for at in old)):
            differing.add(text)
    assert differing == LISTED
    assert len(verdicts) > 1400
    assert sum(one == "refused" for one in verdicts.values()) > 400


def test_new_characters_match_as_themselves() -> None:
    texts, _ = recorded()
    for char in NEWER & set(texts):
        assert Pattern(char).matches(char)
        assert Pattern(".").matches(char)
        assert not Pattern("[a-z]").matches(char)


CLASS: Final = "".join(chr(0x400 + 2 * at) for at in range(3900))


@pytest.mark.parametrize(
    "text",
    [
        f"(?i)[^{CLASS}]{{0,1000}}x",
        r"\pL" * 1300,
        r"(?i)[\pL]" * 450,
        "a{0,1000}" * 450,
        r"\pL{1000}",
        r"(?:\pL{0,9})" * 300,
        "(a{1000}b{1000})" * 200,
        "((((((((((a{2}){2}){2}){2}){2}){2}){2}){2}){2})" * 80,
    ],
)
def test_a_large_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern, match=r"characters|classes|large|missing"):
        Pattern(text)


def test_the_weight_of_a_pattern_has_a_bound() -> None:
    assert weight_of("orders-.*") == 9
    assert weight_of(r"\pL{2,10}\P{Greek}") == 18 + 2 * 700 + 10
    weight_of("a" * PATTERN_CHARACTERS)
    with pytest.raises(InvalidPattern):
        weight_of("a" * (PATTERN_CHARACTERS + 1))
    times = PATTERN_WEIGHT // 1007
    weight_of("a{1000}" * times)
    with pytest.raises(InvalidPattern):
        weight_of("a{1000}" * (times + 1))


def test_the_program_has_a_bound_and_the_cache_of_the_library_is_empty() -> None:
    import re2

    pattern = Pattern("orders-.*")
    options = pattern._compiled.options
    assert (options.max_mem, options.log_errors, options.never_capture) == (PATTERN_PROGRAM_BYTES, False, True)
    assert re2._Regexp._make.cache_info().currsize == 0


def test_groups_hold_nothing() -> None:
    assert Pattern("(?P<one>a)(b)(?<two>c)")._compiled.groups == 0


def test_no_match_takes_more_than_its_steps() -> None:
    pattern = Pattern("(?:.?){300}#")
    assert pattern.matches("a" * 249 + "#")
    length = PATTERN_STEPS // pattern._states
    assert not pattern.matches("a" * length)
    with pytest.raises(InvalidPattern):
        pattern.matches("a" * (length + 1))


def test_matches_come_in_portions_that_keep_no_program() -> None:
    matching, portions = Matching("(?:.?){999}#"), []
    for _ in range(20):
        assert not matching.matches("a" * 249)
        if matching.is_due:
            portions.append(matching.pause())
            assert matching._pattern is None
    most = PATTERN_UNITS_PER_PORTION + Pattern("(?:.?){999}#").steps("a" * 249) // PATTERN_STEPS_PER_UNIT
    assert len(portions) == 20
    assert max(portions) <= most + Pattern("(?:.?){999}#").units


def test_a_look_counts() -> None:
    matching, looks = Matching("a"), 0
    while not matching.is_due:
        matching.look()
        looks += 1
    assert looks * limits.PATTERN_STEPS_PER_LOOK >= PATTERN_UNITS_PER_PORTION * PATTERN_STEPS_PER_UNIT


def test_half_a_pair_of_surrogates_is_refused_and_matches_nothing() -> None:
    with pytest.raises(InvalidPattern):
        Pattern("\ud800")
    assert not Pattern("a").matches("\ud800")


def test_without_the_library_every_pattern_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidPattern, match="not installed"):
        Pattern("a")


def test_the_library_is_loaded_with_the_first_pattern() -> None:
    code = (
        "import sys, kraft.coordinators.groups.shard, kraft.coordinators.transactions.coordinator as _\n"
        "from kraft.handling.patterns import Pattern\n"
        "print('re2' in sys.modules, Pattern('a').matches('a'), 're2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
