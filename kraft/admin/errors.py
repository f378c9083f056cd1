"""The errors of the client for administration: no controller answers, or a controller refuses."""

from __future__ import annotations

from collections.abc import Mapping

from transport.protocol.errors import Error
from transport.protocol.inbound import Cause, Failed
from transport.protocol.server_text import server_text


class AdminError(Exception):
    """The cluster could not be reached, or refused a request.

    Args:
        what: What happened.
        hint: What the operator can do, if known.
        cause: Why a node cannot be asked at all, if time does not cure that.
    """

    def __init__(self, what: str, *, hint: str | None = None, cause: Cause | None = None) -> None:
        super().__init__(what)
        self.hint = hint
        if hint is not None:
            # What shows the error, shows what to do. The text stays without it, for those that show both apart.
            self.add_note(f"hint: {hint}")
        self.cause = cause


class NoController(AdminError):
    """No active controller was found, or none answered in time. The controllers may have made the change all the same.

    Kafka: `TimeoutException`.
    """


class CannotConnect(NoController):
    """No controller can be asked, for a cause that time does not cure: a wrong password, or TLS against none.

    Kafka: `AuthenticationException` and its like.

    Args:
        failed: The failure of one controller.
    """

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason, cause=failed.cause)


class RequestRefused(AdminError):
    """The active controller refused a request, or one item of the request, and changed nothing for that item.

    Args:
        error: Kafka's error code.
        text: Kafka's message, if the response has one.
        name: The refused item; empty for the whole request.
        hint: What the operator can do, if known.
    """

    def __init__(self, error: Error, text: str | None, *, name: str = "", hint: str | None = None) -> None:
        told = server_text(text) or error.message
        super().__init__(": ".join(part for part in (name, error.name, told) if part), hint=hint)
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
