"""Developer tool: schema facts (JSON) -> the committed declarations (Kafka: `MessageGenerator`).

    python -m metadata_log.serde.declare FACTS... [--pack FILE]

FACTS are Kafka's message schemas (`VoteRequest.json`, …) and the tables `apis.json` and `errors.json`: files, folders
that hold them, or all of it packed into one `.json.gz`. Every generated file is rewritten; read the diff.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metadata_log.serde.fields import Versions, camel_case

Facts = dict[str, Any]
"""File name -> its JSON."""

LINE_LENGTH: Final = 120
CONTROL_RECORDS: Final = (
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
    "QuorumStateData",
)
TYPES: Final = {
    "bool": "Bool",
    "int8": "Int8",
    "int16": "Int16",
    "uint16": "UInt16",
    "int32": "Int32",
    "int64": "Int64",
    "float64": "Float64",
    "string": "String",
    "bytes": "Bytes",
    "uuid": "Uuid",
    "records": "Records",
}
ROOT: Final = Path(__file__).parents[2]


class Module(Struct, frozen=True):
    """One file of declarations."""

    path: str
    docstring: str
    messages: tuple[str, ...]
    arrays: str
    exports: bool = False


def generate(facts: Facts) -> dict[str, str]:
    """Every generated file: path below the repository -> text."""
    files = {module.path: declarations(module, facts) for module in modules(facts)}
    files["transport/protocol/messages/__init__.py"] = message_package(facts)
    files["transport/protocol/apis.py"] = api_table(facts)
    files["transport/protocol/errors.py"] = error_table(facts)
    return files


def modules(facts: Facts) -> Iterable[Module]:
    """What goes into which file."""
    records = sorted((fact["apiKey"], fact["name"]) for fact in facts.values() if _is_record(fact))
    yield Module(
        "metadata_log/records/metadata.py",
        "Every record of the metadata log, all versions in one class (Kafka: `MetadataRecordType`).",
        tuple(name for _, name in records),
        "tuple",
    )
    yield Module(
        "metadata_log/records/control.py",
        "Control records and the quorum-state file (Kafka: `ControlRecordUtils`, `QuorumStateData`; KIP-630, KIP-853).",
        CONTROL_RECORDS,
        "tuple",
    )
    yield Module(
        "transport/protocol/messages/header.py",
        "Request and response headers (KIP-482).",
        ("RequestHeader", "ResponseHeader"),
        "list",
    )
    yield Module(
        "transport/protocol/messages/principal.py",
        "The principal inside an Envelope request (KIP-590).",
        ("DefaultPrincipalData",),
        "list",
    )
    for api in controller_apis(facts):
        name = api["name"]
        yield Module(
            f"transport/protocol/messages/{snake_case(name)}.py",
            f"The {name} API, key {api['api_key']}.",
            (f"{name}Request", f"{name}Response"),
            "list",
        )


def _is_record(fact: Any) -> bool:
    return isinstance(fact, dict) and fact.get("type") == "metadata"


def controller_apis(facts: Facts) -> list[dict[str, Any]]:
    """The APIs that a controller listens to."""
    return [api for api in facts["apis.json"] if "controller" in api["listeners"]]


def snake_case(name: str) -> str:
    """`KRaftVersionFeature` is `kraft_version_feature`."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return name.lower()


