"""The REST API of the common registry: a table of routes, each a function from what is registered to an answer.

A handler is a generator. It yields `Run` for work that takes long, and is sent its result; it yields `Write` for
records, and goes on when they are written and were read back; and it returns its answer. Handlers do no I/O. What a
handler runs comes before what it writes: it is started anew when a result is there (`kraft.registry.service`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Struct, structs

from kraft.registry import contexts, schemas
from kraft.registry.contexts import context_of
from kraft.registry.records import (
    AVRO,
    PER_ENTRY,
    PROTOBUF,
    TENANT,
    ClearSubjectKey,
    ClearSubjectValue,
    ConfigKey,
    ConfigValue,
    ContextKey,
    ContextValue,
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
    identity,
)
from kraft.registry.schemas import CannotCheck, Earlier, Imported, InvalidSchema, Source, TooCostly
from kraft.registry.state import DEFAULT_LEVEL, READWRITE, State
from metadata_log.software import SOFTWARE_NAME, SOFTWARE_VERSION

MEDIA_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
"""The types of answers, the preferred one first; bodies have one of them, or no type (`application/octet-stream`)."""
GROUP: Final = "schema-registry"
"""The default name of a cluster of registries, as in the common registry."""
MODES: Final = (READWRITE, "READONLY", "READONLY_OVERRIDE", "IMPORT")
READ_ONLY: Final = ("READONLY", "READONLY_OVERRIDE")
MAX_SUBJECT: Final = 1024
MAX_VERSIONS: Final = 10_000
"""So many versions are there at most, of all subjects together."""
MAX_MEMORY: Final = 64 << 20
"""So many bytes of memory do they take at most, with the settings and modes of subjects."""
MAX_LISTED: Final = 1000
"""So many versions with their schemas are in one answer at most, as in the common registry; `offset` gets the next."""
MAX_LISTED_BYTES: Final = 4 << 20
"""An answer with several versions ends before their schemas are longer."""
MAX_IMPORTS: Final = 200
MAX_QUESTION: Final = 4 << 20
"""So many characters do the schemas have that one question is about: the schema, the earlier ones, what all import."""
MAX_PARTS: Final = 4000
"""So many schemas and references are looked at for one question."""
MAX_TREES: Final = 1 << 16
"""So many bytes do the metadata and the rules of a schema have."""
_BASE64: Final = re.compile(r"[\w+/=\s]+", re.ASCII)
MAX_MATCHED: Final = 50
"""So many versions, the latest of a subject, are looked at for a schema in other words."""
MAX_VALUE: Final = 1_000_000
"""The most bytes of a record, so that a broker with Kafka's default takes it (`max.message.bytes`)."""
MAX_VERSION: Final = (1 << 31) - 1
T = TypeVar("T")


class Answer(Struct, frozen=True):
    """A status, and what is sent as JSON; bytes are sent as they are."""

    status: int
    body: object


class Refused(Exception):
    """The registry says no.

    Args:
        status: The status of HTTP.
        code: The code of the common registry.
        message: What is wrong.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def answer(self) -> Answer:
        """The answer that says it."""
        return Answer(self.status, {"error_code": self.code, "message": self.message})


class Run(Struct, frozen=True):
    """A call that may take long, of a function of `schemas`, which needs nothing else."""

    function: Callable[..., object]
    arguments: tuple[Any, ...]


class Write(Struct, frozen=True):
    """Records for the topic, in order. Many are made while others are written."""

    records: Iterable[Record]


Program = Generator[Run | Write, Any, Answer]


class Asked(Struct, frozen=True):
    """A request, with the variable parts of its path by name."""

    path: dict[str, str]
    query: dict[str, str]
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """A parameter of the query that is true or false."""
        return self.query.get(name, "").lower() == "true"

    @property
    def subject(self) -> str:
        """The subject in the path."""
        return _subject(self._within(self.path["subject"]))

    @property
    def scope(self) -> str | None:
        """The subject or the context whose settings or mode are meant; None for all in the default context."""
        name = self._within(self.path.get("subject", ""))
        return None if not name else _subject(name, is_scope=True)

    @property
    def place(self) -> contexts.Place:
        """The context, and perhaps the subject, that `subject` in the query says."""
        return contexts.place(self._within(self.query.get("subject", "")))

    @property
    def prefix(self) -> str | None:
        """The beginning of the wanted subjects; None if the query says nothing."""
        given = self.query.get("subjectPrefix")
        return self._within(given or "") if given is not None or "context" in self.path else None

    def _within(self, name: str) -> str:
        """A name in the context of the path (`/contexts/.test/…`), unless it says another one."""
        return contexts.within(self.path.get("context", contexts.DEFAULT), name)

    def page(self, found: Sequence[T]) -> list[T]:
        """The part of a list that `offset` and `limit` select."""
        return self.first(found, len(found))

    def first(self, found: Iterable[T], most: int) -> list[T]:
        """As `page`, and so many at most; looks at no more than it needs."""
        start, limit = max(0, self._number("offset", 0)), self._number("limit", -1)
        return list(islice(found, start, start + (most if limit < 0 else min(limit, most))))

    def _number(self, name: str, default: int) -> int:
        try:
            return int(self.query.get(name, default))
        except ValueError:
            raise Refused(400, 400, f"{name} is a number") from None


class NewSchema(Struct, rename="camel"):
    """The body of a registration, a look-up or a check."""

    schema: str = ""
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None


class _Trees(Struct, rename="camel"):
    """The parts of a body that may be large once it is read."""

    metadata: msgspec.Raw = msgspec.Raw()
    rule_set: msgspec.Raw = msgspec.Raw()


class NewConfig(Struct, rename="camel", forbid_unknown_fields=True):
    """The body that sets a compatibility level. What else the common registry knows has no effect here."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None


