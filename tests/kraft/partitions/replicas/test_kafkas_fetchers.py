"""The follower's half, against the captured fetches of a broker of Apache Kafka to two leaders.

The answers of the real leaders go into a replica manager. The metadata is not in the capture: a partition begins, or
has a new leader epoch, where the real follower says so in a request. From then on the manager has to be where the real
follower is: fetch offset, epoch of the last record, log start and session of every request.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from kraft.partitions.replicas import ReplicaManager
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.image import Partition
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.types import Uuid
from support.broker.data_brokers import NOW_MS, cluster, directory_id, load, replayed, settings
from support.real_data import json_lines
from transport.protocol.headers import decode_request, decode_response
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse

BROKER = 103
REPLICAS = (101, 102, 103)
FETCH, VERSION = 1, 18
NO_LEADER = -1


class Exchange(Struct):
    """A request of the real follower and its answer; None at the end of the capture."""

    leader: int
    request: FetchRequest
    response: FetchResponse | None = None


@cache
def captured() -> list[tuple[Exchange, bool]]:
    """The requests (True) and answers (False) in the order of the capture."""
    found: list[tuple[Exchange, bool]] = []
    opened: dict[tuple[int, int], Exchange] = {}
    for line in json_lines("fetchers", "broker-103.jsonl"):
        frame, where = bytes.fromhex(line["hex"]), (line["leader"], line["conn"])
        if line["direction"] == "request":
            _, request = decode_request(frame)
            assert isinstance(request, FetchRequest)
            opened[where] = Exchange(line["leader"], request)
            found.append((opened[where], True))
        else:
            _, response = decode_response(FETCH, VERSION, frame)
            assert isinstance(response, FetchResponse)
            opened[where].response = response
            found.append((opened[where], False))
    return found


class Follower:
    """A replica manager in the place of the real follower, in steps of 10 s: no request falls into a backoff."""

    def __init__(self) -> None:
        topics = sorted({topic_id for exchange, _ in captured() for topic_id, _ in keys_of(exchange.request)})
        names = [records.TopicRecord(name=f"topic-{at}", topic_id=topic_id) for at, topic_id in enumerate(topics)]
        self.disk = MemoryDisk()
        self.image = replayed(cluster(*REPLICAS), *names, *assignments())
        self.manager = ReplicaManager(self.disk, settings(BROKER))
        load(self.manager, self.image, NOW_MS)
        self.now_ms = NOW_MS
        self.broker_epoch = 0
        self.named: dict[int, set[PartitionKey]] = {}
        """The partitions in the session with each leader."""
        self.open: set[int] = set()
        self.in_step: set[int] = set()
        """The leaders with a session of as many requests as that of the real follower."""
        self.lost: set[PartitionKey] = set()
        """The partitions that the real follower has led with records, which the capture does not have."""
        self.seen = Counter[str]()

    def metadata(self, key: PartitionKey, leader: int, epoch: int) -> None:
        """Publish a leader and its epoch."""
        part = self.manager.partitions.get(key)
        partition_epoch = 0 if part is None else part.partition_epoch + 1
        none: tuple[int, ...] = ()
        partition = Partition(
            REPLICAS, (Uuid.ZERO,) * 3, REPLICAS, none, none, none, none, leader, 0, epoch, partition_epoch
        )
        self.manager.on_partition(key, partition, self.now_ms, directory_id(BROKER))

    def on_request(self, exchange: Exchange) -> None:
        """Bring the metadata up to date, and compare the session and the partitions that the request names."""
        self.now_ms += 10_000
        request, leader = exchange.request, exchange.leader
        if request.replica_state.replica_epoch > self.broker_epoch:
            self.restart(request.replica_state.replica_epoch)
        if leader in self.open:
            # The real follower has lost its connection.
            self.fail(leader)
        if request.session_epoch <= 0:
            for key in self.named.get(leader, set()) - keys_of(request).keys():
                part = self.manager.partitions.get(key)
                if part is not None and part.leader_id == leader:
                    self.metadata(key, NO_LEADER, part.leader_epoch)
        for key, theirs in keys_of(request).items():
            if key not in self.lost:
                self.compare(key, theirs, leader)
        ours = self.fetch(leader)
        if ours is not None and request.session_epoch <= 0 < ours.session_epoch:
            # The real follower has begun another session after a failure that the capture does not have.
            self.fail(leader)
            ours = self.fetch(leader)
        if request.session_epoch == 0:
            self.in_step.add(leader)
        if ours is None:
            # Every partition of the session is led by the real follower at times, or waits for metadata.
            self.in_step.discard(leader)
            return
        self.open.add(leader)
        if leader in self.in_step:
            while ours is not None and ours.session_epoch < request.session_epoch:
                # The capture leaves exchanges out in which neither side said anything.
                self.manager.followers.on_answer(leader, FetchResponse(session_id=ours.session_id), self.now_ms)
                ours = self.fetch(leader)
                self.seen["silent"] += 1
            assert ours is not None
            assert ours.session_epoch == request.session_epoch
            assert request.session_epoch == 0 or ours.session_id == request.session_id
            self.seen["sessions"] += 1
        assert (ours.max_wait_ms, ours.min_bytes, ours.max_bytes) == (
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
        )
        self.seen["requests"] += 1

    def restart(self, broker_epoch: int) -> None:
        """The real follower was stopped and has registered again: every log comes from the disk."""
        self.manager.close(broker_epoch=self.broker_epoch)
        self.manager = ReplicaManager(self.disk, settings(BROKER))
        load(self.manager, self.image, self.now_ms)
        self.broker_epoch = broker_epoch
        self.named.clear()
        self.open.clear()
        self.in_step.clear()
        self.seen["starts"] += 1

    def fetch(self, leader: int) -> FetchRequest | None:
        ours = self.manager.followers.request(leader, 16, self.now_ms)
        if ours is None:
            return None
        assert isinstance(ours, FetchRequest)
        named = set() if ours.session_epoch == 0 else self.named[leader]
        gone = {(topic.topic_id, number) for topic in ours.forgotten_topics_data for number in topic.partitions}
        self.named[leader] = (named | keys_of(ours).keys()) - gone
        return ours

    def fail(self, leader: int) -> None:
        self.manager.followers.on_answer(leader, None, self.now_ms)
        self.open.discard(leader)
        self.now_ms += 10_000

    def compare(self, key: PartitionKey, theirs: FetchPartition, leader: int) -> None:
        part = self.manager.partitions.get(key)
        epoch = theirs.current_leader_epoch
        begins = part is None or part.leader_epoch < epoch or part.leader_id != leader
        if begins:
            last = -1 if part is None else part.log.epochs.last_epoch or 0
            if part is not None and last < theirs.last_fetched_epoch < epoch:
                # The real follower has led in between: its epoch cache has the epoch of that leadership.
                self.metadata(key, BROKER, theirs.last_fetched_epoch)
                self.seen["led"] += 1
            self.metadata(key, leader, epoch)
        part = self.manager.partitions.get(key)
        assert part is not None
        if part.log.start_offset < theirs.log_start_offset <= part.log.high_watermark:
            # The real follower has deleted old segments by its own clock.
            part.log.raise_start(theirs.log_start_offset)
            self.seen["retention"] += 1
        last_epoch = part.log.epochs.last_epoch
        ours = FetchPartition(
            partition=key[1],
            current_leader_epoch=part.leader_epoch,
            fetch_offset=part.log.end_offset,
            last_fetched_epoch=-1 if last_epoch is None else last_epoch,
            log_start_offset=part.log.start_offset,
            partition_max_bytes=1 << 20,
        )
        if begins and ours != theirs:
            self.lost.add(key)
            self.manager.on_partition(key, None, self.now_ms)
            self.seen["lost"] += 1
            return
        assert ours == theirs, (key, leader)
        self.seen["begun" if begins else "compared"] += 1

    def on_response(self, exchange: Exchange) -> None:
        """Give the manager the answer of the real leader, for the partitions that are still compared."""
        leader, response = exchange.leader, exchange.response
        if leader not in self.open or response is None:
            return
        self.open.discard(leader)
        topics = []
        for topic in response.responses:
            parts = [one for one in topic.partitions if (topic.topic_id, one.partition_index) in self.named[leader]]
            self.seen["diverging"] += sum(one.diverging_epoch.epoch >= 0 for one in parts)
            self.seen["records"] += sum(bool(one.records) for one in parts)
            self.seen["errors"] += sum(one.error_code != 0 for one in parts)
            topics.append(replace(topic, partitions=parts))
        self.manager.followers.on_answer(leader, replace(response, responses=topics), self.now_ms)


def assignments() -> list[records.PartitionRecord]:
    """Every captured partition, and those with a lower number, on all brokers."""
    counts: dict[Uuid, int] = {}
    for exchange, _ in captured():
        for topic_id, number in keys_of(exchange.request):
            counts[topic_id] = max(number + 1, counts.get(topic_id, 0))
    return [
        records.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=REPLICAS,
            isr=REPLICAS,
            leader=101,
            leader_epoch=0,
            partition_epoch=0,
        )
        for topic_id, count in counts.items()
        for number in range(count)
    ]


def keys_of(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    return {(topic.topic_id, part.partition): part for topic in request.topics for part in topic.partitions}


def test_a_follower_is_where_kafkas_follower_is_at_every_captured_request() -> None:
    follower = Follower()
    for exchange, is_request in captured():
        (follower.on_request if is_request else follower.on_response)(exchange)
    assert sum(is_request for _, is_request in captured()) == 447
    seen = follower.seen
    assert seen["requests"] == 444, "in three, every partition of the session is lost or waits for metadata"
    assert seen["sessions"] == 443
    assert (seen["compared"], seen["begun"]) == (458, 263)
    assert (seen["diverging"], seen["errors"], seen["records"]) == (45, 152, 357)
    assert (len(follower.lost), seen["starts"]) == (10, 3)