class _Declarations:
    """The classes of one module as they are written, nested ones before those that use them."""

    def __init__(self, arrays: str, ambiguous: set[str]) -> None:
        self.arrays = arrays
        self.ambiguous = ambiguous
        self.blocks: list[str] = []
        self.used: set[str] = {"Message"}

    def message(self, fact: dict[str, Any]) -> None:
        """Write a top-level message and its structures."""
        shared = {struct["name"]: struct["fields"] for struct in fact.get("commonStructs", [])}
        valid = Versions.parse(fact["validVersions"])
        lines = self.fields(fact["fields"], fact["name"], valid, shared, {})
        decorator, key = {
            "request": ("request", "api_key"),
            "response": ("response", "api_key"),
            "metadata": ("record", "record_type"),
            "header": ("header", ""),
            "data": ("data", ""),
        }[fact["type"]]
        self.used.add(decorator)
        number = f"{key}={fact['apiKey']}, " if key else ""
        facts = f'{number}versions="{fact["validVersions"]}", flexible="{fact["flexibleVersions"]}"'
        self.block(fact["name"], lines, f"@{decorator}({facts})\n")

    def block(self, name: str, lines: list[str], decorator: str = "") -> None:
        body = "\n".join(lines) if lines else "    pass"
        self.blocks.append(f"{decorator}class {name}(Message, frozen=True):\n{body}\n")

    def fields(
        self,
        fields: list[dict[str, Any]],
        message: str,
        valid: Versions,
        shared: dict[str, Any],
        written: dict[str, str],
    ) -> list[str]:
        """The lines of a class body; fields that no valid version has are left out."""
        return [
            self.field(field, message, valid, shared, written)
            for field in fields
            if Versions.parse(field["versions"]).intersect(valid).lowest <= valid.highest
            and Versions.parse(field["versions"]).highest >= valid.lowest
        ]

    def structure(
        self,
        name: str,
        fields: list[dict[str, Any]],
        message: str,
        valid: Versions,
        shared: dict[str, Any],
        written: dict[str, str],
    ) -> str:
        """Write a nested structure unless it is written; returns the name of its class."""
        if name not in written:
            written[name] = message + name if name in self.ambiguous else name
            self.block(written[name], self.fields(fields, message, valid, shared, written))
        return written[name]

    def field(
        self, field: dict[str, Any], message: str, valid: Versions, shared: dict[str, Any], written: dict[str, str]
    ) -> str:
        name, kind = snake_case(field["name"]), field["type"]
        element = kind.removeprefix("[]")
        if element in TYPES:
            element_type = TYPES[element]
            self.used.add(element_type)
        else:
            # A structure of one field exists only where the field does; a shared one, wherever the message does.
            own = field.get("fields")
            fields, where = (
                (own, Versions.parse(field["versions"]).intersect(valid)) if own else (shared[element], valid)
            )
            element_type = self.structure(element, fields, message, where, shared, written)
        annotation = element_type
        if kind.startswith("[]"):
            annotation = f"list[{element_type}]" if self.arrays == "list" else f"tuple[{element_type}, ...]"
        versions = Versions.parse(field["versions"]).intersect(valid)
        nullable = Versions.parse(field.get("nullableVersions", "none")).intersect(versions)
        if nullable.lowest <= nullable.highest:
            annotation += " | None"
        markers = self.markers(field, name, versions, nullable, valid)
        for marker in markers:
            self.used.add(marker.partition("(")[0])
        if markers:
            self.used.add("Annotated")
            annotation = f"Annotated[{', '.join([annotation, *markers])}]"
        return f"    {name}: {annotation} = {self.default(field, element_type)}"

    def markers(
        self, field: dict[str, Any], name: str, versions: Versions, nullable: Versions, valid: Versions
    ) -> list[str]:
        """What distinguishes the field from one that exists in every version and is never null."""
        found: list[str] = []
        if versions.lowest > valid.lowest:
            found.append(f"since({versions.lowest})")
        if versions.highest < valid.highest:
            found.append(f"until({versions.highest})")
        if nullable.lowest <= nullable.highest:
            assert nullable.highest == versions.highest, field
            if nullable.lowest > versions.lowest:
                found.append(f"nullable({nullable.lowest})")
        if "tag" in field:
            assert Versions.parse(field["taggedVersions"]).intersect(versions) == versions, field
            found.append(f"tagged({field['tag']})")
        if field.get("ignorable"):
            found.append("ignorable")
        if field.get("flexibleVersions") == "none":
            found.append("never_compact")
        json_name = field["name"][0].lower() + field["name"][1:]
        if camel_case(name) != json_name:
            found.append(f'named("{json_name}")')
        return found

    def default(self, field: dict[str, Any], element_type: str) -> str:
        """Kafka's default as an expression; without one it is zero, empty, or a blank structure."""
        kind, default = field["type"], field.get("default")
        if default == "null" or (kind == "records" and "nullableVersions" in field):
            return "None"
        if kind.startswith("[]"):
            return "[]" if self.arrays == "list" else "()"
        match kind:
            case "bool":
                return "True" if default in {True, "true"} else "False"
            case "string":
                return json.dumps(default or "")
            case "bytes" | "records":
                return 'b""'
            case "uuid":
                return "Uuid.ZERO"
            case "float64":
                return repr(float(default or 0))
            case _ if kind in TYPES:
                return str(int(str(default or 0), 0))
            case _:
                return f"{element_type}()"


