"""Access control entries (Kafka: `AclsImage`, `AclsDelta`, `StandardAcl`)."""

from __future__ import annotations

from bisect import insort
from typing import Final

from msgspec import Struct, structs

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.types import Uuid

ResourcePattern = tuple[int, int, str]
"""Type of resource, type of pattern, and the name, the prefix or `*`."""


class Acl(Struct, frozen=True):
    """One access rule; types, operations and permissions are codes of Kafka's enums."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def pattern(self) -> ResourcePattern:
        """The resources of the rule."""
        return (self.resource_type, self.pattern_type, self.resource_name)


class AclsImage(Struct, frozen=True):
    """All entries by their ids, which removals name.

    `by_pattern` has the same entries by resource pattern and principal, for authorization checks. The entries of one
    principal are sorted, so that equal images are equal whatever the order of the records.
    """

    by_id: Map[Uuid, Acl] = Map()
    by_pattern: Map[ResourcePattern, Map[str, tuple[Acl, ...]]] = Map()

    def put(self, acl_id: Uuid, acl: Acl) -> AclsImage:
        """The image with this entry added or replaced."""
        image = self.remove(acl_id) if acl_id in self.by_id else self
        by_principal = image.by_pattern.get(acl.pattern, _NO_PRINCIPALS)
        acls = list(by_principal.get(acl.principal, ()))
        insort(acls, acl, key=structs.astuple)
        by_principal = with_entry(by_principal, acl.principal, tuple(acls))
        by_pattern = with_entry(image.by_pattern, acl.pattern, by_principal)
        return AclsImage(with_entry(image.by_id, acl_id, acl), by_pattern)

    def has(self, acl: Acl) -> bool:
        """Whether an entry with this content exists, under any id."""
        return acl in self.by_pattern.get(acl.pattern, _NO_PRINCIPALS).get(acl.principal, ())

    def remove(self, acl_id: Uuid) -> AclsImage:
        """The image without the entry of this id, which must exist."""
        acl = self.by_id[acl_id]
        by_principal = self.by_pattern[acl.pattern]
        acls = list(by_principal[acl.principal])
        acls.remove(acl)
        by_principal = with_changes(by_principal, {acl.principal: tuple(acls) or None})
        by_pattern = with_changes(self.by_pattern, {acl.pattern: by_principal or None})
        return AclsImage(without_key(self.by_id, acl_id), by_pattern)


_NO_PRINCIPALS: Final[Map[str, tuple[Acl, ...]]] = Map()


def replay_acl(image: AclsImage, record: AccessControlEntryRecord) -> AclsImage:
    """Add an entry."""
    acl = Acl(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
    return image.put(record.id, acl)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that adds an entry."""
    return AccessControlEntryRecord(id=acl_id, **structs.asdict(acl))


def replay_remove_acl(image: AclsImage, record: RemoveAccessControlEntryRecord) -> AclsImage:
    """Remove an entry; raises `ReplayError` if no entry has this id."""
    if record.id not in image.by_id:
        raise ReplayError(f"no access control entry has the id {record.id}")
    return image.remove(record.id)