class NewMode(Struct):
    """The body that sets a mode."""

    mode: str = ""


B = TypeVar("B", bound=Struct)


def _body(asked: Asked, kind: type[B]) -> B:
    try:
        body, encoding = asked.body, json.detect_encoding(asked.body)
        if encoding != "utf-8":  # JSON tells by itself what it is in
            body = body.decode(encoding).encode()
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as bad:
        raise Refused(422, 422, f"the body is not as it should be: {bad}") from bad
    except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
        raise Refused(400, 400, f"the body is no JSON: {bad}") from bad


# Subjects, versions, ids


def _subject(name: str, *, is_scope: bool = False) -> str:
    """A subject with its context, or for settings a context alone."""
    context, subject = contexts.place(name)
    is_bad = subject in ("__GLOBAL", "__EMPTY") or len(name) > MAX_SUBJECT
    if not is_scope:
        is_bad |= not subject or contexts.scope(context) == contexts.GLOBAL
    if is_bad or any(ord(one) < 32 or 0x7F <= ord(one) < 0xA0 for one in name):
        raise Refused(422, 42208, f"The specified subject '{name[:MAX_SUBJECT]}' is not a valid subject.")
    return contexts.Place(context, subject).full


def _no_subject(subject: str) -> Refused:
    return Refused(404, 40401, f"Subject '{subject}' not found.")


def _no_schema(what: object = "") -> Refused:
    return Refused(404, 40403, f"Schema {what} not found" if what else "Schema not found")


