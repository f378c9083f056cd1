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
"""Type of resource, type of pattern, name or prefix or `*`."""


class Acl(Struct, frozen=True):
    """Who may, or may not, do what with which resource; types and operations are the codes of Kafka's enums."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def pattern(self) -> ResourcePattern:
        """Which resources it is about."""
        return (self.resource_type, self.pattern_type, self.resource_name)


class AclsImage(Struct, frozen=True):
    """All entries; each has an id of its own, by which it is removed.

    `by_pattern` has the same entries by resources and by principal, for who asks whether somebody may do something.
    Those of one principal are sorted, so that equal images are equal however they came to be.
    """

    by_id: Map[Uuid, Acl] = Map()
    by_pattern: Map[ResourcePattern, Map[str, tuple[Acl, ...]]] = Map()

    def put(self, acl_id: Uuid, acl: Acl) -> AclsImage:
        """With one more entry, or another one under this id."""
        image = self.remove(acl_id) if acl_id in self.by_id else self
        by_principal = image.by_pattern.get(acl.pattern, _NOBODY)
        acls = list(by_principal.get(acl.principal, ()))
        insort(acls, acl, key=structs.astuple)
        by_principal = with_entry(by_principal, acl.principal, tuple(acls))
        by_pattern = with_entry(image.by_pattern, acl.pattern, by_principal)
        return AclsImage(with_entry(image.by_id, acl_id, acl), by_pattern)

    def has(self, acl: Acl) -> bool:
        """Whether there is such an entry, under whatever id."""
        return acl in self.by_pattern.get(acl.pattern, _NOBODY).get(acl.principal, ())

    def remove(self, acl_id: Uuid) -> AclsImage:
        """Without the entry of this id, which there has to be."""
        acl = self.by_id[acl_id]
        by_principal = self.by_pattern[acl.pattern]
        acls = list(by_principal[acl.principal])
        acls.remove(acl)
        by_principal = with_changes(by_principal, {acl.principal: tuple(acls) or None})
        by_pattern = with_changes(self.by_pattern, {acl.pattern: by_principal or None})
        return AclsImage(without_key(self.by_id, acl_id), by_pattern)


_NOBODY: Final[Map[str, tuple[Acl, ...]]] = Map()


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
    return image.put(record.id, acl)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that puts an entry."""
    return AccessControlEntryRecord(id=acl_id, **structs.asdict(acl))


def replay_remove_acl(image: AclsImage, record: RemoveAccessControlEntryRecord) -> AclsImage:
    """Remove an entry; raises `ReplayError` if there is none with this id."""
    if record.id not in image.by_id:
        raise ReplayError(f"no access control entry has the id {record.id}")
    return image.remove(record.id)
