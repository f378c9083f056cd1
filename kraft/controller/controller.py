"""The active controller and its standbys: image history, activation, decisions on requests (Kafka: `QuorumController`).

The controller does not append. It returns decisions as records, and its state changes only when records are replayed.
The active controller replays them at once, a standby after their commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Final

from msgspec import structs

from kraft.access.authorizer import AclOperation, AclResource, Authorizer
from kraft.access.caller import ANONYMOUS, Caller
from kraft.access.errors import ApiError, not_controller_error
from kraft.access.items import AuthorizedRequest, authorize_items
from kraft.access.older_node import Audited
from kraft.access.permissions import check_cluster
from kraft.agenda import Agenda
from kraft.controller.apis import APIS, Write, at_once_of
from kraft.controller.brokers.broker_heartbeat import fence_silent_broker
from kraft.controller.brokers.cluster import check_described, describe_cluster
from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.controller.decision.mutations import MutationQuotas
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps, answered_with, at_once
from kraft.controller.decision.slots import SLOTS, Slot
from kraft.controller.envelope import Forwarded, open_envelope, refuse_envelope, seal_in_steps
from kraft.controller.features.activation import activation
from kraft.controller.features.controller_registration import Registrar
from kraft.controller.leftovers import Leftovers
from kraft.controller.settings import ControllerSettings
from kraft.controller.topics.elect_leaders import balance, elect_uncleanly, imbalanced, leaderless
from kraft.controller.topics.partition_updates import Member
from kraft.limits import ELECTIONS_PER_RUN
from kraft.steps import Answering
from kraft.supported_features import check_supported
from metadata_log.errors import ReplayError
from metadata_log.image import ImageHistory, MetadataImage
from metadata_log.image.replaying import BatchReplay, SnapshotReplay
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BrokerHeartbeatRequest,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    DescribeClusterRequest,
    EnvelopeRequest,
)

NO_OP: Final = ControllerResult((VersionedRecord(NoOpRecord()),), is_atomic=False)
"""The record that changes nothing. It advances the high watermark and the time of the last commit (KIP-835)."""


class Periodic:
    """The deadline of periodic work, such as the NoOp record: one interval after the last run."""

    __slots__ = ("_interval_ms", "deadline_ms")

    def __init__(self, max_idle_interval_ms: int) -> None:
        self._interval_ms = max_idle_interval_ms
        self.deadline_ms = NEVER_MS

    def arm(self, now_ms: int) -> None:
        """Restart the interval; an interval of 0 means never."""
        self.deadline_ms = now_ms + self._interval_ms if self._interval_ms > 0 else NEVER_MS

    def disarm(self) -> None:
        """Stop the timer."""
        self.deadline_ms = NEVER_MS


NOT_ACTIVE: Final = -1
_SWEEPS_PER_SESSION: Final = 8
_MOST_SWEEPS_PER_SESSION: Final = 180
_AGAIN_MS: Final = 10
"""The delay in milliseconds until the next silent broker is fenced, or until an unfinished election run continues."""


class QuorumController:
    """The controller of one node; active only in the epochs that its node leads."""

    apis: Final = (ApiKey.DESCRIBE_CLUSTER, ApiKey.ENVELOPE, *(api.key for api in APIS.values()))

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.agenda = Agenda(SLOTS)
        """The times at which this controller has work to do."""
        self.history = ImageHistory(MetadataImage())
        self.leftovers = Leftovers()
        self.active_epoch = NOT_ACTIVE
        self._is_loaded = False
        """Whether the controller has replayed all records that it knows to be committed, so that ACLs are complete."""
        self._quotas = MutationQuotas(settings.decisions.quota_samples, settings.decisions.quota_window_ms)
        self.audited: list[Audited] = []
        """The latest entries of the audit log; its reader empties the list."""
        self._periodic = Periodic(settings.decisions.max_idle_interval_ms)
        self._registrar = Registrar(
            self.agenda, settings.node_id, settings.incarnation_id, settings.listeners, settings.security_protocols
        )
        self._sessions = BrokerSessions(settings.decisions.broker_session_timeout_ms)
        self._sweep_ms = NEVER_MS
        self._balancing = Periodic(settings.decisions.leader_rebalance_interval_ms)
        self._unclean_elections = Periodic(settings.decisions.unclean_election_interval_ms)
        tokens = settings.admin.tokens
        self._token_removal = Periodic(tokens.check_interval_ms if tokens.secret else 0)
        self._imbalanced: Iterator[Member | None] | None = None
        """The continuation of the balancing run if one run was not enough; its image may be outdated."""
        self._leaderless: Iterator[Member | None] | None = None
        """The continuation of the run of unclean elections."""
        self._next_offset = 0
        self._voter_ids = tuple([node_id for node_id, _, _ in settings.voters])
        # The controller owns its generator, so that a copy of the controller draws the same values.
        self._rng = Random(int.from_bytes(settings.incarnation_id))
        self._defaults = structs.replace(settings.topics, node_id=settings.node_id)

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self.active_epoch != NOT_ACTIVE

    def last_heartbeat_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """The time of the last heartbeat of an incarnation of a broker; None without an open session."""
        return self._sessions.last_contact_ms(broker_id, broker_epoch)

    # Replay

    def load_snapshot(self, records: Iterable[Message], end: OffsetAndEpoch) -> None:
        """Discard the state and load the records of a snapshot."""
        replay = SnapshotReplay(end)
        replay.go_on(records)
        self.finish_snapshot(replay)

    def finish_snapshot(self, replay: SnapshotReplay) -> None:
        """Discard the state and take over a fully replayed snapshot."""
        assert not self.is_active, "the active controller never loads a snapshot"
        image = replay.apply()
        self._check_levels(image)
        self.leftovers.keep(self.history.committed.topics.by_id.values(), 0)
        self.history = ImageHistory(MetadataImage())
        self.history.replayed(image)
        self._note_brokers(replay.of_brokers)
        self._registrar.look_at(self.history.committed.stable)

    def on_appended(
        self, records: Sequence[VersionedRecord], base_offset: int, begun: BatchReplay | None = None
    ) -> None:
        """Note the offsets of one appended batch of this active controller. `begun` has replayed its first records."""
        end = OffsetAndEpoch(epoch=self.active_epoch, offset=base_offset + len(records))
        first, history = records[0].record, self.history
        if type(first) is ConfigRecord and len(records) == 1:
            # What clients write most touches neither brokers nor topics, and needs no delta.
            history.appended(history.latest.with_config(first, end))
        else:
            if begun is None or not begun.fits(history.latest, base_offset):
                begun = BatchReplay(history.latest, base_offset)
            begun.go_on([one.record for one in records[begun.count :]])
            history.appended(self._finish(begun, end))
        self._next_offset = end.offset

    def begin_own(self) -> BatchReplay:
        """Begin to replay records of this active controller while their decision is still in progress."""
        return BatchReplay(self.history.latest, self._next_offset)

    def _finish(self, replay: BatchReplay, end: OffsetAndEpoch) -> MetadataImage:
        """The image after a batch. The broker sessions are updated here, too."""
        image = replay.apply(end)
        self._check_levels(image)
        self._note_brokers(replay.of_brokers)
        self.leftovers.keep(replay.removed_topics, end.offset)
        return image

    def _check_levels(self, image: MetadataImage) -> None:
        if image.features is not self.history.latest.features:
            check_supported(image.features)

    def _note_brokers(self, records: Iterable[tuple[Message, int]]) -> None:
        for record, offset in records:
            self._note_broker(record, offset)

    def _note_broker(self, record: Message, offset: int) -> None:
        """Update the sessions and pending requests that a record changes."""
        sessions = self._sessions
        match record:
            case RegisterBrokerRecord():
                sessions.registered(record.broker_id, offset)
                if self.is_active:
                    # This also discards a shutdown request that the incarnation sent before it registered again.
                    sessions.forget(record.broker_id)
                    sessions.touch(record.broker_id, fenced=record.fenced)
            case UnregisterBrokerRecord():
                sessions.forget(record.broker_id)
            case BrokerRegistrationChangeRecord() if self.is_active:
                is_fenced = sessions.state(record.broker_id).is_fenced if record.fenced == 0 else record.fenced > 0
                sessions.replayed(record.broker_id, fenced=is_fenced)

    def on_committed(self, next_offset: int) -> None:
        """Note the commit of one batch of this active controller's own records."""
        self.history.commit(next_offset)
        self._registrar.look_at(self.history.committed.stable)

    def commit_at_once(self, record: Message, end: OffsetAndEpoch) -> bool:
        """Replay and publish a committed batch that has this record alone, if that takes no delta; False otherwise.

        A record that contradicts the image is left to `finish_committed`, and to its error.
        """
        if type(record) is not ConfigRecord:
            return False
        try:
            image = self.history.latest.with_config(record, end)
        except ReplayError:
            return False
        self.history.replayed(image)
        self._registrar.look_at(image.stable)
        return True

    def begin_committed(self, base_offset: int) -> BatchReplay:
        """Begin to replay a committed batch that another controller wrote, or that this one no longer holds; no part of
        the batch is visible before `finish_committed`.
        """
        return BatchReplay(self.history.latest, base_offset)

    def finish_committed(self, replay: BatchReplay, end: OffsetAndEpoch) -> None:
        """Publish a committed batch after all its records were replayed."""
        self.history.replayed(self._finish(replay, end))
        self._registrar.look_at(self.history.committed.stable)

    def on_caught_up(self) -> None:
        """Note that all records known to be committed have been replayed."""
        self._is_loaded = True

    # Leadership

    def activate(self, epoch: int, next_offset: int, now_ms: int) -> ControllerResult:
        """Become active. All records below `next_offset` are committed and replayed. Returns the first records to
        write."""
        assert not self.is_active, (self.active_epoch, epoch)
        self.active_epoch = epoch
        self._is_loaded = True
        self._next_offset = next_offset
        for timer in self._timers:
            timer.arm(now_ms)
        self._sessions.claim(self.history.latest, now_ms)
        self._arm_sweep(now_ms)
        return activation(self.history.latest, self.settings.bootstrap, self.settings.topics.min_isr)

    def renounce(self) -> None:
        """Stop deciding, and discard uncommitted state, because its records may be lost."""
        self.active_epoch = NOT_ACTIVE
        for timer in self._timers:
            timer.disarm()
        self._sessions.renounce()
        self._sweep_ms = NEVER_MS
        self._plan()
        self._imbalanced = self._leaderless = None
        self.history.rollback()
        self._registrar.retry()

    # Decisions

    def handle(
        self, request: Message, version: int, leader_id: int, now_ms: int, caller: Caller = ANONYMOUS
    ) -> ControllerResult:
        """Decide on a request; `leader_id` is the quorum's leader as far as this node knows, or -1."""
        return at_once(self.steps(request, version, leader_id, now_ms, caller))

    def at_once(
        self, request: Message, version: int, now_ms: int, caller: Caller = ANONYMOUS
    ) -> ControllerResult | None:
        """As `handle`, if the request surely takes a small part of a turn; otherwise None, and nothing has changed.

        A request that is refused as a whole takes the way of `steps`, and so does each one with an authorizer, which
        may have many rules.
        """
        if self.active_epoch == NOT_ACTIVE or self.settings.admin.authorizer is not None:
            return None
        decide = at_once_of(type(request))
        if decide is None:
            return None
        try:
            return decide(self._request_context(version, now_ms, caller), request)
        except ApiError:
            return None

    def steps(self, request: Message, version: int, leader_id: int, now_ms: int, caller: Caller = ANONYMOUS) -> Steps:
        """As `handle`, in steps. No other decision may begin before the last step."""
        context = self._request_context(version, now_ms, caller)
        if isinstance(request, EnvelopeRequest):
            return (yield from self._handle_forwarded(context, request, leader_id))
        try:
            return (yield from self._decide(context, request, leader_id))
        except ApiError as refused:
            return (yield from answered_with(_refusal(request, refused)))

    def handle_own(self, request: ControllerRegistrationRequest, now_ms: int) -> ControllerResult:
        """Decide on a request of this node to itself while it is active; such a request needs no permission."""
        try:
            return at_once(APIS[type(request).__name__].decide(self._request_context(0, now_ms), request))
        except ApiError as refused:
            return at_once(answered_with(_refusal(request, refused)))

    def denial(self, key: ApiKey, caller: Caller) -> ApiError | None:
        """The error if the caller may not use an API that is decided elsewhere, chiefly an API of the quorum."""
        try:
            check_cluster(self._request_context(0, 0, caller), key)
        except ApiError as refused:
            return refused
        return None

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether the caller may perform an operation on the cluster, for a request that the node answers itself.

        Raises `ApiError` until the ACLs are loaded.
        """
        return self._request_context(0, 0, caller).may(operation, AclResource.CLUSTER)

    def opened(self, request: EnvelopeRequest, caller: Caller) -> Forwarded:
        """The request in an envelope; raises `ApiError` if the envelope is damaged or the caller may not forward."""
        check_cluster(self._request_context(0, 0, caller), ApiKey.ENVELOPE)
        return open_envelope(request)

    def _handle_forwarded(self, outer: RequestContext, request: EnvelopeRequest, leader_id: int) -> Steps:
        """Decide for a broker's client. The broker, not the client, is redirected to another controller."""
        try:
            forwarded = self.opened(request, outer.caller)
            if type(forwarded.message).__name__ not in APIS:
                raise ApiError(Error.INVALID_REQUEST)
        except ApiError as refused:
            return ControllerResult(response=refuse_envelope(refused.error))
        context = self._request_context(forwarded.version, outer.now_ms, forwarded.caller, is_forwarded=True)
        try:
            result = yield from self._decide(context, forwarded.message, leader_id)
        except ApiError as refused:
            if refused.error == Error.NOT_CONTROLLER:
                return ControllerResult(response=refuse_envelope(Error.NOT_CONTROLLER))
            result = yield from answered_with(_refusal(forwarded.message, refused))
        assert result.response is not None, forwarded
        return structs.replace(result, response=(yield from seal_in_steps(forwarded, result.response)))

    def _decide(self, context: RequestContext, request: Message, leader_id: int) -> Steps:
        """Decide on a request with the caller's permissions; raises `ApiError` if the request fails as a whole."""
        if isinstance(request, DescribeClusterRequest):
            return self._describe_cluster(context, request, leader_id)
        api = APIS[type(request).__name__]
        authorized: AuthorizedRequest | None = None
        if context.authorizer is not None:
            check_cluster(context, api.key)
            authorized = yield from authorize_items(context, context.committed, request)
            request = authorized.request
        if isinstance(api, Write):
            if self.active_epoch == NOT_ACTIVE and not api.is_empty(request):
                raise not_controller_error(leader_id)
            if isinstance(request, BrokerHeartbeatRequest):
                self.note_contact(request, context.now_ms)
        decision = api.decide(context, request)
        result = decision if isinstance(decision, ControllerResult) else (yield from decision)
        return result if authorized is None else structs.replace(result, response=authorized.finish(result.response))

    def note_contact(self, beat: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Extend the session of a broker when its heartbeat arrives, before and independent of the response.

        Otherwise a busy controller would fence live brokers. An unregistered incarnation has no session.
        """
        broker = self.history.latest.brokers.by_id.get(beat.broker_id)
        if broker is None or broker.epoch != beat.broker_epoch:
            return
        self._sessions.contact(beat.broker_id, beat.broker_epoch, now_ms)
        if self._sweep_ms == NEVER_MS:
            self._arm_sweep(now_ms)

    def _request_context(
        self, version: int, now_ms: int, caller: Caller = ANONYMOUS, *, is_forwarded: bool = False
    ) -> RequestContext:
        latest, committed = self.history.latest, self.history.committed.stable
        settings = self.settings
        rules = settings.admin.authorizer
        # By position: the interpreter makes a dictionary of so many arguments with names.
        return RequestContext(
            latest,
            committed,
            self._next_offset,
            version,
            now_ms,
            self._rng,
            settings.cluster_id,
            self._defaults,
            self._sessions,
            self._voter_ids,
            settings.own_settings,
            settings.admin,
            caller,
            is_forwarded,
            None if rules is None else Authorizer(rules, committed.acls, self._is_loaded),
            self.audited,
            self._quotas,
        )

    def _describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest, leader_id: int
    ) -> ControllerResult:
        settings = self.settings
        check_described(context.committed)
        check_cluster(context, ApiKey.DESCRIBE_CLUSTER)
        names = [name for name, _, _ in settings.listeners]
        listener = context.caller.listener if context.caller.listener in names else settings.listener
        response = describe_cluster(
            context.committed,
            request,
            version=context.version,
            may=lambda operation: context.may(operation, AclResource.CLUSTER, is_asked=False),
            cluster_id=settings.cluster_id,
            leader_id=leader_id,
            listener=listener,
            voters=settings.voters if listener == settings.listener else (),
        )
        return ControllerResult(response=response)

    def not_controller(self, request: Message, leader_id: int) -> Answering:
        """The response to a write that this node cannot decide on, or with records that may be lost."""
        return _refusal(request, not_controller_error(leader_id))

    def failure(self, request: Message, error: Error, text: str) -> Answering:
        """The response to a write that fails as a whole."""
        return _refusal(request, ApiError(error, text))

    # Time

    def _plan(self) -> None:
        """Say when `due` has something."""
        due_ms = min(
            self._sweep_ms,
            self._periodic.deadline_ms,
            self._balancing.deadline_ms,
            self._unclean_elections.deadline_ms,
            self._token_removal.deadline_ms,
        )
        self.agenda.at(Slot.TIMERS, due_ms)

    def on_tick(self, now_ms: int) -> list[ControllerResult]:
        """Run the timed decisions that are due."""
        return [at_once(begin(self, now_ms)) for begin in self.due(now_ms)]

    def due(self, now_ms: int) -> list[Callable[[QuorumController, int], ControllerResult | Steps]]:
        """The timed decisions that are due. Each begins when the caller calls it; call each once, and soon.

        At most one of them reads the metadata, because the next one has to see its changes.
        """
        due: list[Callable[[QuorumController, int], ControllerResult | Steps]] = []
        if now_ms >= self._sweep_ms:
            expired = self._sessions.take_expired(now_ms)
            if expired is None:
                self._arm_sweep(now_ms)
            else:
                due.append(partial(_fence, expired))
                self._sweep_ms = now_ms + _AGAIN_MS
        elif now_ms >= self._balancing.deadline_ms:
            due.append(QuorumController._balance)
        elif now_ms >= self._unclean_elections.deadline_ms:
            due.append(QuorumController._elect_uncleanly)
        elif now_ms >= self._token_removal.deadline_ms:
            due.append(QuorumController._remove_expired)
        if now_ms >= self._periodic.deadline_ms:
            self._periodic.arm(now_ms)
            due.append(_no_op)
        self._plan()
        return due

    def _balance(self, now_ms: int) -> Steps:
        allowed = self.settings.decisions.leader_imbalance_percentage
        self._imbalanced = members = self._imbalanced or imbalanced(self.history.latest)
        return self._one_run(balance(self._request_context(0, now_ms), members, allowed), self._balancing, now_ms)

    def _elect_uncleanly(self, now_ms: int) -> Steps:
        self._leaderless = members = self._leaderless or leaderless(self.history.latest)
        run = elect_uncleanly(self._request_context(0, now_ms), members)
        return self._one_run(run, self._unclean_elections, now_ms)

    def _remove_expired(self, now_ms: int) -> Steps:
        from kraft.controller.security.tokens import remove_expired

        return self._one_run(remove_expired(self._request_context(0, now_ms)), self._token_removal, now_ms)

    def _one_run(self, run: Steps, timer: Periodic, now_ms: int) -> Steps:
        """A timed run, which continues soon if one run cannot do all the work."""
        timer.arm(now_ms)
        self._plan()
        count = 0
        while True:
            try:
                record = next(run)
            except StopIteration as end:
                result: ControllerResult = end.value
                break
            count += record is not None
            yield record
        if count + len(result.records) >= ELECTIONS_PER_RUN:
            timer.deadline_ms = now_ms + _AGAIN_MS
            self._plan()
        elif timer is self._balancing:
            self._imbalanced = None
        elif timer is self._unclean_elections:
            self._leaderless = None
        return result

    @property
    def _timers(self) -> tuple[Periodic, ...]:
        return (self._periodic, self._balancing, self._unclean_elections, self._token_removal)

    def _arm_sweep(self, now_ms: int) -> None:
        """Schedule the next search for silent brokers when the next session may expire, if a session is open.

        Kafka searches eight times a session timeout, expired or not. Its brokers stay unfenced up to 1.125 s longer.
        """
        session_ms = self.settings.decisions.broker_session_timeout_ms
        latest_ms = now_ms + max(1, session_ms // _SWEEPS_PER_SESSION)
        earliest_ms = now_ms + max(1, session_ms // _MOST_SWEEPS_PER_SESSION)
        wanted_ms = max(earliest_ms, min(latest_ms, self._sessions.expiry_ms))
        self._sweep_ms = wanted_ms if self._sessions.has_contacts else NEVER_MS
        self._plan()

    def registration_due(self, now_ms: int) -> ControllerRegistrationRequest | None:
        """The registration to send to the active controller, if one is due. Call `on_registration_answer`
        afterwards."""
        return self._registrar.request_due(now_ms)

    def on_registration_answer(self, response: Message | None, now_ms: int) -> None:
        """Take the active controller's response, or None if none will arrive."""
        accepted = isinstance(response, ControllerRegistrationResponse) and response.error_code == Error.NONE
        self._registrar.answered(accepted=accepted, now_ms=now_ms)


def _fence(expired: tuple[int, int], controller: QuorumController, now_ms: int) -> Steps:
    return fence_silent_broker(controller._request_context(0, now_ms), expired)


def _no_op(_: QuorumController, __: int) -> ControllerResult:
    return NO_OP


def _refusal(request: Message, refused: ApiError) -> Answering:
    """The response to a request that fails as a whole. What refuses loads its messages with the first one."""
    from kraft.access.refusals import refusal

    return refusal(request, refused)
