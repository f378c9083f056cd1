"""The kinds of coordinators, and the sentence for one that does not come."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kraft.client.state.errors import ClientError
from transport.protocol.errors import Error


class KeyType(IntEnum):
    """The kinds of coordinators (Kafka: `FindCoordinatorRequest.CoordinatorType`)."""

    GROUP = 0
    TRANSACTION = 1


NAMES: Final = {KeyType.GROUP: "group", KeyType.TRANSACTION: "transactional id"}
TOPICS: Final = {KeyType.GROUP: "__consumer_offsets", KeyType.TRANSACTION: "__transaction_state"}
"""The topics that the brokers make with the first question about a coordinator."""
_FACTORS: Final = {
    KeyType.GROUP: "offsets.topic.replication.factor",
    KeyType.TRANSACTION: "transaction.state.log.replication.factor",
}


def unmade(kind: KeyType) -> str:
    """The advice where no broker makes the topic of the coordinators: an answer on the wire does not say why."""
    return f"Are there as many brokers as {_FACTORS[kind]} says? The log of a broker has the refusal."


def silence(kind: KeyType, key: str, timeout_ms: int, failure: str) -> ClientError:
    """The error for a coordinator that did not answer in time, with the last failure."""
    what = f"{NAMES[kind]} {key}: no coordinator answered within {timeout_ms / 1000:g} s: {failure}"
    return ClientError(what, hint=unmade(kind) if Error.COORDINATOR_NOT_AVAILABLE.name in failure else None)
