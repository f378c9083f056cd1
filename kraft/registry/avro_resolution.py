"""Whether a reader with one Avro schema reads what another one wrote: schema resolution, as Java's library checks it.

`avro.compatibility` says the same in steps that grow with the square of the fields, and of the branches of unions. Here
each pair of types is looked at once, a field is found by its name, and so is the branch of a union.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from kraft.registry.schemas import Difference

NAMED: Final = ("record", "enum", "fixed")
_READ_BY: Final = {
    "null": ("null",),
    "boolean": ("boolean",),
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "bytes": ("bytes", "string"),
    "string": ("string", "bytes"),
    "array": ("array",),
    "map": ("map",),
}
"""By kind of the writer the kinds that read it."""


class Field(Struct, eq=False):
    """A field of a record."""

    name: str
    aliases: Sequence[str]
    has_default: bool
    type: Type


class Type(Struct, eq=False):
    """A type, equal to itself alone."""

    kind: str
    """Its type in a word; an error is a record."""
    name: str = ""
    """The full name of a record, an enum or a fixed."""
    aliases: Sequence[str] = ()
    fields: dict[str, Field] = {}
    symbols: Sequence[str] = ()
    default: Any = None
    size: int = 0
    inner: Type | None = None
    """The items of an array, the values of a map."""
    branches: list[Type] = []
    table: dict[tuple[str, str], list[Type]] = {}
    """The branches by their kinds, with their simple names or with a dot and an alias."""

    @property
    def simple(self) -> str:
        """The name without the namespace."""
        return self.name.rpartition(".")[2]

    def readers(self, writer: Type) -> Iterator[Type]:
        """The branches of a union that may read what a type wrote."""
        if writer.kind in NAMED:
            keys = [(writer.kind, writer.simple), (writer.kind, f".{writer.name}")]
        else:
            keys = [(kind, "") for kind in _READ_BY[writer.kind]]
        for key in keys:
            yield from self.table.get(key, ())


_Pair = tuple[Type, Type]


def types_of(tree: Any) -> Type:
    """The types of a schema.

    Args:
        tree: The schema as JSON, with full names everywhere.

    Raises:
        KeyError, TypeError, AttributeError: It is no schema.
    """
    return _Reading().type(tree)


class _Reading:
    """Of one schema."""

    def __init__(self) -> None:
        self._known = {kind: Type(kind) for kind in _READ_BY if kind not in ("array", "map")}

    def type(self, schema: Any) -> Type:
        match schema:
            case str():
                return self._known[schema]
            case list():
                return self._union(schema)
            case {"type": "array" | "map" as kind}:
                return Type(kind, inner=self.type(schema["items" if kind == "array" else "values"]))
            case {"type": "record" | "error" | "enum" | "fixed" as kind}:
                return self._named("record" if kind == "error" else kind, schema)
            case _:
                return self._known[schema["type"]]

    def _union(self, schema: list[Any]) -> Type:
        branches = [self.type(one) for one in schema]
        table: dict[tuple[str, str], list[Type]] = {}
        for one in branches:
            for key in (one.simple, *(f".{alias}" for alias in one.aliases)):
                table.setdefault((one.kind, key), []).append(one)
        return Type("union", branches=branches, table=table)

    def _named(self, kind: str, schema: Any) -> Type:
        name = schema["name"]
        found = self._known[name] = Type(kind, name, schema.get("aliases", ()))
        match kind:
            case "record":
                found.fields = {
                    one["name"]: Field(one["name"], one.get("aliases", ()), "default" in one, self.type(one["type"]))
                    for one in schema["fields"]
                }
            case "enum":
                found.symbols, found.default = schema["symbols"], schema.get("default")
            case _:
                found.size = schema["size"]
        return found


class Resolution:
    """Of what a writer wrote by a reader."""

    def __init__(self, reader: Type, writer: Type) -> None:
        self._reader = reader
        self._writer = writer
        self._known: dict[_Pair, bool] = {}
        """The verdicts on pairs of types. One that is being looked at is taken as good, as types may be recursive."""
        self._trail: list[_Pair] = []
        """The good ones in order; what a failure may have made good wrongly is forgotten."""
        self._assumed: set[_Pair] = set()
        """The pairs that were taken as good while they were looked at."""
        self._explained: set[_Pair] = set()

    def differences(self) -> Iterator[Difference]:
        """Why the reader cannot read, each with its place."""
        if not self._reads(self._reader, self._writer):
            yield from self._reasons(self._reader, self._writer, "")

    def _reads(self, reader: Type, writer: Type) -> bool:
        pair = reader, writer
        if (known := self._known.get(pair)) is not None:
            if known:
                self._assumed.add(pair)
            return known
        self._known[pair] = True
        mark = len(self._trail)
        self._trail.append(pair)
        if self._holds(reader, writer):
            return True
        if pair in self._assumed:
            for one in self._trail[mark:]:
                del self._known[one]
            del self._trail[mark:]
        self._known[pair] = False
        return False

    def _holds(self, reader: Type, writer: Type) -> bool:
        if writer.kind == "union":
            return all(self._reads(reader, one) for one in writer.branches)
        match reader.kind:
            case "union":
                return any(self._reads(one, writer) for one in reader.readers(writer))
            case "record" | "enum" | "fixed" if writer.kind == reader.kind:
                return _has_name(reader, writer) and self._holds_named(reader, writer)
            case "array" | "map" if writer.kind == reader.kind:
                assert reader.inner is not None
                assert writer.inner is not None
                return self._reads(reader.inner, writer.inner)
            case kind:
                return kind in _READ_BY.get(writer.kind, ())

    def _holds_named(self, reader: Type, writer: Type) -> bool:
        match reader.kind:
            case "record":
                return all(self._problem(one, writer) is None for one in reader.fields.values())
            case "enum":
                return not _missing_symbols(reader, writer)
            case _:
                return reader.size == writer.size

    def _problem(self, field: Field, writer: Type) -> Difference | Field | None:
        """Why a field of the reader cannot be read; the writer's field if its type is why."""
        found = [writer.fields[one] for one in (field.name, *field.aliases) if one in writer.fields]
        if len(found) > 1:
            what = f"{field.name} may be each of {', '.join(one.name for one in found)}"
            return Difference("NAME_MISMATCH", what, "")
        if not found:
            return None if field.has_default else Difference("READER_FIELD_MISSING_DEFAULT_VALUE", field.name, "")
        return None if self._reads(field.type, found[0].type) else found[0]

    # Once it is known that something cannot be read

    def _reasons(self, reader: Type, writer: Type, where: str) -> Iterator[Difference]:
        if (reader, writer) in self._explained:
            return
        self._explained.add((reader, writer))
        if writer.kind == "union":
            for at, one in enumerate(writer.branches):
                if not self._reads(reader, one):
                    if reader.kind == "union":
                        yield _lacking(one, f"{where}/{at}")
                    else:
                        yield from self._reasons(reader, one, where)
        elif reader.kind == "union":
            yield _lacking(writer, where or "/")
        elif reader.kind != writer.kind:
            what = f"reader type: {reader.kind} not compatible with writer type: {writer.kind}"
            yield Difference("TYPE_MISMATCH", what, where or "/")
        elif reader.kind in NAMED:
            yield from self._reasons_of_named(reader, writer, where)
        else:
            assert reader.inner is not None
            assert writer.inner is not None
            inner = "items" if reader.kind == "array" else "values"
            yield from self._reasons(reader.inner, writer.inner, f"{where}/{inner}")

    def _reasons_of_named(self, reader: Type, writer: Type, where: str) -> Iterator[Difference]:
        if not _has_name(reader, writer):
            yield Difference("NAME_MISMATCH", f"expected: {writer.name}", f"{where}/name")
        if missing := _missing_symbols(reader, writer):
            yield Difference("MISSING_ENUM_SYMBOLS", f"[{', '.join(missing)}]", f"{where}/symbols")
        if reader.size != writer.size:
            what = f"expected: {writer.size}, found: {reader.size}"
            yield Difference("FIXED_SIZE_MISMATCH", what, f"{where}/size")
        for at, field in enumerate(reader.fields.values()):
            place = f"{where}/fields/{at}"
            match self._problem(field, writer):
                case Field(type=theirs):
                    yield from self._reasons(field.type, theirs, f"{place}/type")
                case Difference() as problem:
                    yield problem._replace(where=place)


def _has_name(reader: Type, writer: Type) -> bool:
    """Whether the simple names are equal, or one of the reader's aliases is the writer's full name."""
    return reader.simple == writer.simple or writer.name in reader.aliases


def _missing_symbols(reader: Type, writer: Type) -> list[str]:
    """The symbols that the reader has not, unless it has a default for them."""
    known = frozenset(reader.symbols)
    return [] if reader.default in known else [one for one in writer.symbols if one not in known]


def _lacking(writer: Type, where: str) -> Difference:
    return Difference("MISSING_UNION_BRANCH", f"reader union lacking writer type: {writer.kind.upper()}", where)
