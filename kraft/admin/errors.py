"""The errors of the client for administration: no controller answers, or a controller refuses."""

from __future__ import annotations

from collections.abc import Mapping

from transport.protocol.errors import Error


class AdminError(Exception):
    """The cluster could not be reached, or refused a request.

    Args:
        what: What happened.
        hint: What the operator can do, if known.
    """

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


class NoController(AdminError):
    """No active controller was found, or none answered in time. The controllers may have made the change all the same.

    Kafka: `TimeoutException`.
    """


class RequestRefused(AdminError):
    """The active controller refused a request, or one item of the request, and changed nothing for that item.

    Args:
        error: Kafka's error code.
        text: Kafka's message, if the response has one.
        name: The refused item; empty for the whole request.
        hint: What the operator can do, if known.
    """

    def __init__(self, error: Error, text: str | None, *, name: str = "", hint: str | None = None) -> None:
        super().__init__(": ".join(part for part in (name, error.name, text or error.message) if part), hint=hint)
        self.error = error
        self.name = name


class SomeRefused(AdminError):
    """The active controller refused some items of a request. The controller has changed all other items.

    Args:
        refused: The refused items by name.
    """

    def __init__(self, refused: Mapping[str, RequestRefused]) -> None:
        super().__init__("; ".join(map(str, refused.values())))
        self.refused = dict(refused)
