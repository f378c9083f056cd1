"""Produce requests that a broker of Kafka answered end in the log with the same codes, offsets and refused records."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.compression import Compression
from metadata_log.memory_disk import MemoryDisk
from support.broker.broker_logs import expected, options_of
from support.real_data import json_lines

FROM_THE_REQUEST = {3, 6, 19, 21, 53, 76, 100}
"""Codes that a broker gives before the log: unknown, not leader, min ISR, acks, rights, version of the API."""
ONE_BATCH = {
    *("magic 0 message set", "magic 1 message set", "length too big", "two batches", "two batches, idempotent"),
    *("truncated", "empty", "one byte"),
}
"""Refused by the check that a Produce request has one whole batch of format 2 for a partition."""
UNANSWERED = {"index": 0, "errorCode": 0, "baseOffset": 0}
"""A request with acks=0 is appended to its partition, and has no answer."""
IN_TRANSACTIONS = "alerts-probe-txn"
"""A topic with transactions: the answers depend on the coordinator."""
CODECS = {"lz4": Compression.LZ4, "producer": None}


def settings(topic: str) -> LogOptions:
    configs = expected("final/state.json")["configs"].get(f"TOPIC:{topic}", {})
    return structs.replace(
        options_of(topic),
        max_message_bytes=int(configs.get("max.message.bytes", 1048588)),
        is_log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        is_compacted="compact" in configs.get("cleanup.policy", ""),
        compression=CODECS[configs.get("compression.type", "producer")],
    )


def reaches_the_log(probe: dict[str, Any], answer: dict[str, Any]) -> bool:
    return answer["errorCode"] not in FROM_THE_REQUEST and probe["label"] not in ONE_BATCH


def test_the_log_gives_the_codes_and_offsets_of_a_broker() -> None:
    """Order matters: the requests of one topic are replayed against one log, so that offsets and producers follow."""
    logs: dict[tuple[str, int], PartitionLog] = {}
    codes: list[int] = []
    wrong: list[tuple[Any, ...]] = []
    for probe in json_lines("partitions", "expected/produce_probes.jsonl"):
        unanswered = [{"partitionResponses": [UNANSWERED]}] if probe["acks"] == 0 else []
        for topic, answers in zip(probe["topics"], probe["responses"] or unanswered, strict=False):
            # As in Kafka, the last entry of a partition counts if a request has two.
            sent = {each["index"]: each["records"] for each in topic["partitionData"]}
            for answer in answers["partitionResponses"]:
                name, index = topic["name"], answer["index"]
                if name == IN_TRANSACTIONS or not reaches_the_log(probe, answer):
                    continue
                log = logs.get((name, index))
                if log is None:
                    log = PartitionLog.open(MemoryDisk(), f"d/{name}-{index}", settings(name), now_ms=probe["t_ms"])
                    logs[name, index] = log
                done = log.append_as_leader(bytes.fromhex(sent[index]), epoch=0, now_ms=probe["t_ms"])
                refused = isinstance(done, RefusedAppend)
                got = (int(done.error), -1) if isinstance(done, RefusedAppend) else (0, done.first_offset)
                if answer is UNANSWERED:
                    continue
                codes.append(answer["errorCode"])
                if got != (answer["errorCode"], answer["baseOffset"]):
                    wrong.append((probe["label"], probe["version"], got, answer["errorCode"], answer["baseOffset"]))
                # Answers before version 8 have no list of records.
                if probe["version"] >= 8 and refused and isinstance(done, RefusedAppend):
                    bad = [each["batchIndex"] for each in answer.get("recordErrors") or ()]
                    if [each.index for each in done.records] != bad:
                        wrong.append((probe["label"], probe["version"], done.records, bad, None))
    assert wrong == []
    assert len(codes) == 95
    assert {-1, 0, 2, 10, 32, 45, 47, 87} <= set(codes)
