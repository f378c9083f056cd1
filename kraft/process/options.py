"""The configuration of a process: of its replica, its controller and its broker (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.config.described import DescribedSetting
from kraft.controller.decision.request_context import AdminSettings, DecisionSettings
from kraft.quorum.values import Endpoints
from kraft.replica.interface.options import ReplicaOptions


class ProcessOptions(Struct, frozen=True, kw_only=True):
    """The options of the replica, and of the parts that use it."""

    replica: ReplicaOptions
    topics: TopicDefaults = TopicDefaults()
    decisions: DecisionSettings = DecisionSettings()
    admin: AdminSettings = AdminSettings()
    own_settings: tuple[DescribedSetting, ...] = ()
    security_protocols: tuple[tuple[str, int], ...] = ()
    """Kafka's number of the security protocol of each listener; 0, for PLAINTEXT, where the listener is missing."""
    broker: Struct | None = None
    """The `BrokerOptions`, whose module only a broker loads."""
    client_endpoints: Endpoints | None = None
    """The listeners of the broker of a node with both roles; those of the replica are then the controller's."""
    survives_failures: bool = False
    """Whether an unexpected exception in one request is an answer and a log line, where that is safe."""
