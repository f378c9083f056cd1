"""`ControllerSettings`: what the decisions of one controller depend on, beside the metadata."""

from __future__ import annotations

from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.config.described import DescribedSetting
from kraft.controller.decision.request_context import AdminSettings, DecisionSettings
from metadata_log.serde import Message
from metadata_log.types import Uuid


class ControllerSettings(Struct, frozen=True, kw_only=True):
    """The settings that decisions depend on. Times are milliseconds."""

    cluster_id: str
    node_id: int
    incarnation_id: Uuid
    """Random, and new at each start."""
    listeners: tuple[tuple[str, str, int], ...]
    """The advertised listeners of this node: name, host and port."""
    listener: str
    """The name of the listener for requests between controllers."""
    security_protocols: tuple[tuple[str, int], ...] = ()
    """Kafka's number of the security protocol of each listener that is not in the clear."""
    voters: tuple[tuple[int, str, int], ...]
    """The configured voters: id, host and port, ordered by id."""
    bootstrap: tuple[Message, ...]
    """The first records of a new cluster."""
    topics: TopicDefaults = TopicDefaults()
    decisions: DecisionSettings = DecisionSettings()
    admin: AdminSettings = AdminSettings()
    own_settings: tuple[DescribedSetting, ...] = ()
