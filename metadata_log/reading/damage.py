"""Damage of files, and a reader's reaction to it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import MetadataLogError
from metadata_log.releases import unknown_record_text


class Damage(Struct, frozen=True, kw_only=True):
    """One defect of a file or directory.

    Args:
        where: The path of the file or directory.
        what: The defect as a text.
        expected: The expected content as a text.
        position: The position of the first wrong byte in the file; None if unknown.
        offset: The offset of the affected record in the log; None if unknown.
        unfinished: Whether the file ends inside a batch and may still grow.
    """

    where: str
    what: str
    expected: str
    position: int | None = None
    offset: int | None = None
    unfinished: bool = False
    """Whether the file ends inside a batch and may still grow: usual at the end of a running node's log."""

    def __str__(self) -> str:
        places = [self.where]
        if self.position is not None:
            places.append(f"byte {self.position}")
        if self.offset is not None:
            places.append(f"offset {self.offset}")
        return f"{self.what} ({', '.join(places)})"


class OnDamage(StrEnum):
    """A reader's reaction to damage. An unfinished last batch is reported, but is damage in none of the modes."""

    STRICT = "strict"
    """Raise `DamagedFile`; also for a record of an unknown type, which would prevent a controller's start."""
    STOP = "stop-at-damage"
    """Report the damage and stop."""
    SKIP = "skip-damage"
    """Report the damage and continue with the next valid batch or record."""


class DamagedFile(MetadataLogError):
    """The damage that ended a strict reading, as an error.

    Args:
        damage: The damage.
        unknown: The type and the version of a record of a later release, if it is one.
    """

    def __init__(self, damage: Damage, unknown: tuple[int, int] | None = None) -> None:
        super().__init__(damage.what, where=damage.where, position=damage.position)
        self.damage = damage
        self.unknown = unknown

    def at_level(self, metadata_version: int | None) -> DamagedFile:
        """This error; of a record of a later release the one that names the level that brought it."""
        if self.unknown is None:
            return self
        return DamagedFile(replace(self.damage, what=unknown_record_text(*self.unknown, metadata_version)))

    def __str__(self) -> str:
        return str(self.damage)


def stops(damage: Damage, on_damage: OnDamage) -> bool:
    """Whether reading ends with this damage; raises `DamagedFile` in strict mode."""
    if damage.unfinished:
        return False
    if on_damage is OnDamage.STRICT:
        raise DamagedFile(damage)
    return on_damage is OnDamage.STOP
