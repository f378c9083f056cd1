"""Validates topic names (Kafka: `org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re
from typing import Final

from kraft.access.errors import ApiError
from transport.protocol.errors import Error

LONGEST_NAME: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refuse an invalid name; raises `ApiError` with Kafka's messages."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = f"'{name}' is not allowed"
    elif len(name) > LONGEST_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
