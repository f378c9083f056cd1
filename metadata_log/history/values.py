"""The columns of objects as tuples, in the order of the views; histories and states share them (Kafka: `*Image`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final

from metadata_log.image.acls import Acl
from metadata_log.image.brokers import Broker
from metadata_log.image.configs import Resource, ResourceType
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.features import METADATA_VERSION
from metadata_log.image.names import (
    LEADER_RECOVERY_STATES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    SCRAM_MECHANISMS,
    SECURITY_PROTOCOLS,
    listener_text,
)
from metadata_log.image.quotas import Entity
from metadata_log.image.tokens import DelegationToken
from metadata_log.image.topics import Partition
from metadata_log.records.control import VotersRecordVoter
from metadata_log.records.metadata import BrokerEndpoint, ControllerEndpoint
from metadata_log.records.redact import shown_config
from metadata_log.releases import METADATA_VERSIONS
from metadata_log.types import Uuid

Values = tuple[Any, ...]

DEFAULT_ENTITY: Final = "<default>"
_RESOURCE_TYPES: Final = frozenset(int(one) for one in ResourceType)
_RELEASES: Final = {level: name for name, level in METADATA_VERSIONS.items()}


def name_of(names: tuple[str, ...], code: int) -> str:
    """The name of one of Kafka's codes, or its number for a code of a newer Kafka."""
    return names[code] if 0 <= code < len(names) else str(code)


def recovery_state(code: int) -> str:
    """The text of a partition's leader recovery state."""
    return LEADER_RECOVERY_STATES.get(code, str(code))


def uuids(ids: Iterable[Uuid]) -> tuple[str, ...]:
    """Ids in their text form."""
    return tuple(map(str, ids))


_directory_texts: Final = lru_cache(4096)(uuids)
"""Many partitions have the same directories."""


def partition_values(partition: Partition) -> Values:
    """The columns of `partitions_state` after the key."""
    return (
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.last_known_elr,
        partition.adding_replicas,
        partition.removing_replicas,
        recovery_state(partition.leader_recovery_state),
        _directory_texts(partition.directories),
    )


def _endpoints(endpoints: Iterable[BrokerEndpoint | ControllerEndpoint]) -> tuple[tuple[str, ...], dict[str, str]]:
    ordered = sorted(endpoints, key=lambda one: one.name)
    protocols = {one.name: SECURITY_PROTOCOLS.get(one.security_protocol, str(one.security_protocol)) for one in ordered}
    return tuple(listener_text(one.name, one.host, one.port) for one in ordered), protocols


def _features(features: Iterable[tuple[str, int, int]]) -> dict[str, str]:
    return {name: f"{lowest}-{highest}" for name, lowest, highest in sorted(features)}


def broker_values(broker: Broker) -> Values:
    """The columns of `brokers_state`."""
    cordoned = broker.cordoned_directories
    return (
        broker.id,
        broker.epoch,
        str(broker.incarnation_id),
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.rack,
        *_endpoints(broker.endpoints),
        _features(broker.features),
        uuids(broker.directories),
        None if cordoned is None else uuids(cordoned),
        broker.is_migrating_zk_broker,
    )


def replication_factor(partition: Partition) -> int:
    """The number of replicas of a partition after its reassignment, if one is in progress."""
    return (
        len(set(partition.replicas) - set(partition.removing_replicas))
        if partition.removing_replicas
        else len(partition.replicas)
    )


@cache
def resource_type(code: int) -> str:
    """The name of a configuration resource's type."""
    return ResourceType(code).name if code in _RESOURCE_TYPES else str(code)


def config_values(resource: Resource, key: str, value: str, *, show_secrets: bool) -> Values:
    """The columns of `configs_state`."""
    shown = shown_config(resource[0], key, value, show_secrets=show_secrets)
    return (resource_type(resource[0]), resource[1], key, shown)


def acl_values(acl_id: Uuid, acl: Acl) -> Values:
    """The columns of `acls_state`."""
    return (
        str(acl_id),
        acl.principal,
        name_of(PERMISSION_TYPES, acl.permission_type),
        name_of(OPERATIONS, acl.operation),
        name_of(RESOURCE_TYPES, acl.resource_type),
        acl.resource_name,
        name_of(PATTERN_TYPES, acl.pattern_type),
        acl.host,
    )


def feature_values(feature: str, level: int) -> Values:
    """The columns of `features_state`."""
    return (feature, level, _RELEASES.get(level) if feature == METADATA_VERSION else None)


def entity_text(entity: Entity) -> str:
    """A quota entity as Kafka's tools write it, a default as `<default>`."""
    return ", ".join(f"{kind}={DEFAULT_ENTITY if name is None else name}" for kind, name in entity)


def quota_values(entity: Entity, key: str, value: float) -> Values:
    """The columns of `quotas_state`."""
    named = {kind: DEFAULT_ENTITY if name is None else name for kind, name in entity}
    return (entity_text(entity), named.get("user"), named.get("client-id"), named.get("ip"), key, value)


def scram_values(user: str, mechanism: int, iterations: int) -> Values:
    """The columns of `scram_state`."""
    return (user, SCRAM_MECHANISMS.get(mechanism, str(mechanism)), iterations)


def token_values(token: DelegationToken) -> Values:
    """The columns of `tokens_state`."""
    return (
        token.token_id,
        token.owner,
        token.requester,
        token.renewers,
        token.issue_timestamp,
        token.expiration_timestamp,
        token.max_timestamp,
    )


def controller_values(controller: ControllerRegistration) -> Values:
    """The columns of `controllers_state`."""
    return (
        controller.id,
        str(controller.incarnation_id),
        *_endpoints(controller.endpoints),
        _features(controller.features),
    )


def voter_values(voter: VotersRecordVoter) -> Values:
    """The columns of `voters_state`."""
    supported = voter.kraft_version_feature
    return (
        voter.voter_id,
        str(voter.voter_directory_id),
        tuple(listener_text(one.name, one.host, one.port) for one in voter.endpoints),
        f"{supported.min_supported_version}-{supported.max_supported_version}",
    )
