"""Regular expressions of clients, matched in time that grows with the text only (RE2/J, which Kafka uses for them).

Python's own matcher may take a time that doubles with each character. This one follows all ways through an expression
at once, and remembers where each set of ways leads. The syntax is that of RE2: no references back, no looking around.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Final
from unicodedata import category

from msgspec import Struct

from kraft.limits import PATTERN_CHARACTERS, PATTERN_MOVES, PATTERN_NODES, PATTERN_STEPS

MAX_REPEAT: Final = 1000
"""The largest count of a repetition, as in RE2."""
_MAX_DEPTH: Final = 100
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
Takes = Callable[[str], bool]
"""Whether a node takes a character."""


class InvalidPattern(ValueError):
    """The expression is not one of RE2, or is too large."""


class _Place(Enum):
    """A condition on the place in the text."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "^"
    LINE_END = "$"
    WORD_EDGE = "\\b"
    WITHIN = "\\B"


class _Node(Struct):
    """A node of the network: it takes a character, asks for a place, or only leads on."""

    takes: Takes | None = None
    place: _Place | None = None
    next: tuple[int, ...] = ()


class _Flags(Struct, frozen=True):
    ignores_case: bool = False
    is_multiline: bool = False
    dot_takes_newline: bool = False


class _Part(Struct, frozen=True):
    """A part of the network, from a node to a node that leads nowhere yet."""

    first: int
    last: int


# What a character may be


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"


def _is_space(char: str) -> bool:
    return char in "\t\n\f\r "


def _is_word(char: str) -> bool:
    return char in _WORD


def _is_any(char: str) -> bool:
    return True


def _is_no_newline(char: str) -> bool:
    return char != "\n"


def _is_not(takes: Takes, char: str) -> bool:
    return not takes(char)


def _is_within(low: str, high: str, char: str) -> bool:
    return low <= char <= high


def _is_of_category(wanted: str, char: str) -> bool:
    return category(char).startswith(wanted)


def _is_one_of(all_takes: tuple[Takes, ...], char: str) -> bool:
    return any(takes(char) for takes in all_takes)


def _in_any_case(takes: Takes, char: str) -> bool:
    return takes(char) or takes(char.lower()) or takes(char.upper())


