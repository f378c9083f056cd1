"""The requests of clients and of other brokers: each goes to its room, and those that wait or take long go on from
here (Kafka: `KafkaApis`, the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from random import Random
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs

from kraft import limits
from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from kraft.access.failures import RequestFailures
from kraft.broker import apis
from kraft.broker.apis import Rooms
from kraft.broker.metadata.answers import MetadataHandler
from kraft.broker.metadata.auto_creation import AutoCreation
from kraft.broker.metadata.forwarding import Forwarding
from kraft.broker.request.delete_records import DeleteRecordsHandler
from kraft.broker.request.directories import DirectoriesHandler
from kraft.broker.request.epoch_ends import EpochEndHandler
from kraft.broker.request.fetch import FetchHandler, WaitingFetch
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.request.markers import MarkersHandler
from kraft.broker.request.produce import ProduceHandler, WaitingProduce
from kraft.broker.request.quotas import ClientQuotas
from kraft.coordinators import apis as coordinators
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import CoordinatorSettings
from kraft.coordinators.transactions.producer_ids import DescribeProducersHandler, InitProducerIdHandler, ProducerIds
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.coordinators.transactions.verification import Verifier
from kraft.handling.api import Api
from kraft.handling.coordinators import GROUP, TOPICS, TRANSACTION, Counted
from kraft.handling.purgatory import EVERY_CHANGE, Purgatory
from kraft.handling.reply_keys import Channel, Creation, Forwarded, MarkersSent, Verification
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.steps import Handling, Result, Sender, Waiting
from kraft.limits import ORPHANED_PRODUCES, UNPACKED_AT_ONCE, WAITING_PER_TURN
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_EPOCH
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.inbound import ANONYMOUS

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard
    from kraft.coordinators.groups.state import GroupsState
    from kraft.coordinators.rooms import CoordinatorRooms
    from kraft.coordinators.transactions.marker_sender import MarkerSender
    from kraft.coordinators.transactions.shard import Transactions, TransactionShard
    from transport.protocol.messages import InitProducerIdRequest

_AT_ONCE_MS: Final = 0
"""A deadline in the past: there is more to do now."""
_NO_CHANGES: Final[Mapping[PartitionKey, int]] = {}


class Requests:
    """Answers the requests of clients and of other brokers, by the table of `kraft.broker.apis`.

    The owner passes each request to `on_request`, calls `poll` after every turn in which a request, an answer or new
    metadata came in, and again at `deadline_ms`. Nothing here waits, reads a clock or draws numbers of its own.

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
        self._image = MetadataImage()
        self._most_waiting = settings.most_waiting
        seed = rng.getrandbits(64)
        of_metadata, of_sessions = Random(seed), Random(rng.getrandbits(64))
        self._quotas = quotas = ClientQuotas(settings.quota_samples, settings.quota_window_ms)
        self._settings = settings
        self._guards = guards = TransactionGuards()
        self._verifier = verifier = Verifier(
            settings.inter_broker_listener,
            settings.request_timeout_ms,
            settings.transactions.add_retry_ms,
            settings.transactions.add_retry_max_ms,
        )
        self._ids = ids = ProducerIds(settings.broker_id, settings.request_timeout_ms)
        creation = AutoCreation(settings, manager.hosting.report)
        forwarding = Forwarding(settings)
        groups = settings.groups
        self.groups_counted = Counted()
        """The counts of their work."""
        self._budget = budget = Budget()
        self.groups: CoordinatorRuntime[GroupsState] = CoordinatorRuntime(
            TOPICS[GROUP],
            manager,
            self._group_shard,
            CoordinatorSettings(write_timeout_ms=groups.commit_timeout_ms, codec=groups.compression_codec),
            Random(f"{seed}/groups"),
            budget,
        )
        """The groups that this broker coordinates."""
        self.transactions: CoordinatorRuntime[Transactions] = CoordinatorRuntime(
            TOPICS[TRANSACTION],
            manager,
            self._transaction_shard,
            CoordinatorSettings(write_timeout_ms=settings.request_timeout_ms, shares_batches=False),
            Random(f"{seed}/transactions"),
            budget,
        )
        """The transactional ids that this broker coordinates."""
        self._runtimes: tuple[CoordinatorRuntime[Any], ...] = (self.groups, self.transactions)
        self._produce = ProduceHandler(manager, settings, rights, guards, verifier, quotas)
        self.rooms = Rooms(
            produce=self._produce,
            fetch=FetchHandler(manager, settings, rights, of_sessions.randrange, quotas),
            offsets=ListOffsetsHandler(manager, rights),
            epochs=EpochEndHandler(manager, rights),
            deletions=DeleteRecordsHandler(manager, rights),
            producer_ids=InitProducerIdHandler(ids, rights, settings.request_timeout_ms, self._initialize),
            markers=MarkersHandler(manager, rights, guards, settings.request_timeout_ms, self.groups),
            producers=DescribeProducersHandler(manager, rights),
            directories=DirectoriesHandler(manager, rights),
            metadata=MetadataHandler(settings, of_metadata, rights, creation),
            forwarding=forwarding,
        )
        self._table: dict[int, Api[Any]] = {}
        """The handler of each API that was asked for."""
        self._coordinators: CoordinatorRooms | None = None
        self.apis: tuple[ApiKey, ...] = tuple(sorted({*apis.ROWS, *coordinators.ROWS}))
        self._senders: dict[type, Sender] = {
            Verification: verifier,
            Channel: ids,
            Creation: creation,
            Forwarded: forwarding,
        }
        """Whom the reply to a request belongs to, by the type of its key. The coordinators load theirs."""
        self._waiting = Purgatory()
        self._senders_ms: int | None = None
        """When a sender has something; None if a request or a reply may have changed that since the last question."""
        self._long: dict[int, tuple[Api[Any], WireRequest, Handling[Result]]] = {}
        """The requests with so much in them that their handling takes further turns, by request id."""
        self._long_ms = NEVER_MS
        """When they go on: other requests have their turns before."""
        self._turns = 0

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
            )
            self._senders[MarkersSent] = rooms.transactions
            self._senders_ms = None
        return self._coordinators

    @cached_property
    def markers(self) -> MarkerSender:
        """The sender of markers, which tell leaders how transactions have ended."""
        from kraft.coordinators.transactions.marker_sender import MarkerSender

        return MarkerSender(self._settings.inter_broker_listener, self._settings.request_timeout_ms)

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
        api = coordinators.ROWS[key](self.load_coordinators()) if make is None else make(self.rooms)
        self._table[key] = api
        return api

    def _group_shard(self, _: HostedPartition) -> GroupShard:
        from kraft.coordinators.groups.shard import GroupShard

        self.load_coordinators()
        return GroupShard(self._settings.groups, self.groups_counted, self._are_groups_full)

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
        return len(self._waiting) + len(self._long)

    @property
    def has_moved(self) -> bool:
        """Whether a request that waits may be complete, because a partition has changed since the last `poll`, or a
        coordinator has to begin or to end.
        """
        hosting = self._manager.hosting
        return bool(hosting.led or (hosting.changed and self._is_watching(hosting.changed)))

    def _is_watching(self, changed: dict[PartitionKey, int]) -> bool:
        """Whether a request or a coordinator waits for one of these changes."""
        if self._waiting.is_watching(changed):
            return True
        for runtime in self._runtimes:  # noqa: SIM110 - each Produce and each Fetch asks, without a generator
            if runtime.watched and not runtime.watched.keys().isdisjoint(changed):
                return True
        return False

    def on_request(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Handle a request.

        Args:
            request: The request, of one of `apis`.
            image: The metadata by which the broker acts.
            now_ms: The time in ms since 1970.

        Returns:
            The answer, that there is none, or that the connection is to be closed. None if the request waits, and
            `poll` returns its outcome later.
        """
        if image is not self._image:
            self._use(image)
        changed = self._manager.hosting.changed
        if changed and not self._is_watching(changed):
            # What has changed before wakes nobody who waits only from now on.
            changed.clear()
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

    def _use(self, image: MetadataImage) -> None:
        self._image = image
        self._senders_ms = None
        self.rights.use(image)
        self._quotas.use(image)
        self._produce.use(image)
        for runtime in self._runtimes:
            runtime.use(image)

    def _advance(
        self, api: Api[Any], request: WireRequest, work: Result | Handling[Result], now_ms: int
    ) -> Outcome | None:
        """Make the next steps of a request; `poll` makes those that remain then."""
        if not api.is_plain:
            self._senders_ms = None
        result: Result
        if isinstance(work, GeneratorType):
            try:
                for _ in range(api.steps):
                    next(work)
            except StopIteration as done:
                result = done.value
            except Exception as failure:
                self._long.pop(request.request_id, None)
                return self._failed(api, request, failure, now_ms)
            else:
                self._long[request.request_id] = api, request, work
                self._long_ms = min(self._long_ms, now_ms + 1 if api.pauses else _AT_ONCE_MS)
                return None
            if self._long:
                self._long.pop(request.request_id, None)
        else:
            result = cast("Result", work)
        if result is None or isinstance(result, (Answer, LeaveUnanswered, Drop)):
            return result
        concerns = EVERY_CHANGE
        if isinstance(result, (WaitingProduce, WaitingFetch)):
            concerns = result.concerns
        else:
            self._senders_ms = None
        if len(self._waiting) + len(self._long) >= self._most_waiting:
            return self._end(api, result, now_ms)
        self._waiting.park(result, now_ms, concerns)
        return None

    def _end(self, api: Api[Any], waiting: Waiting, now_ms: int) -> Outcome | None:
        assert api.end is not None, waiting
        return self._advance(api, waiting.request, api.end(waiting, self._image, now_ms), now_ms)

    def _failed(self, api: Api[Any], request: WireRequest, failure: Exception, now_ms: int) -> Outcome | None:
        """Answer a request that has failed and changed nothing; for any other the exception is raised again."""
        if api.refuse is None:
            raise failure
        error = failure if isinstance(failure, ApiError) else self.failures.note(request.message, failure)
        answer = api.refuse(request, error)
        if answer is None:
            raise failure
        # An exception in the refusal itself ends the node.
        return self._advance(structs.replace(api, refuse=None), request, answer, now_ms)

    def poll(
        self, now_ms: int, image: MetadataImage | None = None, broker_epoch: int = NO_EPOCH
    ) -> Iterator[Outcome | Send]:
        """The outcomes of waiting requests: those that a change of a partition has completed, and those out of time;
        then the requests to other nodes that are due.

        One call looks at a part of them if there are very many, and `deadline_ms` is then in the past. It goes on a
        little with long requests.

        Args:
            now_ms: The time in ms since 1970.
            image: The metadata by which the broker acts; None for that of the last request.
            broker_epoch: The epoch of this broker's registration.
        """
        if image is not None and image is not self._image:
            self._use(image)
        outcomes = self._go_on(now_ms) if now_ms >= self._long_ms else []
        waiting, hosting = self._waiting, self._manager.hosting
        for sender in self._senders.values():
            if woken := sender.take_changes():
                waiting.wake_in_turn(woken)
        if hosting.led:
            led = hosting.take_led()
            for runtime in self._runtimes:
                runtime.on_leaders(led, now_ms)
        changes = hosting.take_changes()
        waiting.wake(changes)
        self._coordinate(changes, outcomes, now_ms)
        yield from self._awake(outcomes, now_ms)
        # A copy, because a sender may ask this broker itself, which then loads the coordinators and with them a sender.
        for sender in tuple(self._senders.values()):
            yield from sender.due(self._image, broker_epoch, now_ms)
        self._senders_ms = None

    def poll_waiting(self, now_ms: int) -> list[Outcome]:
        """As `poll`, where `is_quiet` is true."""
        outcomes = self._go_on(now_ms) if now_ms >= self._long_ms else []
        changes = _NO_CHANGES
        if self._manager.hosting.changed:
            changes = self._manager.hosting.take_changes()
            self._waiting.wake(changes)
        self._coordinate(changes, outcomes, now_ms)
        return self._awake(outcomes, now_ms)

    def _coordinate(self, changes: Mapping[PartitionKey, int], outcomes: list[Outcome], now_ms: int) -> None:
        """Let the coordinators do what is due, and what waits for these changes. They share a budget; whoever has had
        none of it comes first in the next turn.
        """
        is_due = False
        for runtime in self._runtimes:
            if changes:
                runtime.on_changes(changes, now_ms)
            if now_ms >= runtime.next_ms:
                is_due = True
                outcomes += runtime.due(now_ms)
                if woken := runtime.take_changes():
                    self._waiting.wake_in_turn(woken)
                if runtime is self.transactions:
                    # There may be markers to send.
                    self._senders_ms = None
        if is_due:
            if self._budget.left <= 0:
                self._runtimes = self._runtimes[::-1]
            self._budget.renew()

    def _awake(self, outcomes: list[Outcome], now_ms: int) -> list[Outcome]:
        """Add the outcomes of requests that a change has woken and completed, and of those out of time."""
        waiting = self._waiting
        if now_ms < waiting.deadline_ms():
            return outcomes
        for one in waiting.take_woken(WAITING_PER_TURN):
            api = self._table[one.request.api_key]
            assert api.is_complete is not None, one
            if not api.is_plain:
                self._senders_ms = None
            if api.is_complete(one, self._image):
                waiting.forget(one.request.request_id)
                outcome = self._end(api, one, now_ms)
                if outcome is not None:
                    outcomes.append(outcome)
        for one in waiting.due(now_ms, WAITING_PER_TURN):
            outcome = self._end(self._table[one.request.api_key], one, now_ms)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def _go_on(self, now_ms: int) -> list[Outcome]:
        """Make the next steps of two long requests: one of the oldest that look into batches, and one of the others."""
        unpacking = (key for key, (api, *_) in self._long.items() if api.unpacks)
        oldest = list(islice(unpacking, UNPACKED_AT_ONCE))
        self._turns += 1
        chosen = oldest[self._turns % len(oldest) :][:1] if oldest else []
        other = next((key for key, (api, *_) in self._long.items() if not api.unpacks), None)
        if other is not None:
            chosen.append(other)
            self._long[other] = self._long.pop(other)
        self._long_ms = NEVER_MS if len(chosen) == len(self._long) else now_ms + 1
        outcomes = list[Outcome]()
        for key in chosen:
            outcome = self._advance(*self._long[key], now_ms)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def forget(self, request_id: int) -> None:
        """The connection of a request is gone: the request waits no longer. Unknown ids are allowed."""
        self._waiting.forget(request_id)
        entry = self._long.get(request_id)
        if entry is not None:
            api, request, work = entry
            if api.outlives_client and len(self._long) <= ORPHANED_PRODUCES:
                self._long[request_id] = api, request, _without_wait(request, work)
            else:
                del self._long[request_id]

    def owns(self, key: Hashable) -> bool:
        """Whether a reply with this key is for a request of this room, and not of the agent."""
        return type(key) in self._senders and (type(key) is not Channel or key is Channel.PRODUCER_IDS)

    def on_reply(self, key: Hashable, message: Message | None, now_ms: int) -> None:
        """The reply to a `Send` with this key; None if the request has failed."""
        self._senders_ms = None
        self._senders[type(key)].on_reply(key, message, now_ms)

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        return self.rights.may(operation, caller)

    def deadline_ms(self) -> int:
        """When the next `poll` is due, in ms; `NEVER_MS` if nothing is."""
        coordinators_ms = min(self.groups.next_ms, self.transactions.next_ms)
        return min(self._waiting.deadline_ms(), self._long_ms, self._sending_ms(), coordinators_ms)

    def _sending_ms(self) -> int:
        """The time at which a sender has something to send, in ms."""
        sending_ms = self._senders_ms
        if sending_ms is None:
            sending_ms = self._senders_ms = min([one.deadline_ms() for one in self._senders.values()])
        return sending_ms

    def is_quiet(self, now_ms: int) -> bool:
        """Whether only requests that wait, or take long, and coordinators have something to do: then `poll_waiting`
        does it all.
        """
        return not self._manager.hosting.led and now_ms < self._sending_ms()


def _without_wait(request: WireRequest, work: Handling[Result]) -> Handling[Result]:
    """The handling of a request that nobody waits for: what it appends counts, and its answer does not."""
    result = yield from work
    return result if isinstance(result, Outcome) else LeaveUnanswered(request.request_id)