def _version_number(given: str) -> int:
    """A version in a path; -1 for the latest."""
    if given in ("latest", "-1"):
        return -1
    if given.isascii() and given.isdigit() and len(given) <= 10 and 1 <= int(given) <= MAX_VERSION:
        return int(given)
    raise Refused(
        422,
        42202,
        f"The specified version '{given[:40]}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def _known(state: State, subject: str) -> Iterator[str]:
    """A subject, and where its name says no context those of other contexts with that name."""
    yield subject
    if context_of(subject) == contexts.DEFAULT:
        yield from (contexts.Place(one, subject).full for one in state.contexts)


def _version(state: State, asked: Asked, *, deleted: bool, everywhere: bool = False) -> SchemaValue:
    """The version that a path names; the latest is never one that was deleted."""
    subject, number = asked.subject, _version_number(asked.path["version"])
    for one in _known(state, subject) if everywhere else (subject,):
        value = state.latest(one) if number == -1 else state.subjects.get(one, {}).get(number)
        if value is not None and (deleted or not value.deleted):
            return value
    if not state.versions(subject, deleted=deleted):
        raise _no_subject(subject)
    raise Refused(404, 40402, f"Version {number} not found.")


def _with_id(state: State, asked: Asked) -> SchemaValue:
    """The schema whose id a path names: of the subject that the query names, or of its context."""
    given = asked.path["id"]
    if not (given.isascii() and given.isdigit() and len(given) <= 10):
        raise Refused(404, 404, "HTTP 404 Not Found")
    number, (context, subject) = int(given), asked.place
    if subject:
        for one in _known(state, asked.place.full):
            for value in state.named(number, context_of(one)):
                if value.subject == one:
                    return value
    found = None if subject and context != contexts.DEFAULT else next(state.named(number, context), None)
    if found is None:
        raise _no_schema(given)
    return found


class _Room:
    """The rest of one question's bounds."""

    def __init__(self) -> None:
        self._characters = MAX_QUESTION
        self._parts = MAX_PARTS

    def take(self, parts: int, characters: int = 0) -> None:
        """Count a part; raises `TooCostly` if that is too much."""
        self._parts -= parts
        self._characters -= characters
        if self._parts < 0 or self._characters < 0:
            raise TooCostly(
                f"it is about more than {MAX_PARTS:,} schemas and references, or {MAX_QUESTION:,} characters"
            )


def _imports(state: State, importer: str, references: Sequence[SchemaReference], room: _Room) -> tuple[Imported, ...]:
    """All that a schema of a subject imports, also by imports; what is imported comes first."""
    room.take(len(references))
    imports: dict[tuple[str, str, int], Imported | None] = {}
    waiting = [(importer, one, False) for one in references][::-1]
    while waiting:
        by, one, is_done = waiting.pop()
        value = state.reference(by, one)
        if value is None:
            raise Refused(
                422, 42201, f'No schema reference found for subject "{one.subject}" and version {one.version}'
            )
        place = one.name, value.subject, value.version
        if is_done:
            imports[place] = imports.pop(place) or Imported(one.name, value.schema)
        elif place not in imports:
            imports[place] = None
            if len(imports) > MAX_IMPORTS:
                raise Refused(422, 42201, f"a schema imports at most {MAX_IMPORTS} others")
            room.take(len(value.references), len(value.schema))
            waiting.append((by, one, True))
            waiting += [(value.subject, inner, False) for inner in value.references[::-1]]
    return tuple(one for one in imports.values() if one is not None)


def _source(state: State, value: SchemaValue, room: _Room | None = None) -> Source:
    room = room or _Room()
    room.take(1, len(value.schema))
    return Source(value.schema_type, value.schema, _imports(state, value.subject, value.references, room))


def _run(function: Callable[..., T], *arguments: Any) -> Generator[Run | Write, Any, T]:
    """Let a call be made that may take long; a schema that is none is refused."""
    try:
        result: T = yield Run(function, arguments)
        return result
    except (InvalidSchema, TooCostly) as bad:
        raise Refused(422, 42201, f"Invalid schema: {bad}") from bad


# What is sent


def _contents(value: SchemaValue, text: str | None = None) -> dict[str, object]:
    """The parts of a schema that are the same wherever it is registered, for an answer."""
    contents: dict[str, object] = {"guid": value.identity[1]}
    if value.schema_type != AVRO:
        contents["schemaType"] = value.schema_type
    if value.references:
        contents["references"] = value.references
    if value.metadata is not None:
        contents["metadata"] = value.metadata
    if value.rule_set is not None:
        contents["ruleSet"] = value.rule_set
    return contents | {"schema": value.schema if text is None else text}


def _entity(value: SchemaValue, text: str | None = None) -> dict[str, object]:
    """A version of a subject."""
    return {"subject": value.subject, "version": value.version, "id": value.id, **_contents(value, text)}


def _text(state: State, asked: Asked, value: SchemaValue) -> Generator[Run | Write, Any, str]:
    """The text of a schema in the form that is asked for."""
    form = asked.query.get("format", "")
    if form in ("", "default"):
        return value.schema
    return (yield from _run(schemas.rendered, _source(state, value), form))


# Handlers: schemas by id


def root(state: State, asked: Asked) -> Program:
    """Answers, so that a client knows that the registry runs."""
    yield from ()
    return Answer(200, {})


def server_id(state: State, asked: Asked) -> Program:
    """The ids of the Kafka cluster and of the cluster of registries."""
    yield from ()
    clusters = {"kafka-cluster": state.cluster_id, "schema-registry-cluster": GROUP}
    return Answer(200, {"scope": {"path": [], "clusters": clusters}})


def server_version(state: State, asked: Asked) -> Program:
    """The version of this program."""
    yield from ()
    return Answer(200, {"version": SOFTWARE_VERSION, "commitId": SOFTWARE_NAME})


def types(state: State, asked: Asked) -> Program:
    """The types of schemas whose libraries are installed."""
    yield from ()
    return Answer(200, schemas.installed())


def every_context(state: State, asked: Asked) -> Program:
    """The contexts that have subjects, or had some; `contextPrefix`."""
    yield from ()
    prefix = asked.query.get("contextPrefix", "")
    return Answer(
        200, asked.page([one for one in (contexts.DEFAULT, *sorted(state.contexts)) if one.startswith(prefix)])
    )


def delete_context(state: State, asked: Asked) -> Program:
    """Forget a context without subjects."""
    name = asked.path["context"]
    if state.meant(contexts.scope(name)) or name == contexts.DEFAULT:
        raise Refused(422, 42211, f"The specified context '{name[:MAX_SUBJECT]}' is not empty.")
    if name in state.contexts:
        yield Write(state.records(ContextKey(TENANT, name), None))
    return Answer(204, b"")


def every_schema(state: State, asked: Asked) -> Program:
    """Versions with their schemas, by subject; `subjectPrefix`, and `latestOnly=true` for the latest alone."""
    yield from ()
    with_deleted, begin = asked.flag("deleted"), -1 if asked.flag("latestOnly") else 0
    selected = (
        one
        for subject in _subjects(state, asked.prefix or "")
        for one in state.versions(subject, deleted=with_deleted)[begin:]
    )
    listed: list[dict[str, object]] = []
    left = MAX_LISTED_BYTES
    for one in asked.first(selected, MAX_LISTED):
        left -= len(one.schema)
        if left < 0 and listed:
            break
        listed.append(_entity(one))
    return Answer(200, listed)


def by_id(state: State, asked: Asked) -> Program:
    """The schema with an id."""
    value = _with_id(state, asked)
    text = yield from _text(state, asked, value)
    contents = _contents(value, text)
    if asked.flag("includeSubjects"):  # as Karapace has it
        contents["subjects"] = sorted(
            {one.subject for one in state.named(value.id, context_of(value.subject), deleted=False)}
        )
    if asked.flag("fetchMaxId"):
        contents["maxId"] = state.last_id(context_of(value.subject))
    return Answer(200, contents)


def text_by_id(state: State, asked: Asked) -> Program:
    """The text of the schema with an id, alone."""
    text = yield from _text(state, asked, _with_id(state, asked))
    return Answer(200, text.encode())


def _places(state: State, asked: Asked) -> list[SchemaValue]:
    value = _with_id(state, asked)
    # As in the common registry, which knows one version of each subject.
    last = {one.subject: one for one in state.named(value.id, context_of(value.subject))}
    values = [one for one in last.values() if asked.flag("deleted") or not one.deleted]
    wanted = {*_known(state, asked.place.full)} if asked.place.subject else None
    return [one for one in values if wanted is None or one.subject in wanted]


def subjects_of_id(state: State, asked: Asked) -> Program:
    """The subjects under which the schema with an id is registered."""
    yield from ()
    return Answer(200, asked.page(list(dict.fromkeys(one.subject for one in _places(state, asked)))))


def versions_of_id(state: State, asked: Asked) -> Program:
    """The subjects with the versions under which the schema with an id is registered."""
    yield from ()
    return Answer(200, [{"subject": one.subject, "version": one.version} for one in asked.page(_places(state, asked))])


def _ids_of_guid(state: State, asked: Asked) -> list[tuple[str, int]]:
    """The ids with their contexts, the default one first."""
    guid = asked.path["guid"]
    ids = sorted((context, number) for (context, (_, one)), number in state.ids.items() if one == guid)
    if not ids:
        raise _no_schema(guid[:40])
    return ids


def by_guid(state: State, asked: Asked) -> Program:
    """The schema with a guid, which its contents decide."""
    context, number = _ids_of_guid(state, asked)[0]
    value = next(state.named(number, context))
    text = yield from _text(state, asked, value)
    return Answer(200, {"id": value.id, **_contents(value, text)})


def ids_of_guid(state: State, asked: Asked) -> Program:
    """The ids of a guid, in all contexts."""
    yield from ()
    return Answer(200, [{"context": context, "id": one} for context, one in _ids_of_guid(state, asked)])


# Handlers: subjects


def _subjects(state: State, prefix: str | None) -> list[str]:
    """The subjects that begin so, in the context that the prefix says; None for all."""
    names = sorted(state.subjects)
    if prefix is None:
        return names
    if prefix.startswith(contexts.EVERY):
        start = prefix.removeprefix(contexts.EVERY)
        return [one for one in names if contexts.place(one).subject.startswith(start)]
    context, start = contexts.place(prefix)
    return [one for one in names if _begins(one, context, start)]


def _begins(name: str, context: str, start: str) -> bool:
    """Whether a subject is of a context, and begins so there; most names say no context."""
    if not name.startswith(contexts.MARK):
        return context == contexts.DEFAULT and name.startswith(start)
    place = contexts.place(name)
    return place.context == context and place.subject.startswith(start)


def _only_deleted(asked: Asked) -> bool:
    # The client of confluent-kafka writes the name of the parameter in its own way.
    return asked.flag("deletedOnly") or asked.flag("deleted_only")


def subjects(state: State, asked: Asked) -> Program:
    """The names of all subjects, or of those that begin with `subjectPrefix`."""
    yield from ()
    if _only_deleted(asked):
        names = [one for one in _subjects(state, asked.prefix) if not state.versions(one)]
    else:
        names = [one for one in _subjects(state, asked.prefix) if state.versions(one, deleted=asked.flag("deleted"))]
    return Answer(200, asked.page(names))


def versions(state: State, asked: Asked) -> Program:
    """The versions of a subject; `deletedAsNegative=true` gives those deleted softly a minus sign."""
    yield from ()
    subject, only = asked.subject, _only_deleted(asked)
    if not state.versions(subject, deleted=asked.flag("deleted") or only):
        raise _no_subject(subject)
    if asked.flag("deletedAsNegative"):
        every = state.versions(subject, deleted=True)
        return Answer(200, asked.page([-one.version if one.deleted else one.version for one in every]))
    every = state.versions(subject, deleted=asked.flag("deleted") or only)
    return Answer(200, asked.page([one.version for one in every if one.deleted or not only]))


def version(state: State, asked: Asked) -> Program:
    """One version of a subject, or the latest."""
    value = _version(state, asked, deleted=asked.flag("deleted"), everywhere=True)
    text = yield from _text(state, asked, value)
    return Answer(200, _entity(value, text))


def version_text(state: State, asked: Asked) -> Program:
    """The text of one version, alone."""
    text = yield from _text(state, asked, _version(state, asked, deleted=asked.flag("deleted"), everywhere=True))
    return Answer(200, text.encode())


def referenced_by(state: State, asked: Asked) -> Program:
    """The ids of the schemas that import a version."""
    yield from ()
    value = _version(state, asked, deleted=True)
    referencing = state.users(value.subject, value.version)
    return Answer(200, asked.page(sorted({one.id for one in referencing if asked.flag("deleted") or not one.deleted})))


class _New(Struct, frozen=True, dict=True):
    """A schema from a body, in canonical form."""

    given: NewSchema
    source: Source
    references: tuple[SchemaReference, ...]
    normalize: bool

    @cached_property
    def identity(self) -> Identity:
        return identity(self.source.type, self.source.text, self.references, self.given.metadata, self.given.rule_set)


def _new(state: State, asked: Asked, subject: str) -> Generator[Run | Write, Any, _New]:
    sizes = _body(asked, _Trees)
    if len(sizes.metadata) + len(sizes.rule_set) > MAX_TREES:
        raise Refused(422, 42209, f"metadata and ruleSet have at most {MAX_TREES:,} bytes")
    given = _body(asked, NewSchema)
    if not given.schema:
        raise Refused(422, 42201, "Empty schema")
    if len(given.references or ()) > MAX_IMPORTS:
        raise Refused(422, 42201, f"a schema imports at most {MAX_IMPORTS} others")
    references = tuple(_numbered(state, subject, given.references or ()))
    wanted = given.schema_type or AVRO
    # The constant itself, which msgspec knows as the default that a record leaves out.
    try:
        source = Source(AVRO if wanted == AVRO else wanted, given.schema, _imports(state, subject, references, _Room()))
    except TooCostly as large:
        raise Refused(422, 42201, f"Invalid schema: {large}") from large
    normalize = asked.flag("normalize") or state.normalizes(subject)
    text = yield from _run(schemas.canonical, source, normalize)
    return _New(given, structs.replace(source, text=text), references, normalize)


def _echoed(new: _New, value: SchemaValue) -> str:
    """The text of a registered schema for its sender.

    A client that sent a descriptor keeps the answer as what it sent: that of confluent-kafka reads no text.
    """
    came_as_descriptor = value.schema_type == PROTOBUF and _BASE64.fullmatch(new.given.schema)
    return new.given.schema if came_as_descriptor else value.schema


def _in_other_words(
    state: State, new: _New, versions: Sequence[SchemaValue]
) -> Generator[Run | Write, Any, SchemaValue | None]:
    """The latest version that is the same schema, though its text is another one; the oldest are not looked at."""
    wanted = new.source.type, new.given.metadata, new.given.rule_set
    candidates, sources, room = [], [], _Room()
    try:
        for one in versions[: -MAX_MATCHED - 1 : -1]:
            is_same = set(one.references) == set(new.references) if new.normalize else one.references == new.references
            if is_same and (one.schema_type, one.metadata, one.rule_set) == wanted:
                sources.append(_source(state, one, room))
                candidates.append(one)
    except TooCostly:
        pass  # the latest are enough
    if not candidates:
        return None
    try:
        at: int | None = yield Run(schemas.matching, (new.source, tuple(sources), new.normalize))
    except (InvalidSchema, TooCostly):
        return None
    return None if at is None else candidates[at]


def _numbered(state: State, importer: str, references: Iterable[SchemaReference]) -> Iterator[SchemaReference]:
    """References with the number of the latest version instead of -1."""
    latest: dict[str, SchemaValue | None] = {}
    for one in references:
        if one.version != -1:
            yield one
            continue
        if one.subject not in latest:
            latest[one.subject] = state.reference(importer, one)
        value = latest[one.subject]
        yield one if value is None else structs.replace(one, version=value.version)


def look_up(state: State, asked: Asked) -> Program:
    """Whether a schema is registered under a subject, and as which version."""
    subject, deleted = asked.subject, asked.flag("deleted")
    new = yield from _new(state, asked, subject)
    registered = None
    for name in _known(state, subject):
        known = state.versions(name, deleted=deleted)
        registered = next((one for one in reversed(known) if one.identity == new.identity), None)
        if registered is None and known:
            registered = yield from _in_other_words(state, new, known)
        if registered is not None:
            break
    if registered is None:
        raise _no_schema() if state.versions(subject, deleted=deleted) else _no_subject(subject)
    text = _echoed(new, registered)
    if asked.query.get("format"):
        text = yield from _text(state, asked, registered)
    return Answer(200, _entity(registered, text))


def register(state: State, asked: Asked) -> Program:
    """Register a schema under a subject: the one with the same contents, or a new version."""
    subject = asked.subject
    context = context_of(subject)
    mode = state.mode(subject)
    _check_writable(state, subject)
    new = yield from _new(state, asked, subject)
    given = new.given
    is_import = mode == "IMPORT"
    if given.id is not None and given.id >= 0 and not is_import:
        raise Refused(422, 42205, f"Subject {subject} in context {context} is not in import mode")
    if is_import and (given.id is None or given.id < 0):
        raise Refused(422, 42205, f"Subject {subject} in context {context} is not in read-write mode")
    every = state.versions(subject, deleted=True)
    known_id = state.ids.get((context, new.identity))
    if is_import:
        assert given.id is not None
        at = next(state.named(given.id, context), None)
        if at is not None and at.identity != new.identity:
            raise Refused(422, 42207, f"Overwrite new schema with id {given.id} is not permitted.")
        schema_id = given.id
    else:
        schema_id = state.last_id(context) + 1 if known_id is None else known_id
    existing = next((one for one in every if not one.deleted and one.identity == new.identity), None)
    if existing is not None and existing.id == schema_id and not given.version:
        return Answer(200, _registered(new, existing))
    if existing is None and not given.version and not is_import:
        existing = yield from _in_other_words(state, new, [one for one in every if not one.deleted])
        if existing is not None:
            return Answer(200, _registered(new, existing))
    if not is_import:
        messages = yield from _messages(state, subject, new, [one for one in every if not one.deleted])
        if messages:
            raise Refused(
                409,
                40901,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(messages)}]',
            )
    number = max((one.version for one in every), default=0) + 1
    if (given.version or 0) > 0 and given.version != number:
        if not is_import:
            raise Refused(422, 42201, "Invalid schema: Version is not one more than previous version")
        assert given.version is not None
        number = given.version
    if not 0 < number <= MAX_VERSION or not 0 <= schema_id <= MAX_VERSION:
        raise Refused(422, 42202, "versions and ids are numbers up to 2^31-1")
    value = SchemaValue(
        subject=subject,
        version=number,
        id=schema_id,
        schema_type=new.source.type,
        references=new.references,
        metadata=given.metadata,
        rule_set=given.rule_set,
        schema=new.source.text,
        deleted=False,
    )
    records = _registration(state, value, every)
    yield Write(records)
    return Answer(200, _registered(new, value))


