"""The patterns of client metrics, which brokers compile and match (Kafka: `java.util.regex.Pattern`; KIP-714).

A controller only has to know that the brokers will be able to compile a pattern. Python's `re` cannot tell: its syntax
differs, and some short patterns keep its compiler busy for seconds. This module looks for a subset of Java's syntax
in time that grows with the length of the text alone: characters, escapes, classes, groups, alternatives, quantifiers.
Not in the subset, and refused: back references, look-behind, classes within classes, the flag x, and rare escapes. See
`docs/decisions/0027-patterns-are-not-compiled.md`.
"""

from __future__ import annotations

import re
from typing import Final

DEEPEST: Final = 32
"""Groups within groups. Java compiles them by recursion, and a broker's stack is finite."""

_POSIX: Final = "Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDigit|Space"
_CATEGORIES: Final = "L|Lu|Ll|Lt|Lm|Lo|M|Mn|Mc|Me|N|Nd|Nl|No|P|Pc|Pd|Ps|Pe|Pi|Pf|Po|S|Sm|Sc|Sk|So|Z|Zs|Zl|Zp|C|Cc|Cf"
_CHARACTER: Final = r"\\(?:[^A-Za-z0-9]|[tnrfae]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
"""An escape that stands for one character."""
_SET: Final = rf"\\(?:[dDsSwWhHvV]|[pP]\{{(?:{_POSIX}|{_CATEGORIES})\}})"
"""An escape that stands for any of several."""
_END: Final = r"(?:[^\[\]\\&^-]|\\[^A-Za-z0-9])"
"""What a range in a class begins and ends with."""
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
    """Whether every broker can compile the pattern; False also for patterns outside of the subset."""
    return _LEGAL.fullmatch(pattern) is not None and _is_balanced(pattern) and _ranges_rise(pattern)


def _is_balanced(pattern: str) -> bool:
    if "(" not in pattern and ")" not in pattern:
        return True
    groups = _GROUPS.sub(_end_of_group, pattern)
    for _ in range(DEEPEST):
        groups = groups.replace("()", "")
    return not groups


def _end_of_group(token: re.Match[str]) -> str:
    """The parenthesis of a token that begins or ends a group; nothing for what is between."""
    return "(" if token[1] else ")" if token[2] else ""


def _ranges_rise(pattern: str) -> bool:
    return all(
        first[-1] <= last[-1]
        for found in _CLASSES.finditer(pattern)
        if found[1]
        for first, last in _RANGES.findall(found[1][1:-1])
        if first
    )
