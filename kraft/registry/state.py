"""The registered schemas: the records of the topic `_schemas`, applied in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, structs

from kraft.registry import contexts
from kraft.registry.contexts import DEFAULT, context_of
from kraft.registry.records import (
    PER_ENTRY,
    TENANT,
    ClearSubjectKey,
    ConfigKey,
    ConfigValue,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    Identity,
    Key,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    SchemaReference,
    SchemaValue,
    encoded,
    key_of,
)

DEFAULT_LEVEL: Final = "BACKWARD"
READWRITE: Final = "READWRITE"
S = TypeVar("S")


class State:
    """Subjects with their versions, ids, settings and modes."""

    def __init__(self) -> None:
        self.cluster_id = ""
        """The id of the Kafka cluster."""
        self.subjects: dict[str, dict[int, SchemaValue]] = {}
        """By subject and by version in order, the ones deleted softly included."""
        self.configs: dict[str | None, ConfigValue] = {}
        """By subject; None for all."""
        self.modes: dict[str | None, str] = {}
        self.contexts: dict[str, None] = {}
        """Those beside the default one."""
        self.last_ids: dict[str, int] = {}
        """By context the highest id so far, which no later schema gets."""
        self.count = 0
        """How many versions there are."""
        self.memory = 0
        """About the bytes that they take in memory, with settings and modes."""
        self.by_id: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        """By context and id where it is registered."""
        self.ids: dict[tuple[str, Identity], int] = {}
        self._users: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        """By subject and version of a schema where the ones are that import it."""
        self._spellings: dict[tuple[str | int | None, ...], dict[bytes, None]] = {}
        """By what a key means the bytes under which the topic has it, with a value."""

    # Records

    def records(self, key: Key, value: Struct | None) -> list[Record]:
        """The records that replace what the topic has under a key, or remove it without a value.

        Compaction goes by bytes. Where the topic has the key in several spellings, all of them are replaced.
        """
        record = encoded(key, value)
        return [(one, record[1]) for one in self._spellings.get(_meaning(key), (record[0],))]

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record of the topic; one that makes no sense changes nothing."""
        known = key_of(key)
        if key is not None and known is not None:
            self._spelled(_meaning(known), key, is_gone=value is None)
        match known:
            case SchemaKey(subject=subject, version=version):
                if value is None:
                    self._remove(subject, version)
                elif (decoded := _decoded(value, SchemaValue)) is not None:
                    self._put(structs.replace(decoded, subject=subject, version=version))
            case ConfigKey(of=of):
                if value is None:
                    self._forget(self.configs, of)
                elif (config := _decoded(value, ConfigValue)) is not None:
                    self._keep(self.configs, of, config)
            case ModeKey(of=of):
                if value is None:
                    self._forget(self.modes, of)
                elif (mode := _decoded(value, ModeValue)) is not None:
                    self._keep(self.modes, of, mode.mode)
            case DeleteSubjectKey() if value is not None:
                if (deletion := _decoded(value, DeleteSubjectValue)) is not None:
                    for version, one in self.subjects.get(deletion.subject, {}).items():
                        if version <= deletion.version:
                            one.deleted = True  # in place: copies of a full subject took a turn of 50 ms
            case ClearSubjectKey(of=of) if value is not None:
                for name in self.meant(of):
                    for version in [at for at, one in self.subjects.get(name, {}).items() if one.deleted]:
                        self._remove(name, version)

            case ContextKey(tenant=tenant, context=name) if tenant == TENANT:
                if value is None:
                    self._forget_context(name)
                elif name not in self.contexts:
                    self.contexts[name] = None
                    self.memory += PER_ENTRY + len(name)

    def _spelled(self, meaning: tuple[str | int | None, ...], key: bytes, *, is_gone: bool) -> None:
        spellings = self._spellings.setdefault(meaning, {})
        spellings.pop(key, None)
        if not is_gone:
            spellings[key] = None
        elif not spellings:
            del self._spellings[meaning]

    def _keep(self, kept: dict[str | None, S], of: str | None, value: S) -> None:
        self._forget(kept, of)
        kept[of] = value
        self.memory += PER_ENTRY + len(of or "")

    def _forget(self, kept: dict[str | None, S], of: str | None) -> None:
        if kept.pop(of, None) is not None:
            self.memory -= PER_ENTRY + len(of or "")

    def _forget_context(self, name: str) -> None:
        if name in self.contexts:
            del self.contexts[name]
            self.memory -= PER_ENTRY + len(name)
            if not self.meant(contexts.scope(name)):
                self.last_ids.pop(name, None)

    def _put(self, value: SchemaValue) -> None:
        place = context_of(value.subject), value.id
        known = self.by_id.get(place)
        if known is not None and value.identity != self._identity_of(place):
            return  # as in the common registry: an id never gets another schema
        self._remove(value.subject, value.version)
        versions = self.subjects.setdefault(value.subject, {})
        is_next = not versions or next(reversed(versions)) < value.version
        versions[value.version] = value
        if not is_next:
            self.subjects[value.subject] = dict(sorted(versions.items()))
        self.by_id.setdefault(place, {})[value.subject, value.version] = None
        self.ids.setdefault((place[0], value.identity), value.id)
        self.last_ids[place[0]] = max(self.last_id(place[0]), value.id)
        self.count += 1
        self.memory += value.memory
        for one in value.references:
            self._users.setdefault(_meant(value.subject, one), {})[value.subject, value.version] = None

    def _remove(self, subject: str, version: int) -> None:
        versions = self.subjects.get(subject, {})
        old = versions.pop(version, None)
        if old is None:
            return
        if not versions:
            del self.subjects[subject]
        self.count -= 1
        self.memory -= old.memory
        for one in old.references:
            meant = _meant(subject, one)
            if users := self._users.get(meant):
                users.pop((subject, version), None)
                if not users:
                    del self._users[meant]
        place = context_of(subject), old.id
        del self.by_id[place][subject, version]
        if not self.by_id[place]:
            del self.by_id[place]
            if self.ids.get((place[0], old.identity)) == old.id:
                del self.ids[place[0], old.identity]

    def _identity_of(self, place: tuple[str, int]) -> Identity:
        subject, version = next(iter(self.by_id[place]))
        return self.subjects[subject][version].identity

    # Questions

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaValue]:
        """The versions of a subject in order; those deleted softly only if they are asked for."""
        return [one for one in self.subjects.get(subject, {}).values() if deleted or not one.deleted]

    def latest(self, subject: str) -> SchemaValue | None:
        """The last version of a subject that was not deleted."""
        return next((one for one in reversed(self.subjects.get(subject, {}).values()) if not one.deleted), None)

    def last_id(self, context: str) -> int:
        """The highest id of a context so far."""
        return self.last_ids.get(context, 0)

    def meant(self, scope: str | None) -> list[str]:
        """The subjects that a scope of settings means: one, those of a context, or all."""
        if scope is None or scope == contexts.GLOBAL:
            return sorted(self.subjects)
        if contexts.place(scope).subject:
            return [scope] if scope in self.subjects else []
        return [one for one in sorted(self.subjects) if contexts.scope(context_of(one)) == scope]

    def named(self, schema_id: int, context: str = DEFAULT, *, deleted: bool = True) -> Iterator[SchemaValue]:
        """The versions of a context that have an id, by subject and version."""
        for subject, version in sorted(self.by_id.get((context, schema_id), {})):
            one = self.subjects[subject][version]
            if deleted or not one.deleted:
                yield one

    def level(self, subject: str) -> str:
        """The compatibility level that counts for a subject."""
        levels = (one.compatibility_level for one in self.configs_of(subject))
        return next((one for one in levels if one is not None), DEFAULT_LEVEL)

    def normalizes(self, subject: str) -> bool:
        """Whether every schema of a subject is normalized."""
        flags = (one.normalize for one in self.configs_of(subject))
        return next((one for one in flags if one is not None), False)

    def configs_of(self, scope: str | None) -> list[ConfigValue]:
        """The settings of a subject or a context, of its context, and of all."""
        return [self.configs[one] for one in _scopes(scope) if one in self.configs]

    def mode(self, scope: str | None) -> str:
        """The mode that counts for a subject, a context or all."""
        return next((self.modes[one] for one in _scopes(scope) if one in self.modes), READWRITE)

    def users(self, subject: str, version: int) -> list[SchemaValue]:
        """The versions that import one, those deleted softly included."""
        return [self.subjects[one][at] for one, at in self._users.get((subject, version), ())]

    def reference(self, importer: str, one: SchemaReference) -> SchemaValue | None:
        """The schema that a subject imports; version -1 is the latest."""
        subject, version = _meant(importer, one)
        return self.latest(subject) if version == -1 else self.subjects.get(subject, {}).get(version)


def _meant(importer: str, one: SchemaReference) -> tuple[str, int]:
    """The subject and the version of a reference; without a context it is in that of who imports."""
    return contexts.within(context_of(importer), one.subject), one.version


def _scopes(scope: str | None) -> tuple[str | None, ...]:
    """Where settings and modes stand, the first one that has any counts: a subject, its context or all, then `GLOBAL`.

    For the default context, None is its scope.
    """
    return scope, contexts.scope(context_of(scope or "")) or None, contexts.GLOBAL


def _meaning(key: Key) -> tuple[str | int | None, ...]:
    """The subject of a key, whatever its spelling."""
    match key:
        case SchemaKey(subject=subject, version=version):
            return "SCHEMA", subject, version
        case ConfigKey(of=of) | ModeKey(of=of) | ClearSubjectKey(of=of):
            return type(key).__name__, of
        case DeleteSubjectKey(subject=subject):
            return "DELETE_SUBJECT", subject
        case ContextKey(tenant=tenant, context=name):
            return "CONTEXT", tenant, name
        case _:
            return ("NOOP",)


def _decoded(value: bytes, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
