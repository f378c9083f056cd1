"""JAAS strings as Kafka reads them (Kafka: `JaasConfig`; Java's `StreamTokenizer`).

`module.Class required user="alice" password="secret";` No error repeats a value, which may be a secret.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_REFUSED: Final = ("com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule")
_SIMPLE_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_OCTAL: Final = "01234567"
_DIGITS_FIRST: Final = "0123456789.-"
_IN_WORDS: Final = "0123456789.-_$"
_FIRST_LETTER_BEYOND: Final = "\u00a0"
"""From this character on every character is one of words."""


class JaasEntry(Struct, frozen=True):
    """The one entry of a JAAS string: a login module and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module})"


class _Token(Struct, frozen=True):
    """A word, a quoted text, or a single character."""

    text: str
    is_word: bool


def parse_jaas(text: str) -> JaasEntry:
    """The entry of a JAAS string.

    Args:
        text: The value of a `sasl.jaas.config`.

    Raises:
        ValueError: The string is malformed; the text names no value.
    """
    tokens = _Tokens(text)
    module = tokens.take()
    if not module.is_word:
        raise ValueError("the JAAS entry does not begin with a login module")
    if module.text in _REFUSED:
        raise ValueError(f"the login module {module.text} is not allowed")
    flag = tokens.take()
    if not flag.is_word:
        raise ValueError("the control flag of the JAAS entry is missing: write required behind the login module")
    if flag.text.lower() not in _FLAGS:
        raise ValueError(f"the second word of the JAAS entry is not a control flag: {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while True:
        key = tokens.take()
        if key == _SEMICOLON:
            break
        if key == _END:
            raise ValueError("the JAAS entry does not end with a semicolon")
        if not key.is_word:
            raise ValueError("a key of the JAAS entry is not a word: quote values that are more than a word")
        if tokens.take() != _EQUALS:
            raise ValueError("a key of the JAAS entry has no value: quote values that are more than a word")
        value = tokens.take()
        if not value.is_word:
            raise ValueError("a key of the JAAS entry has no value: quote values that are more than a word")
        options[key.text] = value.text
    if tokens.take() != _END:
        raise ValueError("there is more than one JAAS entry")
    return JaasEntry(module.text, options)


_END: Final = _Token("", is_word=False)
_SEMICOLON: Final = _Token(";", is_word=False)
_EQUALS: Final = _Token("=", is_word=False)


def _is_in_word(character: str) -> bool:
    is_letter = "a" <= character <= "z" or "A" <= character <= "Z"
    return is_letter or character in _IN_WORDS or character >= _FIRST_LETTER_BEYOND


class _Tokens:
    """Splits a text as Java's `StreamTokenizer` does with the settings of Kafka."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self) -> _Token:
        """The next token; `_END` at the end."""
        text = self._text
        self._skip()
        if self._at >= len(text):
            return _END
        first = text[self._at]
        if first in "\"'":
            return self._quoted(first)
        if not _is_in_word(first):
            self._at += 1
            return _Token(first, is_word=False)
        start = self._at
        if first in _DIGITS_FIRST:
            # A number is no word; the rest after the number is a token of its own.
            while self._at < len(text) and text[self._at] in _DIGITS_FIRST:
                self._at += 1
            return _Token(text[start : self._at], is_word=False)
        while self._at < len(text) and _is_in_word(text[self._at]):
            self._at += 1
        return _Token(text[start : self._at], is_word=True)

    def _skip(self) -> None:
        """Skip blanks and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] <= " ":
                self._at += 1
            elif text.startswith("//", self._at):
                end = min((at for mark in "\r\n" if (at := text.find(mark, self._at)) >= 0), default=len(text))
                self._at = end
            elif text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                self._at = len(text) if end < 0 else end + 2
            else:
                return

    def _quoted(self, mark: str) -> _Token:
        """A quoted text. As in Java, the text also ends at the end of the line."""
        text = self._text
        characters: list[str] = []
        self._at += 1
        while self._at < len(text) and text[self._at] not in (mark, "\r", "\n"):
            character = text[self._at]
            self._at += 1
            if character == "\\" and self._at < len(text):
                character = self._escaped()
            characters.append(character)
        if self._at < len(text) and text[self._at] == mark:
            self._at += 1
        return _Token("".join(characters), is_word=True)

    def _escaped(self) -> str:
        text = self._text
        first = text[self._at]
        self._at += 1
        if first not in _OCTAL:
            return _SIMPLE_ESCAPES.get(first, first)
        digits = first
        most = 3 if first <= "3" else 2
        while len(digits) < most and self._at < len(text) and text[self._at] in _OCTAL:
            digits += text[self._at]
            self._at += 1
        return chr(int(digits, 8))
