"""What a decision on a request sees of the cluster and of the controller (Kafka: `ControllerRequestContext`)."""

from __future__ import annotations

from random import Random

from msgspec import Struct

from kraft.config.described import DescribedSetting, Secret
from kraft.controller.authorizer import CLUSTER_NAME, AclOperation, AclResource, Authorizer, AuthorizerSettings, Denial
from kraft.controller.caller import Caller
from kraft.controller.heartbeats import BrokerSessions
from kraft.controller.topic_configs import TopicDefaults
from metadata_log.image import MetadataImage


class AdminSettings(Struct, frozen=True, kw_only=True):
    """Which administration is configured: delegation tokens need a secret to be derived from."""

    authorizer: AuthorizerSettings | None = None
    """Without it everybody may do everything, and there are no ACLs."""
    token_secret: Secret | None = None
    token_max_lifetime_ms: int = 604_800_000
    token_expiry_time_ms: int = 86_400_000
    token_check_interval_ms: int = 3_600_000


class DecisionSettings(Struct, frozen=True, kw_only=True):
    """What a node's configuration says of topics, elections and sessions; an interval of 0 means never."""

    broker_session_timeout_ms: int = 9000
    unclean_election: bool = False
    unclean_election_interval_ms: int = 300_000
    leader_rebalance_interval_ms: int = 300_000
    leader_imbalance_percentage: int = 0
    num_partitions: int = 1
    default_replication_factor: int = 1


class Deciding(Struct, frozen=True, kw_only=True):
    """One request's view. A decision changes nothing in it but `sessions`, by its own methods, `rng` and `denials`.

    `image` holds what is not committed, too: a write is decided on it. `committed` is what a read answers from. The
    first record of the decision will stand at `next_offset`; `version` is that of the request,
    which is `forwarded` if a broker has passed it on for a client. `voters` are the ids of the quorum.
    `own_settings` is the configuration of this node. Without an `authorizer` everything is allowed.
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
    voters: tuple[int, ...] = ()
    own_settings: tuple[DescribedSetting, ...] = ()
    admin: AdminSettings = AdminSettings()
    caller: Caller = Caller()
    forwarded: bool = False
    authorizer: Authorizer | None = None
    denials: list[Denial] = []
    """What was not allowed, for whoever keeps a log of it."""

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, is_asked: bool = True
    ) -> bool:
        """Whether the caller may do this; unless it `is_asked` for, a no is nothing to tell of.

        Raises `ApiError` while that is not known.
        """
        if self.authorizer is None:
            return True
        verdict = self.authorizer.authorize(self.caller, operation, resource, name)
        if is_asked and not verdict.is_allowed:
            self.denials.append(Denial(self.caller, operation, resource, name, str(verdict)))
        return verdict.is_allowed
