"""A broker's registration and heartbeats, from its start to its shutdown (Kafka: `BrokerLifecycleManager`)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kraft.broker.settings import BrokerSettings
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_EPOCH, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from transport.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

CATCH_UP_INTERVAL_MS: Final = 10
"""The interval of heartbeats until the broker has caught up; shorter than the usual one."""
SECOND_SHUTDOWN_HEARTBEAT_MS: Final = 50
ANOTHER_CONTROLLER_MS: Final = 100
"""The delay before the next search for the active controller (`NodeToControllerChannelManager`)."""
PREDECESSOR_MS: Final = 250
"""The delay before the next registration while the session of the former incarnation lasts."""


class RegistrationFailed(MetadataLogError):
    """The controllers did not register the broker within `initial.broker.registration.timeout.ms`."""


class NoLogDirectory(MetadataLogError):
    """Every log directory of the broker has failed (Kafka: `LogManager.handleLogDirFailure` halts the process)."""


class LifecycleState(Enum):
    """The state of a broker (`BrokerState`)."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class BrokerLifecycle:
    """One run of one broker. `request_due` returns the next request, `on_answer` takes its answer.

    At most one request is outstanding. A request without an active controller is repeated after a moment.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.state = LifecycleState.NOT_RUNNING
        self.epoch = NO_EPOCH
        """The broker epoch of this incarnation, -1 until it is registered."""
        self.is_fenced = True
        """Whether the broker is fenced, by the answer to its last heartbeat."""
        self.last_error = Error.NONE
        self._is_registered = False
        """Whether the registration has been answered; a repeated registration keeps the epoch."""
        self._offline: tuple[Uuid, ...] = ()
        self._cordoned: frozenset[Uuid] | None = None
        self._next_ms = NEVER_MS
        self._give_up_ms = NEVER_MS
        self._in_flight = False
        self._again_at_once = False
        """Whether something happened during an outstanding request that the next one must report at once."""
        self._shutdown_was_refused = False
        self._is_leaving = False

    # Events

    def begin(self, now_ms: int) -> None:
        """Start: register."""
        assert self.state is LifecycleState.NOT_RUNNING, self.state
        self.state = LifecycleState.STARTING
        self._next_ms = now_ms
        self._give_up_ms = now_ms + self._settings.options.initial_registration_timeout_ms

    def begin_shutdown(self, now_ms: int) -> None:
        """Stop: by a controlled shutdown if the broker is running and the configuration enables that."""
        if self.state is LifecycleState.RUNNING and self._settings.options.controlled_shutdown:
            self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
            self._communicate_at_once(now_ms)
        elif self.state is not LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            self._stop()

    def fail_directory(self, directory: Uuid, now_ms: int) -> None:
        """Fail a log directory for good; every later heartbeat reports the failure."""
        if directory not in self._offline:
            self._offline = (*self._offline, directory)
            self._communicate_at_once(now_ms)

    def cordon(self, directories: frozenset[Uuid] | None, now_ms: int) -> None:
        """The directories that take no new replicas; None below the level that knows them.

        A change of the directories is reported at once, one of the level with the next heartbeat
        (`propagateDirectoryCordoned`).
        """
        before, self._cordoned = self._cordoned, directories
        if directories != before and None not in (directories, before):
            self._communicate_at_once(now_ms)

    def ask_to_be_fenced(self, now_ms: int) -> None:
        """Lead nothing any more: the next heartbeat asks for that, and the broker ends after it."""
        self._is_leaving = True
        self._communicate_at_once(now_ms)

    def on_loaded(self, now_ms: int) -> None:
        """The logs are open: the broker asks to be unfenced at once."""
        self._communicate_at_once(now_ms)

    def register_again(self, now_ms: int) -> None:
        """Repeat the registration with new properties; the epoch stays."""
        if self._is_registered:
            self._communicate_at_once(now_ms)
            self._is_registered = False

    def _communicate_at_once(self, now_ms: int) -> None:
        if self._in_flight:
            self._again_at_once = True
        elif self._is_registered:
            self._next_ms = now_ms

    def _stop(self) -> None:
        self.state = LifecycleState.SHUTTING_DOWN
        self._next_ms = self._give_up_ms = NEVER_MS

    # Requests and answers

    def deadline_ms(self) -> int:
        """When the next `request_due` is due."""
        return min(self._next_ms, self._give_up_ms)

    def request_due(self, metadata_offset: int, now_ms: int, *, is_loading: bool = False) -> Message | None:
        """The due request, if any; the caller passes exactly one answer to `on_answer`.

        `metadata_offset` is the offset of the last replayed record. While the logs are loading the broker stays fenced.
        Raises `RegistrationFailed`.
        """
        if now_ms >= self._give_up_ms:
            options = self._settings.options
            raise RegistrationFailed(
                f"the broker could not register in {options.initial_registration_timeout_ms} ms;"
                f" the last answer was {self.last_error.name}",
                hint="Is a majority of the controllers running, and reachable as controller.quorum.voters says?",
            )
        if now_ms < self._next_ms:
            return None
        self._next_ms = NEVER_MS
        self._in_flight = True
        return self._heartbeat(metadata_offset, is_loading) if self._is_registered else self._registration()

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._settings
        return BrokerRegistrationRequest(
            broker_id=settings.broker_id,
            cluster_id=settings.cluster_id,
            incarnation_id=settings.incarnation_id,
            listeners=[
                Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in settings.listeners
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in settings.features
            ],
            rack=settings.options.rack,
            log_dirs=sorted(one for one in settings.options.directories if one not in self._offline),
            previous_broker_epoch=settings.options.previous_epoch,
        )

    def _heartbeat(self, metadata_offset: int, is_loading: bool) -> BrokerHeartbeatRequest:
        knows_cordoned = self._cordoned is not None and self.state is not LifecycleState.STARTING
        return BrokerHeartbeatRequest(
            broker_id=self._settings.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=metadata_offset,
            want_fence=is_loading or self._is_leaving or self.state is LifecycleState.STARTING,
            want_shut_down=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=sorted(self._cordoned or ()) if knows_cordoned else None,
        )

    def on_answer(self, response: Message | None, now_ms: int) -> None:
        """Process the answer of the active controller; None if the request failed."""
        self._in_flight = False
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        assert response is None or isinstance(response, BrokerRegistrationResponse | BrokerHeartbeatResponse), response
        error = Error.NOT_CONTROLLER if response is None else Error.of(response.error_code)
        self.last_error = error
        if error is Error.NOT_CONTROLLER:
            self._next_ms = now_ms + ANOTHER_CONTROLLER_MS
        elif error is not Error.NONE:
            self._again_at_once = False
            pause_ms = self._settings.options.heartbeat_interval_ms
            is_early = error is Error.DUPLICATE_BROKER_REGISTRATION
            self._next_ms = now_ms + (min(pause_ms, PREDECESSOR_MS) if is_early else pause_ms)
        elif isinstance(response, BrokerRegistrationResponse):
            self._on_registered(response, now_ms)
        elif isinstance(response, BrokerHeartbeatResponse):
            self._on_heartbeat(response, now_ms)

    def _on_registered(self, response: BrokerRegistrationResponse, now_ms: int) -> None:
        self.epoch = response.broker_epoch
        self._is_registered = True
        self._give_up_ms = NEVER_MS
        self._next_ms = now_ms

    def _on_heartbeat(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        self.is_fenced = response.is_fenced
        pause_ms = self._settings.options.heartbeat_interval_ms
        match self.state:
            case LifecycleState.STARTING:
                if response.is_caught_up:
                    # There are no logs to recover: the next step is the request to be unfenced.
                    self.state = LifecycleState.RECOVERY
                pause_ms = CATCH_UP_INTERVAL_MS
            case LifecycleState.RECOVERY if not response.is_fenced:
                self.state = LifecycleState.RUNNING
            case LifecycleState.RECOVERY if not response.is_caught_up:
                pause_ms = CATCH_UP_INTERVAL_MS  # the logs are open before the metadata is published
            case LifecycleState.PENDING_CONTROLLED_SHUTDOWN if response.should_shut_down:
                self._stop()
                return
            case LifecycleState.PENDING_CONTROLLED_SHUTDOWN if not self._shutdown_was_refused:
                self._shutdown_was_refused = True
                pause_ms = SECOND_SHUTDOWN_HEARTBEAT_MS
        self._next_ms = now_ms if self._again_at_once else now_ms + pause_ms
        self._again_at_once = False

    @property
    def is_stopped(self) -> bool:
        """Whether the broker has given up its leaderships, or has none, and may stop."""
        return self.state is LifecycleState.SHUTTING_DOWN
