"""The active controller and its standbys: image history, activation, decisions on requests (Kafka: `QuorumController`).

Nothing here appends: decisions are returned as records, and the state follows them only when they are replayed, at once
on the active controller and after their commit on a standby.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from kraft.controller.cluster import describe_cluster
from kraft.controller.configs import incremental_alter_configs, refusal
from kraft.controller.features import DEFAULT_BOOTSTRAP, activation, check_supported
from kraft.controller.periodic import NO_OP, Periodic
from kraft.controller.registration import Registrar, register_controller
from kraft.controller.result import ApiError, ControllerResult, VersionedRecord
from metadata_log.image import ImageHistory, MetadataDelta, MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, OffsetAndEpoch, Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    DescribeClusterRequest,
    IncrementalAlterConfigsRequest,
)

RECORDS_PER_BATCH: Final = 10_000
"""Results that are not atomic are cut into batches of this many records (`MAX_RECORDS_PER_BATCH`)."""
NOT_ACTIVE: Final = -1


class ControllerSettings(Struct, frozen=True, kw_only=True):
    """The settings that decisions depend on.

    `voters` are (id, host, port) by id, as the configuration names them; `listeners` are (name, host, port), as this
    node advertises them; `incarnation_id` is drawn anew at each start.
    """

    cluster_id: str
    node_id: int
    incarnation_id: Uuid
    listeners: tuple[tuple[str, str, int], ...]
    listener: str
    voters: tuple[tuple[int, str, int], ...]
    max_idle_interval_ms: int = 500
    min_insync_replicas: int = 1
    bootstrap: tuple[Message, ...] = DEFAULT_BOOTSTRAP


class QuorumController:
    """The controller of one node; active only in the epochs that its node leads."""

    apis: Final = (ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CLUSTER, ApiKey.CONTROLLER_REGISTRATION)

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.history = ImageHistory(MetadataImage())
        self.active_epoch = NOT_ACTIVE
        self._periodic = Periodic(settings.max_idle_interval_ms)
        self._registrar = Registrar(settings.node_id, settings.incarnation_id, settings.listeners)

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self.active_epoch != NOT_ACTIVE

    # Replay

    def replay(
        self, records: Iterable[Message], base_offset: int, end: OffsetAndEpoch, *, is_snapshot: bool = False
    ) -> MetadataImage:
        """The latest image with these records on it; raises `MetadataLogError` where they contradict it."""
        latest = self.history.latest
        delta = MetadataDelta(latest, is_snapshot=is_snapshot)
        for offset, record in enumerate(records, base_offset):
            delta.replay(record, offset)
        image = delta.apply(end)
        if image.features is not latest.features:
            check_supported(image.features)
        return image

    def load_snapshot(self, records: Iterable[Message], end: OffsetAndEpoch) -> None:
        """Forget everything and begin with the records of a snapshot."""
        assert not self.is_active, "the active controller never loads a snapshot"
        self.history = ImageHistory(MetadataImage())
        self.history.replayed(self.replay(records, 0, end, is_snapshot=True))
        self._registrar.look_at(self.history.committed.stable)

    def on_appended(self, records: Sequence[VersionedRecord], base_offset: int) -> None:
        """One batch of this active controller's own records has its offsets."""
        end = OffsetAndEpoch(epoch=self.active_epoch, offset=base_offset + len(records))
        self.history.appended(self.replay((one.record for one in records), base_offset, end))

    def on_committed(self, next_offset: int) -> None:
        """One batch of this active controller's own records is committed."""
        self.history.commit(next_offset)
        self._registrar.look_at(self.history.committed.stable)

    def on_committed_elsewhere(self, records: Iterable[Message], base_offset: int, end: OffsetAndEpoch) -> None:
        """A committed batch that this controller did not write, or no longer remembers."""
        self.history.replayed(self.replay(records, base_offset, end))
        self._registrar.look_at(self.history.committed.stable)

    # Leadership

    def activate(self, epoch: int, now_ms: int) -> ControllerResult:
        """Become active: everything before this epoch is committed and replayed. Returns what to write first."""
        assert not self.is_active, (self.active_epoch, epoch)
        self.active_epoch = epoch
        self._periodic.arm(now_ms)
        return activation(self.history.latest, self.settings.bootstrap, self.settings.min_insync_replicas)

    def renounce(self) -> None:
        """Stop deciding, and forget what is not committed: it may be lost."""
        self.active_epoch = NOT_ACTIVE
        self._periodic.disarm()
        self.history.rollback()
        self._registrar.retry()

    # Decisions

    def handle(self, request: Message, version: int, leader_id: int) -> ControllerResult:
        """Decide on a request; `leader_id` is who leads the quorum as far as this node knows, or -1."""
        match request:
            case IncrementalAlterConfigsRequest():
                if not request.resources:
                    return incremental_alter_configs(self.history.latest.configs, request)
                if not self.is_active:
                    return ControllerResult(response=self.not_controller(request, leader_id))
                return incremental_alter_configs(self.history.latest.configs, request)
            case ControllerRegistrationRequest():
                if not self.is_active:
                    return ControllerResult(response=self.not_controller(request, leader_id))
                return self._register(request)
            case DescribeClusterRequest():
                settings = self.settings
                response = describe_cluster(
                    self.history.committed.stable,
                    request,
                    version=version,
                    cluster_id=settings.cluster_id,
                    leader_id=leader_id,
                    listener=settings.listener,
                    voters=settings.voters,
                )
                return ControllerResult(response=response)
            case _:
                raise AssertionError(f"{type(request).__name__} is not served by the controller")

    def _register(self, request: ControllerRegistrationRequest) -> ControllerResult:
        try:
            return register_controller(self.history.latest, request)
        except ApiError as refused:
            return ControllerResult(response=self.failure(request, refused.error, str(refused)))

    def not_controller(self, request: Message, leader_id: int) -> Message:
        """The answer to a write that this node cannot decide on, or whose records may be lost."""
        text = "No controller appears to be active."
        if leader_id != NO_NODE:
            text = f"The active controller appears to be node {leader_id}."
        return self.failure(request, Error.NOT_CONTROLLER, text)

    def failure(self, request: Message, error: Error, text: str) -> Message:
        """The answer to a write that fails as a whole."""
        match request:
            case IncrementalAlterConfigsRequest():
                return refusal(request, error, text)
            case ControllerRegistrationRequest():
                return ControllerRegistrationResponse(error_code=error, error_message=text)
            case _:
                raise AssertionError(f"{type(request).__name__} is not a write")

    # Time

    def deadline_ms(self) -> int:
        """When `on_tick` or `registration_due` is wanted."""
        return min(self._periodic.deadline_ms, self._registrar.deadline_ms)

    def on_tick(self, now_ms: int) -> ControllerResult | None:
        """Do timed work that is due."""
        if now_ms < self._periodic.deadline_ms:
            return None
        self._periodic.arm(now_ms)
        return NO_OP

    def registration_due(self, now_ms: int) -> ControllerRegistrationRequest | None:
        """What to ask the active controller, be it this one, if it is time; `on_registration_answer` is to follow."""
        return self._registrar.request_due(now_ms)

    def on_registration_answer(self, response: Message | None, now_ms: int) -> None:
        """The active controller's answer, or None if there will be none."""
        accepted = isinstance(response, ControllerRegistrationResponse) and response.error_code == Error.NONE
        self._registrar.answered(accepted=accepted, now_ms=now_ms)

    # Exploration

    def fork(self) -> QuorumController:
        """An independent copy; images are shared, as they never change."""
        copy = QuorumController(self.settings)
        copy.history = self.history.fork()
        copy.active_epoch = self.active_epoch
        copy._periodic = self._periodic.fork()
        copy._registrar = self._registrar.fork()
        return copy

    def facts(self) -> tuple[object, ...]:
        """What tells this from another that has seen the same log: the images follow from the log and these offsets."""
        return (
            self.active_epoch,
            self._periodic.deadline_ms,
            self._registrar.facts(),
            self.history.latest.end,
            self.history.committed.end,
        )
