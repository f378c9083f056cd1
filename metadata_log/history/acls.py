"""Access rules, and the operations allowed or denied over time (Kafka: `AclsImage`, `StandardAuthorizerData`).

Superusers, `allow.everyone.if.no.acl.found` and the authorizer itself are settings of nodes, not of the log.
"""

from __future__ import annotations

from typing import Final

from metadata_log.history.causes import CauseRow
from metadata_log.history.open_rows import OpenRows, Sink, When
from metadata_log.history.values import acl_values
from metadata_log.image.acls import Acl, AclsImage, replay_acl, replay_remove_acl
from metadata_log.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.types import Uuid

GRANTED: Final = "acl-created"
REMOVED: Final = "acl-removed"
OVERRULED: Final = "acl-overruled"
_DENY: Final = 2
_ALLOW: Final = 3
_ALL: Final = 2
_LITERAL: Final = 3
_PREFIXED: Final = 4
_IMPLIED: Final = {
    3: ("DESCRIBE",),
    4: ("DESCRIBE",),
    6: ("DESCRIBE",),
    7: ("DESCRIBE",),
    11: ("DESCRIBE_CONFIGS",),
}
"""READ, WRITE, DELETE and ALTER allow DESCRIBE too; ALTER_CONFIGS allows DESCRIBE_CONFIGS. Denials imply nothing."""


class Acls:
    """All rules, and the open rows of `acl_history` and `acl_audit`."""

    def __init__(self, sink: Sink) -> None:
        self._image = AclsImage()
        self._rows = OpenRows("acl_history", sink)
        self._audit = OpenRows("acl_audit", sink)
        self._audited = "acl_audit" in sink.wanted
        self._denied_by: dict[Uuid, tuple[Uuid, ...]] = {}
        """The rules that denials overrule completely, with those denials."""

    def on_acl(self, record: AccessControlEntryRecord, when: When, cause: CauseRow | None, offset: int) -> None:
        """A rule begins."""
        self._image = replay_acl(self._image, record)
        acl = self._image.by_id[record.id]
        values = acl_values(record.id, acl)
        verb = "denied" if acl.permission_type == _DENY else "allowed"
        text = f"{acl.principal} was {verb} {values[3]} on {values[4].lower()} {acl.resource_name}"
        cause = cause or (GRANTED, "AccessControlEntryRecord", offset, None, text)
        self._rows.begin(record.id, values, when, cause)
        if not self._audited:
            return
        self._begin_audit(record.id, acl, self._deniers(acl), when, cause)
        if acl.permission_type == _DENY:
            self._reconsider(acl, when, cause)

    def on_remove(self, record: RemoveAccessControlEntryRecord, when: When, offset: int) -> None:
        """A rule ends."""
        acl = self._image.by_id[record.id]
        self._image = replay_remove_acl(self._image, record)
        self._rows.end(record.id, when, REMOVED)
        if not self._audited:
            return
        self._audit.end(record.id, when, REMOVED)
        self._denied_by.pop(record.id, None)
        if acl.permission_type == _DENY:
            text = f"the denying rule {record.id} was removed"
            self._reconsider(acl, when, (REMOVED, "RemoveAccessControlEntryRecord", offset, None, text))

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._image = AclsImage()
        self._denied_by.clear()
        self._rows.lose_sight(when)
        self._audit.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self._rows.finish(now)
        self._audit.finish(now)

    def _deniers(self, acl: Acl) -> tuple[Uuid, ...]:
        if acl.permission_type != _ALLOW:
            return ()
        return tuple(sorted(id_ for id_, other in self._image.by_id.items() if overrules(other, acl)))

    def _reconsider(self, denial: Acl, when: When, cause: CauseRow) -> None:
        for id_ in sorted(self._image.by_id):
            acl = self._image.by_id[id_]
            if overrules(denial, acl) and (now := self._deniers(acl)) != self._denied_by.get(id_, ()):
                code = OVERRULED if now else cause[0]
                self._begin_audit(id_, acl, now, when, (code, *cause[1:]))

    def _begin_audit(self, id_: Uuid, acl: Acl, deniers: tuple[Uuid, ...], when: When, cause: CauseRow) -> None:
        self._denied_by[id_] = deniers
        implied = _IMPLIED.get(acl.operation, ()) if acl.permission_type == _ALLOW else ()
        self._audit.begin(id_, (*acl_values(id_, acl), implied, not deniers, tuple(map(str, deniers))), when, cause)


def overrules(denial: Acl, acl: Acl) -> bool:
    """Whether `denial` denies everything that `acl` allows by name: denials take precedence."""
    return (
        denial.permission_type == _DENY
        and acl.permission_type == _ALLOW
        and denial.resource_type == acl.resource_type
        and _covers(denial, acl)
        and denial.principal in (acl.principal, "User:*")
        and denial.host in (acl.host, "*")
        and denial.operation in (acl.operation, _ALL)
    )


def _covers(denial: Acl, acl: Acl) -> bool:
    """Whether the denial's resources include all resources of the other rule."""
    if denial.pattern_type == _PREFIXED:
        return acl.resource_name.startswith(denial.resource_name)
    if denial.resource_name == "*":
        return True
    return acl.pattern_type == _LITERAL and acl.resource_name == denial.resource_name
