"""An idempotent producer with acks=all at work in a thread, and the check that nothing acknowledged is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, Message, Producer

from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import values_in
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transport.protocol.errors import Error

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FLUSH_SECONDS: Final = 120


class ConfluentLoad:
    """Numbered messages to the partition of a topic; which of them were acknowledged, and where.

    Args:
        cluster: Where the load goes.
        topic: A topic with one partition.
        codec: The codec of librdkafka.
        per_second: About how many messages; 0 for as many as the client takes.
        size: The bytes of a value, at least those of its number.
    """

    def __init__(
        self, cluster: Cluster, topic: Topic, *, codec: str = "none", per_second: int = 500, size: int = 0
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._pause = 1 / per_second if per_second else 0.0
        self._size = size
        self.acknowledged: dict[bytes, int] = {}
        self.failures: Counter[str] = Counter()
        self.sent = 0
        self._stopped = threading.Event()
        self._crash: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "message.timeout.ms": FLUSH_SECONDS * 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[error.name()] += 1
            return
        offset, value = message.offset(), message.value()
        assert isinstance(value, bytes)
        assert offset is not None
        self.acknowledged[value] = offset

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                value = b"%d" % self.sent
                try:
                    self._producer.produce(
                        self._topic.name, value.ljust(self._size, b"."), partition=0, on_delivery=self._delivered
                    )
                    self.sent += 1
                except BufferError:
                    self._producer.poll(0.1)
                self._producer.poll(0)
                self._stopped.wait(self._pause)
        except BaseException as crash:
            self._crash = crash

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(SECONDS)
        if kind is None:
            if self._crash is not None:
                raise self._crash
            assert self._producer.flush(FLUSH_SECONDS) == 0, "messages were neither acknowledged nor refused"

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        eventually(
            lambda: self._crash is not None or len(self.acknowledged) >= wanted,
            f"{count} more messages of {self._topic.name} are acknowledged",
            FLUSH_SECONDS,
        )

    def check(self) -> None:
        """Every message is in the log once, and each acknowledged one at its offset; none was refused."""
        assert self.failures == {}
        leader = self._cluster.leader(self._topic)
        eventually(
            lambda: self._cluster.watermark(leader, self._topic) > max(self.acknowledged.values()),
            f"all of {self._topic.name} is committed",
            SECONDS,
        )
        found = read_all(self._cluster, leader, self._topic)
        places = {value: offset for offset, value in found}
        assert len(places) == len(found) == self.sent == len(self.acknowledged)
        assert {value: offset for value, offset in self.acknowledged.items() if places.get(value) != offset} == {}


def read_all(cluster: Cluster, leader: int, topic: Topic) -> Sequence[tuple[int, bytes | None]]:
    """The offsets and values that a consumer sees at a leader, from the first to the high watermark."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        offset = found[-1][0] + 1 if found else 0
        part = cluster.fetch(leader, topic, offset)
        assert part.error_code == Error.NONE, Error.of(part.error_code)
        read = [one for one in values_in(part.records) if one[0] >= offset]
        if not read:
            return found
        found += read