def _registered(new: _New, value: SchemaValue) -> dict[str, object]:
    return {"id": value.id, "version": value.version, **_contents(value, _echoed(new, value))}


def _registration(state: State, value: SchemaValue, every: Sequence[SchemaValue]) -> list[Record]:
    """The records of a new version, within the limits. Deleted versions of the same schema go, as nobody needs them."""
    records = _replaced(state, value)
    if any(len(data or b"") > MAX_VALUE for _, data in records):
        raise Refused(422, 42209, "Register operation failed because schema is too large")
    _check_room(state, value.memory + PER_ENTRY + MAX_SUBJECT)
    gone = [one for one in every if one.deleted and one.id == value.id and one.version < value.version]
    going = [one for one in gone if not state.users(one.subject, one.version)]
    return [*_opened(state, context_of(value.subject)), *_removed(state, going), *records]


def _opened(state: State, context: str) -> list[Record]:
    """The record of a context that has no subject yet."""
    if context == contexts.DEFAULT or context in state.contexts:
        return []
    return state.records(ContextKey(TENANT, context), ContextValue(TENANT, context))


def _check_room(state: State, memory: int) -> None:
    """Refuse what a stranger wants to have kept, if there is no room for it."""
    if state.count >= MAX_VERSIONS or state.memory + memory > MAX_MEMORY:
        limits = f"{MAX_VERSIONS:,} versions with {MAX_MEMORY:,} bytes"
        raise Refused(422, 42209, f"this registry is full: it has {limits} at most; delete subjects permanently")


