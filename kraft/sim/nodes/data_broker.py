"""A simulated broker with data: `ReplicaManager` and `Requests` on the disk of the node."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec.structs import replace

from kraft.broker import BrokerAgent
from kraft.broker.opening import ServingOptions
from kraft.broker.server import BrokerServer
from kraft.config.group_settings import (
    ASSIGNORS,
    ConsumerGroupConfig,
    GroupConfig,
    ShareGroupConfig,
    ShareLeaderConfig,
)
from kraft.config.share_coordinator_settings import ShareCoordinatorConfig
from kraft.config.transaction_settings import TransactionConfig
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.partitions.replicas.settings import ReplicationSettings
from kraft.process.hosting import host_serving_broker
from kraft.process.parts import ApplicationFactory
from kraft.sim.nodes.late_writer import LateWriter
from kraft.sim.nodes.node_disk import DIRECTORY
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import Output
from kraft.wire import Answer, WireClosed, WireGone, WireRequest
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.messages.fetch import FetchRequest, FetchResponse
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from transport.protocol.messages.share_fetch import ShareFetchRequest

LOG_DIRS: Final = (DIRECTORY, "/data")
"""The log directories. The first one has the metadata log, too."""
FOREVER: Final = str(2**62)
"""Clocks are wrong by many days in some runs: no limit may depend on the time of a record."""


_FORGETS: Final = 0.2
"""How many of the runs with coordinators forget offsets."""


def forgets(seed: int) -> bool:
    """Whether the coordinators of a run forget the offsets of groups as soon as nobody wants them."""
    return Random(f"{seed}/forgets").random() < _FORGETS


class DataSpec:
    """The settings of the brokers with data of one run, drawn from its seed."""

    def __init__(
        self,
        seed: int,
        lag_ms: int,
        fetch_ms: int,
        *,
        has_small_logs: bool = False,
        coordinating: int = 0,
        has_shares: bool = False,
    ) -> None:
        """Draw the settings. `coordinating` is the number of brokers that coordinate groups and transactions; with
        `has_shares` these are share groups, and nobody has transactions.
        """
        rng = Random(f"{seed}/data")
        self._lag_ms, self._fetch_ms = lag_ms, fetch_ms
        self.flush_messages: int | None = rng.choice((None, None, 1, 1, 3))
        """The setting `flush.messages`: by default no append waits for the disk."""
        self._segment_bytes = rng.choice((1200, 4000, 1 << 20))
        self._fetch_max_bytes = rng.choice((1, 300, 1 << 20))
        self._response_max_bytes = rng.choice((300, 10 << 20))
        self._watermark_checkpoint_ms = rng.choice((100, 1000, 5000))
        self._offset_checkpoint_ms = rng.choice((300, 3000))
        later = Random(f"{seed}/data-retention")
        self._retention_bytes = later.choice((None, None, None, 2500)) if self._segment_bytes <= 4000 else None
        """The setting `log.retention.bytes`: it deletes whole segments below the high watermark."""
        self._retention_check_ms = 500
        self._move_bytes: int | None = None
        self._cleaner_backoff_ms = 15_000
        if has_small_logs:
            small = Random(f"{seed}/small-logs")
            self._segment_bytes, self._fetch_max_bytes = 1200, 1
            self._retention_bytes = small.choice((None, 1300))
            self._retention_check_ms = self._cleaner_backoff_ms = 100
            self._move_bytes = small.choice((500, 3000))
        # The producers of other runs end their transactions themselves.
        self._requests = RequestSettings(broker_id=-1, request_timeout_ms=2000, verifies_transactions=False)
        # The ledgers of coordinators read whole logs, but for those that are cleaned all the time.
        self._has_cleaner = not coordinating or has_small_logs
        if coordinating:
            # By default no append waits for the disk: a power failure takes what one replica has not flushed. What all
            # of them lose at once, no coordinator can promise.
            self.flush_messages = Random(f"{seed}/coordinator-flushes").choice((None, 1, 1, 1))
            self._retention_bytes = None
            self._requests = _coordinating(Random(f"{seed}/coordinator-settings"), coordinating)
            if has_shares:
                self._requests = _sharing(Random(f"{seed}/share-settings"), coordinating)
            elif forgets(seed):
                # Clocks are wrong by days: what may be forgotten is so at the next look, whenever it was committed.
                groups = replace(self._requests.groups, retention_minutes=0, retention_check_ms=500)
                self._requests = replace(self._requests, groups=groups)

    @property
    def shares(self) -> ShareLeaderConfig:
        """The limits of share groups."""
        return self._requests.groups.share_leader

    def serving(self, broker_id: int, directories: int) -> ServingOptions:
        """The settings of one broker."""
        static = {
            "log.segment.bytes": str(self._segment_bytes),
            "log.index.interval.bytes": "200",
            "log.retention.ms": "-1",
            "log.message.timestamp.after.max.ms": FOREVER,
            "producer.id.expiration.ms": FOREVER,
            "log.cleaner.min.cleanable.ratio": "0.01",
        }
        if self._retention_bytes is not None:
            static["log.retention.bytes"] = str(self._retention_bytes)
        if self.flush_messages is not None:
            static["log.flush.interval.messages"] = str(self.flush_messages)
        return ServingOptions(
            log_dirs=LOG_DIRS[:directories],
            data=DataSettings(
                broker_id=broker_id,
                directories=(),
                static=static,
                replication=ReplicationSettings(
                    lag_time_max_ms=self._lag_ms,
                    fetch_wait_max_ms=self._fetch_ms,
                    fetch_max_bytes=self._fetch_max_bytes,
                    fetch_response_max_bytes=self._response_max_bytes,
                    fetch_backoff_ms=self._fetch_ms,
                ),
                watermark_checkpoint_ms=self._watermark_checkpoint_ms,
                offset_checkpoint_ms=self._offset_checkpoint_ms,
                retention_check_ms=self._retention_check_ms,
                has_cleaner=self._has_cleaner,
                cleaner_backoff_ms=self._cleaner_backoff_ms,
                move_bytes_per_second=self._move_bytes,
                file_delete_delay_ms=1000,
                initial_task_delay_ms=500,
            ),
            requests=replace(self._requests, broker_id=broker_id),
        )


def _coordinating(rng: Random, brokers: int) -> RequestSettings:
    """The settings of brokers that coordinate: few partitions, and times that fit into a run."""
    return RequestSettings(
        broker_id=-1,
        request_timeout_ms=2000,
        groups=GroupConfig(
            topic_partitions=2,
            topic_replication_factor=brokers,
            commit_timeout_ms=rng.choice((500, 2000, 5000)),
            retention_minutes=2**40,
            min_session_timeout_ms=100,
            initial_rebalance_delay_ms=rng.choice((0, 0, 300)),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=rng.choice((1500, 3000)),
                heartbeat_interval_ms=300,
                assignment_interval_ms=rng.choice((0, 200)),
                assignors=rng.choice((ASSIGNORS, tuple(reversed(ASSIGNORS)))),
            ),
        ),
        transactions=TransactionConfig(
            topic_partitions=2,
            topic_replication_factor=brokers,
            topic_min_isr=min(brokers, rng.choice((1, 2))),
            abort_interval_ms=rng.choice((200, 1000)),
            expiry_ms=NEVER_MS,
        ),
    )


def _sharing(rng: Random, brokers: int) -> RequestSettings:
    """The settings of brokers with share groups, of which each record is judged."""
    return RequestSettings(
        broker_id=-1,
        request_timeout_ms=2000,
        groups=GroupConfig(
            topic_partitions=2,
            topic_replication_factor=brokers,
            commit_timeout_ms=rng.choice((500, 2000, 5000)),
            retention_minutes=2**40,
            share=ShareGroupConfig(
                session_timeout_ms=rng.choice((1500, 3000)),
                heartbeat_interval_ms=300,
                assignment_interval_ms=rng.choice((0, 200)),
                initialize_retry_ms=rng.choice((500, 2000)),
            ),
            share_leader=ShareLeaderConfig(
                delivery_count_limit=rng.choice((2, 3, 5)),
                lock_duration_ms=rng.choice((700, 1500)),
                max_record_locks=rng.choice((10, 40, 200)),
            ),
        ),
        share_states=ShareCoordinatorConfig(
            topic_partitions=2,
            topic_replication_factor=brokers,
            topic_min_isr=min(brokers, rng.choice((1, 2))),
            updates_per_snapshot=rng.choice((0, 3, 10, 100)),
            write_timeout_ms=rng.choice((500, 2000, 5000)),
            prune_interval_ms=rng.choice((400, 3000)),
            cold_interval_ms=rng.choice((600, 3000)),
        ),
    )


class DataBroker(ReplicaMember):
    """A `ReplicaMember` that hosts a broker with data."""

    def __init__(
        self, node_id: int, *, serving: ServingOptions, has_late_checkpoints: bool = False, **given: Any
    ) -> None:
        super().__init__(node_id, **given)
        self._has_late_checkpoints = has_late_checkpoints
        self._serving = serving
        self._log_dirs = serving.log_dirs
        self._asking: FetchRequest | None = None
        self._told: list[FetchResponse] = []
        self._followers: dict[int, None] = {}
        """The requests of followers that wait for their answers."""
        self._of_clients: dict[int, str] = {}
        """The requests of clients with connections of their own that wait for their answers, with the addresses."""
        self._hung_up: list[str] = []

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The paths of the log directories."""
        return self._log_dirs

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""
        files, broker = self.disk.files, self._broker
        assert broker is not None, self.node_id
        paths = zip(broker.directories, self._log_dirs, strict=True)
        clean = tuple(one for one, path in paths if files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"))
        self._broker = replace(broker, clean_directories=clean)
        self._application = self._host()
        outputs = super().start(rng, now_ms)
        if self._has_late_checkpoints and self.manager is not None:
            self.manager.hosting.store.writer = LateWriter(files)
        return outputs

    def crash(self, rng: Random) -> None:
        """Crash the node, with loss of any data not fsynced."""
        super().crash(rng)
        self._asking = None
        self._told.clear()
        self._followers.clear()
        self._of_clients.clear()
        self._hung_up.clear()

    def _listener_of(self, api_key: int, message: Message) -> str:
        """The listener of a broker, at which clients find coordinators."""
        return self._options.replica.endpoints.listeners[0].name

    def _asked(self, request: WireRequest, now_ms: int) -> None:
        super()._asked(request, now_ms)
        message = request.message
        if type(message) is FetchRequest and message.replica_state.replica_id >= 0 and not is_of_quorum(message):
            self._asking = message
            self._followers[request.request_id] = None
        elif request.peer:
            self._of_clients[request.request_id] = request.peer

    def _answered(self, output: Answer) -> Output:
        if output.request_id in self._followers:
            del self._followers[output.request_id]
            assert isinstance(output.message, FetchResponse), output
            self._told.append(output.message)
        self._of_clients.pop(output.request_id, None)
        return super()._answered(output)

    def _peer_of(self, message: Message) -> str:
        """Each member of a share group has a connection of its own."""
        return message.member_id or "" if isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest) else ""

    def hang_up(self, peer: str, now_ms: int) -> list[Output]:
        """The connection of a member of a share group ends."""
        self._hung_up.append(peer)
        outputs: list[Output] = []
        for request_id in [one for one, of in self._of_clients.items() if of == peer]:
            del self._of_clients[request_id]
            outputs += self.step(WireGone(request_id), now_ms)
        return outputs + self.step(WireClosed(self._options.replica.endpoints.listeners[0].name, peer), now_ms)

    def take_hung_up(self) -> list[str]:
        """The addresses of the clients whose connections have ended since the last call."""
        if not self._hung_up:
            return self._hung_up
        hung_up, self._hung_up = self._hung_up, []
        return hung_up

    def take_asking(self) -> FetchRequest | None:
        """The Fetch of a follower that has arrived in the last step."""
        asking, self._asking = self._asking, None
        return asking

    def take_told(self) -> list[FetchResponse]:
        """The answers to followers since the last call."""
        if not self._told:
            return self._told
        told, self._told = self._told, []
        return told

    def _host(self) -> ApplicationFactory:
        return host_serving_broker(self.disk.files, self._serving)

    def _leave_cleanly(self, agent: BrokerAgent) -> None:
        broker = self.broker
        assert isinstance(broker, BrokerServer), self.node_id
        broker.close_data()

    @property
    def manager(self) -> ReplicaManager | None:
        """The replicas of the running broker; None while the broker is down."""
        broker = self.broker
        if broker is None:
            return None
        replicas = broker.agent.replicas
        assert isinstance(replicas, ReplicaManager), replicas
        return replicas


def is_of_quorum(fetch: FetchRequest) -> bool:
    """Whether a Fetch is for the metadata log. An incremental Fetch of records may name no topic."""
    return any(topic.topic_id == Uuid.METADATA_TOPIC for topic in fetch.topics)
