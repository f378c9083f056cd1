"""Readers of committed records stop at an open transaction, and learn which transactions were aborted.

The log is the recorded one of `alerts-probe-txn`, cut where the log ended when Kafka answered.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.partitions.log.partition_log import PartitionLog
from kraft.wire import Answer
from metadata_log.memory_disk import MemoryDisk
from probed_topics import new_topics, plain
from support.broker.broker_logs import NOW_MS, files_below, options_of, put
from support.broker.request_brokers import BROKERS, Brokers
from support.real_data import json_lines
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_response, encode_response

TOPIC = "alerts-probe-txn"
OPEN, ENDED = 7, 11
"""The end of the log with an open transaction, and after an aborted and a committed one."""
PROBES = {
    **dict.fromkeys((158, 159, 160, 161, 162), OPEN),
    **dict.fromkeys((167, 168, 169, 170), ENDED),
}
"""The end of the log at each recorded request."""


def brokers_with_log_to(end: int) -> Brokers:
    disks = {one: MemoryDisk() for one in BROKERS}
    for one, disk in disks.items():
        put(disk, "d", files_below(f"nodes/b{one}"))
        put(disk, f"d/{TOPIC}-0", files_below(f"nodes/b{one}/{TOPIC}-0"))
        log = PartitionLog.open(disk, f"d/{TOPIC}-0", options_of(TOPIC), now_ms=NOW_MS, is_clean=True)
        log.truncate(end, now_ms=NOW_MS)
        log.close()
    return Brokers([each for each in new_topics() if each.name == TOPIC], disks=disks)


def records() -> dict[int, dict[str, Any]]:
    return {record["n"]: record for record in json_lines("data_requests", "probes.jsonl")}


@pytest.mark.parametrize("n", sorted(PROBES))
def test_a_reader_of_transactions_gets_the_answer_of_kafka(n: int) -> None:
    record = records()[n]
    brokers = brokers_with_log_to(PROBES[n])
    _, outcome = brokers.frame(101, bytes.fromhex(record["request_hex"]))
    assert isinstance(outcome, Answer)
    api_key, version = int(record["request_hex"][:4], 16), record["version"]
    frame = encode_response(api_key, version, 1, outcome.message, apis=ALL_APIS)
    _, ours = decode_response(api_key, version, frame, apis=ALL_APIS)
    _, kafkas = decode_response(api_key, version, bytes.fromhex(record["response_hex"]), apis=ALL_APIS)
    assert plain(ours, {}) == plain(kafkas, {}), record["label"]