def _replaced(state: State, value: SchemaValue) -> list[Record]:
    return state.records(SchemaKey(value.subject, value.version), value)


def _removed(state: State, values: Sequence[SchemaValue]) -> Iterator[Record]:
    for one in values:
        yield from state.records(SchemaKey(one.subject, one.version), None)


def _messages(
    state: State, subject: str, new: _New, earlier: Sequence[SchemaValue]
) -> Generator[Run | Write, Any, list[str]]:
    level = state.level(subject)
    if level == schemas.NONE:
        return []
    if not level.endswith("TRANSITIVE"):
        earlier = earlier[-1:]
    room = _Room()
    try:
        versions = tuple(Earlier(one.version, _source(state, one, room)) for one in earlier)
        messages: list[str] = yield Run(schemas.incompatibilities, (new.source, versions, level))
        return messages
    except InvalidSchema as bad:
        raise Refused(422, 42201, f"Invalid schema: {bad}") from bad
    except (CannotCheck, TooCostly) as unknown:
        hint = 'PUT /config/{subject} with {"compatibility": "NONE"} registers schemas without a check'
        raise Refused(422, 42203, f"the compatibility cannot be checked: {unknown}; {hint}") from unknown


def _check_writable(state: State, subject: str | None) -> None:
    if state.mode(subject) in READ_ONLY:
        raise Refused(422, 42205, f"Subject {subject} in context {context_of(subject or '')} is in read-only mode")


