"""ShareFetch and ShareAcknowledge: sessions, acknowledgements, records, and the wait for them (Kafka:
`KafkaApis.handleShareFetchRequest`, `handleShareAcknowledgeRequest`, `DelayedShareFetch`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.agenda import Agenda, Slot
from kraft.coordinators.shares.acks import AckHandler, Acks, named_of, refusal
from kraft.coordinators.shares.group_handler import is_enabled
from kraft.coordinators.shares.leader import Led, ShareLeader
from kraft.coordinators.shares.persister import ShareKey
from kraft.coordinators.shares.share_partition import ShareLimits, Take
from kraft.coordinators.shares.share_reading import NOTHING, Delivery, bound_of, deliver, is_readable
from kraft.coordinators.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Connection, ShareSession, ShareSessions
from kraft.handling.quotas import FETCHED, ClientQuotas
from kraft.handling.request_times import RequestTimes
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.sizes import answer_size
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP, SHARE_RELEASES_PER_TURN
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.lookup import current_leader, not_served
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Outcome, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import share_acknowledge as acknowledged
from transport.protocol.messages import share_fetch as messages

LONGEST_MEMBER_ID: Final = 36
_MODES: Final = frozenset((0, 1))
_NAMING_A_LEADER: Final = frozenset((Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH))
_WRITES_WAIT_MS: Final = 60_000
"""How long a member waits for what it has acknowledged; the share coordinators are not asked for so long."""
_TRIES: Final = 2
"""How often one time may bring changes for a request that then waits on."""
_NO_ACKS: Final = Acks(None)
_P = TypeVar("_P")


class WaitingShareFetch(Struct, eq=False):
    """A ShareFetch that waits for records, or for what becomes of its acknowledgements."""

    request: WireRequest[messages.ShareFetchRequest]
    acks: Acks
    deadline_ms: int
    targets: dict[PartitionKey, Led] = {}
    """The partitions that are led here, in the order in which they are served."""
    refused: dict[PartitionKey, Error] = {}
    """Those that are not, with their errors."""
    delivered: dict[PartitionKey, Delivery] = {}
    shows_all: bool = False
    """Whether the answer has every partition: it is the first one of its session."""
    fetches: bool = False
    timeout_ms: int = 0
    """For how long the request waits from now on."""
    ended_ms: int = -1
    """When its end was tried last."""
    tries: int = 0
    """How often it was tried at that time."""

    @property
    def keys(self) -> list[Hashable]:
        """The changes that may end the wait."""
        keys: list[Hashable] = [self.acks.wake]
        if self.fetches and not self.delivered:
            for key, led in self.targets.items():
                keys += (key, led.key)
        return keys


class WaitingShareAcknowledge(Struct, eq=False):
    """A ShareAcknowledge that waits until its outcome is written."""

    request: WireRequest[acknowledged.ShareAcknowledgeRequest]
    acks: Acks
    timeout_ms: int = _WRITES_WAIT_MS

    @property
    def keys(self) -> list[Hashable]:
        """The changes that may end the wait."""
        return [self.acks.wake]


class WaitingRefusal(Struct, eq=False):
    """A ShareFetch that is refused after its wait: there is no room for its session."""

    request: WireRequest[messages.ShareFetchRequest]
    timeout_ms: int
    keys: tuple[Hashable, ...] = ()


WaitingMember = WaitingShareFetch | WaitingRefusal


class ShareFetchHandler:
    """Answers ShareFetch and ShareAcknowledge.

    Args:
        agenda: Where it says that there is work.
        manager: The replicas of this broker.
        settings: The settings.
        rights: What clients may do.
        quotas: How much they may use.
        times: How long their requests have taken.
        leader: The share partitions of this broker.
        sessions: The sessions of their members.
        tell: Who waits for a key may go on.
    """

    def __init__(
        self,
        agenda: Agenda,
        manager: ReplicaManager,
        settings: RequestSettings,
        rights: Rights,
        quotas: ClientQuotas,
        times: RequestTimes,
        leader: ShareLeader,
        sessions: ShareSessions,
        tell: Callable[[Hashable], None],
    ) -> None:
        self.leader = leader
        self.sessions = sessions
        self.acks = AckHandler(leader, rights, tell)
        self._manager = manager
        self._settings = settings
        self._rights = rights
        self._quotas = quotas
        self._times = times
        self._agenda = agenda
        self._tell = tell
        self._closing: deque[ShareSession] = deque()
        """The sessions whose members have yet to give back what they have."""

    # ShareFetch

    def fetch(
        self, request: WireRequest[messages.ShareFetchRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Outcome | WaitingMember]:
        """Begin a ShareFetch."""
        message = request.message
        error = self._refusal(request, message.group_id, message.member_id, image)
        if error is Error.NONE and message.is_renew_ack and _fetches_anything(message):
            error = Error.INVALID_REQUEST
        if error is not Error.NONE:
            return _refused_fetch(request, error)
        group_id, member = message.group_id or "", message.member_id or ""
        epoch = message.share_session_epoch
        if epoch == INITIAL_EPOCH and any(batches for _, batches in named_of(message.topics)):
            return _refused_fetch(request, Error.INVALID_REQUEST)
        key, connection = (group_id, member), (request.listener, request.peer)
        if epoch == FINAL_EPOCH:
            session = self.sessions.ending(key)
        else:
            session = yield from self.sessions.fetching(message, key, connection)
        if session is Error.SHARE_SESSION_LIMIT_REACHED:
            return WaitingRefusal(request, max(0, message.max_wait_ms))
        if isinstance(session, Error):
            return _refused_fetch(request, session)
        if message.share_acquire_mode not in _MODES:
            return _refused_fetch(request, Error.UNKNOWN_SERVER_ERROR)
        acks = _NO_ACKS
        if epoch != INITIAL_EPOCH and message.topics:
            acks = yield from self.acks.acknowledge(
                request, group_id, member, named_of(message.topics), image, now_ms, renews=message.is_renew_ack
            )
        if epoch == FINAL_EPOCH:
            yield from self._release(session, now_ms)
            self._drop_if_empty(session.group_id)
        waiting = WaitingShareFetch(request, acks, now_ms + max(0, message.max_wait_ms))
        if epoch != FINAL_EPOCH and not message.is_renew_ack and message.max_records and message.max_bytes:
            waiting.fetches = True
            waiting.shows_all = not session.is_answered
            session.is_answered = True
            yield from self._find(waiting, session, image, now_ms)
        return (yield from self._go_on(waiting, image, now_ms))

    def _find(
        self, waiting: WaitingShareFetch, session: ShareSession, image: MetadataImage, now_ms: int
    ) -> Handling[None]:
        """The share partitions of a session, and the errors of those that are not here."""
        may: dict[str, bool] = {}
        for at, key in enumerate(session.rotated(), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            error = refusal(waiting.request, image, key, may, self._rights)
            if error is Error.NONE:
                part = self._manager.hosting.served(key, -1, needs_leader=True)
                if isinstance(part, RefusedAppend):
                    error = not_served(self._manager, image, key, part)
                else:
                    led = self.leader.lead(ShareKey(session.group_id, *key), part, now_ms)
                    if isinstance(led, Error):
                        error = led
                    else:
                        waiting.targets[key] = led
            if error is not Error.NONE:
                waiting.refused[key] = error

    def is_complete(self, waiting: WaitingMember, image: MetadataImage) -> bool:
        """Whether a request that waits is to be answered, or can go on."""
        if isinstance(waiting, WaitingRefusal) or waiting.acks.pending:
            return False
        if not waiting.fetches or waiting.delivered:
            return True
        limits = self.leader.limits(waiting.request.message.group_id or "")
        return self._is_enough(waiting, limits)

    def end(
        self, waiting: WaitingMember, image: MetadataImage, now_ms: int
    ) -> Outcome | Handling[Outcome | WaitingMember]:
        """Go on with a request that has waited."""
        if isinstance(waiting, WaitingRefusal):
            return _refused_fetch(waiting.request, Error.SHARE_SESSION_LIMIT_REACHED)
        waiting.tries = waiting.tries + 1 if waiting.ended_ms == now_ms else 0
        waiting.ended_ms = now_ms
        if waiting.tries > _TRIES:
            # There is no room to wait.
            waiting.deadline_ms = now_ms
            waiting.acks.give_up()
        return self._go_on(waiting, image, now_ms)

    def _go_on(
        self, waiting: WaitingShareFetch, image: MetadataImage, now_ms: int
    ) -> Handling[Outcome | WaitingMember]:
        """Read for a request if there is something to read, and answer it, or let it wait."""
        is_over = now_ms >= waiting.deadline_ms
        limits = self.leader.limits(waiting.request.message.group_id or "")
        if waiting.fetches and not waiting.delivered and waiting.targets:
            if not waiting.acks.pending and (is_over or self._is_enough(waiting, limits)):
                yield from self._deliver(waiting, limits, now_ms)
            is_done = bool(waiting.delivered) or is_over
        else:
            is_done = True
        if waiting.acks.pending:
            if now_ms >= waiting.deadline_ms + _WRITES_WAIT_MS:
                waiting.acks.give_up()
            else:
                until_ms = waiting.deadline_ms if now_ms < waiting.deadline_ms else now_ms + _WRITES_WAIT_MS
                waiting.timeout_ms = until_ms - now_ms
                return waiting
        if not is_done:
            waiting.timeout_ms = waiting.deadline_ms - now_ms
            return waiting
        return (yield from self._answer(waiting, image, limits, now_ms))

    def _is_enough(self, waiting: WaitingShareFetch, limits: ShareLimits) -> bool:
        """Whether there are as many bytes as a member waits for; records that come again are always enough."""
        message = waiting.request.message
        left = min(message.min_bytes, message.max_bytes)
        for led in waiting.targets.values():
            if led.error is not Error.NONE or not is_readable(led, limits):
                continue
            partition = led.partition
            if left <= 1 or partition is None or partition.next_fetch() < partition.next:
                return True
            place = self._manager.hosting.place_of(led.part, partition.next_fetch())
            end = self._manager.hosting.place_of(led.part, bound_of(led, limits))
            if isinstance(place, RefusedAppend) or isinstance(end, RefusedAppend) or place.segment != end.segment:
                return True
            left -= end.position - place.position
            if left <= 0:
                return True
        return False

    def _deliver(self, waiting: WaitingShareFetch, limits: ShareLimits, now_ms: int) -> Handling[None]:
        """Give records of the partitions to a member, in turn, until it has enough."""
        message = waiting.request.message
        readable = [
            (key, led) for key, led in waiting.targets.items() if led.error is Error.NONE and is_readable(led, limits)
        ]
        if not readable:
            return
        most_bytes = min(message.max_bytes, self._settings.fetch_max_bytes, max(waiting.request.room, 1))
        within_quota = self._quotas.most_at_once(FETCHED, waiting.request)
        if within_quota is not None:
            # More would exceed the quota for certain, and the member would never get on.
            most_bytes = int(min(most_bytes, within_quota))
        share, left = max(1, most_bytes // len(readable)), message.max_records
        for at, (key, led) in enumerate(readable):
            if at:
                yield None
            if led.partition is None and led.read is not None:
                yield from self.leader.finding_start(led, now_ms)
            if led.partition is None or self.leader.known(led.key) is not led:
                continue
            take = Take(message.member_id or "", left, message.batch_size, message.share_acquire_mode)
            given = deliver(self._manager, led, take, limits, share, now_ms)
            if isinstance(given, Error):
                waiting.refused[key] = given
            elif given is not NOTHING:
                waiting.delivered[key] = given
                left -= sum(each.last - each.first + 1 for each in given.acquired)
                self.leader.set_timer(led)

    def _answer(
        self, waiting: WaitingShareFetch, image: MetadataImage, limits: ShareLimits, now_ms: int
    ) -> Handling[Answer]:
        response = yield from self._response(waiting, image, limits)
        wait_ms = self._throttled_ms(waiting.request, response, now_ms)
        if wait_ms:
            self._take_back(waiting)
            response = yield from self._response(waiting, image, limits)
            response = replace(response, throttle_time_ms=wait_ms, acquisition_lock_timeout_ms=0)
        return Answer(waiting.request.request_id, response)

    def _throttled_ms(self, request: WireRequest, response: messages.ShareFetchResponse, now_ms: int) -> int:
        """For how long a member has to wait that is above its quota, and then gets nothing; 0 if it is within."""
        if not self._quotas.bounds_fetch(request):
            return 0
        size = answer_size(response, request.version)
        wait_ms = self._times.charge(request, now_ms, self._quotas.charge(FETCHED, request, size, now_ms))
        if wait_ms:
            self._quotas.take_back(FETCHED, request, size, now_ms)
        return wait_ms

    def _take_back(self, waiting: WaitingShareFetch) -> None:
        """Leave nothing of a fetch but what has become of its acknowledgements: the member fetches again."""
        message = waiting.request.message
        for key, given in waiting.delivered.items():
            led = waiting.targets[key]
            if led.partition is not None and self.leader.known(led.key) is led:
                led.partition.take_back(message.member_id or "", given.acquired)
                self._tell(led.key)
        session = self.sessions.by_key.get((message.group_id or "", message.member_id or ""))
        if waiting.shows_all and session is not None:
            session.is_answered = False
        waiting.shows_all = False
        waiting.delivered, waiting.targets, waiting.refused = {}, {}, {}

    def _response(
        self, waiting: WaitingShareFetch, image: MetadataImage, limits: ShareLimits
    ) -> Handling[messages.ShareFetchResponse]:
        request = waiting.request
        errors = dict(waiting.refused)
        for at, (key, led) in enumerate(waiting.targets.items(), 1):
            if led.error is not Error.NONE:
                errors[key] = led.error
            if at % PARTITIONS_PER_STEP == 0:
                yield None
        acks = waiting.acks.errors
        shown = [*waiting.targets, *waiting.refused] if waiting.shows_all else [*waiting.delivered, *errors, *acks]
        found: list[tuple[PartitionKey, messages.PartitionData]] = []
        endpoints: dict[int, messages.NodeEndpoint] = {}
        for at, key in enumerate(dict.fromkeys(shown), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            error, of_acks = errors.get(key, Error.NONE), acks.get(key, Error.NONE)
            given = waiting.delivered.get(key, NOTHING)
            leader = messages.LeaderIdAndEpoch()
            if error in _NAMING_A_LEADER or of_acks in _NAMING_A_LEADER:
                leader = messages.LeaderIdAndEpoch(
                    *self._leader_of(request, image, key, endpoints, messages.NodeEndpoint)
                )
            acquired = [messages.AcquiredRecords(each.first, each.last, each.count) for each in given.acquired]
            data = messages.PartitionData(
                partition_index=key[1],
                error_code=error,
                acknowledge_error_code=of_acks,
                current_leader=leader,
                records=given.records,
                acquired_records=acquired,
            )
            found.append((key, data))
        return messages.ShareFetchResponse(
            acquisition_lock_timeout_ms=limits.lock_ms,
            responses=[
                messages.ShareFetchableTopicResponse(topic_id, partitions)
                for topic_id, partitions in _by_topic(found).items()
            ],
            node_endpoints=list(endpoints.values()),
        )

    # ShareAcknowledge

    def acknowledge(
        self, request: WireRequest[acknowledged.ShareAcknowledgeRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Outcome | WaitingShareAcknowledge]:
        """Begin a ShareAcknowledge."""
        message = request.message
        error = self._refusal(request, message.group_id, message.member_id, image)
        if error is not Error.NONE:
            return _refused_acknowledge(request, error)
        key, epoch = (message.group_id or "", message.member_id or ""), message.share_session_epoch
        session: ShareSession | Error
        if epoch == INITIAL_EPOCH:
            session = Error.INVALID_SHARE_SESSION_EPOCH
        elif epoch == FINAL_EPOCH:
            session = self.sessions.ending(key)
        else:
            session = self.sessions.going_on(key, epoch)
        if isinstance(session, Error):
            return _refused_acknowledge(request, session)
        acks = yield from self.acks.acknowledge(
            request, *key, named_of(message.topics), image, now_ms, renews=message.is_renew_ack
        )
        if epoch == FINAL_EPOCH:
            yield from self._release(session, now_ms)
            self._drop_if_empty(session.group_id)
        waiting = WaitingShareAcknowledge(request, acks)
        return waiting if acks.pending else self.end_acknowledge(waiting, image, now_ms)

    @staticmethod
    def is_written(waiting: WaitingShareAcknowledge, image: MetadataImage) -> bool:
        """Whether all outcomes are known."""
        return not waiting.acks.pending

    def end_acknowledge(self, waiting: WaitingShareAcknowledge, image: MetadataImage, now_ms: int) -> Answer:
        """The answer to a ShareAcknowledge."""
        request, acks = waiting.request, waiting.acks
        acks.give_up()
        endpoints: dict[int, acknowledged.NodeEndpoint] = {}
        found: list[tuple[PartitionKey, acknowledged.PartitionData]] = []
        for key, error in acks.errors.items():
            leader = acknowledged.LeaderIdAndEpoch()
            if error in _NAMING_A_LEADER:
                leader = acknowledged.LeaderIdAndEpoch(
                    *self._leader_of(request, image, key, endpoints, acknowledged.NodeEndpoint)
                )
            found.append((key, acknowledged.PartitionData(key[1], error, current_leader=leader)))
        return Answer(
            request.request_id,
            acknowledged.ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=self.leader.limits(request.message.group_id or "").lock_ms,
                responses=[
                    acknowledged.ShareAcknowledgeTopicResponse(topic_id, partitions)
                    for topic_id, partitions in _by_topic(found).items()
                ],
                node_endpoints=list(endpoints.values()),
            ),
        )

    # Both

    def _refusal(self, request: WireRequest, group_id: str | None, member: str | None, image: MetadataImage) -> Error:
        """Why a request fails as a whole, before its session is looked at."""
        if not is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        if group_id is None:
            return Error.INVALID_REQUEST
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        return Error.NONE if 0 < len(member or "") <= LONGEST_MEMBER_ID else Error.INVALID_REQUEST

    def _leader_of(
        self,
        request: WireRequest,
        image: MetadataImage,
        key: PartitionKey,
        endpoints: dict[int, _P],
        make: Callable[[int, str, int, str | None], _P],
    ) -> tuple[int, int]:
        """The leader to which a member should turn, with its epoch; its address goes to the endpoints."""
        leader = current_leader(self._manager, image, key, request.listener)
        if leader.endpoint is not None:
            at = leader.endpoint
            endpoints[at.node_id] = make(at.node_id, at.host, at.port, at.rack)
        return leader.leader_id, leader.leader_epoch

    def _release(self, session: ShareSession, now_ms: int) -> Handling[None]:
        """Give back what a member has in the partitions of its session."""
        for at, key in enumerate(session.partitions, 1):
            self.leader.release(ShareKey(session.group_id, *key), session.key[1], now_ms)
            if at % PARTITIONS_PER_STEP == 0:
                yield None

    def _drop_if_empty(self, group_id: str) -> None:
        """Forget a group without sessions: its offsets may be altered or deleted at its coordinator."""
        if group_id not in self.sessions.of_group:
            self.leader.drop_group(group_id)

    # The broker

    def use(self, image: MetadataImage) -> None:
        """The metadata by which the broker acts from now on."""
        self.leader.use(image)
        if self.sessions.by_key and not is_enabled(image):
            for session in list(self.sessions.by_key.values()):
                self.sessions.close(session)
                self.leader.drop_group(session.group_id)

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone, and the sessions that it has opened: their members have nothing any more."""
        sessions = self.sessions.of_connection(connection)
        for session in sessions:
            self.sessions.close(session)
        if sessions:
            self._closing += sessions
            self._agenda.now(Slot.SHARES)

    def due(self, now_ms: int) -> tuple[()]:
        """Give back what members had whose connections are gone, and what they had for too long."""
        left = SHARE_RELEASES_PER_TURN
        while self._closing and left > 0:
            session = self._closing.popleft()
            for _ in self._release(session, now_ms):
                left -= PARTITIONS_PER_STEP
            left -= 1
            self._drop_if_empty(session.group_id)
        if self._closing:
            self._agenda.now(Slot.SHARES)
        self.leader.end_locks(now_ms)
        return ()

    # Requests that fail unexpectedly

    def refuse_fetch(self, request: WireRequest[messages.ShareFetchRequest], refused: ApiError) -> Answer:
        """A ShareFetch with an error for the whole request."""
        self._forget(request.message.group_id, request.message.member_id)
        return _refused_fetch(request, refused.error)

    def refuse_acknowledge(
        self, request: WireRequest[acknowledged.ShareAcknowledgeRequest], refused: ApiError
    ) -> Answer:
        """A ShareAcknowledge with an error for the whole request."""
        self._forget(request.message.group_id, request.message.member_id)
        return _refused_acknowledge(request, refused.error)

    def _forget(self, group_id: str | None, member: str | None) -> None:
        """Forget what a failed request may have left half changed: the session of its member, and all that is in memory
        of its group. What the share coordinators know is loaded with the next fetch.
        """
        session = self.sessions.by_key.get((group_id or "", member or ""))
        if session is not None:
            self.sessions.close(session)
        for led in [one for key, one in self.leader.led.items() if key.group_id == group_id]:
            self.leader.drop(led)


def _fetches_anything(message: messages.ShareFetchRequest) -> bool:
    return any((message.max_bytes, message.min_bytes, message.max_records, message.max_wait_ms))


def _refused_fetch(request: WireRequest, error: Error) -> Answer:
    return Answer(request.request_id, messages.ShareFetchResponse(error_code=error))


def _refused_acknowledge(request: WireRequest, error: Error) -> Answer:
    return Answer(request.request_id, acknowledged.ShareAcknowledgeResponse(error_code=error))


def _by_topic(found: Iterable[tuple[PartitionKey, _P]]) -> Mapping[Uuid, list[_P]]:
    """Results of partitions, by topic."""
    topics: dict[Uuid, list[_P]] = {}
    for (topic_id, _), one in found:
        topics.setdefault(topic_id, []).append(one)
    return topics
