"""Each list and string of each request to a broker: empty, twice, the longest, strange; beside Kafka's broker.

Both brokers get the same requests in the same order, so that what a request changes is alike. Codes and shapes are
equal, but for `DIFFERENCES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from one_node import one_node
from support.interop.real_kafka import KafkaInstallation
from support.interop.strange_lists import (
    DIFFERENCES,
    FAILS_WHEN_LONG,
    IN_ORDER,
    LONGEST,
    NEVER_ANSWERED,
    NOT_COMPARED,
    Case,
    Connection,
    cases,
    set_up,
    shape_of,
)
from transport.protocol.apis import ApiKey
from transport.protocol.broker_listener import AT_BROKERS

pytestmark = pytest.mark.kafka
GROUPS_OF_BOTH = "group.coordinator.rebalance.protocols=classic,consumer"
"""Ours has no share groups and streams groups; their APIs are closed on both sides then."""
COMPARED = sorted(
    (
        key
        for key in map(ApiKey, AT_BROKERS)
        if key not in NOT_COMPARED and not any(one in key.name for one in ("SHARE", "STREAMS", "TELEMETRY"))
    ),
    key=lambda key: (key is ApiKey.JOIN_GROUP, key),
)
"""JoinGroup comes last: a member that is not told its id has entered a group of Kafka's all the same."""


def differing(ours: Connection, theirs: Connection, pair: tuple[Case, Case]) -> str | None:
    """In words what differs in the answers to a case; None if nothing does."""
    mine, other = pair
    first = ours.ask(mine.message, mine.version)
    name = f"{mine.key.name} v{mine.version} {mine.shape}"
    if (mine.key, mine.shape) in NEVER_ANSWERED:
        theirs.tell(other.message, other.version)
        return None if first is not None else f"{name}: no answer"
    second = theirs.ask(other.message, other.version)
    if (mine.key, mine.shape) in DIFFERENCES:
        return None
    found, right = (shape_of(one, in_order=mine.key in IN_ORDER) for one in (first, second))
    is_cut = mine.shape.endswith(repr(LONGEST[:10])) and _codes(right) == {FAILS_WHEN_LONG} != _codes(found)
    if found == right or is_cut:
        return None
    return f"{name}:\n  {found}\n  {right}"


def _codes(shape: Any) -> set[int]:
    """The errors in an answer."""
    match shape:
        case dict():
            own = {value for key, value in shape.items() if key.endswith("error_code") and value != 0}
            return own.union(*(_codes(inner) for inner in shape.values()))
        case list():
            return set().union(*map(_codes, shape))
        case _:
            return set()


def compared(kafka: KafkaInstallation, root: Path, *, all_versions: bool) -> Iterator[str]:
    """What differs between the brokers of both makes."""
    settings = (GROUPS_OF_BOTH,)
    with (
        one_node(kafka, root / "ours", "ours", *settings) as (_, our_port),
        one_node(kafka, root / "theirs", "kafka", *settings) as (_, their_port),
    ):
        ours, theirs = Connection(our_port), Connection(their_port)
        our_state, their_state = set_up(our_port), set_up(their_port)
        for key in COMPARED:
            of = AT_BROKERS[key].versions
            versions = tuple(range(of.lowest, of.highest + 1)) if all_versions else (of.highest,)
            for pair in zip(cases(key, versions, our_state), cases(key, versions, their_state), strict=True):
                if (told := differing(ours, theirs, pair)) is not None:
                    yield told
        ours.close()
        theirs.close()


def test_strange_lists_and_strings_are_answered_as_by_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    found = list(compared(newer_kafka, tmp_path, all_versions=False))
    assert not found, "\n".join(found)


@pytest.mark.soak
def test_strange_lists_of_all_versions_are_answered_as_by_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    found = list(compared(newer_kafka, tmp_path, all_versions=True))
    assert not found, "\n".join(found)
