"""Converts an image to one JSON object for `kraft replay --json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from metadata_log.image import FeaturesImage, MetadataImage, ResourceType
from metadata_log.image.brokers import Broker
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.java_text import (
    name_of,
)
from metadata_log.image.names import (
    LEADER_RECOVERY_STATES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    SCRAM_MECHANISMS,
    SECURITY_PROTOCOLS,
)
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.quotas import in_entity_order
from metadata_log.image.topics import Partition, TopicImage
from metadata_log.records.redact import REDACTED, shown_config
from metadata_log.releases import METADATA_VERSIONS
from metadata_log.times import iso_time

Json = dict[str, Any]


def image_json(image: MetadataImage, *, show_secrets: bool) -> Json:
    """The whole image, each family in key order; secrets are hidden unless requested."""
    return {
        "metadata_version": metadata_version(image.features),
        "features": dict(image.features.all_levels()),
        "brokers": [_broker(broker) for _, broker in in_key_order(image.brokers.by_id)],
        "controllers": [_controller(controller) for _, controller in in_key_order(image.controllers.by_id)],
        "topics": [_topic(image.topics[name]) for name in image.topics],
        "configs": _configs(image, show_secrets),
        "acls": _acls(image),
        "quotas": [
            {"entity": dict(entity), "quotas": dict(in_key_order(quotas))}
            for entity, quotas in in_entity_order(image.quotas)
        ],
        "scram": _scram(image, show_secrets),
        "tokens": _tokens(image),
        "producer_ids": {"next_producer_id": image.producer_ids.next_producer_id},
    }


def metadata_version(features: FeaturesImage) -> str | None:
    """The name of the metadata.version, such as 4.3-IV0; its level as text if no known release has the level."""
    if features.metadata_version is None:
        return None
    names = {level: name for name, level in METADATA_VERSIONS.items()}
    return names.get(features.metadata_version, f"level {features.metadata_version}")


def _broker(broker: Broker) -> Json:
    return {
        "id": broker.id,
        "epoch": broker.epoch,
        "incarnation_id": str(broker.incarnation_id),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "is_migrating_zk_broker": broker.is_migrating_zk_broker,
        **_registration(broker),
        "directories": _strings(broker.directories),
        "cordoned_directories": None if broker.cordoned_directories is None else _strings(broker.cordoned_directories),
    }


def _controller(controller: ControllerRegistration) -> Json:
    return {"id": controller.id, "incarnation_id": str(controller.incarnation_id), **_registration(controller)}


def _registration(one: Broker | ControllerRegistration) -> Json:
    return {
        "endpoints": [
            {
                "name": endpoint.name,
                "host": endpoint.host,
                "port": endpoint.port,
                "security_protocol": SECURITY_PROTOCOLS.get(endpoint.security_protocol, endpoint.security_protocol),
            }
            for endpoint in one.endpoints
        ],
        "supported_features": {name: [lowest, highest] for name, lowest, highest in sorted(one.features)},
    }


def _topic(topic: TopicImage) -> Json:
    partitions = [_partition(number, partition) for number, partition in enumerate(topic.partitions)]
    return {"name": topic.name, "id": str(topic.id), "partitions": partitions}


def _partition(number: int, partition: Partition) -> Json:
    return {
        "partition": number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "leader_recovery_state": LEADER_RECOVERY_STATES.get(
            partition.leader_recovery_state, partition.leader_recovery_state
        ),
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "adding_replicas": partition.adding_replicas,
        "removing_replicas": partition.removing_replicas,
        "directories": _strings(partition.directories),
    }


def _configs(image: MetadataImage, show_secrets: bool) -> list[Json]:
    return [
        {
            "resource_type": resource_type_name(type_),
            "resource_name": name,
            "configs": {
                key: shown_config(type_, key, value, show_secrets=show_secrets) for key, value in in_key_order(values)
            },
        }
        for (type_, name), values in in_key_order(image.configs.by_resource)
    ]


_RESOURCE_TYPES: Final = {int(type_): type_.name for type_ in ResourceType}


def resource_type_name(code: int) -> str:
    """TOPIC, BROKER and so on; an unknown code stays a number."""
    return _RESOURCE_TYPES.get(code, str(code))


def _acls(image: MetadataImage) -> list[Json]:
    return [
        {
            "id": str(id_),
            "resource_type": name_of(RESOURCE_TYPES, acl.resource_type),
            "resource_name": acl.resource_name,
            "pattern_type": name_of(PATTERN_TYPES, acl.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": name_of(OPERATIONS, acl.operation),
            "permission_type": name_of(PERMISSION_TYPES, acl.permission_type),
        }
        for id_, acl in in_key_order(image.acls.by_id)
    ]


def _scram(image: MetadataImage, show_secrets: bool) -> list[Json]:
    return [
        {
            "user": user,
            "mechanism": SCRAM_MECHANISMS.get(mechanism, mechanism),
            "iterations": credential.iterations,
            **{
                name: getattr(credential, name).hex() if show_secrets else REDACTED
                for name in ("salt", "stored_key", "server_key")
            },
        }
        for user, credentials in in_key_order(image.scram.by_user)
        for mechanism, credential in in_key_order(credentials)
    ]


def _tokens(image: MetadataImage) -> list[Json]:
    return [
        {
            "token_id": token_id,
            "owner": token.owner,
            "requester": token.requester,
            "renewers": token.renewers,
            "issued": iso_time(token.issue_timestamp),
            "expires": iso_time(token.expiration_timestamp),
            "max_lifetime": iso_time(token.max_timestamp),
        }
        for token_id, token in in_key_order(image.tokens.by_id)
    ]


def _strings(values: Iterable[object]) -> list[str]:
    return [str(value) for value in values]