_CLASSES: Final[dict[str, Takes]] = {"d": _is_digit, "s": _is_space, "w": _is_word}
_POSIX: Final[dict[str, Takes]] = {
    "alnum": lambda char: char.isascii() and char.isalnum(),
    "alpha": lambda char: char.isascii() and char.isalpha(),
    "ascii": str.isascii,
    "blank": lambda char: char in "\t ",
    "cntrl": lambda char: char < " " or char == "\x7f",
    "digit": _is_digit,
    "graph": partial(_is_within, "!", "~"),
    "lower": partial(_is_within, "a", "z"),
    "print": partial(_is_within, " ", "~"),
    "punct": lambda char: "!" <= char <= "~" and not char.isalnum(),
    "space": lambda char: char in "\t\n\v\f\r ",
    "upper": partial(_is_within, "A", "Z"),
    "word": _is_word,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_CATEGORIES: Final = frozenset(
    (*"LMNPSZC", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf")
) | {"Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"}


class _Parser:
    """Reads an expression, and builds the network of its nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.nodes: list[_Node] = []

    def network(self) -> _Part:
        """The network of the whole expression."""
        part = self._alternatives(_Flags())
        if self._at < len(self._text):
            raise InvalidPattern("a closing parenthesis without an opening one")
        return part

    def _node(self, node: _Node) -> _Part:
        if len(self.nodes) >= PATTERN_NODES:
            raise InvalidPattern(f"the expression has more than {PATTERN_NODES} nodes")
        self.nodes.append(node)
        return _Part(len(self.nodes) - 1, len(self.nodes) - 1)

    def _lead(self, start: int, *ends: int) -> None:
        self.nodes[start].next += ends

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._at += len(text)
        return True

    def _one(self) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern("the expression ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        at = self._text.find(end, self._at)
        if at < 0:
            raise InvalidPattern(f"{end!r} is missing")
        text = self._text[self._at : at]
        self._at = at + len(end)
        return text

    # The structure

    def _alternatives(self, flags: _Flags) -> _Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidPattern("the groups are nested too deeply")
        start, end = self._node(_Node()).first, self._node(_Node()).first
        while True:
            branch, flags = self._sequence(flags)
            self._lead(start, branch.first)
            self._lead(branch.last, end)
            if not self._take("|"):
                self._depth -= 1
                return _Part(start, end)

    def _sequence(self, flags: _Flags) -> tuple[_Part, _Flags]:
        first = last = self._node(_Node()).first
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            before = len(self.nodes)
            changed = self._flags_to_the_end(flags)
            if changed is not None:
                flags = changed
                continue
            part = self._repeated(self._atom(flags), before)
            self._lead(last, part.first)
            last = part.last
        return _Part(first, last), flags

    def _flags_to_the_end(self, flags: _Flags) -> _Flags | None:
        """The flags of `(?i)`, which hold up to the end of the group; None for anything else."""
        end = self._text.find(")", self._at)
        if not self._peek("(?") or end < 0 or not set(self._text[self._at + 2 : end]) <= set("imsU-"):
            return None
        text = self._text[self._at + 2 : end]
        self._at = end + 1
        return _with_flags(flags, text)

    def _repeated(self, part: _Part, before: int) -> _Part:
        """Read the repetition after an atom, if there is one, and return the part repeated so often."""
        least, most = self._count()
        if (least, most) == (1, 1):
            return part
        if self._count() != (1, 1):
            raise InvalidPattern("a repetition of a repetition")
        if least == 0 and most == 1:
            return self._optional(part)
        if most is None and least <= 1:
            return self._many(part, least)
        block = self.nodes[before:]
        copies = [part]
        while len(copies) < (least + 1 if most is None else max(most, 1)):
            copies.append(self._copy(block, part, before))
        copies[least:] = [self._many(copies[least], 0)] if most is None else map(self._optional, copies[least:])
        if most == 0:
            return self._node(_Node())
        for one, other in pairwise(copies):
            self._lead(one.last, other.first)
        return _Part(copies[0].first, copies[-1].last)

    def _copy(self, block: list[_Node], part: _Part, before: int) -> _Part:
        """A copy of the nodes of an atom, which began at `before`."""
        shift = len(self.nodes) - before
        for node in block:
            self._node(_Node(node.takes, node.place, tuple(one + shift for one in node.next)))
        return _Part(part.first + shift, part.last + shift)

    def _count(self) -> tuple[int, int | None]:
        """The least and the greatest number of times; None for any number."""
        bounds: tuple[int, int | None]
        if self._take("*"):
            bounds = 0, None
        elif self._take("+"):
            bounds = 1, None
        elif self._take("?"):
            bounds = 0, 1
        else:
            counted = self._counted()
            if counted is None:
                return 1, 1
            bounds = counted
        # Whether the shortest match is preferred is of no account for a match of the whole text.
        self._take("?")
        return bounds

    def _counted(self) -> tuple[int, int | None] | None:
        """The numbers of `{2,5}`; None where a brace stands for itself."""
        end = self._text.find("}", self._at)
        if not self._peek("{") or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise InvalidPattern("the counts of a repetition are wrong")
        self._at = end + 1
        return None if (least, most) == (1, 1) else (least, most)

    def _optional(self, part: _Part) -> _Part:
        start, end = self._node(_Node()).first, self._node(_Node()).first
        self._lead(start, part.first, end)
        self._lead(part.last, end)
        return _Part(start, end)

    def _many(self, part: _Part, least: int) -> _Part:
        start, end = self._node(_Node()).first, self._node(_Node()).first
        self._lead(start, *((part.first,) if least else (part.first, end)))
        self._lead(part.last, part.first, end)
        return _Part(start, end)

    # What stands for characters

    def _atom(self, flags: _Flags) -> _Part:
        char = self._one()
        match char:
            case "(":
                return self._group(flags)
            case "[":
                return self._character(self._class(), flags)
            case ".":
                return self._node(_Node(_is_any if flags.dot_takes_newline else _is_no_newline))
            case "^":
                return self._node(_Node(None, _Place.LINE_START if flags.is_multiline else _Place.TEXT_START))
            case "$":
                return self._node(_Node(None, _Place.LINE_END if flags.is_multiline else _Place.TEXT_END))
            case "*" | "+" | "?":
                raise InvalidPattern(f"nothing stands before {char}")
            case "\\":
                return self._escape(flags)
            case _:
                return self._character(char.__eq__, flags)

    def _character(self, takes: Takes, flags: _Flags) -> _Part:
        return self._node(_Node(partial(_in_any_case, takes) if flags.ignores_case else takes))

    def _group(self, flags: _Flags) -> _Part:
        if self._take("?P<") or self._take("?<"):
            name = self._until(">")
            if not name or not all(map(_is_word, name)):
                raise InvalidPattern("a group has a wrong name")
        elif self._take("?"):
            flags = _with_flags(flags, self._until(":"))
        part = self._alternatives(flags)
        if not self._take(")"):
            raise InvalidPattern("a closing parenthesis is missing")
        return part

    def _escape(self, flags: _Flags) -> _Part:
        places = {"b": _Place.WORD_EDGE, "B": _Place.WITHIN, "A": _Place.TEXT_START, "z": _Place.TEXT_END}
        for char, place in places.items():
            if self._take(char):
                return self._node(_Node(None, place))
        if self._take("Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end] if end >= 0 else self._text[self._at :]
            self._at = end + 2 if end >= 0 else len(self._text)
            first = last = self._node(_Node()).first
            for char in quoted:
                part = self._character(char.__eq__, flags)
                self._lead(last, part.first)
                last = part.last
            return _Part(first, last)
        return self._character(self._escaped(), flags)

    def _escaped(self) -> Takes:
        """Read what follows a backslash, within a class or not, and return the characters that it stands for."""
        char = self._one()
        lower = char.lower()
        if lower in _CLASSES:
            return _CLASSES[lower] if char == lower else partial(_is_not, _CLASSES[lower])
        if lower == "p":
            name = self._until("}") if self._take("{") else self._one()
            is_not = (char == "P") != name.startswith("^")
            if name.removeprefix("^") not in _CATEGORIES:
                raise InvalidPattern(f"there is no class of characters {name}")
            takes = partial(_is_of_category, name.removeprefix("^"))
            return partial(_is_not, takes) if is_not else takes
        return self._escaped_character(char).__eq__

    def _escaped_character(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            digits = self._until("}") if self._take("{") else self._one() + self._one()
            return _character_of(digits, 16)
        if char == "0" or (char in "1234567" and self._text[self._at : self._at + 1] in set("01234567")):
            digits = char
            while len(digits) < 3 and self._text[self._at : self._at + 1] in set("01234567"):
                digits += self._one()
            return _character_of(digits, 8)
        if char.isascii() and char.isalnum():
            raise InvalidPattern(f"there is no escape \\{char}")
        return char

    def _class(self) -> Takes:
        is_not = self._take("^")
        parts: list[Takes] = []
        is_first = True
        while is_first or not self._peek("]"):
            is_first = False
            if self._take("[:"):
                name = self._until(":]")
                if name.removeprefix("^") not in _POSIX:
                    raise InvalidPattern(f"there is no class of characters {name}")
                takes = _POSIX[name.removeprefix("^")]
                parts.append(partial(_is_not, takes) if name.startswith("^") else takes)
                continue
            begin, low = self._at, self._one()
            if low == "\\":
                if self._text[self._at : self._at + 1].lower() in {"d", "s", "w", "p"}:
                    parts.append(self._escaped())
                    continue
                low = self._escaped_character(self._one())
            high = low
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                high = self._one()
                if high == "\\":
                    high = self._escaped_character(self._one())
            if high < low:
                raise InvalidPattern(f"the range {self._text[begin : self._at]} is empty")
            parts.append(partial(_is_within, low, high))
        self._at += 1
        takes = partial(_is_one_of, tuple(parts))
        return partial(_is_not, takes) if is_not else takes


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 4 and all(map(_is_digit, text))


def _character_of(digits: str, base: int) -> str:
    try:
        return chr(int(digits, base))
    except (ValueError, OverflowError):
        raise InvalidPattern(f"there is no character {digits}") from None


def _with_flags(flags: _Flags, text: str) -> _Flags:
    on, minus, off = text.partition("-")
    if not set(on + off) <= set("imsU") or (minus and not off):
        raise InvalidPattern(f"the flags {text} are wrong")

    def is_set(letter: str, present: bool) -> bool:
        return letter not in off and (present or letter in on)

    return _Flags(
        is_set("i", flags.ignores_case), is_set("m", flags.is_multiline), is_set("s", flags.dot_takes_newline)
    )


class Pattern:
    """A regular expression, which a whole text matches or not. Raises `InvalidPattern`."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS:
            raise InvalidPattern(f"the expression has more than {PATTERN_CHARACTERS} characters")
        parser = _Parser(text)
        whole = parser.network()
        self._nodes = parser.nodes
        self._goal = whole.last
        self._sets: dict[tuple[frozenset[int], str], tuple[frozenset[int], str]] = {}
        self._start = frozenset((whole.first,)), ""
        self._moves: dict[tuple[tuple[frozenset[int], str], str], tuple[frozenset[int], str]] = {}
        """Where a set of nodes leads with a character; with it goes what kind of character stood before."""

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Its time grows with the length of the text."""
        steps = self.matching(text)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return bool(done.value)

    def matching(self, text: str) -> Generator[None, None, bool]:
        """As `matches`, in steps of less than a millisecond or so."""
        state, moves, cost = self._start, self._moves, 0
        for char in text:
            following = moves.get((state, char))
            if following is None:
                if len(moves) >= PATTERN_MOVES:
                    moves.clear()
                following = moves[state, char] = self._move(state, char)
                cost += len(self._nodes)
            state = following
            cost += 1
            if cost >= PATTERN_STEPS:
                cost = 0
                yield None
        return self._goal in self._reached(*state, "")

    def _move(self, state: tuple[frozenset[int], str], char: str) -> tuple[frozenset[int], str]:
        nodes, reached = self._nodes, set[int]()
        for one in self._reached(*state, char):
            takes = nodes[one].takes
            if takes is not None and takes(char):
                reached.update(nodes[one].next)
        return frozenset(reached), "w" if _is_word(char) else "\n" if char == "\n" else " "

    def _reached(self, begin: Iterable[int], before: str, char: str) -> list[int]:
        """The nodes that are reached without a character, between two characters; both are empty at the ends."""
        nodes, seen, stack = self._nodes, set[int](), list(begin)
        reached: list[int] = []
        while stack:
            one = stack.pop()
            if one in seen:
                continue
            seen.add(one)
            reached.append(one)
            node = nodes[one]
            if node.takes is None and (node.place is None or _is_at(node.place, before, char)):
                stack.extend(node.next)
        return reached


def _is_at(place: _Place, before: str, char: str) -> bool:
    """Whether a text is at this place, between the character before and the next one; each is empty at an end."""
    match place:
        case _Place.TEXT_START:
            return not before
        case _Place.TEXT_END:
            return not char
        case _Place.LINE_START:
            return before in ("", "\n")
        case _Place.LINE_END:
            return char in ("", "\n")
        case _:
            is_edge = (before == "w") != bool(char and _is_word(char))
            return is_edge == (place is _Place.WORD_EDGE)
