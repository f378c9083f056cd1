"""Describes settings and alters quotas (Kafka: `Admin.describeConfigs`, `alterClientQuotas`).

Settings are changed by `AdminClient.alter_configs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from kraft.admin.client import AdminClient, ResourceType, Verdict
from metadata_log.image import Entity
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)


class ConfigSource(IntEnum):
    """The source of a setting's value (Kafka: `DescribeConfigsResponse.ConfigSource`)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Setting(Struct, frozen=True, kw_only=True):
    """An effective setting of a resource (Kafka: `ConfigEntry`)."""

    key: str
    value: str | None
    """None for a secret, which no controller reveals."""
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool


async def describe_configs(
    admin: AdminClient, resource_type: ResourceType, names: Iterable[str], *, keys: Sequence[str] | None = None
) -> dict[str, tuple[Setting, ...]]:
    """The effective settings of resources, as the active controller sees them (Kafka: `Admin.describeConfigs`).

    A controller knows only the dynamic settings of a broker, and all settings of itself.

    Args:
        admin: The client.
        resource_type: The type of all these resources.
        names: The names of the resources; ids for brokers and controllers.
        keys: The wanted settings; None for all of them.

    Returns:
        The settings of each resource, ordered by key.

    Raises:
        SomeRefused: The controller refused some resources, by their names.
        NoController: No controller answered in time.
    """
    resources = [
        DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        for name in names
    ]
    answer = await admin.ask_about_each(
        DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, _described
    )
    return {
        result.resource_name: tuple(
            Setting(
                key=each.name,
                value=None if each.is_sensitive else each.value,
                source=_source(each.config_source),
                is_sensitive=each.is_sensitive,
                is_read_only=each.read_only,
            )
            for each in sorted(result.configs, key=lambda one: one.name)
        )
        for result in answer.results
    }


async def alter_quotas(
    admin: AdminClient, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of users, clients or IP addresses (Kafka: `Admin.alterClientQuotas`, KIP-546).

    Args:
        admin: The client.
        entity: The entity as in an image: (("user", "alice"),), with the name None for the default entity.
        changes: The quotas by key, such as bytes per second; None removes a quota.
        validate_only: Whether the controller only checks the change.

    Raises:
        SomeRefused: The controller refused the change, by the name of `entity_name`.
        NoController: No controller answered in time.
    """
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    await admin.ask_about_each(request, AlterClientQuotasResponse, _quotas_altered)


def entity_name(entity: Entity) -> str:
    """An entity as one word: `user=alice,client-id`, where a type alone is the default entity."""
    # Kafka's tool, too, prints a user before the client.
    return ",".join(kind if name is None else f"{kind}={name}" for kind, name in sorted(entity, reverse=True))


def _source(code: int) -> ConfigSource:
    try:
        return ConfigSource(code)
    except ValueError:  # of a newer Kafka
        return ConfigSource.UNKNOWN


def _described(answer: DescribeConfigsResponse) -> Iterator[Verdict]:
    return ((each.resource_name, each.error_code, each.error_message) for each in answer.results)


def _quotas_altered(answer: AlterClientQuotasResponse) -> Iterator[Verdict]:
    for each in answer.entries:
        entity = tuple((part.entity_type, part.entity_name) for part in each.entity)
        yield entity_name(entity), each.error_code, each.error_message
