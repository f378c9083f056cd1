"""A peer's text for an error as a plain sentence: Kafka's texts may hold names of classes, objects and stacks."""

from __future__ import annotations

import re
from typing import Final

_EXCEPTION: Final = r"\b((?:[a-z_]\w*\.)+)(?:[A-Z]\w*[.$])*[A-Z]\w*(?:Exception|Error|Throwable)\b:?\s*"
"""The full name of an exception, as `Throwable.toString` begins."""
_OBJECT: Final = r"\b([A-Z]\w*)(?=\([a-zA-Z]\w*=)"
"""The beginning of an object that prints its fields."""
_IDENTITY: Final = r"@[0-9a-f]{4,}\b"
"""The end of an object that prints its address."""
_MOST_OF_AN_OBJECT: Final = 80
"""An object of a few short fields, such as `ConfigResource(type=TOPIC, name='a')`, may say what the error is about."""
_KAFKA: Final = ("org.apache.kafka.", "java.util.concurrent.")
"""The exceptions with a text for users: those of Kafka, and those that wrap them."""


def server_text(text: str | None) -> str | None:
    """A peer's text for an error without Java's internals; None if nothing else is left, or there is no text.

    The stack, the class of an exception and long objects are cut. A defect of Java's own, such as a
    NullPointerException, says nothing to an operator: None.
    """
    line = "" if text is None else text.strip().partition("\n")[0].strip()
    for match in re.finditer(_EXCEPTION, line):
        if not match[1].startswith(_KAFKA):
            line = line[: match.start()]
            break
    line = _without_objects(re.sub(_EXCEPTION, "", line)).strip(" :;")
    return line or None


def _without_objects(line: str) -> str:
    pieces, position = [], 0
    for match in re.finditer(_OBJECT, line):
        if match.start() < position:
            continue
        end = _end_of_object(line, match.end())
        printed = line[match.start() : end]
        if len(printed) > _MOST_OF_AN_OBJECT or re.search(_IDENTITY, printed):
            before = line[position : match.start()]
            # "Request Request(processor=1, …) is not authorized": one word remains.
            word = "" if before.rstrip().endswith(match[1]) else match[1]
            pieces.append(before if word else before.rstrip())
            pieces.append(word)
            position = end
    return "".join([*pieces, line[position:]])


def _end_of_object(line: str, start: int) -> int:
    depth = 0
    for position in range(start, len(line)):
        depth += (line[position] == "(") - (line[position] == ")")
        if not depth:
            return position + 1
    return len(line)
