"""The context of a decision on a request (Kafka: `ControllerRequestContext`)."""

from __future__ import annotations

from random import Random
from typing import Annotated, Final

from msgspec import Struct, field

from kraft.access.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    AclResource,
    Authorizer,
    AuthorizerSettings,
    Denial,
    authorizer_of,
)
from kraft.access.caller import Caller
from kraft.access.older_node import Audited
from kraft.access.tokens import TokenSettings
from kraft.config.data_settings import TopicDefaults
from kraft.config.described import DescribedSetting
from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader, seconds_in_ms
from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.controller.decision.mutations import MutationQuotas, Mutations
from kraft.rates import SAMPLES, WINDOW_MS
from kraft.reads.reading import Reading
from metadata_log.image import MetadataImage

_QUOTA_WINDOW: Final = "controller.quota.window.size.seconds"


def _rebalance_interval_ms(reader: SettingsReader) -> int:
    is_on = reader.flag("auto.leader.rebalance.enable")
    return reader.whole("leader.imbalance.check.interval.seconds") * 1000 if is_on else 0


class AdminSettings(Struct, frozen=True, kw_only=True):
    """The configured administration features; delegation tokens are derived from a secret."""

    authorizer: Annotated[AuthorizerSettings | None, Key("authorizer.class.name", read=authorizer_of)] = None
    """Without an authorizer each caller may do everything, and there are no ACLs."""
    tokens: TokenSettings = TokenSettings()


class DecisionSettings(Struct, frozen=True, kw_only=True):
    """The settings of a controller for elections and sessions; an interval of 0 means never."""

    broker_session_timeout_ms: Annotated[int, Key("broker.session.timeout.ms")] = 9000
    unclean_election_interval_ms: Annotated[int, Key("unclean.leader.election.interval.ms")] = 300_000
    leader_rebalance_interval_ms: Annotated[
        int, Key("leader.imbalance.check.interval.seconds", "auto.leader.rebalance.enable", read=_rebalance_interval_ms)
    ] = 300_000
    leader_imbalance_percentage: Annotated[int, Key("leader.imbalance.per.broker.percentage")] = 0
    max_idle_interval_ms: Annotated[int, Key("metadata.max.idle.interval.ms")] = 500
    quota_samples: Annotated[int, Key("controller.quota.window.num")] = SAMPLES
    """For how many windows of its rate a client may create and delete partitions at once."""
    quota_window_ms: Annotated[int, Key(_QUOTA_WINDOW, read=seconds_in_ms(_QUOTA_WINDOW))] = WINDOW_MS


class RequestContext(Struct, frozen=True, gc=False):
    """The context of one request. A decision changes only `sessions` and `quotas` (by their methods), `rng` and
    `audited`.

    `image` includes uncommitted records; a write is decided on `image`. `committed` serves reads. The first record of
    the decision gets the offset `next_offset`. `version` is the version of the request. `forwarded` is set if a broker
    forwarded the request for a client. `voters` are the ids of the quorum. `own_settings` is the configuration of this
    node. Without an `authorizer` each operation is allowed.
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
    audited: list[Audited] = []
    """The denied operations, for the audit log."""
    quotas: MutationQuotas = field(default_factory=MutationQuotas)
    """The quotas of clients for what they create and delete."""

    def mutations(self, strict_since: int) -> Mutations:
        """The quota of the caller for partitions; strict from a version of the request on."""
        is_strict = self.version >= strict_since
        return self.quotas.of(self.caller, self.committed.quotas, self.now_ms, is_strict=is_strict)

    @property
    def reading(self) -> Reading:
        """The context of a read."""
        has_authorizer = self.admin.authorizer is not None
        return Reading(self.committed, self.version, self.defaults.node_id, self.own_settings, has_authorizer)

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, is_asked: bool = True
    ) -> bool:
        """Whether the caller may perform the operation. A denial is recorded only if `is_asked` is set.

        Raises `ApiError` until the ACLs are loaded.
        """
        if self.authorizer is None:
            return True
        verdict = self.authorizer.authorize(self.caller, operation, resource, name)
        if is_asked and not verdict.is_allowed:
            self.audited.append(Denial(self.caller, operation, resource, name, str(verdict)))
        return verdict.is_allowed
