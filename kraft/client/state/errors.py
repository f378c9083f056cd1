"""The errors of a client of brokers."""

from __future__ import annotations

from transport.protocol.errors import Error
from transport.protocol.inbound import Cause, Failed
from transport.protocol.server_text import server_text


class ClientError(Exception):
    """The cluster did not answer in time, or refused a request (Kafka: `KafkaException`).

    Args:
        what: What happened.
        hint: What the user can do, if known.
        error: Kafka's error, if a broker answered with one.
        cause: Why a broker cannot be asked at all, if time does not cure that.
    """

    def __init__(
        self, what: str, *, hint: str | None = None, error: Error | None = None, cause: Cause | None = None
    ) -> None:
        super().__init__(what)
        self.hint = hint
        self.error = error
        self.cause = cause

    def copy(self) -> ClientError:
        """The same error for another raise: a raised one grows by its traceback."""
        return ClientError(str(self), hint=self.hint, error=self.error, cause=self.cause)


_HINTS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "`kraft topics list` shows the topics, `kraft topics create` makes one.",
    Error.INVALID_TOPIC_EXCEPTION: "A name has at most 249 letters, digits, '.', '_' and '-'.",
    Error.PRODUCER_FENCED: "Another producer began with this transactional id, or the transaction took longer than its "
    "time-out. Open the producer again if this one is to go on.",
    Error.INVALID_TRANSACTION_TIMEOUT: "transaction.max.timeout.ms of the brokers bounds that time-out.",
    Error.MESSAGE_TOO_LARGE: "max.message.bytes of the topic bounds a batch: see `kraft configs describe topic`.",
    Error.INVALID_TIMESTAMP: "message.timestamp.before.max.ms and message.timestamp.after.max.ms bound the times.",
}


def cannot_connect(failed: Failed) -> ClientError:
    """The exception for a failure that time does not cure (Kafka: `AuthenticationException` and its like)."""
    no_version = failed.cause is Cause.UNSUPPORTED_VERSION
    hint = "Is that the listener of a broker for clients?" if no_version else None
    return ClientError(failed.reason, hint=hint, cause=failed.cause)


def refused(what: str, error: Error, text: str | None = None) -> ClientError:
    """The exception for an error of a broker.

    Args:
        what: What was refused.
        error: Kafka's error.
        text: Kafka's message, if the answer has one.
    """
    plain = server_text(text)
    told = f"{what}: {error.name}: {plain}" if plain else f"{what}: {error.name}"
    return ClientError(told, hint=_HINTS.get(error), error=error)
