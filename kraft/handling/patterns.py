"""Regular expressions of clients, matched by RE2 in time and memory that are known before (Kafka: RE2/J).

RE2 is loaded with the first pattern: most brokers never see one.
"""

from __future__ import annotations

import re
from typing import Final

from kraft.limits import (
    PATTERN_CHARACTERS,
    PATTERN_PROGRAM_BYTES,
    PATTERN_STEPS,
    PATTERN_STEPS_PER_LOOK,
    PATTERN_STEPS_PER_UNIT,
    PATTERN_UNITS_PER_PORTION,
    PATTERN_WEIGHT,
    PATTERN_WEIGHT_PER_UNIT,
)

_CLASS_WEIGHT: Final = 700
"""The weight of a class of Unicode, which has as many ranges."""
_DIGITS: Final = 9
"""Of a count; RE2 takes a longer one, with its braces, as it stands."""
_STATES_BESIDE: Final = 16
NAME_BYTES: Final = 249
"""The longest name of a topic: whoever matches no other texts needs to fear no refusal after the compilation."""
_HEAVY: Final = re.compile(r"\\[pP]|\{(\d{1,4})(?:,(\d{0,4}))?\}")
_TOKEN: Final = re.compile(
    r"""(?sx) \\Q .*? (?: \\E | \Z )
      | \\ (?: [xpP]\{[^}]{0,64}\} | . )?
      | \[ \^?+ \]?+ (?: \\.? | \[:\^?\w++:\] | [^\]\\] )*+ (?: \] | \Z )
      | \(\?P?< (?P<name>[^>]{0,256}) >
      | \{ (?P<least>\d++) (?: , (?P<most>\d*+) )? \}"""
)
"""The parts that are not taken as they stand, outside a quoted text: escapes, classes, names of groups and counts."""
_IN_CLASS: Final = re.compile(r"(?s)\\.|\[:\^?\w++:\]|\[:\]")


class InvalidPattern(ValueError):
    """The expression is not one of RE2, or is too large."""


class Pattern:
    """A regular expression, which a whole text matches or not.

    Args:
        text: The expression.

    Raises:
        InvalidPattern: It is none, or its program would take too much memory.
    """

    def __init__(self, text: str) -> None:
        self.weight = weight_of(text)
        translated = _translated(text)
        try:
            import re2
        except ImportError:
            raise InvalidPattern("RE2, which matches patterns, is not installed on the broker") from None
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = PATTERN_PROGRAM_BYTES
        try:
            self._compiled = re2.compile(translated.encode(), options)
        except re2.error as bad:
            raise InvalidPattern(_told(bad)) from None
        except UnicodeEncodeError:
            raise InvalidPattern("a half of a pair of surrogates is no character") from None
        finally:
            # The cache of the library would keep a hundred programs, which nobody counts.
            re2.purge()
        self._states: int = self._compiled.programsize + _STATES_BESIDE

        if self._states * NAME_BYTES > PATTERN_STEPS:
            raise InvalidPattern("the pattern is too large")

    @property
    def units(self) -> int:
        """The cost of the compilation, in units of a coordinator's budget."""
        return 1 + self.weight // PATTERN_WEIGHT_PER_UNIT

    def steps(self, text: str) -> int:
        """The most steps that a match takes, about 10 ns each: RE2 follows all states of the program at once."""
        return PATTERN_STEPS_PER_LOOK + self._states * len(text)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Raises:
            InvalidPattern: The pattern is too large for a text of this length: a match is in one turn.
        """
        data = text.encode(errors="replace")
        if len(data) > NAME_BYTES and self._states * len(data) > PATTERN_STEPS:
            raise InvalidPattern("the pattern is too large for texts that are so long")
        return self._compiled.fullmatch(data) is not None


class Matching:
    """Matches of a pattern in portions. Each portion compiles it again: clients may begin as many as they like, and no
    program is kept from one turn to the next.

    Args:
        text: The expression.

    Raises:
        InvalidPattern: As `Pattern`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._pattern: Pattern | None = Pattern(text)
        self._steps = 0

    def look(self) -> None:
        """Count a text that is looked at, and not matched."""
        self._steps += PATTERN_STEPS_PER_LOOK

    def matches(self, text: str) -> bool:
        """As `Pattern.matches`."""
        pattern = self._pattern
        if pattern is None:
            pattern = self._pattern = Pattern(self._text)
        self._steps += pattern.steps(text)
        return pattern.matches(text)

    @property
    def is_due(self) -> bool:
        """Whether the portion is over: the caller calls `pause`."""
        return self._steps >= PATTERN_UNITS_PER_PORTION * PATTERN_STEPS_PER_UNIT

    def pause(self) -> int:
        """End a portion; returns what it has cost, in units of a coordinator's budget."""
        units = self._steps // PATTERN_STEPS_PER_UNIT + (0 if self._pattern is None else self._pattern.units)
        self._steps, self._pattern = 0, None
        return units


def weight_of(text: str) -> int:
    """The weight of an expression to compile, in ranges and repetitions; raises `InvalidPattern` if too much."""
    if len(text) > PATTERN_CHARACTERS:
        raise InvalidPattern(f"the pattern has more than {PATTERN_CHARACTERS} characters")
    weight = len(text)
    for found in _HEAVY.finditer(text):
        weight += max(map(int, filter(None, found.groups())), default=_CLASS_WEIGHT)
    if weight > PATTERN_WEIGHT:
        raise InvalidPattern("the pattern has too many classes of Unicode and repetitions")
    return weight


def _translated(text: str) -> str:
    """The expression as RE2 reads it where RE2/J reads it otherwise. Groups have no names: nobody asks for what they
    hold, and RE2 would look for it.
    """
    names = set[str]()

    def one(found: re.Match[str]) -> str:
        token, name = found[0], found["name"]
        if name is not None:
            if not re.fullmatch(r"[0-9A-Za-z_]+", name) or name in names:
                raise InvalidPattern(f"the name {name!r} of a group is wrong or used twice")
            names.add(name)
            return "("
        if token.startswith("["):
            return _IN_CLASS.sub(_escape_in_class, token)
        if token == "\\C":
            raise InvalidPattern("\\C, a byte, is no character")
        if any(len(count) > _DIGITS for count in (found["least"], found["most"]) if count):
            raise InvalidPattern(f"{token} repeats too often")
        return _plain(token)

    return _TOKEN.sub(one, text)


def _escape_in_class(found: re.Match[str]) -> str:
    if found[0] == "[:]":
        raise InvalidPattern("[:] names no class")
    return _plain(found[0])


def _plain(token: str) -> str:
    """An escape; RE2 knows none of characters beyond ASCII, which stand for themselves."""
    return token[1:] if len(token) == 2 and token[0] == "\\" and token[1] > "\x7f" else token


def _told(error: Exception) -> str:
    """The words of RE2, which has them as bytes."""
    told = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