def declarations(module: Module, facts: Facts) -> str:
    """The text of one file of declarations."""
    messages = [facts[f"{name}.json"] for name in module.messages]
    seen: dict[str, set[str]] = {}
    for message in messages:
        for name in _structure_names(message):
            seen.setdefault(name, set()).add(message["name"])
    ambiguous = {name for name, users in seen.items() if len(users) > 1 or name in module.messages}
    written = _Declarations(module.arrays, ambiguous)
    for message in messages:
        written.message(message)
    used = written.used - {"Annotated", "Uuid"}
    lines = [f'"""{module.docstring}', "", "Generated by `metadata_log.serde.declare`; not edited by hand.", '"""', ""]
    lines += ["from __future__ import annotations", ""]
    if "Annotated" in written.used:
        lines += ["from typing import Annotated", ""]
    lines += import_lines("metadata_log.serde.fields", used)
    if "Uuid" in written.used:
        lines.append("from metadata_log.types import Uuid")
    return "\n".join(lines) + "\n\n\n" + "\n\n".join(written.blocks)


def _structure_names(message: dict[str, Any]) -> set[str]:
    names: set[str] = {struct["name"] for struct in message.get("commonStructs", [])}
    queue = [*message["fields"], *(each for struct in message.get("commonStructs", []) for each in struct["fields"])]
    while queue:
        field = queue.pop()
        if field["type"].removeprefix("[]") not in TYPES:
            names.add(field["type"].removeprefix("[]"))
        queue += field.get("fields", [])
    return names


def import_lines(module: str, names: Iterable[str]) -> list[str]:
    """An import statement in the order and shape that the linter wants."""
    ordered = sorted(names, key=_import_order)
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= LINE_LENGTH:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in ordered), ")"]


def _import_order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Classes before functions, numbers inside names by value: `Int8` comes before `Int16`."""
    parts = re.findall(r"\d+|\D+", name)
    return name[0].islower(), [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def message_package(facts: Facts) -> str:
    """`messages/__init__.py`: every request and response by its name."""
    lines = ['"""Every message that travels on a controller\'s listener (Kafka: `ApiMessageType`).', ""]
    lines += ["Generated by `metadata_log.serde.declare`; not edited by hand.", '"""', ""]
    by_module = {
        snake_case(api["name"]): [f"{api['name']}Request", f"{api['name']}Response"] for api in controller_apis(facts)
    }
    by_module["header"] = ["RequestHeader", "ResponseHeader"]
    by_module["principal"] = ["DefaultPrincipalData"]
    for module in sorted(by_module):
        lines += import_lines(f"transport.protocol.messages.{module}", by_module[module])
    lines += ["", "__all__ = ["]
    lines += [f'    "{name}",' for name in sorted(name for exported in by_module.values() for name in exported)]
    return "\n".join([*lines, "]", ""])


API_HEAD: Final = '''"""The APIs of a controller's listener: classes and versions by key (Kafka: `ApiKeys`).

Generated by `metadata_log.serde.declare`; not edited by hand.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct

from metadata_log.serde.fields import NO_VERSIONS, OPEN_END, Message, Versions
from transport.protocol import messages


class ApiKey(IntEnum):
    """The keys that a controller answers to, by Kafka's names."""

%(keys)s


class Api(Struct, frozen=True):
    """One API. `flexible` holds the versions with compact lengths and tagged fields; `flexible_from` is its lowest."""

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    versions: Versions
    flexible: Versions
    flexible_from: int
    listeners: tuple[str, ...]
    forwardable: bool
    cluster_action: bool

    def request_header_version(self, version: int) -> int:
        """2 in flexible versions, else 1."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """1 in flexible versions, else 0; always 0 for ApiVersions, whose sender may not know the version (KIP-511)."""
        return 1 if version >= self.flexible_from and self.key != ApiKey.API_VERSIONS else 0


def _api(key: ApiKey, request: type[Message], response: type[Message], listeners: str, **flags: bool) -> Api:
    schema = request.__schema__
    return Api(
        key=key,
        name=schema.name.removesuffix("Request"),
        request=request,
        response=response,
        versions=schema.versions,
        flexible=schema.flexible,
        flexible_from=schema.flexible.lowest if schema.flexible != NO_VERSIONS else OPEN_END + 1,
        listeners=tuple(listeners.split()),
        forwardable=flags.get("forwardable", False),
        cluster_action=flags.get("cluster_action", False),
    )


APIS: Final[dict[int, Api]] = {
    int(api.key): api
    for api in (
%(apis)s
    )
}
"""By key, in order of the keys. A key that is not here is not for a controller."""
'''


