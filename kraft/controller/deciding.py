"""What a decision on a request sees of the cluster and of the controller (Kafka: `ControllerRequestContext`)."""

from __future__ import annotations

from random import Random

from msgspec import Struct

from kraft.controller.heartbeats import BrokerSessions
from kraft.controller.topic_configs import TopicDefaults
from metadata_log.image import MetadataImage


class Deciding(Struct, frozen=True, kw_only=True):
    """One request's view. Nothing in it is changed by a decision but `sessions`, by its own methods, and `rng`.

    `image` holds what is not committed, too: a write is decided on it. `committed` is what a read answers from. The
    first record of the decision will stand at `next_offset`; `version` is that of the request,
    which is `forwarded` if a broker has passed it on for a client.
    """

    image: MetadataImage
    committed: MetadataImage
    next_offset: int
    version: int
    now_ms: int
    rng: Random
    cluster_id: str
    defaults: TopicDefaults
    sessions: BrokerSessions
    forwarded: bool = False
