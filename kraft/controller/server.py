"""The `QuorumController` as a part of a process (Kafka: `QuorumController.QuorumMetaLogListener`).

The host encodes and decodes: the controller uses records, the log holds values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgspec import structs

from kraft.access.caller import Caller, host_of_peer
from kraft.access.errors import ApiError
from kraft.access.failures import RequestFailures
from kraft.committed import Committed, CommittedBatch, FollowsLog, Noted
from kraft.controller import ControllerResult, QuorumController
from kraft.controller.apis import APIS, Read
from kraft.controller.controller import NOT_ACTIVE
from kraft.controller.decision.result import Steps, answered_with
from kraft.controller.decision.slots import Slot
from kraft.controller.decisions import NOTHING, DecisionRefused, Decisions, Work
from kraft.controller.envelope import Forwarded, api_key_of, refuse_envelope, seal
from kraft.quorum.values import QuorumConfig
from kraft.replica.interface.actions import Action, ForRequest, Proposal, Redirect, Unit
from kraft.replica.interface.leading import Leading
from kraft.replica.rpc.api_versions import QUORUM_APIS
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.server import Server
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer, Part, ReplyTo, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.image.record_values import (
    encode_image_by_steps,
    published_features,
)
from metadata_log.records.frame import VersionedRecord
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterResponse,
    BrokerHeartbeatRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
    RemoveRaftVoterResponse,
)
from transport.protocol.messages.controller_registration import ControllerRegistrationRequest


class ControllerServer(FollowsLog, Leading, Server):
    """Hosts one `QuorumController`."""

    apis = frozenset(QuorumController.apis)
    guards_quorum = True

    def __init__(
        self,
        controller: QuorumController,
        failures: RequestFailures | None = None,
        *,
        request_timeout_ms: int = QuorumConfig().request_timeout_ms,
    ) -> None:
        """`request_timeout_ms` is the time for a request to the active controller."""
        super().__init__(controller.agenda, controller.audited)
        self._request_timeout_ms = request_timeout_ms
        self.controller = self._owner = controller
        self._failures = RequestFailures() if failures is None else failures
        self._decisions = Decisions(self.agenda, self._failures)

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads see it."""
        return self.controller.history.committed.stable

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Commit the image that is remembered for a batch of this controller; replay any other batch."""
        assert self._applying is None, batch.base_offset
        controller = self.controller
        if batch.next_offset <= controller.history.latest.end.offset:
            controller.on_committed(batch.next_offset)
            self._look_at_leftovers()
            return ()
        end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        if len(batch.records) == 1 and controller.commit_at_once(batch.records[0], end):
            self._look_at_leftovers()
            return ()
        return super().on_committed(batch)

    def _on_applied(self) -> None:
        self._look_at_leftovers()

    def _look_at_leftovers(self) -> None:
        controller, agenda = self.controller, self.agenda
        if agenda.times[Slot.LEFTOVERS] == NEVER_MS and controller.leftovers.is_due(
            controller.history.committed.end.offset
        ):
            agenda.now(Slot.LEFTOVERS)

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Activate the controller. The records of the activation come before all its other records."""
        result = self.controller.activate(epoch, next_offset, now_ms)
        return (Proposal(_units(result)),) if result.records else ()

    def on_lost_leadership(self) -> None:
        """Deactivate the controller."""
        self.controller.renounce()
        self._decisions.abandon()

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Replay the unit at append time, so that the next decision sees its changes."""
        decisions = self._decisions
        begun = decisions.take_ahead(unit) if decisions.is_ahead else None
        self.controller.on_appended(unit.records, base_offset, begun)

    def on_request(self, request: WireRequest, now_ms: int) -> Action:
        """Decide on a request. The answer to a write waits for the commit of all records that it depends on."""
        if self.quorum.is_full and not self._answers_at_once(request):
            # As Kafka does after too long a time in its queue. A heartbeat counts nevertheless.
            if isinstance(request.message, BrokerHeartbeatRequest):
                self.controller.note_contact(request.message, now_ms)
            return self._refuse_full(request, now_ms)
        message, caller = request.message, _caller(request)
        if type(message) is EnvelopeRequest and api_key_of(message) in QUORUM_APIS:
            return self._pass_on(request, message, caller)
        decisions = self._decisions
        proposal = decisions.at_once(request, caller, self.controller, now_ms)
        if proposal is not None:
            return proposal
        leader_id = self.quorum.leader.leader_id
        work = Work(
            lambda controller, at_ms: controller.steps(message, request.version, leader_id, at_ms, caller), request
        )
        if self._answers_at_once(request):
            return decisions.read(work, self.controller, now_ms) or NOTHING
        if decisions.is_busy and isinstance(message, BrokerHeartbeatRequest):
            # The heartbeat waits for its turn; the session of the broker must not expire meanwhile.
            self.controller.note_contact(message, now_ms)
        if decisions.is_full:
            return self._refuse_full(request, now_ms)
        return decisions.decide(work, self.controller, now_ms)

    def _answers_at_once(self, request: WireRequest) -> bool:
        """Whether a request never waits for a commit."""
        return request.api_key in _READS or self.controller.active_epoch == NOT_ACTIVE

    def _refuse_full(self, request: WireRequest, now_ms: int) -> Action:
        error, message = Error.REQUEST_TIMED_OUT, request.message
        work = Work(lambda controller, _: answered_with(controller.failure(message, error, error.message)), request)
        return self._decisions.read(work, self.controller, now_ms) or NOTHING

    def _pass_on(self, request: WireRequest, envelope: EnvelopeRequest, caller: Caller) -> Action:
        """Handle the request of a broker's client to the quorum itself."""
        try:
            forwarded = self.controller.opened(envelope, caller)
        except ApiError as refused:
            return Answer(request.request_id, refuse_envelope(refused.error))
        asked = structs.replace(
            request, api_key=forwarded.api_key, version=forwarded.version, message=forwarded.message
        )
        denial = self.controller.denial(ApiKey(forwarded.api_key), forwarded.caller)
        if denial is not None:
            return Answer(request.request_id, seal(forwarded, refuse_quorum_request(asked, denial)))
        return Redirect(asked, partial(_seal_answer, forwarded))

    def denial(self, request: WireRequest) -> ApiError | None:
        """The decision of the authorizer, if there is one."""
        if self.controller.settings.admin.authorizer is None:
            return None
        return self.controller.denial(ApiKey(request.api_key), _caller(request))

    def on_caught_up(self) -> None:
        """Note that the ACLs are loaded."""
        self.controller.on_caught_up()

    def refuse(self, asked: ForRequest, error: Error, now_ms: int, text: str | None = None) -> Answer | None:
        """Answer a write with refused or lost records."""
        message, leader_id, told = asked.request, self.quorum.leader.leader_id, text or error.message

        def begin(controller: QuorumController, _: int) -> Steps:
            if error == Error.NOT_LEADER_OR_FOLLOWER:
                return answered_with(controller.not_controller(message, leader_id))
            return answered_with(controller.failure(message, error, told))

        return self._decisions.read(Work(begin, DecisionRefused(asked.request_id, message)), self.controller, now_ms)

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """The record values of the committed image; None while a transaction is open."""
        image = self.controller.history.committed
        return None if image is not image.stable else lambda: encode_image_by_steps(image)

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The committed feature levels, with their offset; the oldest metadata.version if there are none."""
        return published_features(self.controller.history.committed.stable)

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """The features that this software supports."""
        return SUPPORTED_FEATURES

    def on_tick(self, now_ms: int) -> Iterator[Action]:
        """Continue the decision in progress, and do the timed work that is due."""
        agenda, controller, decisions = self.agenda, self.controller, self._decisions
        for slot in agenda.take_due(now_ms):
            if slot == Slot.FAILURES:
                yield from map(Noted, self._failures.take())
            elif slot == Slot.DECISIONS:
                yield from decisions.turn(controller, now_ms)
                self._look_at_leftovers()
            elif decisions.is_busy:
                # Until the decision is made, no other may begin.
                agenda.at(slot, agenda.times[Slot.DECISIONS])
            elif slot == Slot.LEFTOVERS:
                if controller.leftovers.free(controller.history.committed.end.offset):
                    agenda.at(slot, now_ms + 1)
            elif slot == Slot.TIMERS:
                for begin in controller.due(now_ms):
                    decisions.wait(Work(begin))
                yield from decisions.turn(controller, now_ms)
            elif (request := controller.registration_due(now_ms)) is not None:
                yield self._register(request, now_ms)

    def _register(self, request: ControllerRegistrationRequest, now_ms: int) -> Action:
        """Send a request of this controller to the active controller; decide at once if this one is active."""
        if not self.controller.is_active:
            return Send(request, _REGISTRATION, self._request_timeout_ms)
        return Proposal(_units(self.controller.handle_own(request, now_ms)))

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Take the answer of the active controller to the registration of this controller."""
        assert reply_to == _REGISTRATION, reply_to
        self.controller.on_registration_answer(response, now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether no answer is under way that takes several turns."""
        return not self._decisions.has_answers


def _caller(request: WireRequest) -> Caller:
    principal = request.principal
    host = host_of_peer(request.peer)
    return Caller(principal.type, principal.name, principal.is_token, host, request.listener, request.client_id or "")


def _seal_answer(forwarded: Forwarded, response: Message) -> Message:
    """The answer to the client of the quorum, or to the broker if the broker must ask another controller."""
    match response:
        case DescribeQuorumResponse():
            errors = [partition.error_code for topic in response.topics for partition in topic.partitions]
        case AddRaftVoterResponse() | RemoveRaftVoterResponse():
            errors = [response.error_code]
        case other:
            raise AssertionError(f"{type(other).__name__} answers nothing that brokers pass on")
    if Error.NOT_LEADER_OR_FOLLOWER in errors:
        return refuse_envelope(Error.NOT_CONTROLLER)
    return seal(forwarded, response)


_READS: Final = frozenset(
    (ApiKey.DESCRIBE_CLUSTER, *(api.key for api in APIS.values() if isinstance(api, Read))),
)


_REGISTRATION: Final = ReplyTo(Part.CONTROLLER, ApiKey.CONTROLLER_REGISTRATION)
"""Where the answer to the only request of a controller goes."""


def _units(result: ControllerResult) -> tuple[Unit, ...]:
    """The batches of a short decision."""
    return (_unit(result.records),) if result.records else ()


def _unit(records: tuple[VersionedRecord, ...]) -> Unit:
    return Unit(tuple([one.value for one in records]), records)
