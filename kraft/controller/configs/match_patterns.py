"""Checks the patterns of client metrics, which brokers compile and match (Kafka: `java.util.regex.Pattern`; KIP-714).

A controller has to ensure that brokers can compile a pattern. Python's `re` cannot decide that: its syntax differs, and
some short patterns occupy its compiler for seconds. This module accepts a subset of Java's syntax, in time linear in
the length of the text: characters, escapes, classes, groups, alternatives, quantifiers. It refuses back references,
look-behind, nested classes, the flag x, and rare escapes. See `docs/decisions/0027-patterns-are-not-compiled.md`.
"""

from __future__ import annotations

import re
from typing import Final

DEEPEST: Final = 32
"""The limit on nested groups. Java compiles groups by recursion, and a broker's stack is finite."""

_POSIX: Final = "Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDigit|Space"
_CATEGORIES: Final = "L|Lu|Ll|Lt|Lm|Lo|M|Mn|Mc|Me|N|Nd|Nl|No|P|Pc|Pd|Ps|Pe|Pi|Pf|Po|S|Sm|Sc|Sk|So|Z|Zs|Zl|Zp|C|Cc|Cf"
_CHARACTER: Final = r"\\(?:[^A-Za-z0-9]|[tnrfae]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
"""An escape for one character."""
_SET: Final = rf"\\(?:[dDsSwWhHvV]|[pP]\{{(?:{_POSIX}|{_CATEGORIES})\}})"
"""An escape for a set of characters."""
_END: Final = r"(?:[^\[\]\\&^-]|\\[^A-Za-z0-9])"
"""The first or last character of a range in a class."""
_RANGE: Final = rf"{_END}-{_END}"
_IN_CLASS: Final = rf"(?:[^\[\]\\&^-]|{_CHARACTER}|(?<!\[)\^|&(?!&))(?!-[^\]])"
"""One character in a class that does not begin a range."""
_CLASS: Final = rf"\[\^?+-?+(?:(?:{_RANGE}|{_SET})(?:-(?={_END}))?+|{_IN_CLASS})++-?+\]"
_QUOTED: Final = r"\\Q(?:[^\\]|\\(?!E))*+\\E"
_ATOM: Final = rf"(?:[^\\\[(){{?*+|]|{_CHARACTER}|{_SET}|\\[bBAzZGR]|{_CLASS})"
_QUANTIFIER: Final = r"(?:(?:[?*+]|\{[0-9]{1,9}\})[?+]?+)?+"
_NO_GROUP: Final = rf"(?:{_ATOM}{_QUANTIFIER}|{_QUOTED}|\|)"
_OPEN: Final = r"\((?:\?(?:[>!:]|[idmsuU]++:))?+(?!\?)"
_FLAGS: Final = r"\(\?[idmsuU]++\)"
_LEGAL: Final = re.compile(rf"(?:{_NO_GROUP}|{_FLAGS}|{_OPEN}|\){_QUANTIFIER})*+", re.DOTALL)
_GROUPS: Final = re.compile(rf"(?:{_NO_GROUP}|{_FLAGS})++|({_OPEN})|(\){_QUANTIFIER})", re.DOTALL)
_CLASSES: Final = re.compile(rf"{_QUOTED}|{_CHARACTER}|({_CLASS})", re.DOTALL)
_RANGES: Final = re.compile(rf"({_END})-({_END})|{_SET}|{_CHARACTER}|.", re.DOTALL)


def is_legal(pattern: str) -> bool:
    """Whether each broker can compile the pattern; False also for patterns outside the subset."""
    return _LEGAL.fullmatch(pattern) is not None and _is_balanced(pattern) and _ranges_rise(pattern)


def _is_balanced(pattern: str) -> bool:
    if "(" not in pattern and ")" not in pattern:
        return True
    groups = _GROUPS.sub(_end_of_group, pattern)
    for _ in range(DEEPEST):
        groups = groups.replace("()", "")
    return not groups


def _end_of_group(token: re.Match[str]) -> str:
    """The parenthesis of a token that begins or ends a group; empty for other tokens."""
    return "(" if token[1] else ")" if token[2] else ""


def _ranges_rise(pattern: str) -> bool:
    return all(
        first[-1] <= last[-1]
        for match in _CLASSES.finditer(pattern)
        if match[1]
        for first, last in _RANGES.findall(match[1][1:-1])
        if first
    )
