"""The requests of clients and of other brokers: each goes to its room, and those that wait or take long go on from
here (Kafka: `KafkaApis`, the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property, partial
from random import Random
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from kraft import limits
from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from kraft.access.failures import RequestFailures
from kraft.agenda import Slot
from kraft.broker import apis
from kraft.broker.apis import Rooms
from kraft.broker.metadata.answers import MetadataHandler
from kraft.broker.metadata.auto_creation import AutoCreation
from kraft.broker.metadata.forwarding import Forwarding
from kraft.broker.request.fetch import FetchHandler, WaitingFetch
from kraft.broker.request.produce import ProduceHandler, WaitingProduce
from kraft.coordinators import apis as coordinators
from kraft.coordinators import share_apis as shares
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import CoordinatorSettings
from kraft.coordinators.transactions.producer_ids import InitProducerIdHandler, ProducerIds
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.coordinators.transactions.verification import Verifier
from kraft.handling.api import Api
from kraft.handling.coordinators import GROUP, SHARE, TOPICS, TRANSACTION, Counted
from kraft.handling.purgatory import EVERY_CHANGE, Purgatory
from kraft.handling.quotas import ClientQuotas
from kraft.handling.reply_keys import (
    Channel,
    Creation,
    Forwarded,
    LettersSent,
    LogEndsAsked,
    MarkersSent,
    StatesAsked,
    Verification,
)
from kraft.handling.request_times import RequestTimes
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.steps import Handling, Result, Sender, Waiting
from kraft.limits import WAITING_PER_TURN
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.inbound import ANONYMOUS

if TYPE_CHECKING:
    from kraft.broker.request.markers import MarkersHandler
    from kraft.broker.telemetry.handler import TelemetryHandler
    from kraft.config.telemetry_settings import TelemetryConfig
    from kraft.coordinators.groups.shard import GroupShard
    from kraft.coordinators.groups.state import GroupsState
    from kraft.coordinators.rooms import CoordinatorRooms
    from kraft.coordinators.runtime.shard import CoordinatorResult
    from kraft.coordinators.share_rooms import ShareRooms
    from kraft.coordinators.shares.dead_letters import DeadLetters
    from kraft.coordinators.shares.log_ends import LogEnds
    from kraft.coordinators.shares.share_fetch import ShareFetchHandler
    from kraft.coordinators.shares.state import ShareStates
    from kraft.coordinators.shares.state_sender import StateSender
    from kraft.coordinators.shares.state_shard import ShareStateShard, StateCounts
    from kraft.coordinators.transactions.marker_sender import MarkerSender
    from kraft.coordinators.transactions.shard import Transactions, TransactionShard
    from transport.protocol.messages import InitProducerIdRequest


class Requests:
    """Answers the requests of clients and of other brokers, by the table of `kraft.broker.apis`.

    The owner passes each request to `on_request`, and does the works that the agenda says are due. Nothing here waits,
    reads a clock or draws numbers of its own.

    Args:
        manager: The replicas of this broker.
        settings: The settings.
        rng: The randomness for the ids of fetch sessions and of members, and for the controller that clients are told.
        rights: What clients may do; None to allow everything.
        failures: Where unexpected exceptions in requests go that change nothing; None to raise them.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        settings: RequestSettings,
        rng: Random,
        rights: Rights | None = None,
        failures: RequestFailures | None = None,
    ) -> None:
        self.failures = RequestFailures() if failures is None else failures
        self.rights = rights = Rights() if rights is None else rights
        self._manager = manager
        self.hosting = manager.hosting
        """The replicas here."""
        self.agenda = agenda = manager.hosting.agenda
        """The times at which this broker has work to do."""
        self.image = MetadataImage()
        """The metadata by which the broker acts."""
        self._most_waiting = settings.most_waiting
        seed = rng.getrandbits(64)
        of_metadata, of_sessions = Random(seed), Random(rng.getrandbits(64))
        self.quotas = quotas = ClientQuotas(settings.quota_samples, settings.quota_window_ms)
        """The use that clients make of their quotas."""
        self.times = times = RequestTimes(quotas)
        """How long the requests of clients with a quota of time take."""
        self._settings = settings
        self._guards = guards = TransactionGuards()
        self._waiting = waiting = Purgatory(agenda)
        self._verifier = verifier = Verifier(
            agenda,
            waiting.tell,
            settings.inter_broker_listener,
            settings.request_timeout_ms,
            settings.transactions.add_retry_ms,
            settings.transactions.add_retry_max_ms,
        )
        self._ids = ids = ProducerIds(agenda, waiting.tell, settings.broker_id, settings.request_timeout_ms)
        self._creation = creation = AutoCreation(agenda, settings, manager.hosting.report)
        forwarding = Forwarding(agenda, settings)
        groups = settings.groups
        self.groups_counted = Counted()
        """The counts of their work."""
        self._budget = budget = Budget()
        self.groups: CoordinatorRuntime[GroupsState] = CoordinatorRuntime(
            agenda,
            TOPICS[GROUP],
            manager,
            self._group_shard,
            CoordinatorSettings(write_timeout_ms=groups.commit_timeout_ms, codec=groups.compression_codec),
            Random(f"{seed}/groups"),
            budget,
        )
        """The groups that this broker coordinates."""
        self.transactions: CoordinatorRuntime[Transactions] = CoordinatorRuntime(
            agenda,
            TOPICS[TRANSACTION],
            manager,
            self._transaction_shard,
            CoordinatorSettings(write_timeout_ms=settings.request_timeout_ms, shares_batches=False),
            Random(f"{seed}/transactions"),
            budget,
        )
        """The transactional ids that this broker coordinates."""
        self._runtimes: tuple[CoordinatorRuntime[Any], ...] = (self.groups, self.transactions)
        self._random_of_shares = f"{seed}/shares"
        self._shares: ShareRooms | None = None
        self._share_states: CoordinatorRuntime[ShareStates] | None = None
        self._persister: StateSender | None = None
        self._produce = ProduceHandler(manager, settings, rights, guards, verifier, quotas)
        self.rooms = Rooms(
            manager,
            rights,
            self._load_markers,
            produce=self._produce,
            fetch=FetchHandler(manager, settings, rights, of_sessions.randrange, quotas, times),
            producer_ids=InitProducerIdHandler(ids, rights, settings.request_timeout_ms, self._initialize),
            metadata=MetadataHandler(settings, of_metadata, rights, creation),
            forwarding=forwarding,
        )
        self._table: dict[int, Api[Any]] = {}
        """The handler of each API that was asked for."""
        self._coordinators: CoordinatorRooms | None = None
        self.telemetry = _telemetry(settings.telemetry, seed, manager) if settings.telemetry.is_on else None
        """The part that takes the metrics of clients; None for a broker that does not."""
        of_telemetry = () if self.telemetry is None else apis.TELEMETRY_ROWS
        self.apis: tuple[ApiKey, ...] = tuple(sorted({*apis.ROWS, *coordinators.ROWS, *shares.ROWS, *of_telemetry}))
        self._senders: dict[type, Sender] = {
            Verification: verifier,
            Channel: ids,
            Creation: creation,
            Forwarded: forwarding,
        }
        """The owner of the reply to a request, by the type of its key. The coordinators load theirs."""
        self.broker_epoch = NO_EPOCH
        """The epoch of this broker's registration."""
        self.works: list[Callable[[int], Iterable[Outcome | Send]]] = [
            _nothing,
            self._go_on,
            self._look_at_leaders,
            self._look_at_changes,
            self._coordinate,
            self._ask_for_states,
            self._look_at_shares,
            self._awake,
            *(partial(self._send, one) for one in (verifier, ids, creation, forwarding)),
            self._send_markers,
            self._ask_for_log_ends,
            self._send_letters,
            _nothing,
        ]
        """The functions that do the work of each slot of the agenda, at a time in ms."""
        manager.hosting.watched = waiting.watchers, self.groups.watched, self.transactions.watched

    def _load_markers(self) -> MarkersHandler:
        from kraft.broker.request.markers import MarkersHandler

        timeout_ms = self._settings.request_timeout_ms
        return MarkersHandler(self._manager, self.rights, self._guards, timeout_ms, self.groups)

    def load_coordinators(self) -> CoordinatorRooms:
        """Load what serves groups and transactions; a second call returns the same."""
        if self._coordinators is None:
            from kraft.coordinators.rooms import coordinator_rooms

            self._coordinators = rooms = coordinator_rooms(
                self._settings,
                self.rights,
                self.groups,
                self.transactions,
                sender=self.markers,
                ids=self._ids,
                guards=self._guards,
                verifier=self._verifier,
                delete_share_group=self._delete_share_group,
                create_topics=self._creation.create_internal_of_streams,
            )
            self._senders[MarkersSent] = rooms.transactions
        return self._coordinators

    @cached_property
    def markers(self) -> MarkerSender:
        """The sender of markers, which tell leaders how transactions have ended."""
        from kraft.coordinators.transactions.marker_sender import MarkerSender

        return MarkerSender(self.agenda, self._settings.inter_broker_listener, self._settings.request_timeout_ms)

    def load_shares(self) -> ShareRooms:
        """Load what serves share groups; a second call returns the same."""
        if self._shares is None:
            from kraft.coordinators.share_rooms import share_rooms

            self._shares = share_rooms(
                self._settings,
                self.rights,
                self.quotas,
                self.times,
                self.share_states,
                self.persister,
                self.groups,
                agenda=self.agenda,
                manager=self._manager,
                ends=self._log_ends,
                letters=self._dead_letters,
                tell=self._waiting.tell,
            )
            self._shares.fetch.use(self.image)
        return self._shares

    @property
    def members_of_shares(self) -> ShareFetchHandler | None:
        """The handler for members of share groups; None as long as no request of a share group has come."""
        return None if self._shares is None else self._shares.fetch

    @property
    def share_states(self) -> CoordinatorRuntime[ShareStates]:
        """The share partitions that this broker coordinates. Most brokers have none, and pay for nothing."""
        runtime = self._share_states
        if runtime is None:
            settings = self._settings.share_states
            runtime = self._share_states = CoordinatorRuntime(
                self.agenda,
                TOPICS[SHARE],
                self._manager,
                self._share_shard,
                CoordinatorSettings(write_timeout_ms=settings.write_timeout_ms, codec=settings.compression_codec),
                Random(self._random_of_shares),
                self._budget,
            )
            runtime.use(self.image)
            self._runtimes += (runtime,)
            self._manager.hosting.watched += (runtime.watched,)
        return runtime

    @property
    def coordinates_shares(self) -> bool:
        """Whether this broker may have share partitions to coordinate: their topic exists."""
        return self._share_states is not None

    @property
    def persister(self) -> StateSender:
        """The sender that keeps the state of share partitions at the share coordinators of the cluster."""
        sender = self._persister
        if sender is None:
            from kraft.coordinators.shares.state_sender import StateSender

            settings = self._settings
            sender = self._persister = StateSender(
                self.agenda,
                self.share_states,
                settings.broker_id,
                settings.inter_broker_listener,
                settings.request_timeout_ms,
                partial(self._creation.create_internal, SHARE),
            )
            sender.use(self.image)
            self._senders[StatesAsked] = sender
        return sender

    @cached_property
    def _dead_letters(self) -> DeadLetters:
        from kraft.coordinators.shares.dead_letters import DeadLetters

        settings = self._settings
        sender = DeadLetters(
            self.agenda,
            self._manager,
            settings.groups.share_leader,
            settings.inter_broker_listener,
            settings.request_timeout_ms,
            self._creation.create_queue,
        )
        self._senders[LettersSent] = sender
        return sender

    @cached_property
    def _log_ends(self) -> LogEnds:
        from kraft.coordinators.shares.log_ends import LogEnds

        settings = self._settings
        sender = LogEnds(self.agenda, self._manager, settings.inter_broker_listener, settings.request_timeout_ms)
        self._senders[LogEndsAsked] = sender
        return sender

    def _begin_states(self, *asked: Any) -> None:
        """A share group that this broker coordinates needs states of share partitions."""
        self.load_shares().group_states.begin(*asked)

    def _delete_share_group(self, *deleted: Any) -> CoordinatorResult:
        return self.load_shares().group_states.delete_group(*deleted)

    @cached_property
    def states_counted(self) -> StateCounts:
        """The counts of the work of the share coordinator."""
        from kraft.coordinators.shares.state_shard import StateCounts

        return StateCounts()

    def _share_shard(self, part: HostedPartition) -> ShareStateShard:
        from kraft.coordinators.shares.state_shard import ShareStateShard

        return ShareStateShard(
            part.number,
            self._settings.share_states,
            self.states_counted,
            self._are_share_states_full,
            partial(self._manager.leaders.delete_records, part),
        )

    def _are_share_states_full(self) -> bool:
        """Whether the share partitions take so much memory that no new ones are accepted."""
        return sum(one.state.bytes for one in self.share_states.partitions.values()) > limits.SHARE_STATE_BYTES

    @property
    def table(self) -> dict[int, Api[Any]]:
        """The handler of each API."""
        for key in self.apis:
            if key not in self._table:
                self._row(key)
        return self._table

    def _row(self, api_key: int) -> Api[Any]:
        """The handler of an API, from its first request on."""
        key = ApiKey(api_key)
        make = apis.ROWS.get(key)
        if make is not None:
            api = make(self.rooms)
        elif key in shares.ROWS:
            api = shares.ROWS[key](self.load_shares())
        elif self.telemetry is not None and key in apis.TELEMETRY_ROWS:
            api = apis.TELEMETRY_ROWS[key](self.telemetry)
        else:
            api = coordinators.ROWS[key](self.load_coordinators())
        self._table[key] = api
        return api

    def _group_shard(self, _: HostedPartition) -> GroupShard:
        from kraft.coordinators.groups.shard import GroupShard

        self.load_coordinators()
        return GroupShard(self._settings.groups, self.groups_counted, self._are_groups_full, self._begin_states)

    def _transaction_shard(self, part: HostedPartition) -> TransactionShard:
        from kraft.coordinators.transactions.shard import TransactionShard

        self.load_coordinators()
        settings = self._settings.transactions
        return TransactionShard(part.number, part.leader_epoch, self.markers, settings, self._ids.take)

    def _initialize(
        self, request: WireRequest[InitProducerIdRequest], image: MetadataImage, now_ms: int
    ) -> Answer | None:
        return self.load_coordinators().transactions.initialize(request, image, now_ms)

    def _are_groups_full(self) -> bool:
        """Whether the groups take so much memory that no new ones are accepted."""
        from kraft.coordinators.groups.shard import GroupShard

        held = 0
        for one in self.groups.partitions.values():
            assert isinstance(one.shard, GroupShard), one.shard
            held += one.state.bytes + one.shard.classic.bytes
        return held > limits.GROUP_STATE_BYTES

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def on_request(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Handle a request.

        Args:
            request: The request, of one of `apis`.
            image: The metadata by which the broker acts.
            now_ms: The time in ms since 1970.

        Returns:
            The answer, that there is none, or that the connection is to be closed. None if the request waits, and
            its outcome comes later.
        """
        if image is not self.image:
            self.use(image)
        if self.times.measures:
            return self.times.measured(request, partial(self.on_request, request, image, now_ms), now_ms)
        try:
            api = self._table[request.api_key]
        except KeyError:
            api = self._row(request.api_key)
        assert isinstance(request.message, api.message), request
        refusal = self._refusal(api, request) if api.needs is not None or api.needs_login else None
        if refusal is not None:
            return self._failed(api, request, refusal, now_ms)
        try:
            result = api.begin(request, image, now_ms)
        except Exception as failure:
            return self._failed(api, request, failure, now_ms)
        return self._advance(api, request, result, now_ms)

    def _refusal(self, api: Api[Any], request: WireRequest) -> ApiError | None:
        """The reason why a client may not send a request at all."""
        principal = request.principal
        if api.needs_login and (principal == ANONYMOUS or principal.is_token):
            return ApiError(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if api.needs is not None and not self.rights(request, api.needs, AclResource.CLUSTER):
            error = Error.CLUSTER_AUTHORIZATION_FAILED
            return ApiError(error, error.message)
        return None

    def use(self, image: MetadataImage) -> None:
        """The metadata by which the broker acts from now on."""
        if image is self.image:
            return
        self.image = image
        if self._coordinators is not None:
            # Partitions without a leader may have one now.
            self.agenda.now(Slot.MARKERS)
        if self._shares is not None:
            self._shares.fetch.use(image)
        self.rights.use(image)
        self.quotas.use(image)
        self.times.use(image.quotas)
        self._produce.use(image)
        for runtime in self._runtimes:
            runtime.use(image)
        if self._persister is not None:
            self._persister.use(image)
        elif self._share_states is None and TOPICS[SHARE] in image.topics.by_name:
            # This broker may become a share coordinator.
            assert self.share_states.topic in image.topics.by_name

    def _advance(
        self, api: Api[Any], request: WireRequest, work: Result | Handling[Result], now_ms: int
    ) -> Outcome | None:
        """Make the next steps of a request; later turns make those that remain then."""
        result: Result
        waiting = self._waiting
        if isinstance(work, GeneratorType):
            try:
                for _ in range(api.steps):
                    next(work)
            except StopIteration as done:
                result = done.value
            except Exception as failure:
                waiting.long.pop(request.request_id, None)
                return self._failed(api, request, failure, now_ms)
            else:
                waiting.go_on_later(api, request, work, now_ms)
                return None
            if waiting.long:
                waiting.long.pop(request.request_id, None)
        else:
            result = cast("Result", work)
        if result is None or isinstance(result, (Answer, LeaveUnanswered, Drop)):
            return result
        concerns = EVERY_CHANGE
        if isinstance(result, (WaitingProduce, WaitingFetch)):
            concerns = result.concerns
        if len(waiting) >= self._most_waiting:
            return self._end(api, result, now_ms)
        waiting.park(result, now_ms, concerns)
        return None

    def _end(self, api: Api[Any], waiting: Waiting, now_ms: int) -> Outcome | None:
        if self.times.measures:
            return self.times.measured(waiting.request, partial(self._end, api, waiting, now_ms), now_ms)
        assert api.end is not None, waiting
        return self._advance(api, waiting.request, api.end(waiting, self.image, now_ms), now_ms)

    def _failed(self, api: Api[Any], request: WireRequest, failure: Exception, now_ms: int) -> Outcome | None:
        """Answer a request that has failed and changed nothing; for any other the exception is raised again."""
        if api.refuse is None:
            raise failure
        if isinstance(failure, ApiError):
            error = failure
        else:
            error = self.failures.note(request.message, failure)
            self.agenda.now(Slot.REPORTS)
        answer = api.refuse(request, error)
        if answer is None:
            raise failure
        # An exception in the refusal itself ends the node.
        return self._advance(structs.replace(api, refuse=None), request, answer, now_ms)

    def _look_at_leaders(self, now_ms: int) -> tuple[()]:
        led = self._manager.hosting.take_led()
        for runtime in self._runtimes:
            runtime.on_leaders(led, now_ms)
        return ()

    def _look_at_changes(self, now_ms: int) -> tuple[()]:
        self._waiting.wake_told()
        changes = self._manager.hosting.take_changes()
        self._waiting.wake(changes)
        for runtime in self._runtimes:
            runtime.on_changes(changes, now_ms)
        return ()

    def _coordinate(self, now_ms: int) -> list[Answer]:
        """Let the coordinators do what is due. They share a budget; whoever has had none of it comes first in the next
        turn.
        """
        outcomes: list[Answer] = []
        for runtime in self._runtimes:
            if now_ms >= runtime.next_ms:
                outcomes += runtime.due(now_ms)
                if woken := runtime.take_changes():
                    self._waiting.wake_in_turn(woken)
        if self._budget.left <= 0:
            self._runtimes = self._runtimes[::-1]
        self._budget.renew()
        next_ms = min(self.groups.next_ms, self.transactions.next_ms)
        if self._share_states is not None:
            next_ms = min(next_ms, self._share_states.next_ms)
        self.agenda.at(Slot.COORDINATORS, next_ms)
        return outcomes

    def _ask_for_log_ends(self, now_ms: int) -> Iterator[Send | Outcome]:
        return self._send(self._log_ends, now_ms)

    def _send_letters(self, now_ms: int) -> Iterator[Send | Outcome]:
        return self._send(self._dead_letters, now_ms)

    def _ask_for_states(self, now_ms: int) -> Iterator[Send | Outcome]:
        return self._send(self.persister, now_ms)

    def _look_at_shares(self, now_ms: int) -> tuple[()]:
        return self.load_shares().fetch.due(now_ms)

    def _awake(self, now_ms: int) -> list[Outcome]:
        """The outcomes of requests that a change has woken and completed, and of those out of time."""
        outcomes: list[Outcome] = []
        waiting = self._waiting
        for one in waiting.take_woken(WAITING_PER_TURN):
            api = self._table[one.request.api_key]
            assert api.is_complete is not None, one
            if api.is_complete(one, self.image):
                waiting.forget(one.request.request_id)
                outcome = self._end(api, one, now_ms)
                if outcome is not None:
                    outcomes.append(outcome)
        for one in waiting.due(now_ms, WAITING_PER_TURN):
            outcome = self._end(self._table[one.request.api_key], one, now_ms)
            if outcome is not None:
                outcomes.append(outcome)
        self.agenda.at(Slot.WAITING_REQUESTS, waiting.deadline_ms())
        return outcomes

    def _send(self, sender: Sender, now_ms: int) -> Iterator[Send | Outcome]:
        return sender.due(self.image, self.broker_epoch, now_ms)

    def _send_markers(self, now_ms: int) -> Iterator[Send | Outcome]:
        return self._send(self.load_coordinators().transactions, now_ms)

    def _go_on(self, now_ms: int) -> list[Outcome]:
        """Make the next steps of long requests."""
        outcomes = list[Outcome]()
        for api, request, work in self._waiting.next_long(now_ms):
            if self.times.is_on:
                step = partial(self._advance, api, request, work, now_ms)
                outcome = self.times.measured(request, step, now_ms)
            else:
                outcome = self._advance(api, request, work, now_ms)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def forget(self, request_id: int) -> None:
        """The connection of a request is gone: the request waits no longer. Unknown ids are allowed."""
        self.times.forget(request_id)
        self._waiting.withdraw(request_id)

    def on_closed(self, listener: str, peer: str) -> None:
        """A connection is gone: a member of a share group loses what it has there."""
        if self._shares is not None:
            self._shares.fetch.on_closed((listener, peer))
        if self.telemetry is not None:
            self.telemetry.on_closed((listener, peer))

    def on_software(self, listener: str, peer: str, name: str, version: str) -> None:
        """The client of a connection tells what it is."""
        if self.telemetry is not None:
            self.telemetry.on_software((listener, peer), name, version)

    def owns(self, key: Hashable) -> bool:
        """Whether a reply with this key is for a request of this room, and not of the agent."""
        return type(key) in self._senders and (type(key) is not Channel or key is Channel.PRODUCER_IDS)

    def on_reply(self, key: Hashable, message: Message | None, now_ms: int) -> None:
        """The reply to a `Send` with this key; None if the request has failed."""
        self._senders[type(key)].on_reply(key, message, now_ms)

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        return self.rights.may(operation, caller)


def _telemetry(settings: TelemetryConfig, seed: int, manager: ReplicaManager) -> TelemetryHandler:
    # Loaded here, because few brokers take the metrics of clients, and the library of their format is an extra.
    from kraft.broker.telemetry.handler import TelemetryHandler

    return TelemetryHandler(settings, Random(f"{seed}/telemetry"), manager.hosting.report)


def _nothing(now_ms: int) -> tuple[()]:
    return ()
