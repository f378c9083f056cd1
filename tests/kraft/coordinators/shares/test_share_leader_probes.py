"""What Kafka 4.4.0's brokers answered to hand-made requests of members, asked of ours at the same times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest

from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.types import Uuid
from support import DATA
from support.broker.request_brokers import NewTopic
from support.broker.share_leaders import ShareBrokers
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response

SECTIONS: Final = {
    "probes": ("share-fetch", "acknowledge", "modes", "disconnect"),
    "probes_extra": ("sessions", "record-locks", "session-expiry", "lowered-limit", "leader-change"),
}
OURS: Final = {
    "ack-unknown-topic": "the partition gets 100, and not the whole request -1",
    "add-unknown-topic": "the same",
    "open-unknown-topic-only": "the same",
    "open-unknown-topic-and-good": "the same",
    "with-unknown-topic": "the same",
}
"""The probes with another answer on purpose."""
FENCED: Final = frozenset(
    (
        *("ack-fenced-74", "ack-after-fence", "fetch-after-fence", "ack-fenced-124", "ack-3"),
        *("fetch-again-loads-anew", "open"),
    )
)
"""The probes after requests to the share coordinator, which the test does not have."""
GROUPS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "probes": {"r-g": ("rp", "rp2"), "r-gm": ("rp", "rp2")},
    "probes_extra": {"x-ses": ("xx",), "x-lock": ("xxl",), "x-exp": ("xxd",), "x-ldr": ("xxr",)},
}
"""The groups with states at the share coordinator when the section begins, and their topics."""
REPLICATED: Final = Uuid.parse("5AQ73OsoSOWN6bLwm9NaeA"), 0
"""The partition `xxr-0`, which has two replicas."""
LEADER_CHANGE_MS: Final = 28_039
"""When the leader of `xxr-0` changed."""


@cache
def lines() -> list[dict[str, Any]]:
    """The requests in their order, and the topics."""
    return [
        json.loads(line)
        for line in gzip.decompress((DATA / "share" / "leader" / "probes.jsonl.gz").read_bytes()).splitlines()
    ]


def compared(answer: Any, version: int) -> Any:
    """What must be equal of an answer: everything but texts, addresses, and the order of partitions."""
    if answer.error_code:
        return Error(answer.error_code).name
    parts = []
    for topic in answer.responses:
        for part in topic.partitions:
            found = [topic.topic_id, part.partition_index, part.error_code, part.current_leader.leader_id]
            if hasattr(part, "acquired_records"):
                acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
                found += [part.acknowledge_error_code, acquired, len(part.records or b"")]
            parts.append(found)
    has_timeout = version > 1 or (hasattr(answer, "responses") and "fetch" in type(answer).__module__)
    return answer.acquisition_lock_timeout_ms if has_timeout else None, sorted(parts, key=str)


def replayed(file: str, brokers: ShareBrokers, base_ms: int) -> Iterator[tuple[str, Any, Any]]:
    """The names, our answers and Kafka's."""
    asked: list[tuple[int, dict[str, Any]]] = []
    is_changed = False
    for line in lines():
        if line["file"] != file or "api" not in line or (file == "probes_extra" and line["probe"] in FENCED):
            continue
        if line["t_ms"] > LEADER_CHANGE_MS and file == "probes_extra" and not is_changed:
            brokers.wait(base_ms + LEADER_CHANGE_MS)
            is_changed = True
            brokers.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=REPLICATED[0], leader=102))
        brokers.wait(max(brokers.now_ms, base_ms + line["t_ms"]))
        if line["api"] == "IncrementalAlterConfigs":
            for resource in line["request"]["resources"]:
                values = {one["name"]: one["value"] for one in resource["configs"]}
                brokers.configure(resource["resourceName"], **values)
            continue
        _, message = decode_request(bytes.fromhex(line["request"]), apis=ALL_APIS)
        if line["connection"] == "dc2":
            brokers.close(102, "dc")
        request_id = brokers.send(line["broker"], message, connection=line["connection"], version=line["version"])
        asked.append((request_id, line))
        if line["api"] == "Produce" and file == "probes_extra":
            brokers.brokers.replicate(REPLICATED)
        if line["api"] == "ShareFetch" and line["probe"] == "waiting-fetch":
            continue
        brokers.wait(max(brokers.now_ms, base_ms + line["t_ms"] + int(line["ms"])))
    brokers.wait(brokers.now_ms + 10_000)
    for request_id, line in asked:
        if line["api"] == "Produce":
            continue
        api = ALL_APIS[78 if line["api"] == "ShareFetch" else 79]
        _, theirs = decode_response(api.key, line["version"], bytes.fromhex(line["response"]), apis=ALL_APIS)
        ours = brokers.answered[request_id]
        yield line["probe"], compared(ours, line["version"]), compared(theirs, line["version"])


@pytest.mark.parametrize("file", SECTIONS)
def test_members_are_answered_as_by_kafka(file: str) -> None:
    topics = {
        name: NewTopic(name, Uuid.parse(one["id"]), tuple(map(tuple, one["replicas"])))
        for line in lines()
        if line["file"] == file and "topics" in line
        for name, one in line["topics"].items()
    }
    settings: dict[str, Any] = {"max_sessions": 3} if file == "probes_extra" else {}
    brokers = ShareBrokers(list(topics.values()), **settings)
    for group_id, names in GROUPS[file].items():
        for name in names:
            brokers.begin(group_id, topics[name])
    different = {}
    count = 0
    for name, ours, theirs in replayed(file, brokers, brokers.now_ms):
        count += 1
        if ours != theirs and name not in OURS:
            different[name] = ours, theirs
    assert different == {}
    assert count > 40
