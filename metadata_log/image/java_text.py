"""The text forms of Kafka's Java classes for the values in an image, character by character.

`BrokerRegistration`, `ControllerRegistration`, `PartitionRegistration`, `StandardAcl`, `ScramCredentialDataNode`,
`DelegationTokenDataNode` and `ProvenanceNode`, as of 4.3.1. By default secrets are hidden, by the rule of Kafka's
`MetadataNodeRedactionCriteria.Normal`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite

from metadata_log.image.acls import Acl
from metadata_log.image.brokers import Broker
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.names import (
    LEADER_RECOVERY_STATES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    SECURITY_PROTOCOLS,
)
from metadata_log.image.scram import ScramCredential
from metadata_log.image.tokens import DelegationToken
from metadata_log.image.topics import Partition
from metadata_log.records.metadata import BrokerEndpoint, ControllerEndpoint
from metadata_log.records.redact import REDACTED
from metadata_log.types import Uuid


def acl_text(acl: Acl) -> str:
    """An access rule."""
    return (
        f"StandardAcl[resourceType={name_of(RESOURCE_TYPES, acl.resource_type)}, resourceName={acl.resource_name}, "
        f"patternType={name_of(PATTERN_TYPES, acl.pattern_type)}, principal={acl.principal}, host={acl.host}, "
        f"operation={name_of(OPERATIONS, acl.operation)}, "
        f"permissionType={name_of(PERMISSION_TYPES, acl.permission_type)}]"
    )


def name_of(names: tuple[str, ...], code: int) -> str:
    """The name of an enum's code; UNKNOWN, as in Kafka, for an unknown code."""
    return names[code] if 0 <= code < len(names) else names[0]


def broker_text(broker: Broker) -> str:
    """A broker's registration."""
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, incarnationId={broker.incarnation_id}, "
        f"listeners=[{_listeners(broker.endpoints)}], supportedFeatures={{{_ranges(broker.features)}}}, rack={rack}, "
        f"fenced={_bool(broker.fenced)}, inControlledShutdown={_bool(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_bool(broker.is_migrating_zk_broker)}, directories={_uuids(broker.directories)}, "
        f"cordonedDirectories={_uuids(broker.cordoned_directories or ())})"
    )


def controller_text(controller: ControllerRegistration) -> str:
    """A controller's registration."""
    return (
        f"ControllerRegistration(id={controller.id}, incarnationId={controller.incarnation_id}, "
        f"zkMigrationReady={_bool(controller.zk_migration_ready)}, "
        f"listeners=[{_listeners(controller.endpoints)}], supportedFeatures={{{_ranges(controller.features)}}})"
    )


def _listeners(endpoints: Iterable[BrokerEndpoint | ControllerEndpoint]) -> str:
    return ", ".join(_listener(one) for one in sorted(endpoints, key=lambda one: one.name))


def _listener(one: BrokerEndpoint | ControllerEndpoint) -> str:
    protocol = SECURITY_PROTOCOLS.get(one.security_protocol, "null")
    return f"Endpoint(listenerName='{one.name}', securityProtocol={protocol}, host='{one.host}', port={one.port})"


def _ranges(features: Iterable[tuple[str, int, int]]) -> str:
    return ", ".join(f"{name}: {_range(lowest, highest)}" for name, lowest, highest in sorted(features))


def _range(lowest: int, highest: int) -> str:
    if lowest == highest:
        return str(lowest)
    return f"{lowest}+" if highest == 2**15 - 1 else f"{lowest}-{highest}"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _uuids(ids: Iterable[Uuid]) -> str:
    return f"[{', '.join(map(str, ids))}]"


def partition_text(partition: Partition) -> str:
    """A partition."""
    state = LEADER_RECOVERY_STATES.get(partition.leader_recovery_state, "null")
    return (
        f"PartitionRegistration(replicas={list(partition.replicas)}, directories={_uuids(partition.directories)}, "
        f"isr={list(partition.isr)}, removingReplicas={list(partition.removing_replicas)}, "
        f"addingReplicas={list(partition.adding_replicas)}, elr={list(partition.elr)}, "
        f"lastKnownElr={list(partition.last_known_elr)}, leader={partition.leader}, leaderRecoveryState={state}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def scram_text(credential: ScramCredential, *, show_secrets: bool) -> str:
    """A user's credential for one mechanism."""
    parts: dict[str, object] = {
        "salt": credential.salt.hex(),
        "storedKey": credential.stored_key.hex(),
        "serverKey": credential.server_key.hex(),
        "iterations": credential.iterations,
    }
    shown = parts if show_secrets else dict.fromkeys(parts, REDACTED)
    return f"ScramCredentialData({', '.join(f'{name}={value}' for name, value in shown.items())})"


def token_text(token: DelegationToken, *, show_secrets: bool) -> str:
    """A delegation token, with the unbalanced parentheses of Kafka's text."""
    values: tuple[object, ...] = (
        token.token_id,
        token.owner,
        token.requester,
        " ".join(token.renewers),
        token.issue_timestamp,
        token.max_timestamp,
        token.expiration_timestamp,
    )
    form = (
        "DelegationTokenDatatokenId={}(owner={}(tokenRequester={}(renewers={}, issueTimestamp={}, maxTimestamp={}), "
        "expiryTimestamp={}"
    )
    return form.format(*(values if show_secrets else [REDACTED] * len(values)))


def double_text(value: float) -> str:
    """A number in the form of Java's `Double.toString`: `1000.0`, `1.0E7`."""
    if not isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = format(Decimal(repr(value)).normalize(), "e").partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def time_text(timestamp_ms: int) -> str:
    """A time in the form of `DateTimeFormatter.ISO_ZONED_DATE_TIME` in UTC, without trailing zeros."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    fraction = f"{timestamp_ms % 1000:03}".rstrip("0")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}Z[UTC]"
