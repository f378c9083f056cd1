"""`ssl.principal.mapping.rules`: from the name in a certificate to a principal (Kafka: `SslPrincipalMapper`).

A rule has a pattern of Java. This module translates the patterns that Python can match in the same way, and refuses all
others when the configuration is read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

MOST_NAME_CHARACTERS: Final = 4096
"""A longer name is refused: matching a long name against a careless pattern would stop the node."""

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)\/((\\.|[^\\/])*)\/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_DOT: Final = r"[^\n\r\u0085\u2028\u2029]"
_COUNT: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_FLAGS: Final = re.compile(r"\(\?([ims]+)\)")


class NoPrincipal(ValueError):
    """No rule gives this name a principal."""


class PrincipalRule(Struct, frozen=True):
    """One rule. Without a pattern the name is the principal (`DEFAULT`)."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""
    """`L` for lower case, `U` for upper case."""

    def apply(self, name: str) -> str | None:
        """The principal, or None if the pattern does not match the whole name. Raises `NoPrincipal`."""
        pattern = self.pattern
        if pattern is None:
            return name
        if pattern.fullmatch(name) is None:
            return None
        template = _literal_references(self.replacement, pattern.groups)
        pieces, end = [], 0
        for match in _matches(pattern, name):
            pieces += [name[end : match.start()], _expand(template, match)]
            end = match.end()
        result = "".join((*pieces, name[end:]))
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class PrincipalRules(Struct, frozen=True):
    """The rules of one listener; the first rule that matches decides."""

    rules: tuple[PrincipalRule, ...] = (PrincipalRule(),)

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        """Parse the value of the setting. Raises `ValueError` for an invalid rule, and for a pattern that only Java
        can match.
        """
        rules = []
        for split in _SPLITTER.finditer(text.strip()):
            rule = split[1]
            match = _PARSER.match(rule)
            if match is None or match.end() != len(rule):
                left = rule if match is None else rule[match.end() :]
                raise ValueError(f"the rule {rule!r} is invalid at {left!r}")
            if match[1] is not None:
                rules.append(PrincipalRule())
            elif match[2] is not None:
                rules.append(PrincipalRule(_compile(match[2]), match[4], match[6]))
        return cls(tuple(rules))

    def principal_of(self, name: str) -> str:
        """The name of the principal. Raises `NoPrincipal`; the text does not repeat the name."""
        if len(name) > MOST_NAME_CHARACTERS:
            raise NoPrincipal(f"its name has more than {MOST_NAME_CHARACTERS} characters")
        for rule in self.rules:
            if (principal := rule.apply(name)) is not None:
                return principal
        raise NoPrincipal("no rule of ssl.principal.mapping.rules matches its name")


def _matches(pattern: re.Pattern[str], name: str) -> Iterator[re.Match[str]]:
    """The matches of `replaceAll`. After an empty match Java goes on, where Python tries the same place again."""
    at = 0
    while at <= len(name) and (match := pattern.search(name, at)) is not None:
        yield match
        at = match.end() + (match.end() == match.start())


def _literal_references(replacement: str, groups: int) -> str:
    """Make `$5` literal where there are fewer groups (Kafka: `SslPrincipalMapper.Rule.escapeLiteralBackReferences`).

    As in Kafka, the positions are those before any insertion, and nothing is literal in a pattern without groups.
    """
    if groups == 0:
        return replacement
    value = replacement
    for match in _REFERENCE.finditer(replacement):
        if match[1].startswith("0"):
            continue
        index = int(match[1])
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            start = match.start(1) - 1
            value = value[:start] + "\\" + value[start:]
    return value


def _expand(template: str, match: re.Match[str]) -> str:
    """The replacement of one match (Java: `Matcher.appendReplacement`). Raises `NoPrincipal` as Java throws."""
    result, at = [], 0
    while at < len(template):
        char = template[at]
        at += 1
        if char == "\\":
            if at == len(template):
                raise NoPrincipal("the replacement of the rule ends with a backslash")
            result.append(template[at])
            at += 1
        elif char == "$":
            value, at = _group(template, at, match)
            result.append(value or "")
        else:
            result.append(char)
    return "".join(result)


def _group(template: str, at: int, match: re.Match[str]) -> tuple[str | None, int]:
    """The group that a `$` before this position names, and the position after its name."""
    if template[at : at + 1] == "{":
        name = _NAME.match(template, at + 1)
        if name is None or template[name.end() : name.end() + 1] != "}" or name[0] not in match.re.groupindex:
            raise NoPrincipal("the replacement of the rule names a group that the pattern does not have")
        return match[name[0]], name.end() + 1
    if not "0" <= template[at : at + 1] <= "9":
        raise NoPrincipal("the replacement of the rule has a $ without the number of a group")
    number = int(template[at])
    at += 1
    if number > match.re.groups:
        raise NoPrincipal(f"the replacement of the rule names group {number}, which the pattern does not have")
    while "0" <= template[at : at + 1] <= "9" and number * 10 + int(template[at]) <= match.re.groups:
        number = number * 10 + int(template[at])
        at += 1
    return match[number], at


def _compile(java: str) -> re.Pattern[str]:
    """The pattern in Python. Raises `ValueError` for a pattern that Python cannot match as Java does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # nested sets, which are unions in Java
        try:
            return re.compile(_translated(java), re.ASCII)
        except (re.error, FutureWarning, RecursionError) as bad:
            raise ValueError(f"the pattern {java!r} cannot be matched here: {bad}") from bad


def _translated(java: str) -> str:
    pieces: list[str] = []
    at, in_set, depth, closing = 0, False, 0, ""
    while at < len(java):
        char, pair = java[at], java[at : at + 2]
        flags = None if in_set else _FLAGS.match(java, at)
        if char == "\\":
            if pair[1:] in "QEGhHRvVXpP0" or (in_set and pair[1:] == "b"):
                raise ValueError(f"the pattern {java!r} cannot be matched here: {pair} is known to Java only")
            piece = pair
        elif in_set:
            if pair == "&&" or char == "[":
                raise ValueError(f"the pattern {java!r} cannot be matched here: it has an operation of sets")
            in_set, piece = char != "]", char
        elif char == "{" and _COUNT.match(java, at) is None:
            # An error in Java; in Python such a brace is itself, or a count from 0 on.
            raise ValueError(f"the pattern {java!r} cannot be matched here: a brace begins no count")
        elif flags is not None:
            if depth or closing or "|" in java or any(one not in ("", "^") for one in pieces):
                raise ValueError(f"the pattern {java!r} cannot be matched here: put {flags[0]} at its start")
            closing, piece, pair = ")", f"(?{flags[1]}:", flags[0]
        elif java.startswith("(?<", at) and java[at + 3 : at + 4] not in ("=", "!"):
            depth, piece, pair = depth + 1, "(?P<", "(?<"
        elif char == "." and not closing:
            piece = _DOT
        else:
            in_set = char == "["
            depth += (char == "(") - (char == ")")
            piece = char
        pieces.append(piece)
        at += len(pair) if piece not in (char, _DOT) else 1
    return "".join((*pieces, closing))
