"""The `QuorumController` as the application of a `Replica` (Kafka: `QuorumController.QuorumMetaLogListener`).

Between the two stands only the encoding of records: the controller thinks in records, the log in values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Final

from msgspec import structs

from kraft.controller import ControllerResult, ControllerSettings, QuorumController, VersionedRecord
from kraft.controller.apis import APIS, Read
from kraft.controller.authorizer import Denial
from kraft.controller.caller import Caller, host_of_peer
from kraft.controller.controller import NOT_ACTIVE, RECORDS_PER_BATCH
from kraft.controller.envelope import Forwarded, api_key_of, refuse_envelope, seal
from kraft.controller.features import DEFAULT_BOOTSTRAP, SUPPORTED_FEATURES
from kraft.controller.result import ApiError
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.api_versions import QUORUM_APIS
from kraft.replica.application import (
    Action,
    Ask,
    ForRequest,
    Proposal,
    Redirect,
    RefuseSubmit,
    Respond,
    Unit,
)
from kraft.replica.events import Call, CancelCall, Committed, CommittedBatch, Submit, WireRequest
from kraft.replica.options import ReplicaOptions
from kraft.replica.refusals import refuse_quorum_request
from metadata_log.errors import UnsupportedVersion
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.records import records as image_records
from metadata_log.records.frame import encode_record, read_record
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, random_uuid
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


class ControllerHost:
    """Hosts one `QuorumController`."""

    apis: tuple[ApiKey, ...] = QuorumController.apis
    reads_batches = True

    def __init__(self, controller: QuorumController) -> None:
        self.controller = controller

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> None:
        """Decode them; an unknown type, and a version that cannot be read, are refused as in `decode_records`."""
        for _ in decode_records(values):
            pass

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Each record was decoded."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Begin with the image that a snapshot holds."""
        self.controller.load_snapshot(decode_records(values, f"snapshot {end}"), end)

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """A batch of this controller's own makes a remembered image the committed one; any other is replayed."""
        history = self.controller.history
        if batch.next_offset <= history.latest.end.offset:
            self.controller.on_committed(batch.next_offset)
        else:
            end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
            records = decode_records(batch.values, f"batch at offset {batch.base_offset}")
            self.controller.on_committed_elsewhere(records, batch.base_offset, end)
        return ()

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Activate the controller; the records of its activation come before anything else it writes."""
        result = self.controller.activate(epoch, next_offset, now_ms)
        return (Proposal(_units(result)),) if result.records else ()

    def on_lost_leadership(self) -> None:
        """Renounce."""
        self.controller.renounce()

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Replay at append time, so that the next decision sees it."""
        self.controller.on_appended(unit.records, base_offset)

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """Decide; an answer to a write waits until everything it rests on is committed."""
        message, caller = request.message, _caller(request)
        if isinstance(message, EnvelopeRequest) and api_key_of(message) in QUORUM_APIS:
            return self._pass_on(request, message, caller)
        result = self.controller.handle(message, request.version, leader.leader_id, now_ms, caller)
        assert result.response is not None, message
        if self._answers_at_once(request):
            return Respond(request.request_id, result.response)
        return Proposal(_units(result), ForRequest(request.request_id, message, result.response), result.quorum_level)

    def _answers_at_once(self, request: WireRequest) -> bool:
        """Whether a request never waits for a commit."""
        return request.api_key in _READS or self.controller.active_epoch == NOT_ACTIVE

    def on_full(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """Decide nothing, as Kafka where a request was in its queue for too long. A broker was heard all the same."""
        if self._answers_at_once(request):
            return self.on_request(request, leader, now_ms)
        if isinstance(request.message, BrokerHeartbeatRequest):
            self.controller.note_contact(request.message, now_ms)
        error = Error.REQUEST_TIMED_OUT
        return Respond(request.request_id, self.controller.failure(request.message, error, error.message))

    def _pass_on(self, request: WireRequest, envelope: EnvelopeRequest, caller: Caller) -> Action:
        """A client of a broker's asks the quorum itself."""
        try:
            forwarded = self.controller.opened(envelope, caller)
        except ApiError as refused:
            return Respond(request.request_id, refuse_envelope(refused.error))
        asked = structs.replace(
            request, api_key=forwarded.api_key, version=forwarded.version, message=forwarded.message
        )
        denial = self.controller.denial(ApiKey(forwarded.api_key), forwarded.caller)
        if denial is not None:
            return Respond(request.request_id, seal(forwarded, refuse_quorum_request(asked, denial)))
        return Redirect(asked, partial(_seal_answer, forwarded))

    def denial(self, request: WireRequest) -> ApiError | None:
        """What the authorizer says, if there is one; a listener without login has but one principal."""
        if self.controller.settings.admin.authorizer is None:
            return None
        return self.controller.denial(ApiKey(request.api_key), _caller(request))

    def take_denials(self) -> Sequence[Denial]:
        """What the authorizer has denied."""
        return self.controller.take_denials() if self.controller.settings.admin.authorizer else ()

    def on_caught_up(self) -> None:
        """The access rules are known from now on."""
        self.controller.on_caught_up()

    def on_submit(self, submit: Submit) -> Action:
        """Refused: only decisions of the controller go into a metadata log."""
        return RefuseSubmit(submit.submit_id, Error.INVALID_REQUEST)

    def refusal(self, request: Message, error: Error, leader: LeaderAndEpoch, text: str | None = None) -> Message:
        """The answer to a write that is not, or may not be, in the log."""
        if error == Error.NOT_LEADER_OR_FOLLOWER:
            return self.controller.not_controller(request, leader.leader_id)
        return self.controller.failure(request, error, text or error.message)

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """The committed image, unless a transaction is open in it."""
        image = self.controller.history.committed
        return None if image is not image.stable else lambda: encode_image(image)

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The levels in the committed image, and since when; the oldest metadata.version while there are none."""
        return published_features(self.controller.history.committed.stable)

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """What this software knows."""
        return SUPPORTED_FEATURES

    def deadline_ms(self) -> int:
        """When timed work is due."""
        return self.controller.deadline_ms()

    def on_tick(self, now_ms: int) -> tuple[Action, ...]:
        """Do timed work that is due."""
        written = tuple(Proposal(_units(result)) for result in self.controller.on_tick(now_ms) if result.records)
        request = self.controller.registration_due(now_ms)
        return written if request is None else (*written, self._register(request, now_ms))

    def _register(self, request: ControllerRegistrationRequest, now_ms: int) -> Action:
        """Ask the active controller; if that is this one, decide at once."""
        if not self.controller.is_active:
            return Ask(request)
        return Proposal(_units(self.controller.handle_own(request, now_ms)))

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """Never called: a controller is asked over the wire."""
        raise AssertionError("a controller is asked over the wire")

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Never called: what a controller answers to reads is the metadata as it knows it, as in Kafka."""
        raise AssertionError("a controller does not ask whether it leads")

    def on_answer(self, token: int, response: Message | None, now_ms: int) -> None:
        """The active controller has taken note of this one, or not."""
        self.controller.on_registration_answer(response, now_ms)

    def on_begin_shutdown(self, now_ms: int) -> None:
        """Leadership is handed over by the quorum."""

    @property
    def may_stop(self) -> bool:
        """At any time."""
        return True

    def fork(self) -> ControllerHost:
        """An independent copy."""
        return ControllerHost(self.controller.fork())

    def facts(self) -> tuple[object, ...]:
        """What tells this from another with the same log."""
        return self.controller.facts()


def _caller(request: WireRequest) -> Caller:
    return Caller(host=host_of_peer(request.peer))


def _seal_answer(forwarded: Forwarded, response: Message) -> Message:
    """The answer to a client who asks the quorum, or to the broker, if that has to ask somebody else."""
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


_NO_LEVELS: Final = ((METADATA_VERSION, 7),)
_READS: Final = frozenset(
    (ApiKey.DESCRIBE_CLUSTER, *(api.key for api in APIS.values() if isinstance(api, Read))),
)


def host_controller(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> ControllerHost:
    """The factory of a controller."""
    voters = tuple(
        (voter.id, address.host, address.port)
        for voter in options.voters.voters
        if (address := voter.endpoints.default) is not None
    )
    settings = ControllerSettings(
        cluster_id=cluster_id,
        node_id=options.node_id,
        incarnation_id=random_uuid(rng),
        listeners=tuple((one.name, one.host, one.port) for one in options.endpoints.listeners),
        listener=options.listener,
        voters=voters,
        max_idle_interval_ms=options.max_idle_interval_ms,
        min_insync_replicas=options.min_insync_replicas,
        bootstrap=bootstrap or DEFAULT_BOOTSTRAP,
        decisions=options.decisions,
        admin=options.admin,
        own_settings=options.own_settings,
    )
    return ControllerHost(QuorumController(settings))


def _units(result: ControllerResult) -> tuple[Unit, ...]:
    records = result.records
    if not records:
        return ()
    if result.is_atomic or len(records) <= RECORDS_PER_BATCH:
        return (_unit(records),)
    return tuple(_unit(records[at : at + RECORDS_PER_BATCH]) for at in range(0, len(records), RECORDS_PER_BATCH))


def _unit(records: tuple[VersionedRecord, ...]) -> Unit:
    return Unit(tuple([encode_record(one.record, one.version) for one in records]), records)


def published_features(image: MetadataImage) -> tuple[tuple[tuple[str, int], ...], int]:
    """The levels in an image, and since when; the oldest metadata.version while there are none."""
    return image.features.all_levels() or _NO_LEVELS, image.features_offset


def encode_image(image: MetadataImage) -> Iterator[bytes]:
    """The record values that make an image."""
    return (encode_record(record, version) for record, version in image_records(image))


def decode_records(values: Iterable[bytes], where: str | None = None) -> Iterable[Message]:
    """The records of values. An unknown type is fatal, as replaying without it would make another state (KIP-631)."""
    for value in values:
        _, version, name, record = read_record(value, where=where)
        if record is None:
            raise UnsupportedVersion(f"{name} version {version} cannot be read", where=where)
        yield record
