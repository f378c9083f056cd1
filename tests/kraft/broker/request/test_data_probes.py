"""Requests that brokers of Kafka 4.3.1 answered get the same answers: codes, offsets, records and all other fields.

The recorded requests run in their order against three brokers that begin with the same topics. Followers fetch after
each request, so that their state is that of a calm cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct, structs

from kraft.partitions.log.partition_log import PartitionLog
from kraft.wire import Answer, Drop
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from probed_topics import new_topics, plain, topics
from support.broker.broker_logs import NOW_MS, files_below, options_of, put
from support.broker.request_brokers import BROKERS, Brokers
from support.real_data import json_lines
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_request, decode_response, encode_response
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from transport.protocol.messages.fetch import FetchRequest, FetchResponse
from transport.protocol.messages.produce import ProduceRequest, ProduceResponse

STORED = {"none": 61, "gzip": 70, "lat": 45, "roll": 240, "compact": 252, "txn": 103, "zstd": 99}
"""The topics `alerts-*` with records from before the probes, and the end of their first partition at that time. Their
directories are those of the brokers.
"""
OF_TRANSACTIONS = "alerts-probe-txn"
BELOW_MIN_ISR = 528
"""The first probe after the ISR of `alerts-probe-isr` has shrunk."""
FIRST_IDS = AllocateProducerIdsResponse(producer_id_start=1014, producer_id_len=1000)

OTHER = {
    95: "Kafka never answers null records, because the error answer fails too; here they are an invalid record",
    213: "reads a partition of transactions",
    224: "the follower of Kafka did not know the last watermark yet",
    225: "the follower of Kafka did not know the last watermark yet",
    394: "Kafka looks into the first segment with a late enough time only, and compaction has emptied its late batches",
    515: "quotas", 516: "quotas", 517: "quotas", 518: "quotas", 519: "quotas",
}  # fmt: skip
"""The probes with another answer, and why."""
OF_LATER_STATES = range(520, 528)
"""Probes of a cluster with a slow follower, which the test of waiting requests covers."""
OF_MOVED_LOGS = range(532, 537)
"""DescribeLogDirs after a move between directories."""


class Probe(Struct):
    """A recorded request with its answer."""

    n: int
    server: int
    version: int
    api_key: int
    message: Message
    expected: Message | None
    record: dict[str, Any]


def probes() -> list[Probe]:
    found = []
    for record in json_lines("data_requests", "probes.jsonl"):
        if "request_hex" not in record or record.get("closed"):
            continue
        header, message = decode_request(bytes.fromhex(record["request_hex"]), apis=ALL_APIS)
        expected = None
        if "response_hex" in record:
            frame = bytes.fromhex(record["response_hex"])
            _, expected = decode_response(header.request_api_key, header.request_api_version, frame, apis=ALL_APIS)
        found.append(
            Probe(record["n"], record["server"], record["version"], header.request_api_key, message, expected, record)
        )
    return found


def late_answers() -> dict[int, Message]:
    """The answers that came apart from their requests, by the number of the request."""
    by_number = {record["n"]: record for record in json_lines("data_requests", "probes.jsonl")}
    return {
        n: decode_response(1, 18, bytes.fromhex(by_number[late]["response_hex"]), apis=ALL_APIS)[1]
        for n, late in ((205, 207), (511, 513))
    }


def brokers() -> Brokers:
    disks = {}
    for one in BROKERS:
        disk = disks[one] = MemoryDisk()
        put(disk, "d", files_below(f"nodes/b{one}"))
        for name, end in STORED.items():
            directory = f"alerts-{name}-0"
            put(disk, f"d/{directory}", files_below(f"nodes/b{one}/{directory}"))
            log = PartitionLog.open(disk, f"d/{directory}", options_of(f"alerts-{name}"), now_ms=NOW_MS, is_clean=True)
            log.truncate(end, now_ms=NOW_MS)
            log.close()
    return Brokers(new_topics(), disks=disks, prefers_rack_of_client=True)


class Replay:
    """The brokers, and what the probes have left so far."""

    def __init__(self) -> None:
        self.brokers = brokers()
        self.sessions: dict[int, int] = {}
        """Our session ids by those of Kafka."""
        self.parked: dict[int, Answer] = {}
        self._waiting: dict[int, int] = {}
        """The numbers of the probes by the ids of their requests."""
        self.brokers.give_ids(101, FIRST_IDS)

    def answer(self, probe: Probe) -> Message | str | None:
        """The answer of our broker to a probe: a response, that it closes the connection, or nothing."""
        brokers = self.brokers
        self._pass_to(self._time_of(probe))
        message = probe.message
        if isinstance(message, FetchRequest) and message.session_id:
            message = structs.replace(message, session_id=self.sessions.get(message.session_id, message.session_id))
        keys = _keys(brokers, probe)
        brokers.replicate(*keys)
        request_id, outcome = brokers.send(probe.server, message, probe.version)
        self._waiting[request_id] = probe.n
        brokers.replicate(*keys)
        self._collect()
        if outcome is None and probe.n not in self.parked and brokers.requests[probe.server].waiting:
            if probe.record.get("sent"):
                return None
            self._pass_to(brokers.due_ms(probe.server))
        if outcome is None:
            outcome = self.parked.get(probe.n)
        if isinstance(outcome, Drop):
            return "close"
        return self._over_the_wire(probe, outcome.message) if isinstance(outcome, Answer) else None

    def _over_the_wire(self, probe: Probe, response: Message) -> Message:
        frame = encode_response(probe.api_key, probe.version, 1, response, apis=ALL_APIS)
        return decode_response(probe.api_key, probe.version, frame, apis=ALL_APIS)[1]

    def _time_of(self, probe: Probe) -> int:
        """The time of the broker when it answered: for log append time that in the answer."""
        times = [0]
        if isinstance(probe.expected, ProduceResponse) and "lat" in probe.record["label"] + _topics_of(probe):
            times = [part.log_append_time_ms for each in probe.expected.responses for part in each.partition_responses]
        return times[0] if times and times[0] > 0 else probe.record["t_ms"]

    def _pass_to(self, now_ms: int) -> None:
        self.brokers.now_ms = max(self.brokers.now_ms, now_ms)
        self._collect()

    def _collect(self) -> None:
        for one in BROKERS:
            for outcome in self.brokers.poll(one):
                assert isinstance(outcome, Answer)
                self.parked[self._waiting[outcome.request_id]] = outcome


def _topics_of(probe: Probe) -> str:
    if not isinstance(probe.message, ProduceRequest):
        return ""
    known = {Uuid.parse(topic["id"]): name for name, topic in topics()["topics"].items()}
    return " ".join(topic.name or known.get(topic.topic_id, "") for topic in probe.message.topic_data)


def _keys(brokers: Brokers, probe: Probe) -> list[tuple[Uuid, int]]:
    """The partitions of a probe, for the followers: those of topics that the probes write to."""
    names = {name for name in ("alerts-probe", "alerts-sess") if probe.api_key in (0, 1, 21)}
    if probe.api_key in (0, 21):
        names |= {"alerts-probe-compact", "alerts-probe-lat", "alerts-probe-small"}
    return [
        (topic_id, number)
        for name in sorted(names)
        for topic_id in [brokers.image.topics.by_name[name]]
        for number in range(len(brokers.image.topics.by_id[topic_id].partitions))
    ]


def _is_left_out(probe: Probe) -> bool:
    names = (OF_TRANSACTIONS, topics()["topics"][OF_TRANSACTIONS]["id"])
    asked = repr(probe.message) if probe.n not in OTHER else ""
    of_transactions = any(name in asked for name in names) or probe.record["label"] == "transactional"
    return of_transactions or probe.n in OF_LATER_STATES or probe.n in OF_MOVED_LOGS or probe.n == 0


def test_recorded_requests_get_the_answers_of_kafka() -> None:
    replay = Replay()
    late = late_answers()
    wrong: list[tuple[Any, ...]] = []
    counts: dict[int, int] = {}
    for probe in probes():
        if _is_left_out(probe):
            continue
        if probe.n == BELOW_MIN_ISR:
            replay.brokers.change(
                records.PartitionChangeRecord(
                    partition_id=0, topic_id=replay.brokers.image.topics.by_name["alerts-probe-isr"], isr=(101,)
                )
            )
        found = replay.answer(probe)
        if probe.n in OTHER:
            continue
        counts[probe.api_key] = counts.get(probe.api_key, 0) + 1
        expected = probe.expected
        if isinstance(probe.message, ProduceRequest) and probe.message.acks == 0:
            is_good = probe.record["label"] == "acks 0 good"
            if found != (None if is_good else "close"):
                wrong.append((probe.n, probe.record["label"], found, "acks 0"))
            continue
        if expected is None and probe.n in late:
            continue
        assert expected is not None, probe.record["label"]
        if not isinstance(found, Message):
            wrong.append((probe.n, probe.record["label"], found, expected))
            continue
        if (
            isinstance(expected, FetchResponse)
            and isinstance(found, FetchResponse)
            and expected.session_id
            and found.session_id
        ):
            replay.sessions.setdefault(expected.session_id, found.session_id)
        ours, kafkas = plain(found, {}), plain(expected, replay.sessions)
        if ours != kafkas:
            wrong.append((probe.n, probe.record["label"], ours, kafkas))
    for n, expected in late.items():
        frame = encode_response(1, 18, 1, replay.parked[n].message, apis=ALL_APIS)
        ours, kafkas = plain(decode_response(1, 18, frame, apis=ALL_APIS)[1], {}), plain(expected, {})
        if ours != kafkas:
            wrong.append((n, "late", ours, kafkas))
    assert not wrong, "\n".join(str(each)[:1500] for each in wrong)
    assert counts == {0: 121, 1: 85, 2: 145, 21: 11, 22: 6, 23: 29, 35: 5, 61: 1}


@pytest.mark.parametrize("n", sorted(OTHER))
def test_every_listed_difference_is_a_probe(n: int) -> None:
    assert any(probe.n == n for probe in probes())
