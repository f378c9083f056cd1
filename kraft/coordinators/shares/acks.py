"""The acknowledgements of a request, for several partitions (Kafka: `KafkaApis.validateAcknowledgementBatches`,
`SharePartitionManager.acknowledge`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.coordinators.shares.acknowledging import Acknowledgement, AckType, acknowledging
from kraft.coordinators.shares.leader import ShareLeader
from kraft.coordinators.shares.persister import ShareKey
from kraft.coordinators.shares.share_partition import ShareLimits
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import ITEMS_PER_STEP, SHARE_TYPES_PER_STEP
from kraft.partitions.lookup import is_known
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error

RENEW_SINCE: Final = 2
"""The first version in which a member may renew its locks."""
_OF_ALL: Final = 1


class AckBatch(Protocol):
    """Acknowledged offsets, as a request names them."""

    @property
    def first_offset(self) -> int:
        """The first one."""

    @property
    def last_offset(self) -> int:
        """The last one."""

    @property
    def acknowledge_types(self) -> Sequence[int]:
        """One type for all, or one for each."""


class AckPartition(Protocol):
    """A partition of a request with acknowledgements."""

    @property
    def partition_index(self) -> int:
        """The number."""

    @property
    def acknowledgement_batches(self) -> Sequence[AckBatch]:
        """The acknowledged offsets."""


class AckTopic(Protocol):
    """A topic of a request with acknowledgements."""

    @property
    def topic_id(self) -> Uuid:
        """The id."""

    @property
    def partitions(self) -> Sequence[AckPartition]:
        """The partitions."""


class Acks(Struct, eq=False):
    """The outcomes of the acknowledgements of a request."""

    wake: Hashable
    """The key for which the request waits while something is pending."""
    errors: dict[PartitionKey, Error] = {}
    """By partition the outcome, as far as it is known."""
    pending: dict[PartitionKey, None] = {}
    """The partitions of which the share coordinator has yet to write."""

    def take(self, key: PartitionKey, tell: Callable[[Hashable], None], error: Error, _: int) -> None:
        """The outcome of a write."""
        self.errors[key] = error
        if self.pending.pop(key, self) is None and not self.pending:
            tell(self.wake)

    def give_up(self) -> None:
        """Nobody waits any longer for what is pending."""
        for key in self.pending:
            self.errors[key] = Error.REQUEST_TIMED_OUT
        self.pending = {}


class AckHandler:
    """Carries out acknowledgements.

    Args:
        leader: The share partitions of this broker.
        rights: What clients may do.
        tell: Who waits for a key may go on.
    """

    def __init__(self, leader: ShareLeader, rights: Rights, tell: Callable[[Hashable], None]) -> None:
        self.counts: dict[AckType, int] = dict.fromkeys(AckType, 0)
        """How many records were acknowledged, by type."""
        self._leader = leader
        self._rights = rights
        self._tell = tell

    def acknowledge(
        self,
        request: WireRequest,
        group_id: str,
        member: str,
        named: Iterable[tuple[PartitionKey, Sequence[AckBatch]]],
        image: MetadataImage,
        now_ms: int,
        *,
        renews: bool,
    ) -> Handling[Acks]:
        """Carry out the acknowledgements of a request, in steps."""
        acks = Acks(("share acknowledgements", request.request_id))
        limits = self._leader.limits(group_id)
        most = AckType.RENEW if request.version >= RENEW_SINCE else AckType.REJECT
        may: dict[str, bool] = {}
        for key, batches in named:
            yield None
            if not batches or key in acks.errors or key in acks.pending:
                continue
            refused = refusal(request, image, key, may, self._rights)
            # A partition of another error is checked, too: the check of the form comes first.
            checked = yield from _checked(batches, most, renews=renews)
            if isinstance(checked, Error) or refused is not Error.NONE:
                acks.errors[key] = checked if isinstance(checked, Error) else refused
                continue
            yield from self._carry_out(acks, key, ShareKey(group_id, *key), member, checked, limits, now_ms)
        return acks

    def _carry_out(
        self,
        acks: Acks,
        key: PartitionKey,
        share: ShareKey,
        member: str,
        asked: Sequence[Acknowledgement],
        limits: ShareLimits,
        now_ms: int,
    ) -> Handling[None]:
        led = self._leader.known(share)
        if led is None:
            acks.errors[key] = Error.UNKNOWN_TOPIC_OR_PARTITION
            return
        if led.partition is None:
            acks.errors[key] = Error.INVALID_RECORD_STATE
            return
        move = yield from acknowledging(led.partition, member, asked, limits, now_ms)
        if isinstance(move, Error):
            acks.errors[key] = move
            self._tell(share)
            return
        for each in asked:
            if len(each.types) == _OF_ALL:
                self.counts[AckType(each.types[0])] += each.last - each.first + 1
            else:
                for kind in each.types:
                    self.counts[AckType(kind)] += 1
        acks.pending[key] = None
        self._leader.write(led, move, now_ms, partial(acks.take, key, self._tell))


def refusal(
    request: WireRequest, image: MetadataImage, key: PartitionKey, may: dict[str, bool], rights: Rights
) -> Error:
    """Why a partition is not served at all."""
    topic = image.topics.by_id.get(key[0])
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    name = topic.name
    if name not in may:
        may[name] = rights(request, AclOperation.READ, AclResource.TOPIC, name)
    if not may[name]:
        return Error.TOPIC_AUTHORIZATION_FAILED
    return Error.NONE if is_known(image, key) else Error.UNKNOWN_TOPIC_OR_PARTITION


def _checked(batches: Sequence[AckBatch], most: int, *, renews: bool) -> Handling[list[Acknowledgement] | Error]:
    """The acknowledgements of a partition, if their form is right."""
    asked: list[Acknowledgement] = []
    last = -1
    work = 0
    for at, each in enumerate(batches, 1):
        types = each.acknowledge_types
        count = len(types)
        is_right = each.first_offset <= each.last_offset and each.first_offset >= last and count > 0
        if not is_right or (count > _OF_ALL and count != each.last_offset - each.first_offset + 1):
            return Error.INVALID_REQUEST
        if min(types) < 0 or max(types) > most or (not renews and AckType.RENEW in types):
            return Error.INVALID_REQUEST
        last = each.last_offset
        asked.append(Acknowledgement(each.first_offset, last, types))
        work += count
        if work >= SHARE_TYPES_PER_STEP or at % ITEMS_PER_STEP == 0:
            yield None
            work = 0
    return asked


def named_of(topics: Iterable[AckTopic]) -> Iterable[tuple[PartitionKey, Sequence[AckBatch]]]:
    """The partitions of a request with their acknowledgements."""
    return (
        ((topic.topic_id, one.partition_index), one.acknowledgement_batches)
        for topic in topics
        for one in topic.partitions
    )
