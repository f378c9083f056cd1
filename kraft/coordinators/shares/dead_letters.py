"""Sends records that no member accepts to the dead-letter queue of their group, a topic (Kafka:
`DefaultShareGroupDLQManager`).

Whatever becomes of them, the share partition goes on: a queue that cannot take a record does not hold up a group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.agenda import Agenda, Slot
from kraft.config.group_settings import ShareLeaderConfig
from kraft.coordinators.shares.persister import ShareKey
from kraft.coordinators.shares.share_partition import Letter
from kraft.handling.coordinators import place_of
from kraft.handling.reply_keys import LettersSent, to_broker
from kraft.limits import LETTERS_PER_STEP, REQUEST_STEPS_PER_TURN, SHARE_READ_BYTES
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Send, Target
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.topics import TopicImage
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, scan
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.record import Header, encode_record, records, unpacking
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FEATURE: Final = "share.version"
SINCE: Final = 2
"""The level of the feature from which on there are dead-letter queues."""
QUEUE: Final = "errors.deadletterqueue.topic.name"
COPIES: Final = "errors.deadletterqueue.copy.record.enable"
TAKES_LETTERS: Final = "errors.deadletterqueue.group.enable"
"""The setting of a topic that may be a dead-letter queue."""
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
CREATES: Final = "errors.deadletterqueue.auto.create.topics.enable"
REJECTED: Final = "Offset rejected by client."
EXHAUSTED: Final = "Offset delivery count exceeded the threshold."
TRIES: Final = 5
FIRST_PAUSE_MS: Final = 1000
LONGEST_PAUSE_MS: Final = 30_000
_ACKS_ALL: Final = -1
_INTERNAL: Final = "__"
_RECORDS: Final = 500
"""The most records of a request."""
_BYTES: Final = 1_000_000
"""The most bytes of their batch, unless one record has more; a topic that takes fewer says so."""
_AGAIN: Final = frozenset(
    (
        *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.LEADER_NOT_AVAILABLE),
        *(Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT, Error.NETWORK_EXCEPTION),
        *(Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.KAFKA_STORAGE_ERROR),
    )
)
_CODECS: Final = 7
"""The bits of the codec of a batch."""
_MOST_TOLD: Final = 1000
"""After so many reports all may come again."""
_Content = tuple[bytes | None, bytes | None]
"""The key and the value of a record."""
_NOTHING: Final[_Content] = None, None


class _Post(Struct, eq=False):
    """Offsets on their way to a dead-letter queue."""

    key: ShareKey
    part: HostedPartition
    leader_epoch: int
    letter: Letter
    text: str
    then: Callable[[int], None]
    at: int
    """The first offset that the queue does not have."""
    end: int = 0
    """The offset after those of the batch."""
    data: bytes = b""
    """The batch that is sent next, or is under way."""
    most_bytes: int = _BYTES
    work: Generator[None, None, None] | None = None
    """The steps that make the batch."""
    tries: int = 0


class DeadLetters:
    """The records of one broker that are on their way to dead-letter queues: of a share partition one after the other.

    Args:
        agenda: What is due at the broker.
        manager: The replicas of this broker.
        config: The settings of the broker.
        listener: The listener at which brokers reach each other.
        timeout_ms: How long one request may take, in ms.
        create: Asks for a topic, which does not exist.
    """

    def __init__(
        self,
        agenda: Agenda,
        manager: ReplicaManager,
        config: ShareLeaderConfig,
        listener: str,
        timeout_ms: int,
        create: Callable[[str], None],
    ) -> None:
        self._agenda = agenda
        self._manager = manager
        self._config = config
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._create = create
        self._image = MetadataImage()
        self._posts: dict[ShareKey, deque[_Post]] = {}
        """By share partition, what is under way first."""
        self._ready: deque[_Post] = deque()
        self._later: list[tuple[int, int, _Post]] = []
        """A heap of what is tried again, by time in ms and order."""
        self._sent: dict[LettersSent, _Post] = {}
        self._order = 0
        self._told: set[tuple[str, str]] = set()
        """The groups, and what was reported of their queues."""
        self._unpacked: tuple[tuple[ShareKey, int], RecordBatch] | None = None
        """The last batch that was unpacked for a share partition, with its offset."""

    def __len__(self) -> int:
        """The share partitions with records on their way."""
        return len(self._posts)

    def post(
        self, key: ShareKey, part: HostedPartition, letter: Letter, text: str, then: Callable[[int], None]
    ) -> None:
        """Send offsets; `then` takes the time in ms at which the queue has them, or will never have them."""
        post = _Post(key, part, part.leader_epoch, letter, text, then, letter.first)
        waiting = self._posts.setdefault(key, deque())
        waiting.append(post)
        if len(waiting) == 1:
            self._ready.append(post)
            self._agenda.now(Slot.LETTERS)

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The requests to send."""
        self._image = image
        while self._later and self._later[0][0] <= now_ms:
            self._ready.append(heappop(self._later)[2])
        for _ in range(REQUEST_STEPS_PER_TURN):
            if not self._ready:
                break
            post = self._ready[0]
            if self._goes_on(post, now_ms):
                self._ready.popleft()
                yield from self._send(post, now_ms)
        self._agenda.by(Slot.LETTERS, 0 if self._ready else self._later[0][0] if self._later else NEVER_MS)

    def _goes_on(self, post: _Post, now_ms: int) -> bool:
        """Make a step of what makes the batch; returns whether it is made, or there is none to be made."""
        if post.data:
            return True
        if post.work is None:
            if isinstance(self._queue_of(post), str):
                return True
            post.work = self._making(post, now_ms)
        return next(post.work, self) is self

    # The queue

    def _queue_of(self, post: _Post) -> TopicImage | str | None:
        """The queue of a group; None if it is to be created, or why there is none."""
        image, group_id = self._image, post.key.group_id
        name = image.configs.of((ResourceType.GROUP, group_id)).get(QUEUE, "").strip()
        if post.part.leading is None or post.part.leader_epoch != post.leader_epoch:
            return ""
        if not name or image.features.level(FEATURE) < SINCE:
            return ""
        cluster = image.configs.of((ResourceType.BROKER, ""))
        prefix = cluster.get(PREFIX, self._config.letters_prefix)
        if name.startswith(_INTERNAL) or not name.startswith(prefix):
            return f"{name} does not begin with {prefix}, or is internal"
        topic_id = image.topics.by_name.get(name)
        if topic_id is not None:
            takes = image.configs.of((ResourceType.TOPIC, name)).get(TAKES_LETTERS, "")
            return image.topics.by_id[topic_id] if _is_true(takes) else f"{name} has not {TAKES_LETTERS}=true"
        creates = cluster.get(CREATES)
        if self._config.creates_queues if creates is None else _is_true(creates):
            self._create(name)
            return None
        return f"there is no topic {name}, and {CREATES} is false"

    def _send(self, post: _Post, now_ms: int) -> Iterator[Send]:
        post.work = None
        queue = self._queue_of(post)
        if isinstance(queue, str):
            self._give_up(post, queue, now_ms)
            return
        number = post.key.partition % len(queue.partitions) if queue is not None else 0
        place = None if queue is None else place_of(self._image, queue.partitions[number].leader, self._listener)
        if queue is None or place is None:
            self._try_again(post, Error.LEADER_NOT_AVAILABLE, now_ms)
            return
        self._order += 1
        key = LettersSent(self._order)
        self._sent[key] = post
        data = [TopicProduceData(queue.name, queue.id, [PartitionProduceData(number, post.data)])]
        request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=self._timeout_ms, topic_data=data)
        yield Send(request, to_broker(key), self._timeout_ms, Target(place[0].id, place[1].host, place[1].port))

    def on_reply(self, key: LettersSent, message: Message | None, now_ms: int) -> None:
        """Take the answer of the leader of a queue; None if the request has failed."""
        post = self._sent.pop(key)
        error = Error.NETWORK_EXCEPTION
        if isinstance(message, ProduceResponse):
            error = next(
                (Error.of(part.error_code) for topic in message.responses for part in topic.partition_responses),
                Error.UNKNOWN_SERVER_ERROR,
            )
        if error is Error.NONE:
            self._finish_batch(post, now_ms)
        elif error is Error.MESSAGE_TOO_LARGE and post.end - post.at > 1:
            # The topic takes less at a time.
            post.most_bytes, post.data = len(post.data) // 2, b""
            self._make_ready(post)
        elif error in _AGAIN:
            self._try_again(post, error, now_ms)
        else:
            self._tell(post, f"it refuses records: {error.name}")
            self._finish_batch(post, now_ms)

    def _try_again(self, post: _Post, error: Error, now_ms: int) -> None:
        post.tries += 1
        if post.tries >= TRIES:
            self._give_up(post, f"it cannot be reached: {error.name}", now_ms)
            return
        self._order += 1
        at_ms = now_ms + min(FIRST_PAUSE_MS << (post.tries - 1), LONGEST_PAUSE_MS)
        heappush(self._later, (at_ms, self._order, post))
        self._agenda.by(Slot.LETTERS, at_ms)

    def _finish_batch(self, post: _Post, now_ms: int) -> None:
        """The queue has a batch, or does not take it."""
        post.at, post.data, post.tries = post.end, b"", 0
        if post.at > post.letter.last:
            self._end(post, now_ms)
        else:
            self._make_ready(post)

    def _give_up(self, post: _Post, text: str, now_ms: int) -> None:
        if text:
            self._tell(post, text)
        self._end(post, now_ms)

    def _end(self, post: _Post, now_ms: int) -> None:
        waiting = self._posts[post.key]
        assert waiting.popleft() is post, post
        if waiting:
            self._make_ready(waiting[0])
        else:
            del self._posts[post.key]
        if not self._posts:
            self._unpacked = None
        post.then(now_ms)

    def _make_ready(self, post: _Post) -> None:
        self._ready.append(post)
        self._agenda.now(Slot.LETTERS)

    def _tell(self, post: _Post, text: str) -> None:
        """Report once what is wrong with the queue of a group."""
        if (post.key.group_id, text) not in self._told:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told.add((post.key.group_id, text))
            self._manager.hosting.report(f"dead-letter queue of share group {post.key.group_id}: {text}")

    # The records

    def _making(self, post: _Post, now_ms: int) -> Generator[None, None, None]:
        """Make the next batch, in steps."""
        copies = self._image.configs.of((ResourceType.GROUP, post.key.group_id)).get(COPIES, "")
        found: dict[int, _Content] = {}
        end = post.letter.last + 1
        if _is_true(copies):
            found, end = yield from self._copying(post)
        before, behind = self._headers(post)
        bodies: list[bytes] = []
        size = HEADER_BYTES
        for offset in range(post.at, min(end, post.at + _RECORDS)):
            headers = (*before, Header("__dlq.errors.offset", str(offset).encode()), *behind)
            body = encode_record(0, len(bodies), *found.get(offset, _NOTHING), headers)
            size += len(body)
            if bodies and size > post.most_bytes:
                break
            bodies.append(body)
            if len(bodies) % LETTERS_PER_STEP == 0:
                yield None
        post.end = post.at + len(bodies)
        post.data = batch_of(bodies, base_offset=0, epoch=-1, timestamps=(now_ms, now_ms)).data

    def _headers(self, post: _Post) -> tuple[list[Header], list[Header]]:
        """The headers that records of a letter have before and behind that with the offset."""
        topic = self._image.topics.by_id.get(post.key.topic_id)
        before = {"topic": "" if topic is None else topic.name, "partition": str(post.key.partition)}
        behind = {"group": post.key.group_id, "delivery.count": str(post.letter.count), "message": post.text}
        headers = [
            [Header(f"__dlq.errors.{name}", text.encode()) for name, text in each.items()] for each in (before, behind)
        ]
        return headers[0], headers[1]

    def _copying(self, post: _Post) -> Generator[None, None, tuple[dict[int, _Content], int]]:
        """Keys and values of a letter as far as they are read at once, and the offset after them."""
        log, last = post.part.log, post.letter.last
        found: dict[int, _Content] = {}
        first = max(post.at, log.local_start)
        if first > last or first >= log.end_offset:
            return found, last + 1
        size, end = 0, post.at + 1
        try:
            data = self._manager.hosting.read(post.part, first, SHARE_READ_BYTES)
            if not isinstance(data, bytes):
                return found, last + 1
            for batch in scan(data, verify=False):
                if batch.base_offset > last:
                    break
                end = max(end, batch.last_offset + 1)
                if batch.is_control:
                    continue
                plain = yield from self._plain(post.key, batch)
                for at, one in enumerate(records(plain), 1):
                    if at % LETTERS_PER_STEP == 0:
                        yield None
                    if not first <= one.offset <= last:
                        continue
                    size += len(one.key or b"") + len(one.value or b"")
                    if found and (size > post.most_bytes or len(found) >= _RECORDS):
                        return found, one.offset
                    found[one.offset] = one.key, one.value
        except MetadataLogError:
            return found, last + 1
        return found, min(end, last + 1)

    def _plain(self, key: ShareKey, batch: RecordBatch) -> Generator[None, None, RecordBatch]:
        """A batch without compression."""
        if not batch.is_compressed:
            return batch
        place = key, batch.base_offset
        if self._unpacked is None or self._unpacked[0] != place:
            data = yield from unpacking(batch)
            bits = batch.attributes & ~_CODECS
            self._unpacked = place, replace(batch, attributes=bits, data=batch.data[:HEADER_BYTES] + bytes(data))
        return self._unpacked[1]


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
