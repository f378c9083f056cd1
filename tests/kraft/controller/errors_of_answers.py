"""The error codes of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from transport.protocol.errors import Error


def error_codes(answer: object) -> Iterator[Error]:
    """Every error code in an answer, at any depth."""
    if isinstance(answer, dict):
        if "error_code" in answer:
            yield Error(answer["error_code"])
        for value in answer.values():
            yield from error_codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)