def api_table(facts: Facts) -> str:
    """The text of `apis.py`."""
    apis = controller_apis(facts)
    rows = []
    for api in apis:
        name = api["name"]
        arguments = [f"ApiKey.{api['enum']}", f"messages.{name}Request", f"messages.{name}Response"]
        arguments.append(f'"{" ".join(api["listeners"])}"')
        arguments += [f"{flag}=True" for flag in ("forwardable", "cluster_action") if api[flag]]
        rows.append(call("_api", arguments, indent=8))
    keys = [f"    {api['enum']} = {api['api_key']}" for api in apis]
    return API_HEAD % {"keys": "\n".join(keys), "apis": "\n".join(rows)}


def call(function: str, arguments: list[str], indent: int) -> str:
    """A call as an element of a collection, broken over lines as the formatter breaks it."""
    outer, inner = " " * indent, " " * (indent + 4)
    flat = ", ".join(arguments)
    if len(row := f"{outer}{function}({flat}),") <= LINE_LENGTH:
        return row
    if len(row := inner + flat) <= LINE_LENGTH:
        return f"{outer}{function}(\n{row}\n{outer}),"
    rows = "\n".join(f"{inner}{argument}," for argument in arguments)
    return f"{outer}{function}(\n{rows}\n{outer}),"


ERROR_HEAD: Final = '''"""Kafka's error codes (Kafka: `Errors`).

Generated by `metadata_log.serde.declare`; not edited by hand.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Error(IntEnum):
    """What a response says went wrong. Names and codes are Kafka's."""

%(codes)s

    @property
    def message(self) -> str:
        """The error's name as words, for a response that has nothing better to say; empty for NONE."""
        return self.name.replace("_", " ").capitalize() + "." if self else ""

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in _RETRIABLE

    @classmethod
    def of(cls, code: int) -> Error:
        """The error of a code; one that this software does not know is UNKNOWN_SERVER_ERROR, as for Kafka's clients."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)


_BY_CODE: Final = {error.value: error for error in Error}
_RETRIABLE: Final = frozenset(
    {
%(retriable)s
    }
)
'''


def error_table(facts: Facts) -> str:
    """The text of `errors.py`."""
    errors = facts["errors.json"]
    return ERROR_HEAD % {
        "codes": "\n".join(f"    {error['name']} = {error['code']}" for error in errors),
        "retriable": "\n".join(f"        Error.{error['name']}," for error in errors if error["retriable"]),
    }


def read_facts(paths: Iterable[Path]) -> Facts:
    """Collect schema facts from files, folders and packed files."""
    facts: Facts = {}
    for path in paths:
        if path.is_dir():
            facts |= read_facts(sorted(path.rglob("*.json")))
        elif path.name.endswith(".json.gz"):
            facts |= json.loads(gzip.decompress(path.read_bytes()))
        else:
            facts[path.name] = json.loads(path.read_text())
    return facts


def needed(facts: Facts) -> Facts:
    """The facts that `generate` looks at."""
    names = {f"{name}.json" for module in modules(facts) for name in module.messages}
    return {name: facts[name] for name in sorted(names | {"apis.json", "errors.json"})}


def main() -> None:
    """Rewrite the generated files of this repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("facts", nargs="+", type=Path)
    parser.add_argument("--pack", type=Path, help="also write the facts that were used, compressed, to this file")
    arguments = parser.parse_args()
    facts = read_facts(arguments.facts)
    for path, text in generate(facts).items():
        (ROOT / path).write_text(text)
    if arguments.pack:
        packed = json.dumps(needed(facts), separators=(",", ":"), sort_keys=True).encode()
        arguments.pack.write_bytes(gzip.compress(packed, mtime=0))


if __name__ == "__main__":
    main()
