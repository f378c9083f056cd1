"""Access control entries (Kafka: `AclsImage`, `AclsDelta`, `StandardAcl`)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.image.faults import ReplayError
from metadata_log.image.persistent_map import Map
from metadata_log.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.types import Uuid


class Acl(Struct, frozen=True):
    """Who may, or may not, do what with which resource; types and operations are the codes of Kafka's enums."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclsImage(Struct, frozen=True):
    """All entries; each has an id of its own, by which it is removed."""

    by_id: Map[Uuid, Acl] = Map()


def replay_acl(image: AclsImage, record: AccessControlEntryRecord) -> AclsImage:
    """Put an entry."""
    acl = Acl(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
    return AclsImage(image.by_id.set(record.id, acl))


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that puts an entry."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def replay_remove_acl(image: AclsImage, record: RemoveAccessControlEntryRecord) -> AclsImage:
    """Remove an entry; raises `ReplayError` if there is none with this id."""
    if record.id not in image.by_id:
        raise ReplayError(f"no access control entry has the id {record.id}")
    return AclsImage(image.by_id.delete(record.id))
