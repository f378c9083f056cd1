"""Requests to share coordinators, and searches for them, get the answers of brokers of Kafka 4.4.0."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Any, Final

from msgspec import structs

from kraft.access.authorizer import CLUSTER_NAME, AclOperation, AclResource, AuthorizerSettings
from kraft.wire import Answer
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import SHARE_GROUP_STATE, CoordinatorRecord, decode_pair
from metadata_log.records.record import records
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from metadata_log.serde import Message
from metadata_log.serde.json_form import from_json, to_json
from metadata_log.types import Uuid
from support import DATA
from support.broker.request_brokers import Brokers, NewTopic, rule, topic_id
from support.broker.share_brokers import STATES, stored
from support.real_data import archive
from transport.protocol.broker_apis import ALL_APIS

LEADERS: Final = ((102,), (101,), (102,), (101,))
"""Those of `__share_group_state` in the recorded cluster."""
TOPICS: Final = {
    "rp": ("MctzYKAJTs2rMmX1LI7ADg", 3),
    "op": ("mGwvZc4xQDCBv6jmm8ZFDw", 3),
    "os": ("0UMezf4hRkGjNFqIAiCMqg", 1),
}
PORTS: Final = {24201: 26101, 24202: 26102, 24301: 26101, 24302: 26102}
OF_LISTENERS: Final = {301: 101, 302: 102}


def probes(*sections: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((DATA / "share" / "state_probes.jsonl.gz").read_bytes()).splitlines()
    return [one for one in map(json.loads, lines) if one["section"] in sections]


class KafkasCluster:
    """Two brokers as the recorded ones, without replicas."""

    def __init__(self, authorizer: AuthorizerSettings | None = None) -> None:
        topics = [
            NewTopic("__share_group_state", STATES, LEADERS, {"cleanup.policy": "delete", "retention.ms": "-1"}),
            NewTopic("__consumer_offsets", topic_id(2), ((102,),) * 4, {"cleanup.policy": "compact"}),
            *(NewTopic(name, Uuid.parse(text), ((101,),) * count) for name, (text, count) in TOPICS.items()),
        ]
        self.brokers = Brokers(topics, authorizer=authorizer)
        for _ in range(20):
            for one in (101, 102):
                self.brokers.poll(one, after_ms=1)

    def ask(self, broker: int, message: Message, version: int) -> Message:
        request_id, outcome = self.brokers.send(broker, message, version)
        outcomes = [outcome, *(one for _ in range(3) for one in self.brokers.poll(broker, after_ms=1))]
        [answer] = [one for one in outcomes if isinstance(one, Answer)]
        assert answer.request_id == request_id
        return answer.message


def told(value: Any) -> Any:
    """An answer without texts, with our ports."""
    match value:
        case dict():
            return {
                key: PORTS.get(one, one) if key == "port" else told(one)
                for key, one in value.items()
                if key != "errorMessage"
            }
        case list():
            return sorted((told(one) for one in value), key=json.dumps)
    return value


def wrong(cluster: KafkasCluster, some: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    """The probes with another answer than Kafka's."""
    found = []
    for probe in some:
        key = next(key for key, api in ALL_APIS.items() if api.name == probe["api"])
        message = from_json(ALL_APIS[key].request, probe["version"], probe["request"])
        answer = to_json(
            cluster.ask(OF_LISTENERS.get(probe["broker"], probe["broker"]), message, probe["version"]), probe["version"]
        )
        if told(answer) != told(probe["response"]):
            found.append((probe["probe"], answer, probe["response"]))
    return found


def test_the_coordinators_of_share_partitions_are_found_as_by_kafka() -> None:
    some = probes("find-coordinator")
    assert wrong(KafkasCluster(), some) == []
    assert len(some) == 11


def test_answers_about_states_are_those_of_kafka() -> None:
    some = probes("state")
    assert wrong(KafkasCluster(), some) == []
    assert len(some) == 97


def timeless(pair: CoordinatorRecord) -> tuple[str, Any]:
    """A record without its times."""
    if isinstance(pair.value, ShareSnapshotValue):
        return pair.kind.name, structs.replace(pair.value, create_timestamp=0, write_timestamp=0)
    return pair.kind.name, pair.value


def by_key(pairs: Iterable[CoordinatorRecord], group: str) -> dict[str, list[tuple[str, Any]]]:
    """The records of each share partition of a group, in order."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for pair in pairs:
        assert isinstance(pair.key, (ShareSnapshotKey, ShareUpdateKey))
        if pair.key.group_id == group:
            found.setdefault(f"{pair.key.topic_id}:{pair.key.partition}", []).append(timeless(pair))
    return found


def test_the_records_of_the_same_requests_are_those_of_kafka() -> None:
    """The log of the recorded cluster has the same records of the group of these requests, but for their times."""
    cluster = KafkasCluster()
    wrong(cluster, probes("state"))
    ours = [pair for number in range(4) for _, pair in stored(cluster.brokers, LEADERS[number][0], number)]
    kafkas = [
        pair
        for path, data in sorted(archive("share/state_logs").items())
        if path.startswith("4.4.0/logs/")
        for batch in scan(data)
        for record in records(batch)
        if (pair := decode_pair(SHARE_GROUP_STATE, record.key or b"", record.value)) is not None
    ]
    expected = by_key(kafkas, "r-st")
    assert sum(map(len, expected.values())) > 30
    assert by_key(ours, "r-st") == expected


def test_only_brokers_ask_share_coordinators() -> None:
    cluster = KafkasCluster(AuthorizerSettings())
    refused = probes("rights none", "rights group-describe", "rights group-read topic-read")
    assert wrong(cluster, refused) == []
    cluster.brokers.change(rule(1, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME))
    allowed = probes("rights plus cluster-action")
    assert wrong(cluster, allowed) == []
    assert (len(refused), len(allowed)) == (18, 6)


def test_a_snapshot_follows_500_updates_as_in_kafka() -> None:
    """530 writes of a story of Kafka's, and the record of each."""
    some = probes("snapshot")
    begin = next(at for at, one in enumerate(some) if one["probe"] == "write")
    end = next(at for at, one in enumerate(some) if one["probe"] == "read-after")
    first = some[begin]
    writes = []
    for number in range(530):
        text = json.dumps(first)
        one = json.loads(text)
        [part] = one["request"]["topics"][0]["partitions"]
        part |= {"startOffset": number // 3, "deliveryCompleteCount": number % 3}
        part["stateBatches"] = [
            {
                "firstOffset": number,
                "lastOffset": number + 1,
                "deliveryState": (0, 2, 4)[number % 3],
                "deliveryCount": number % 4 + 1,
            }
        ]
        writes.append(one)
    assert all(one["request"] in [each["request"] for each in writes] for one in some[begin:end])
    cluster = KafkasCluster()
    assert wrong(cluster, [*some[:begin], *writes, *some[end:]]) == []
    values = [pair.value for _, pair in stored(cluster.brokers, 101, 3)]
    kinds = [type(value) for value in values]
    assert kinds == [ShareSnapshotValue, *[ShareUpdateValue] * 500, ShareSnapshotValue, *[ShareUpdateValue] * 30]
    snapshot = values[501]
    assert isinstance(snapshot, ShareSnapshotValue)
    assert (snapshot.snapshot_epoch, snapshot.start_offset, snapshot.delivery_complete_count) == (1, 166, 2)
    newest = values[-1]
    assert isinstance(newest, ShareUpdateValue)
    assert (newest.snapshot_epoch, newest.leader_epoch, newest.delivery_complete_count) == (1, 4, 1)
