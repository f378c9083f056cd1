"""Quotas of users, clients and addresses (Kafka: `ClientQuotasImage`, `ClientQuotasDelta`; KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.records.metadata import ClientQuotaRecord

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, by type, as in (("client-id", "a"), ("user", None)); None stands for all without a quota of their
own."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
NO_QUOTAS: Map[str, float] = Map()


class QuotasImage(Struct, frozen=True):
    """The quotas of each entity; an entity without quotas is not in the map."""

    by_entity: Map[Entity, Map[str, float]] = Map()


def replay_quota(image: QuotasImage, record: ClientQuotaRecord) -> QuotasImage:
    """Set or remove one key; an entity without keys disappears."""
    entity = tuple(sorted({part.entity_type: part.entity_name for part in record.entity}.items()))
    quotas = image.by_entity.get(entity, NO_QUOTAS)
    if not record.remove:
        return QuotasImage(with_entry(image.by_entity, entity, with_entry(quotas, record.key, record.value)))
    if record.key not in quotas:
        return image
    quotas = without_key(quotas, record.key)
    return QuotasImage(with_changes(image.by_entity, {entity: quotas or None}))


def in_entity_order(image: QuotasImage) -> Iterator[tuple[Entity, Map[str, float]]]:
    """The entities with their quotas, in a fixed order: the default of a type before its names."""
    for entity in sorted(image.by_entity, key=entity_order):
        yield entity, image.by_entity[entity]


def entity_order(entity: Entity) -> list[tuple[str, bool, str]]:
    """The sort key of entities: names may be None, which Python does not compare."""
    return [(kind, name is not None, name or "") for kind, name in entity]
