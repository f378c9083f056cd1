"""Fetch: sessions, size limits, and the wait for data (Kafka: `KafkaApis.handleFetchRequest`,
`ReplicaManager.fetchMessages`, `DelayedFetch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.broker.request.nearest import preferred_replica
from kraft.broker.request.reading import (
    READ_COMMITTED,
    FetchParams,
    Isolation,
    Readable,
    Reader,
    bound_of,
    divergence,
    failed,
    look,
    read,
    readable_bytes,
    withheld,
)
from kraft.broker.request.sessions import (
    NO_DIVERGENCE,
    DrawId,
    FetchContext,
    FetchKey,
    FetchSessions,
    FullFetch,
    IncrementalFetch,
    SessionRefused,
    Wanted,
    throttled_session,
)
from kraft.handling.quotas import FETCHED, ClientQuotas
from kraft.handling.request_times import RequestTimes
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.sizes import answer_size
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.lookup import current_leader, is_known, not_served
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import ANY_CHANGE, NOT_THE_WATERMARK, PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Drop, Outcome, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde.codec import finished
from metadata_log.types import NO_EPOCH, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import fetch as messages

FROM_FOLLOWERS_SINCE: Final = 11
"""The first version with which a consumer may read from a replica that does not lead."""
ERROR_SINCE: Final = 7
"""The first version with an error for the whole answer."""
REPLICA_STATE_SINCE: Final = 15
LEADER_SINCE: Final = 16
STORAGE_ERROR_SINCE: Final = 6
FUTURE_REPLICA: Final = -3
"""The replica id with which a broker of Kafka moves a log between its own directories."""


class FetchTarget(Struct, frozen=True, gc=False):
    """A partition that is read: the key of the client, the key of the replica, and what the client wants."""

    named: FetchKey
    key: PartitionKey
    wanted: Wanted
    name: str


Look = messages.PartitionData | Readable
"""The outcome of a look at a partition: its result, or that there are records to read."""


class WaitingFetch(Struct):
    """A Fetch that waits for data."""

    request: WireRequest
    params: FetchParams
    context: FetchContext
    targets: tuple[FetchTarget, ...]
    refused: Mapping[FetchKey, messages.PartitionData]
    """The partitions that are not read, with their errors."""
    readers: dict[FetchKey, Reader] = {}
    """Where the reads begin, for those that were looked for already."""

    @property
    def concerns(self) -> int:
        """The changes of its partitions that may end the wait: a follower reads up to the end."""
        return NOT_THE_WATERMARK if self.params.isolation is Isolation.LOG_END else ANY_CHANGE

    @property
    def keys(self) -> set[PartitionKey]:
        """The partitions with changes that may end the wait."""
        return {each.key for each in self.targets}

    @property
    def timeout_ms(self) -> int:
        """For how long the request waits at most."""
        return self.params.max_wait_ms


def is_of_follower(message: messages.FetchRequest, version: int) -> bool:
    """Whether another broker fetches."""
    return (message.replica_state.replica_id if version >= REPLICA_STATE_SINCE else message.replica_id) >= 0


def refuse_fetch(request: WireRequest[messages.FetchRequest], refused: ApiError) -> Outcome | None:
    """The answer to a consumer with an error for the whole request; None for a follower, which was noted before."""
    message = request.message
    if is_of_follower(message, request.version):
        return None
    if request.version < ERROR_SINCE:
        return Drop(request.request_id, f"FetchRequest has failed: {refused.error.name}")
    return Answer(request.request_id, messages.FetchResponse(error_code=refused.error))


class FetchHandler:
    """Answers Fetch requests of consumers and of followers."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: RequestSettings,
        rights: Rights,
        draw_id: DrawId,
        quotas: ClientQuotas,
        times: RequestTimes,
    ) -> None:
        self._quotas = quotas
        self._times = times
        self._manager = manager
        self._settings = settings
        self._rights = rights
        self.sessions = FetchSessions(settings.session_slots, settings.session_eviction_ms, draw_id)

    def begin(
        self, request: WireRequest[messages.FetchRequest], image: MetadataImage, now_ms: int
    ) -> Outcome | WaitingFetch | Handling[Outcome | WaitingFetch]:
        """Read for a request; the result is the answer, or the request if it waits for data, or steps to one of these.

        What surely fits a step, a few partitions, takes none.
        """
        message = request.message
        params = self._params(request, message)
        context = self.sessions.open(message, request.version, is_follower=params.is_follower, now_ms=now_ms)
        if isinstance(context, SessionRefused):
            return Answer(request.request_id, messages.FetchResponse(error_code=context.error))
        if not isinstance(context, (FullFetch, IncrementalFetch)):
            return self._opening(request, params, context, image, now_ms)
        wanted = context.partitions
        if len(wanted) >= PARTITIONS_PER_STEP:
            return self._beginning(request, params, context, image, now_ms)
        may_read: dict[str, bool] = {}
        may_all = params.is_follower and self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        targets: list[FetchTarget] = []
        refused: dict[FetchKey, messages.PartitionData] = {}
        for named, one in wanted.items():
            target = self._target(request, params, context, image, named, one, may_read, may_all=may_all)
            if isinstance(target, FetchTarget):
                targets.append(target)
            else:
                refused[named] = target
        looks: dict[FetchKey, Look] = {}
        for target in targets:
            looks[target.named] = self._look(params, target, image, now_ms, notes=True)
        waiting = WaitingFetch(request, params, context, tuple(targets), refused)
        if self._is_to_wait(waiting, looks, image):
            return waiting
        return self._read_small(waiting, looks, image, now_ms)

    def _opening(
        self,
        request: WireRequest,
        params: FetchParams,
        opening: Handling[FetchContext | SessionRefused],
        image: MetadataImage,
        now_ms: int,
    ) -> Handling[Outcome | WaitingFetch]:
        """A request that names many partitions."""
        context = yield from opening
        if isinstance(context, SessionRefused):
            return Answer(request.request_id, messages.FetchResponse(error_code=context.error))
        return (yield from self._beginning(request, params, context, image, now_ms))

    def _beginning(
        self, request: WireRequest, params: FetchParams, context: FetchContext, image: MetadataImage, now_ms: int
    ) -> Handling[Outcome | WaitingFetch]:
        targets, refused = yield from self._targets(request, params, context, image)
        looks = yield from self._look_at_all(params, targets, image, now_ms, notes_followers=True)
        waiting = WaitingFetch(request, params, context, tuple(targets), refused)
        if self._is_to_wait(waiting, looks, image):
            return waiting
        return (yield from self._read(waiting, looks, image, now_ms))

    def _is_to_wait(self, waiting: WaitingFetch, looks: Mapping[FetchKey, Look], image: MetadataImage) -> bool:
        """Whether there is too little for an answer. A request that waits has read nothing."""
        params = waiting.params
        if params.max_wait_ms <= 0 or not looks or _is_enough(params, looks):
            return False
        first = next((each for each in waiting.targets if isinstance(looks[each.named], Readable)), None)
        if first is None and len(looks) < PARTITIONS_PER_STEP:
            return True
        # No more comes where the segment of the reader is complete (`DelayedOperationPurgatory.tryCompleteElseWatch`).
        # What has changed between two steps wakes nobody who does not wait yet.
        size = self._readable_bytes(waiting, image)
        if size is None or size >= params.min_bytes:
            return False
        reader = None if first is None else waiting.readers.get(first.named)
        if first is not None and reader is not None:
            # Of the first partition with records a whole batch is read, however large the batch is.
            size += max(0, reader.place.size_bytes - first.wanted.max_bytes)
        return size < params.min_bytes

    def _params(self, request: WireRequest, message: messages.FetchRequest) -> FetchParams:
        version = request.version
        has_state = version >= REPLICA_STATE_SINCE
        replica_id = message.replica_state.replica_id if has_state else message.replica_id
        max_bytes = min(message.max_bytes, self._settings.fetch_max_bytes, max(request.room, 1))
        is_consumer = replica_id < 0 and replica_id != FUTURE_REPLICA
        within_quota = self._quotas.most_at_once(FETCHED, request) if is_consumer else None
        if within_quota is not None:
            # More would exceed the quota for certain, and the consumer would never get on.
            max_bytes = int(min(max_bytes, within_quota))
        is_committed = message.isolation_level == READ_COMMITTED
        own = Isolation.TXN_COMMITTED if is_committed else Isolation.HIGH_WATERMARK
        is_free = is_consumer and version >= FROM_FOLLOWERS_SINCE
        return FetchParams(
            replica_id=replica_id,
            replica_epoch=message.replica_state.replica_epoch if has_state else NO_EPOCH,
            isolation=own if is_consumer else Isolation.LOG_END,
            max_wait_ms=message.max_wait_ms,
            min_bytes=min(message.min_bytes, max_bytes),
            max_bytes=max_bytes,
            needs_leader=not is_free,
            rack=message.rack_id if is_free and self._settings.prefers_rack_of_client else None,
            is_follower=replica_id >= 0,
        )

    def _targets(
        self, request: WireRequest, params: FetchParams, context: FetchContext, image: MetadataImage
    ) -> Handling[tuple[list[FetchTarget], dict[FetchKey, messages.PartitionData]]]:
        """The partitions to read, and the errors of those that are unknown or not allowed."""
        may_all = params.is_follower and self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        may_read: dict[str, bool] = {}
        targets: list[FetchTarget] = []
        refused: dict[FetchKey, messages.PartitionData] = {}
        for at, (named, wanted) in enumerate(context.partitions.items(), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            target = self._target(request, params, context, image, named, wanted, may_read, may_all=may_all)
            if isinstance(target, FetchTarget):
                targets.append(target)
            else:
                refused[named] = target
        return targets, refused

    def _target(
        self,
        request: WireRequest,
        params: FetchParams,
        context: FetchContext,
        image: MetadataImage,
        named: FetchKey,
        wanted: Wanted,
        may_read: dict[str, bool],
        *,
        may_all: bool,
    ) -> FetchTarget | messages.PartitionData:
        """A partition to read, or the error of one that is unknown or not allowed; `may_read` holds the topics of the
        request that were judged before.
        """
        topic, number = named
        by_id, by_name = image.topics.by_id, image.topics.by_name
        topic_id: Uuid | None
        if isinstance(topic, str):
            topic_id, name = by_name.get(topic), topic
        else:
            known = by_id.get(topic)
            topic_id, known_name = topic, known.name if known is not None else context.names.get(topic)
            if known_name is None:
                error = (
                    Error.TOPIC_AUTHORIZATION_FAILED if params.is_follower and not may_all else Error.UNKNOWN_TOPIC_ID
                )
                return _not_read(number, error)
            context.names[topic] = name = known_name
        if params.is_follower:
            if not may_all:
                return _not_read(number, Error.TOPIC_AUTHORIZATION_FAILED)
        else:
            if name not in may_read:
                may_read[name] = self._rights(request, AclOperation.READ, AclResource.TOPIC, name)
            if not may_read[name]:
                return _not_read(number, Error.TOPIC_AUTHORIZATION_FAILED)
        if topic_id is None or not is_known(image, (by_name.get(name, topic_id), number)):
            return _not_read(number, Error.UNKNOWN_TOPIC_OR_PARTITION)
        return FetchTarget(named, (topic_id, number), wanted, name)

    # Reading

    def _look_at_all(
        self,
        params: FetchParams,
        targets: Sequence[FetchTarget],
        image: MetadataImage,
        now_ms: int,
        *,
        notes_followers: bool,
    ) -> Handling[dict[FetchKey, Look]]:
        """Look at each partition for data for the client, in order, without a read."""
        looks: dict[FetchKey, Look] = {}
        for at, target in enumerate(targets, 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            looks[target.named] = self._look(params, target, image, now_ms, notes=notes_followers)
        return looks

    def _look(
        self, params: FetchParams, target: FetchTarget, image: MetadataImage, now_ms: int, *, notes: bool
    ) -> Look:
        number, wanted = target.key[1], target.wanted
        partition = self._readable(params, target, image)
        if isinstance(partition, Error):
            return failed(number, partition)
        nearest = None
        if params.rack is not None:
            nearest = preferred_replica(partition, image, params.rack, wanted.fetch_offset, self._settings.broker_id)
        if nearest is not None:
            return messages.PartitionData(
                partition_index=number,
                high_watermark=partition.log.high_watermark,
                last_stable_offset=partition.log.last_stable_offset,
                log_start_offset=partition.log.start_offset,
                preferred_read_replica=nearest,
                aborted_transactions=None,
                records=b"",
            )
        outcome = look(partition, wanted, params.isolation)
        if notes and params.is_follower and (isinstance(outcome, Readable) or _is_sound(outcome)):
            rejected = self._manager.leaders.on_follower_fetch(
                partition,
                params.replica_id,
                params.replica_epoch,
                wanted.fetch_offset,
                wanted.log_start_offset,
                now_ms,
            )
            if rejected is not None:
                return failed(number, rejected.error)
        if (
            partition.leads_throttled
            and isinstance(outcome, Readable)
            and self._is_held_back(params, partition, now_ms)
        ):
            return withheld(outcome)
        return outcome

    def _is_held_back(self, params: FetchParams, partition: HostedPartition, now_ms: int) -> bool:
        """Whether the throttle of leaders gives this reader nothing (`ReplicaManager.shouldLeaderThrottle`)."""
        is_behind = params.is_follower and params.replica_id not in partition.isr
        return is_behind and self._manager.hosting.leader_throttle.look(now_ms)

    def _readable(self, params: FetchParams, target: FetchTarget, image: MetadataImage) -> HostedPartition | Error:
        """The replica, if it may answer this client."""
        key, epoch = target.key, target.wanted.current_leader_epoch
        if image.topics.by_name.get(target.name, key[0]) != key[0]:
            # The topic was deleted and made again since the client, or its session, has learnt the id.
            return Error.INCONSISTENT_TOPIC_ID
        partition = self._manager.hosting.served(key, epoch, needs_leader=params.needs_leader)
        if isinstance(partition, RefusedAppend):
            return not_served(self._manager, image, key, partition)
        if params.is_follower and params.replica_id not in partition.replicas:
            # With the right epoch, the follower knows of an assignment that this leader has not heard of yet.
            return Error.NOT_LEADER_OR_FOLLOWER if epoch == NO_EPOCH else Error.UNKNOWN_LEADER_EPOCH
        return partition

    # Waiting

    def is_complete(self, waiting: WaitingFetch, image: MetadataImage) -> bool:
        """Whether a waiting Fetch is to be answered now (`DelayedFetch.tryComplete`)."""
        size = self._readable_bytes(waiting, image)
        return size is None or size >= waiting.params.min_bytes

    def _readable_bytes(self, waiting: WaitingFetch, image: MetadataImage) -> int | None:
        """How many bytes there are for a request, at most some more than it waits for; None if its wait is over."""
        params = waiting.params
        total = 0
        for target in waiting.targets:
            wanted = target.wanted
            epoch = wanted.current_leader_epoch
            partition = self._manager.hosting.served(target.key, epoch, needs_leader=params.needs_leader)
            if isinstance(partition, RefusedAppend):
                return None
            bound = bound_of(partition, params.isolation)
            offset, log = wanted.fetch_offset, partition.log
            if offset > bound:
                return None
            # Most readers are in the last epoch, where nothing parts.
            if (
                wanted.last_fetched_epoch not in (NO_EPOCH, log.last_epoch) or not log.local_start <= offset
            ) and divergence(partition, wanted) is not None:
                return None
            if partition.leads_throttled and params.is_follower and self._waits_for_rate(params, partition):
                continue
            if offset < bound:
                if total + min(wanted.max_bytes, 1) >= params.min_bytes:
                    # Below the bound is at least one batch, so that the usual consumer costs nothing here.
                    return params.min_bytes
                reader = waiting.readers.get(target.named)
                readable = readable_bytes(self._manager, partition, wanted.fetch_offset, bound, reader)
                if readable is None:
                    return None
                size, waiting.readers[target.named] = readable
                total += min(size, wanted.max_bytes)
                if total >= params.min_bytes:
                    return total
        return total

    def _waits_for_rate(self, params: FetchParams, partition: HostedPartition) -> bool:
        return params.replica_id not in partition.isr and self._manager.hosting.leader_throttle.is_exceeded

    def end(self, waiting: WaitingFetch, image: MetadataImage, now_ms: int) -> Outcome | Handling[Outcome]:
        """The answer of a Fetch that has waited: what there is now. Followers are not noted a second time."""
        if len(waiting.targets) + len(waiting.refused) >= PARTITIONS_PER_STEP:
            return self._ending(waiting, image, now_ms)
        params = waiting.params
        looks = {each.named: self._look(params, each, image, now_ms, notes=False) for each in waiting.targets}
        return self._read_small(waiting, looks, image, now_ms)

    def _ending(self, waiting: WaitingFetch, image: MetadataImage, now_ms: int) -> Handling[Outcome]:
        looks = yield from self._look_at_all(waiting.params, waiting.targets, image, now_ms, notes_followers=False)
        return (yield from self._read(waiting, looks, image, now_ms))

    def _read(
        self, waiting: WaitingFetch, looks: Mapping[FetchKey, Look], image: MetadataImage, now_ms: int
    ) -> Handling[Outcome]:
        """Read the partitions in order, within the size limit; the first one with data may exceed the limit."""
        params = waiting.params
        left = params.max_bytes
        at_least_one = True
        results: dict[FetchKey, messages.PartitionData] = {}
        for at, target in enumerate(waiting.targets, 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            data = looks[target.named]
            if isinstance(data, Readable):
                wanted, isolation = target.wanted, params.isolation
                data = read(self._manager, data, wanted, isolation, left, at_least_one=at_least_one)
                size = len(data.records or b"")
                at_least_one = at_least_one and size == 0
                left = max(0, left - size)
            results[target.named] = data
        return (yield from self._finish(waiting, results, image, now_ms))

    def _read_small(
        self, waiting: WaitingFetch, looks: Mapping[FetchKey, Look], image: MetadataImage, now_ms: int
    ) -> Outcome:
        """As `_read`, of a few partitions."""
        request, params = waiting.request, waiting.params
        left = params.max_bytes
        at_least_one, has_errors = True, False
        endpoints: dict[int, messages.NodeEndpoint] = {}
        answered: dict[FetchKey, messages.PartitionData] = {}
        for target in waiting.targets:
            data = looks[target.named]
            if isinstance(data, Readable):
                data = read(self._manager, data, target.wanted, params.isolation, left, at_least_one=at_least_one)
                if data.records:
                    at_least_one = False
                    left = max(0, left - len(data.records))
                elif data.error_code:
                    has_errors = True
            elif data.error_code:
                has_errors = True
            answered[target.named] = data
        for target in waiting.targets if has_errors else ():
            data = answered[target.named]
            answered[target.named] = self._dressed(
                request, target.key, data, image, endpoints, is_follower=params.is_follower
            )
        if waiting.refused:
            answered |= waiting.refused
        if not params.is_follower and self._quotas.bounds_fetch(request):
            throttled = finished(self._throttled(waiting, answered, list(endpoints.values()), now_ms))
            if throttled is not None:
                return throttled
        closed = self.sessions.close_small(waiting.context, answered, now_ms, unknown=len(waiting.refused))
        if params.is_follower and self._manager.hosting.leads_throttled:
            finished(self._note_throttled(waiting, closed.partitions, now_ms))
        return Answer(
            request.request_id,
            messages.FetchResponse(
                error_code=closed.error,
                session_id=closed.session_id,
                responses=finished(_by_topic(closed.partitions)) if closed.partitions else [],
                node_endpoints=list(endpoints.values()),
            ),
        )

    # Answers

    def _finish(
        self,
        waiting: WaitingFetch,
        results: dict[FetchKey, messages.PartitionData],
        image: MetadataImage,
        now_ms: int,
    ) -> Handling[Answer]:
        request = waiting.request
        endpoints: dict[int, messages.NodeEndpoint] = {}
        is_follower = waiting.params.is_follower
        answered = {}
        for at, target in enumerate(waiting.targets, 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            answered[target.named] = self._dressed(
                request, target.key, results[target.named], image, endpoints, is_follower=is_follower
            )
        answered |= waiting.refused
        if not is_follower:
            throttled = yield from self._throttled(waiting, answered, list(endpoints.values()), now_ms)
            if throttled is not None:
                return throttled
        unknown = len(waiting.refused)
        closed = yield from self.sessions.close(waiting.context, answered, now_ms, unknown=unknown)
        if is_follower and self._manager.hosting.leads_throttled:
            yield from self._note_throttled(waiting, closed.partitions, now_ms)
        return Answer(
            request.request_id,
            messages.FetchResponse(
                error_code=closed.error,
                session_id=closed.session_id,
                responses=(yield from _by_topic(closed.partitions)),
                node_endpoints=list(endpoints.values()),
            ),
        )

    def _throttled(
        self,
        waiting: WaitingFetch,
        answered: Mapping[FetchKey, messages.PartitionData],
        endpoints: list[messages.NodeEndpoint],
        now_ms: int,
    ) -> Handling[Answer | None]:
        """The empty answer for a consumer above its quota, without the data; None for a consumer within its quota."""
        request = waiting.request
        if not self._quotas.bounds_fetch(request):
            return None
        whole = messages.FetchResponse(responses=(yield from _by_topic(answered)), node_endpoints=endpoints)
        size = answer_size(whole, request.version)
        wait_ms = self._times.charge(request, now_ms, self._quotas.charge(FETCHED, request, size, now_ms))
        if wait_ms == 0:
            return None
        self._quotas.take_back(FETCHED, request, size, now_ms)
        session_id, error = throttled_session(waiting.context)
        return Answer(
            request.request_id,
            messages.FetchResponse(throttle_time_ms=wait_ms, error_code=error, session_id=session_id),
        )

    def _note_throttled(
        self, waiting: WaitingFetch, answered: Mapping[FetchKey, messages.PartitionData], now_ms: int
    ) -> Handling[None]:
        """Count what a follower gets of throttled partitions (`KafkaApis.sizeOfThrottledPartitions`)."""
        hosting = self._manager.hosting
        parts = ((each.named, hosting.partitions.get(each.key)) for each in waiting.targets)
        throttled = {named for named, part in parts if part is not None and part.leads_throttled}
        own = {named: data for named, data in answered.items() if named in throttled}
        if own:
            whole = messages.FetchResponse(responses=(yield from _by_topic(own)))
            hosting.leader_throttle.note(answer_size(whole, waiting.request.version), now_ms)

    def _dressed(
        self,
        request: WireRequest,
        key: PartitionKey,
        data: messages.PartitionData,
        image: MetadataImage,
        endpoints: dict[int, messages.NodeEndpoint],
        *,
        is_follower: bool,
    ) -> messages.PartitionData:
        """A result as the version of the request has it: with the leader to turn to, and without newer errors."""
        if data.error_code == Error.KAFKA_STORAGE_ERROR and request.version < STORAGE_ERROR_SINCE:
            return replace(data, error_code=Error.NOT_LEADER_OR_FOLLOWER)
        names_leader = data.error_code in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
        if not names_leader or request.version < LEADER_SINCE:
            return data
        leader = current_leader(self._manager, image, key, request.listener)
        if leader.endpoint is not None and not is_follower:
            # A follower takes the addresses of brokers from the metadata.
            at = leader.endpoint
            endpoints[at.node_id] = messages.NodeEndpoint(at.node_id, at.host, at.port, at.rack)
        return replace(data, current_leader=messages.LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch))


def _is_enough(params: FetchParams, looks: Mapping[FetchKey, Look]) -> bool:
    """Whether what was seen is answered at once, however many bytes there are to read."""
    least = params.min_bytes
    return least <= 0 or any(
        least == 1 if isinstance(each, Readable) else not _is_sound(each) or each.preferred_read_replica >= 0
        for each in looks.values()
    )


def _not_read(number: int, error: Error) -> messages.PartitionData:
    """The result of a partition that is unknown, or that the client may not read. Kafka answers these with an empty
    list of aborted transactions, and all other errors with none.
    """
    return replace(failed(number, error), aborted_transactions=[])


def _is_sound(data: messages.PartitionData) -> bool:
    """Whether a partition could be read from where the client is."""
    return data.error_code == Error.NONE and data.diverging_epoch == NO_DIVERGENCE


def _by_topic(
    partitions: Mapping[FetchKey, messages.PartitionData],
) -> Handling[list[messages.FetchableTopicResponse]]:
    """The partitions in their order; only neighbours of the same topic share an entry, as in Kafka."""
    topic_responses: list[messages.FetchableTopicResponse] = []
    last: str | Uuid | None = None
    for at, ((topic, _), data) in enumerate(partitions.items(), 1):
        if at % PARTITIONS_PER_STEP == 0:
            yield None
        if topic != last:
            last = topic
            topic_responses.append(
                messages.FetchableTopicResponse(
                    topic=topic if isinstance(topic, str) else "",
                    topic_id=Uuid.ZERO if isinstance(topic, str) else topic,
                    partitions=[],
                )
            )
        topic_responses[-1].partitions.append(data)
    return topic_responses
