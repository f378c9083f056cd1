"""A server that answers as a malicious leader: poisoned batches, forged high watermarks, absurd snapshots, garbage."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, TopicRecord
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, Uuid
from support.hostile.frames import framed
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_request, encode_response
from transport.protocol.messages import ApiVersionsResponse, FetchResponse, FetchSnapshotResponse
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
)

HUGE: Final = (1 << 62, (1 << 63) - 1, -1, -(1 << 63), 0, 1)
SERVED: Final = {ApiKey.FETCH: (0, 18), ApiKey.FETCH_SNAPSHOT: (0, 1), ApiKey.VOTE: (0, 2), ApiKey.API_VERSIONS: (0, 4)}
ACCEPT_SECONDS: Final = 0.2


class FakeLeader:
    """Listens at a port of its own and answers every Fetch with something that no leader sends."""

    def __init__(self, cluster_id: str, rng: Random, did: Counter[str]) -> None:
        self._cluster_id = cluster_id
        self._rng = rng
        self._did = did
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(ACCEPT_SECONDS)
        self.port: int = self._socket.getsockname()[1]
        self.forges = False
        """Whether records that a leader could have written are served as committed, too."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.leader_id = -1
        self._epoch = 0
        self._end_offset = 0

    def lead(self, leader_id: int, epoch: int, end_offset: int) -> None:
        """Claim to be this node, leading this epoch."""
        self.leader_id, self._epoch, self._end_offset = leader_id, epoch, end_offset

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            connection.settimeout(1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with connection:
            try:
                while not self._stopped.is_set():
                    data = connection.recv(1 << 16)
                    if not data:
                        return
                    for frame in reader.feed(data):
                        connection.sendall(self._answer(bytes(frame)))
            except OSError:
                return

    def _answer(self, frame: bytes) -> bytes:
        header, message = decode_request(frame)
        key, version = header.request_api_key, header.request_api_version
        body: Message
        match key:
            case ApiKey.API_VERSIONS:
                keys = [
                    ApiVersion(api_key=one, min_version=low, max_version=high) for one, (low, high) in SERVED.items()
                ]
                body = ApiVersionsResponse(api_keys=keys)
            case ApiKey.FETCH:
                offset = self._fetch_offset(message)
                body = self._fetch(offset)
                self._did["poisoned answers"] += 1
            case ApiKey.FETCH_SNAPSHOT:
                body = self._piece()
                self._did["poisoned pieces"] += 1
            case _:
                return framed(self._rng.randbytes(30))
        content = encode_response(key, version, header.correlation_id, body)
        if self._rng.random() < 0.1:
            content = content[: self._rng.randrange(4, len(content) + 1)]
        return framed(content)

    def _fetch_offset(self, message: Any) -> int:
        partitions = message.topics[0].partitions if message.topics else []
        return partitions[0].fetch_offset if partitions else self._end_offset

    def _fetch(self, offset: int) -> FetchResponse:
        rng = self._rng
        fields: dict[str, Any] = {
            "high_watermark": rng.choice((*HUGE, offset + 1)),
            "log_start_offset": rng.choice((0, *HUGE)),
            "current_leader": LeaderIdAndEpoch(leader_id=self.leader_id, leader_epoch=self._epoch),
        }
        kind = rng.randrange(5)
        if kind <= 2:
            fields["records"] = self._records(offset)
        elif kind == 3:
            fields["diverging_epoch"] = EpochEndOffset(
                epoch=rng.choice((0, 1, self._epoch)), end_offset=rng.choice((*HUGE, offset - 1))
            )
        else:
            fields["snapshot_id"] = SnapshotId(
                end_offset=rng.choice((*HUGE, offset)), epoch=rng.choice((0, self._epoch, -1))
            )
        if rng.random() < 0.1:
            fields["error_code"] = rng.choice((-1, 1, 3, 74, 76, 99, 32767))
        topic = FetchableTopicResponse(
            topic=METADATA_TOPIC, topic_id=Uuid.METADATA_TOPIC, partitions=[PartitionData(**fields)]
        )
        return FetchResponse(error_code=Error.NONE, responses=[topic])

    def _records(self, offset: int) -> bytes:
        """A batch with a valid CRC and content that no leader wrote, at the requested offset or elsewhere."""
        rng = self._rng
        if self.forges:
            forged = ConfigRecord(resource_type=16, resource_name="forged", name="interval.ms", value="5000")
            return bytes(build_batch(offset, self._epoch, 0, [encode_record(forged, 0)]))
        base = rng.choice((offset, offset, offset, 0, 1 << 62))
        values = rng.choice(
            (
                [rng.randbytes(40)],
                [b""],
                [b"\x01\x7f\x7f" + rng.randbytes(20)],
                [encode_record(TopicRecord(name="x", topic_id=Uuid.ZERO), 0)[:-3]],
                [encode_record(TopicRecord(name="x", topic_id=Uuid.ZERO), 0), b"\x01"],
            )
        )
        kind = rng.randrange(5)
        if kind == 0:
            data = build_control_batch(base, self._epoch, 0, [(rng.choice((2, 3, 4, 5, 6, 99)), rng.randbytes(20))])
        elif kind == 1:
            damaged = bytearray(build_batch(base, self._epoch, 0, values))
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        elif kind == 2:
            return rng.randbytes(200)
        else:
            data = build_batch(base, rng.choice((self._epoch, 0, 1 << 30)), 0, values)
        return bytes(data)

    def _piece(self) -> FetchSnapshotResponse:
        rng = self._rng
        part = FetchSnapshotResponsePartitionSnapshot(
            snapshot_id=FetchSnapshotResponseSnapshotId(
                end_offset=rng.choice(HUGE), epoch=rng.choice((0, self._epoch))
            ),
            size=rng.choice(HUGE),
            position=rng.choice((0, *HUGE)),
            unaligned_records=rng.choice(
                (b"", rng.randbytes(500), build_batch(0, self._epoch, 0, [rng.randbytes(30)]))
            ),
        )
        topic = FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
        return FetchSnapshotResponse(topics=[topic])