# Handlers: deletion


def _leftovers(state: State, subject: str) -> list[Record]:
    """The settings of a subject that goes for good."""
    records: list[Record] = []
    if subject in state.modes:
        records += state.records(ModeKey(subject), None)
    if subject in state.configs:
        records += state.records(ConfigKey(subject), None)
    return records


def delete_subject(state: State, asked: Asked) -> Program:
    """Delete a subject: softly, or for good with `permanent=true` once it was deleted softly."""
    subject, permanent = asked.subject, asked.flag("permanent")
    every = state.versions(subject, deleted=True)
    if not every:
        raise _no_subject(subject)
    if not permanent and all(one.deleted for one in every):
        raise Refused(404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
    _check_writable(state, subject)
    going = [one for one in every if permanent or not one.deleted]
    for one in going:
        users = [by for by in state.users(subject, one.version) if permanent or not by.deleted]
        if any(by.subject != subject for by in users):
            raise _referenced(one)
        if permanent and not one.deleted:
            raise Refused(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
    numbers = [one.version for one in going]
    if permanent:
        yield Write(chain(_removed(state, going[::-1]), _leftovers(state, subject)))
    else:
        yield Write(state.records(DeleteSubjectKey(subject), DeleteSubjectValue(subject, numbers[-1])))
    return Answer(200, numbers)


def delete_version(state: State, asked: Asked) -> Program:
    """Delete a version: softly, or for good with `permanent=true` once it was deleted softly."""
    permanent = asked.flag("permanent")
    value = _version(state, asked, deleted=True)
    subject, number = value.subject, value.version
    if value.deleted and not permanent:
        where = f"Subject '{subject}' Version {number}"
        raise Refused(404, 40406, f"{where} was soft deleted.Set permanent=true to delete permanently")
    _check_writable(state, subject)
    users = state.users(subject, number)
    if any(permanent or not by.deleted for by in users):
        raise _referenced(value)
    if not permanent:
        yield Write(_replaced(state, value.removed()))
        return Answer(200, number)
    if not value.deleted:
        where = f"Subject '{subject}' Version {number}"
        raise Refused(404, 40407, f"{where} was not deleted first before being permanently deleted")
    is_last = len(state.subjects[subject]) == 1
    yield Write([*_removed(state, [value]), *(_leftovers(state, subject) if is_last else ())])
    return Answer(200, number)


def _referenced(value: SchemaValue) -> Refused:
    place = f"{{magic=1,keytype=SCHEMA,subject={value.subject},version={value.version}}}"
    return Refused(422, 42206, f"One or more references exist to the schema {place}.")


# Handlers: compatibility


def check_version(state: State, asked: Asked) -> Program:
    """Whether a schema could follow one version, or the latest."""
    subject, number = asked.subject, _version_number(asked.path["version"])
    known = state.versions(subject)
    earlier = known[-1:] if number == -1 else [one for one in known if one.version == number]
    if not earlier and number != -1:
        raise Refused(404, 40402, f"Version {number} not found.")
    return (yield from _checked(state, asked, earlier))


def check_subject(state: State, asked: Asked) -> Program:
    """Whether a schema could be registered as the next version."""
    return (yield from _checked(state, asked, state.versions(asked.subject)))


def _checked(state: State, asked: Asked, earlier: Sequence[SchemaValue]) -> Program:
    verbose = asked.flag("verbose")
    try:
        new = yield from _new(state, asked, asked.subject)
        messages = yield from _messages(state, asked.subject, new, earlier)
    except Refused as bad:
        if not verbose or bad.code != 42201:
            raise
        messages = [bad.message]
    answer: dict[str, object] = {"is_compatible": not messages}
    return Answer(200, answer | {"messages": messages} if verbose else answer)


# Handlers: settings and modes


def _config_answer(config: ConfigValue) -> dict[str, object]:
    fields: dict[str, object] = {}
    if config.compatibility_level is not None:
        fields["compatibilityLevel"] = config.compatibility_level
    if config.normalize is not None:
        fields["normalize"] = config.normalize
    return fields


def config(state: State, asked: Asked) -> Program:
    """The settings of all subjects, or of one; `defaultToGlobal=true` falls back to those of all."""
    yield from ()
    subject = asked.scope
    effective = state.configs.get(subject)
    if effective is None and subject is not None and not asked.flag("defaultToGlobal"):
        raise Refused(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
    effective = effective or next(iter(state.configs_of(subject)), None)
    return Answer(200, {"compatibilityLevel": DEFAULT_LEVEL} | (_config_answer(effective) if effective else {}))


def set_config(state: State, asked: Asked) -> Program:
    """Set the compatibility level of all subjects or of one, and whether schemas are normalized."""
    subject = asked.scope
    given = _body(asked, NewConfig)
    level = given.compatibility or given.compatibility_level
    if (level is None and given.normalize is None) or (level or schemas.NONE).upper() not in schemas.LEVELS:
        raise Refused(
            422,
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        )
    _check_writable(state, subject)
    if subject not in state.configs:
        _check_room(state, PER_ENTRY + MAX_SUBJECT)
    old = state.configs.get(subject) or ConfigValue(subject=subject)
    new = structs.replace(
        old,
        compatibility_level=level.upper() if level else old.compatibility_level,
        normalize=old.normalize if given.normalize is None else given.normalize,
    )
    yield Write(state.records(_keyed(ConfigKey, subject), new))
    answer: dict[str, object] = {} if level is None else {"compatibility": level.upper()}
    return Answer(200, answer if given.normalize is None else answer | {"normalize": given.normalize})


def delete_config(state: State, asked: Asked) -> Program:
    """Go back to the default; for a subject to the settings of all."""
    subject = asked.scope
    old = state.configs.get(subject)
    if old is None and subject is not None:
        raise _no_subject(subject)
    _check_writable(state, subject)
    if old is not None:
        yield Write(state.records(_keyed(ConfigKey, subject), None))
    return Answer(200, {"compatibilityLevel": DEFAULT_LEVEL} | (_config_answer(old) if old else {}))


def mode(state: State, asked: Asked) -> Program:
    """The mode of all subjects, or of one; `defaultToGlobal=true` falls back to that of all."""
    yield from ()
    subject = asked.scope
    if subject is not None and subject not in state.modes and not asked.flag("defaultToGlobal"):
        raise Refused(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
    return Answer(200, {"mode": state.mode(subject)})


def set_mode(state: State, asked: Asked) -> Program:
    """Set the mode of all subjects, or of one."""
    subject = asked.scope
    wanted = _body(asked, NewMode).mode.upper()
    if wanted not in MODES:
        raise Refused(422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, and IMPORT.")
    if subject not in state.modes:
        _check_room(state, PER_ENTRY + MAX_SUBJECT)
    left: list[SchemaValue] = []
    if wanted == "IMPORT" and state.mode(subject) != "IMPORT" and not asked.flag("force"):
        meant = state.meant(subject)
        if any(state.versions(one) for one in meant):
            raise Refused(422, 42205, "Cannot import since found existing subjects")
        left = [value for one in meant for value in state.versions(one, deleted=True)]
        for one in left:
            if state.users(one.subject, one.version):
                raise _referenced(one)
    cleared = state.records(_keyed(ClearSubjectKey, subject), ClearSubjectValue(subject)) if left else []
    value = ModeValue(subject=UNSET if subject is None else subject, mode=wanted)
    yield Write(chain(_removed(state, left), cleared, state.records(_keyed(ModeKey, subject), value)))
    return Answer(200, {"mode": wanted})


def delete_mode(state: State, asked: Asked) -> Program:
    """Go back to the default mode; for a subject to that of all."""
    subject = asked.scope
    if subject is not None and subject not in state.modes:
        raise _no_subject(subject)
    old = state.mode(subject)
    if subject in state.modes:
        yield Write(state.records(_keyed(ModeKey, subject), None))
    return Answer(200, {"mode": old})


def _keyed(kind: Callable[..., Key], subject: str | None) -> Key:
    """A key that names a subject, or nothing for all."""
    return kind() if subject is None else kind(subject)


# The table


class Route(Struct, frozen=True):
    """The handler of one method and one path."""

    method: str
    path: str
    handler: Callable[[State, Asked], Program]

    @property
    def changes(self) -> bool:
        """Whether nothing else may be written meanwhile."""
        return self.method != "GET" and self.handler not in (look_up, check_version, check_subject)

    @property
    def about(self) -> str:
        """The docstring of the handler, which says what the route does."""
        return (self.handler.__doc__ or "").strip()


ROUTES: Final = (
    Route("GET", "/", root),
    Route("GET", "/subjects", subjects),
    Route("GET", "/subjects/{subject}/versions", versions),
    Route("POST", "/subjects/{subject}/versions", register),
    Route("POST", "/subjects/{subject}", look_up),
    Route("DELETE", "/subjects/{subject}", delete_subject),
    Route("GET", "/subjects/{subject}/versions/{version}", version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", delete_version),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", version_text),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", referenced_by),
    Route("GET", "/schemas", every_schema),
    Route("GET", "/schemas/types", types),
    Route("GET", "/schemas/ids/{id}", by_id),
    Route("GET", "/schemas/ids/{id}/schema", text_by_id),
    Route("GET", "/schemas/ids/{id}/subjects", subjects_of_id),
    Route("GET", "/schemas/ids/{id}/versions", versions_of_id),
    Route("GET", "/schemas/guids/{guid}", by_guid),
    Route("GET", "/schemas/guids/{guid}/ids", ids_of_guid),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", check_version),
    Route("POST", "/compatibility/subjects/{subject}/versions", check_subject),
    Route("GET", "/config", config),
    Route("PUT", "/config", set_config),
    Route("DELETE", "/config", delete_config),
    Route("GET", "/config/{subject}", config),
    Route("PUT", "/config/{subject}", set_config),
    Route("DELETE", "/config/{subject}", delete_config),
    Route("GET", "/mode", mode),
    Route("PUT", "/mode", set_mode),
    Route("DELETE", "/mode", delete_mode),
    Route("GET", "/mode/{subject}", mode),
    Route("PUT", "/mode/{subject}", set_mode),
    Route("DELETE", "/mode/{subject}", delete_mode),
    Route("GET", "/contexts", every_context),
    Route("DELETE", "/contexts/{context}", delete_context),
    Route("GET", "/v1/metadata/id", server_id),
    Route("GET", "/v1/metadata/version", server_version),
)
"""Every route of the API. HEAD is GET without the body."""
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")


def negotiated(accept: str, content_type: str) -> str:
    """The type of an answer.

    Args:
        accept: What the client takes; empty for everything.
        content_type: The type of the body; empty for none.

    Raises:
        Refused: A body of that type is not read, or no answer has a type that the client takes.
    """
    given = content_type.partition(";")[0].strip().lower()
    if given and given not in (*MEDIA_TYPES, "application/octet-stream"):
        raise Refused(415, 415, "HTTP 415 Unsupported Media Type")
    wanted = {}
    for one in accept.split(",") if accept.strip() else ["*"]:
        media, *parameters = (part.strip().lower() for part in one.split(";"))
        wanted["*" if media.startswith("*/") else media] = next(
            (_quality(each) for each in parameters if each.startswith("q=")), 1.0
        )
    qualities = {
        one: next((wanted[key] for key in (one, "application/*", "*") if key in wanted), 0.0) for one in MEDIA_TYPES
    }
    best = max(MEDIA_TYPES, key=lambda one: qualities[one])  # of equals the first
    if not qualities[best]:
        raise Refused(406, 406, "HTTP 406 Not Acceptable")
    return best


def _quality(parameter: str) -> float:
    try:
        return float(parameter.removeprefix("q="))
    except ValueError:
        return 0.0


def routed(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The route of a request, and the variable parts of its path.

    Args:
        method: The method; HEAD is GET.
        path: The path as it was sent; a `/` within a subject is escaped.

    Raises:
        Refused: There is none, or the path is no UTF-8.
    """
    method = "GET" if method == "HEAD" else method
    try:
        parts = [unquote(one, errors="strict") for one in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise Refused(400, 400, "the path is no UTF-8") from None
    if parts[-1:] == [""]:
        parts.pop()
    context = {}
    if len(parts) > 1 and parts[0] == "contexts":
        if (name := contexts.named(parts[1])) is None or len(name) > MAX_SUBJECT:
            raise Refused(400, 400, f"Context name '{parts[1][:MAX_SUBJECT]}' cannot contain a colon")
        context = {"context": name}
        parts = parts[2:] or parts
    is_known = False
    for route in ROUTES:
        names = route.path.split("/")[1:] if route.path != "/" else []
        if len(names) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(names, parts, strict=True)
        ):
            if route.method == method:
                return route, {
                    name[1:-1]: part for name, part in zip(names, parts, strict=True) if name.startswith("{")
                } | context
            is_known = True
    raise Refused(405, 405, "HTTP 405 Method Not Allowed") if is_known else Refused(404, 404, "HTTP 404 Not Found")
