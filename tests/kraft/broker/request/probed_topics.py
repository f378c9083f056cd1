"""Topics of a broker with data that is probed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from msgspec import to_builtins

from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.request_brokers import NewTopic
from support.real_data import archive
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.produce import ProduceResponse


@cache
def topics() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(archive("data_requests")["topics.json"])
    return found


def new_topics() -> list[NewTopic]:
    return [
        NewTopic(
            name,
            Uuid.parse(topic["id"]),
            tuple(tuple(replicas) for replicas in topic["replicas"]),
            topics()["configs"].get(name, {}),
        )
        for name, topic in topics()["topics"].items()
    ]


def whole_batches(data: bytes) -> bytes:
    """Without an incomplete batch at the end: Kafka cuts the last batch where the size limit is."""
    at = 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        at += size
    return data[:at]


def plain(message: Message, sessions: dict[int, int]) -> Any:
    """A response to compare: in a fixed order where Kafka's is that of a hash table, and without the words of errors,
    which are our own.
    """
    made = to_builtins(message, enc_hook=str)
    if isinstance(message, ProduceResponse):
        for topic in made["responses"]:
            topic["partition_responses"].sort(key=lambda part: part["index"])
            for part in topic["partition_responses"]:
                del part["error_message"]
                for each in part["record_errors"]:
                    del each["batch_index_error_message"]
        return made
    if isinstance(message, FetchResponse):
        made["session_id"] = sessions.get(made["session_id"], made["session_id"])
        for topic, sent in zip(made["responses"], message.responses, strict=True):
            for part, data in zip(topic["partitions"], sent.partitions, strict=True):
                part["records"] = whole_batches(bytes(data.records or b"")).hex()
        return made
    for topic in made.get("topics", ()):
        for part in topic.get("partitions", ()):
            if "active_producers" in part:
                part["active_producers"].sort(key=lambda each: each["producer_id"])
                part["error_message"] = None
    for result in made.get("results", ()):
        result["log_dir"] = "DIR"
        result["total_bytes"] = result["usable_bytes"] = -1
        for topic in result["topics"]:
            topic["partitions"].sort(key=lambda part: part["partition_index"])
    return made
