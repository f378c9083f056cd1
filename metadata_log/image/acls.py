"""Access control entries (Kafka: `AclsImage`, `AclsDelta`, `StandardAcl`)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, structs

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.types import Uuid

ResourcePattern = tuple[int, int, str]
"""Type of resource, type of pattern, and the name, the prefix or `*`."""
HEAD: Final = 249
"""The length of the longest topic name. Longer prefixes, which only other resources have, are found by their heads."""
_PREFIXED: Final = 4
"""Kafka's `PatternType.PREFIXED`."""


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
    principal are sorted, so that equal images are equal whatever the order of the records. The other fields are the
    index of `by_pattern`: a check must cost little however long the name is that a client has chosen.
    """

    by_id: Map[Uuid, Acl] = Map()
    by_pattern: Map[ResourcePattern, Map[str, tuple[Acl, ...]]] = Map()
    by_principal: Map[str, Map[ResourcePattern, bool]] = Map()
    """The patterns with entries of a principal, as a set."""
    lengths: Map[int, tuple[tuple[int, int], ...]] = Map()
    """By type of resource, the lengths of prefixes up to `HEAD` with how many have that length; the longest first."""
    long_prefixes: Map[tuple[int, str], tuple[str, ...]] = Map()
    """The prefixes that are longer than `HEAD`, by type of resource and head; the longest first."""

    def put(self, acl_id: Uuid, acl: Acl) -> AclsImage:
        """The image with this entry added or replaced."""
        image = self.remove(acl_id) if acl_id in self.by_id else self
        acls = list(image.by_pattern.get(acl.pattern, _NO_PRINCIPALS).get(acl.principal, ()))
        insort(acls, acl, key=structs.astuple)
        return image._with(acl.pattern, acl.principal, tuple(acls), with_entry(image.by_id, acl_id, acl))

    def has(self, acl: Acl) -> bool:
        """Whether an entry with this content exists, under any id."""
        return acl in self.by_pattern.get(acl.pattern, _NO_PRINCIPALS).get(acl.principal, ())

    def remove(self, acl_id: Uuid) -> AclsImage:
        """The image without the entry of this id, which must exist."""
        acl = self.by_id[acl_id]
        acls = list(self.by_pattern[acl.pattern][acl.principal])
        acls.remove(acl)
        return self._with(acl.pattern, acl.principal, tuple(acls), without_key(self.by_id, acl_id))

    def prefixes(self, resource_type: int, name: str) -> Iterator[str]:
        """The prefixes of a name that can have entries, the longest first; in time linear in the name."""
        if len(name) > HEAD:
            for prefix in self.long_prefixes.get((resource_type, name[:HEAD]), ()):
                if name.startswith(prefix):
                    yield prefix
        for length, _ in self.lengths.get(resource_type, ()):
            if length <= len(name):
                yield name[:length]

    def _with(
        self, pattern: ResourcePattern, principal: str, acls: tuple[Acl, ...], by_id: Map[Uuid, Acl]
    ) -> AclsImage:
        """The image with these entries of a principal for a pattern."""
        former = self.by_pattern.get(pattern, _NO_PRINCIPALS)
        of_pattern = with_changes(former, {principal: acls or None})
        of_principal = with_changes(self.by_principal.get(principal, _NO_PATTERNS), {pattern: bool(acls) or None})
        lengths, long_prefixes = self.lengths, self.long_prefixes
        if pattern[1] == _PREFIXED and bool(of_pattern) is not bool(former):
            kind, _, prefix = pattern
            change = 1 if of_pattern else -1
            if len(prefix) <= HEAD:
                counts = dict(lengths.get(kind, ()))
                counts[len(prefix)] = counts.get(len(prefix), 0) + change
                kept = tuple(sorted(((length, count) for length, count in counts.items() if count), reverse=True))
                lengths = with_changes(lengths, {kind: kept or None})
            else:
                head = kind, prefix[:HEAD]
                known = {*long_prefixes.get(head, ()), prefix} - ({prefix} if change < 0 else set())
                ordered = tuple(sorted(known, key=lambda one: (-len(one), one)))
                long_prefixes = with_changes(long_prefixes, {head: ordered or None})
        return AclsImage(
            by_id,
            with_changes(self.by_pattern, {pattern: of_pattern or None}),
            with_changes(self.by_principal, {principal: of_principal or None}),
            lengths,
            long_prefixes,
        )


_NO_PRINCIPALS: Final[Map[str, tuple[Acl, ...]]] = Map()
_NO_PATTERNS: Final[Map[ResourcePattern, bool]] = Map()


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
