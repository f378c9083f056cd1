"""The errors of a client of brokers."""

from __future__ import annotations

from transport.protocol.errors import Error


class ClientError(Exception):
    """The cluster did not answer in time, or refused a request (Kafka: `KafkaException`).

    Args:
        what: What happened.
        hint: What the user can do, if known.
        error: Kafka's error, if a broker answered with one.
    """

    def __init__(self, what: str, *, hint: str | None = None, error: Error | None = None) -> None:
        super().__init__(what)
        self.hint = hint
        self.error = error


_HINTS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "`kraft topics list` shows the topics, `kraft topics create` makes one.",
    Error.INVALID_TOPIC_EXCEPTION: "A name has at most 249 letters, digits, '.', '_' and '-'.",
    Error.TOPIC_AUTHORIZATION_FAILED: "The access rules do not permit that: see `kraft acls list`.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "The access rules do not permit that: see `kraft acls list`.",
    Error.MESSAGE_TOO_LARGE: "max.message.bytes of the topic bounds a batch: see `kraft configs describe topic`.",
    Error.INVALID_TIMESTAMP: "message.timestamp.before.max.ms and message.timestamp.after.max.ms bound the times.",
}


def refused(what: str, error: Error, text: str | None = None) -> ClientError:
    """The exception for an error of a broker.

    Args:
        what: What was refused.
        error: Kafka's error.
        text: Kafka's message, if the answer has one.
    """
    told = f"{what}: {error.name}: {text}" if text else f"{what}: {error.name}"
    return ClientError(told, hint=_HINTS.get(error), error=error)
