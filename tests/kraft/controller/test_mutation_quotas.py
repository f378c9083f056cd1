"""The quota for created and deleted partitions: who owes some is refused, or told to wait (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from kraft.controller.decision.mutations import MUTATIONS, MutationQuotas
from kraft.rates import TokenBucket
from metadata_log.image.quotas import QuotasImage, replay_quota
from metadata_log.records.metadata import ClientQuotaRecord, EntityData, PartitionRecord, RemoveTopicRecord
from metadata_log.serde import Message
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import Side
from support.differential.controller_stories import A, create, delete, grow, topic
from transport.protocol.errors import Error
from transport.protocol.messages import AlterClientQuotasRequest
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)

OWED = Error.THROTTLING_QUOTA_EXCEEDED
RATE, WINDOWS = 2.0, 11
BURST = int(RATE * WINDOWS)


def limited(cluster: Cluster, rate: float | None = RATE) -> None:
    def build(_: Side) -> Message:
        entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None)]
        ops = [OpData(key=MUTATIONS, value=rate or 0.0, remove=rate is None)]
        return AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=entity, ops=ops)])

    cluster.do((build, 1))


def codes(answer: dict[str, Any]) -> list[int]:
    results = next(each for each in answer.values() if isinstance(each, list))
    return [one["error_code"] for one in results]


def test_a_client_that_owes_partitions_is_refused_for_as_long_as_it_owes_them() -> None:
    cluster = Cluster(A)
    limited(cluster)
    answer = cluster.do(create(topic("a", count=BURST, factor=1)))
    assert (codes(answer), answer["throttle_time_ms"]) == ([0], 0)
    # The bucket is empty and nothing is owed: any number is created once more, and is owed then.
    answer = cluster.do(create(topic("b", count=10, factor=1), topic("c", count=1, factor=1)))
    assert (codes(answer), answer["throttle_time_ms"]) == ([0, OWED], 5000)
    assert answer["topics"][1]["error_message"] == OWED.message
    cluster.controller.advance(4000)
    assert cluster.do(create(topic("c", count=1, factor=1)))["throttle_time_ms"] == 1000
    cluster.controller.advance(1000)
    answer = cluster.do(create(topic("c", count=1, factor=1)))
    assert (codes(answer), answer["throttle_time_ms"]) == ([0], 0)


def test_growth_and_deletion_count_as_well() -> None:
    cluster = Cluster(A)
    cluster.do(create(topic("a", count=30, factor=1), topic("b", count=5, factor=1)))
    limited(cluster)
    answer = cluster.do(delete("a", "b"))
    assert (codes(answer), answer["throttle_time_ms"]) == ([0, OWED], 4000)
    answer = cluster.do(grow("b", 6))
    assert (codes(answer), answer["throttle_time_ms"]) == ([OWED], 4000)
    assert len(cluster.controller.controller.history.latest.topics["b"].partitions) == 5
    cluster.controller.advance(4000)
    assert len(cluster.records(grow("b", 6))) == 1
    assert cluster.records(delete("b")) == []
    limited(cluster, None)
    assert [type(one) for one in cluster.records(delete("b"))] == [RemoveTopicRecord]


@pytest.mark.parametrize(
    ("owing", "older"),
    [(create(topic("b", count=8, factor=1), version=5), 5), (grow("a", BURST + 8, version=1), 1)],
)
def test_versions_without_the_error_are_served_and_told_to_wait(owing: Any, older: int) -> None:
    cluster = Cluster(A)
    limited(cluster)
    cluster.do(create(topic("a", count=BURST, factor=1)))
    answer = cluster.do(owing)
    assert (codes(answer), answer["throttle_time_ms"]) == ([0], 4000)
    again = cluster.do(
        create(topic("c", count=2, factor=1), version=older) if older == 5 else grow("a", BURST + 10, version=1)
    )
    assert (codes(again), again["throttle_time_ms"]) == ([0], 5000)


def test_a_refused_topic_costs_nothing_and_writes_nothing() -> None:
    cluster = Cluster(A)
    limited(cluster)
    for _ in range(5):
        assert codes(cluster.do(create(topic("a", count=20, factor=2)))) == [Error.INVALID_REPLICATION_FACTOR]
    written = cluster.records(create(topic("a", count=BURST, factor=1)))
    assert sum(isinstance(one, PartitionRecord) for one in written) == BURST
    cluster.do(create(topic("b", count=1, factor=1)))
    assert cluster.records(create(topic("c", count=1, factor=1))) == []


def quotas_of(*entities: tuple[tuple[str, str | None], ...]) -> QuotasImage:
    image = QuotasImage()
    for entity in entities:
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        image = replay_quota(image, ClientQuotaRecord(entity=parts, key=MUTATIONS, value=1.0, remove=False))
    return image


def test_users_share_what_their_quota_says_they_share() -> None:
    quotas, image = MutationQuotas(), quotas_of((("user", None),), (("user", "u"), ("client-id", None)))

    def refuses(user: str, client: str) -> bool:
        asked = quotas.of(Caller("User", user, client_id=client), image, 0, is_strict=True)
        try:
            asked.charge(100)
        except ApiError:
            return True
        return False

    assert [refuses("a", "x"), refuses("a", "y"), refuses("b", "x")] == [False, True, False]
    assert [refuses("u", "x"), refuses("u", "y"), refuses("u", "x")] == [False, False, True]


def test_without_a_quota_nothing_is_counted() -> None:
    quotas = MutationQuotas()
    for _ in range(3):
        asked = quotas.of(Caller(), QuotasImage(), 0, is_strict=True)
        asked.charge(1_000_000)
        assert asked.throttle_ms == 0


def test_a_bucket_fills_up_to_its_burst_and_owes_what_was_taken() -> None:
    bucket = TokenBucket(10)
    assert bucket.left(2, 1000) == 20
    bucket.take(25, 2, 1000)
    assert (bucket.left(2, 1000), bucket.left(2, 2000), bucket.left(2, 1500)) == (-5, -3, -3)
    assert bucket.left(2, 100_000) == 20
    # A lower rate takes its burst at once.
    assert bucket.left(1, 100_000) == 10
