"""Developer tool: schema facts (JSON) -> the committed declarations (Kafka: `MessageGenerator`).

    python -m metadata_log.serde.declare FACTS... [--since OLD_FACTS] [--diff] [--pack FILE]

FACTS are Kafka's message schemas (`VoteRequest.json`, …, with or without comments) and the tables `apis.json`,
`errors.json`, `metadata_versions.json`, `features.json`, `record_types.json`, `control_record_types.json`,
`settings.json` and `metrics.json`: files, folders, jars, or all of them packed into one `.json.gz`, as
`tests/support/interop/release_facts.py` makes it from the jars of a release. The tool rewrites every generated file;
read the diff.

For a new release of Kafka: `--since tests/data/schemas.json.gz` lists everything that differs, by the place where it
belongs, and `--diff` shows the changes of the declarations and writes nothing. Then run without `--diff`, and with
`--pack tests/data/schemas.json.gz`. The page "Take over a release of Kafka" goes through it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metadata_log.serde import declare_tables
from metadata_log.serde.declare_changes import checklist, is_message, text_diff
from metadata_log.serde.declare_tables import Fact, Facts, apis, import_lines, snake_case
from metadata_log.serde.fields import Versions, camel_case

CONTROL_RECORDS: Final = (
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
    "QuorumStateData",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
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
DECORATORS: Final = {
    "request": ("request", "api_key"),
    "response": ("response", "api_key"),
    "metadata": ("record", "record_type"),
    "coordinator-key": ("record_key", "record_type"),
    "coordinator-value": ("record_value", "record_type"),
    "header": ("header", ""),
    "data": ("data", ""),
}
COORDINATOR_TOPICS: Final = {
    "consumer_offsets": "Kafka: `CoordinatorRecordType` of the group coordinator",
    "transaction_state": "Kafka: `TransactionLog`",
    "share_group_state": "Kafka: `CoordinatorRecordType` of the share coordinator",
}
"""The topics of coordinators whose records are declared."""
REMOTE_LOG_RECORDS: Final = (
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
)
ROOT: Final = Path(__file__).parents[2]
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
"""A string, which may hold two slashes, or a comment."""


_FOR_READERS: Final = frozenset(("about", "entityType", "zeroCopy"))
"""The words of schemas for people, and for the code in Java."""


class Module(Struct, frozen=True):
    """One file of declarations."""

    path: str
    docstring: str
    messages: tuple[str, ...]
    arrays: str


def generate(facts: Facts) -> dict[str, str]:
    """Every generated file: path below the repository -> text."""
    files = {module.path: declarations(module, facts) for module in modules(facts)}
    files["transport/protocol/messages/__init__.py"] = declare_tables.message_package(facts)
    files["transport/protocol/apis.py"] = declare_tables.api_table(facts)
    files["transport/protocol/broker_apis.py"] = declare_tables.broker_api_table(facts)
    files["transport/protocol/errors.py"] = declare_tables.error_table(facts)
    return files


def modules(facts: Facts) -> Iterable[Module]:
    """The content of each file."""
    records = sorted((row["api_key"], row["name"]) for row in facts["record_types.json"])
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
    for topic, title in COORDINATOR_TOPICS.items():
        of_topic = sorted((fact["apiKey"], fact["name"]) for fact in facts.values() if coordinator_topic(fact) == topic)
        yield Module(
            f"metadata_log/records/{topic}.py",
            f"Keys and values of the records in `__{topic}` ({title}).",
            tuple(name for _, name in of_topic),
            "tuple",
        )
    yield Module(
        "metadata_log/records/remote_log_metadata.py",
        "Records of `__remote_log_metadata` (Kafka: `MetadataRecordType` of tiered storage; KIP-405).",
        REMOTE_LOG_RECORDS,
        "tuple",
    )
    yield Module(
        "metadata_log/records/aborted_txn.py",
        "An entry of a `.txnindex` file, after its version (Kafka: `TransactionIndex`).",
        ("AbortedTxn",),
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
    yield Module(
        "transport/protocol/messages/consumer_protocol.py",
        "The data of classic group consumers inside JoinGroup and SyncGroup (Kafka: `ConsumerProtocol`).",
        ("ConsumerProtocolAssignment", "ConsumerProtocolSubscription"),
        "list",
    )
    for api in apis(facts):
        name = api["name"]
        yield Module(
            f"transport/protocol/messages/{snake_case(name)}.py",
            f"The {name} API, key {api['api_key']}.",
            (f"{name}Request", f"{name}Response"),
            "list",
        )


def coordinator_topic(fact: Any) -> str | None:
    """The topic of a coordinator's key or value. Kafka's schemas do not say it: each coordinator has a module."""
    if not isinstance(fact, dict) or fact.get("type") not in {"coordinator-key", "coordinator-value"}:
        return None
    name: str = fact["name"]
    if name.startswith("TransactionLog"):
        return "transaction_state"
    return "share_group_state" if name.startswith(("ShareSnapshot", "ShareUpdate")) else "consumer_offsets"


class _Block(Struct, frozen=True):
    """One class as text, and its imports."""

    text: str
    names: frozenset[str]


def message_blocks(fact: Fact, arrays: str, ambiguous: set[str]) -> list[_Block]:
    """The classes of one message, nested structures before those that use them."""
    decorator, key = DECORATORS[fact["type"]]
    number = f"{key}={fact['apiKey']}, " if key else ""
    facts = f'{number}versions="{fact["validVersions"]}", flexible="{fact["flexibleVersions"]}"'
    writer = _Structures(fact, arrays, ambiguous)
    lines, names = writer.body(fact["fields"], Versions.parse(fact["validVersions"]))
    text = f"@{decorator}({facts})\n{_class_text(fact['name'], lines)}"
    return [*writer.blocks, _Block(text, names | {decorator})]


def _class_text(name: str, lines: list[str]) -> str:
    body = "\n".join(lines or ["    pass"])
    return f"class {name}(Message, frozen=True):\n{body}\n"


def _field_lines(head: str, default: str) -> list[str]:
    """The lines of a field, in the form of the formatter."""
    whole = head + default
    return [whole] if len(whole) <= declare_tables.LINE_LENGTH else [f"{head}(", f"        {default}", "    )"]


class _Structures:
    """Writes the structures of one message as its fields mention them."""

    def __init__(self, fact: Fact, arrays: str, ambiguous: set[str]) -> None:
        self.message: str = fact["name"]
        self.valid = Versions.parse(fact["validVersions"])
        self.shared: dict[str, list[Fact]] = {each["name"]: each["fields"] for each in fact.get("commonStructs", [])}
        self.arrays = arrays
        self.ambiguous = ambiguous
        self.written: dict[str, str] = {}
        self.blocks: list[_Block] = []

    def body(self, fields: list[Fact], within: Versions) -> tuple[list[str], frozenset[str]]:
        """The lines of a class that exists in the versions `within`; fields outside of these are left out."""
        lines: list[str] = []
        names: set[str] = {"Message"}
        for field in fields:
            versions = Versions.parse(field["versions"]).intersect(within)
            if versions:
                element = self.element(field, versions)
                annotation, used = self.annotation(field, element, versions, within)
                default = self.default(field, element, versions)
                lines += _field_lines(f"    {snake_case(field['name'])}: {annotation} = ", default)
                names |= used
        return lines, frozenset(names)

    def element(self, field: Fact, versions: Versions) -> str:
        """The name of the field's type, or of its array's elements; the first use of a structure writes its class."""
        name = field["type"].removeprefix("[]")
        if name in TYPES:
            return TYPES[name]
        if name not in self.written:
            self.written[name] = self.message + name if name in self.ambiguous else name
            # A structure of one field exists only where the field does; a shared one, wherever the message does.
            own = field.get("fields")
            lines, names = self.body(own, versions) if own else self.body(self.shared[name], self.valid)
            self.blocks.append(_Block(_class_text(self.written[name], lines), names))
        return self.written[name]

    def annotation(self, field: Fact, element: str, versions: Versions, within: Versions) -> tuple[str, set[str]]:
        """The annotation of a field, and the names in it."""
        used = {element} if element in TYPES.values() else set()
        text = element
        if field["type"].startswith("[]"):
            text = f"list[{element}]" if self.arrays == "list" else f"tuple[{element}, ...]"
        nullable = Versions.parse(field.get("nullableVersions", "none")).intersect(versions)
        if nullable:
            text += " | None"
        if marks := markers(field, versions, nullable, within):
            used |= {"Annotated", *(marker.partition("(")[0] for marker in marks)}
            text = f"Annotated[{', '.join([text, *marks])}]"
        return text, used

    def default(self, field: Fact, element: str, versions: Versions) -> str:
        """Kafka's default as an expression; else zero, empty, or a blank structure."""
        kind, default = field["type"], field.get("default")
        nullable = Versions.parse(field.get("nullableVersions", "none")).intersect(versions)
        if default == "null" or (kind == "records" and nullable):
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
                return f"{element}()"


def markers(field: Fact, versions: Versions, nullable: Versions, within: Versions) -> list[str]:
    """The markers of a field that does not exist wherever its structure does, or that may be null."""
    marks: list[str] = []
    if versions.lowest > within.lowest:
        marks.append(f"since({versions.lowest})")
    if versions.highest < within.highest:
        marks.append(f"until({versions.highest})")
    if nullable:
        assert nullable.highest == versions.highest, field
        if nullable.lowest > versions.lowest:
            marks.append(f"nullable({nullable.lowest})")
    if "tag" in field:
        assert Versions.parse(field["taggedVersions"]).intersect(versions) == versions, field
        marks.append(f"tagged({field['tag']})")
    if field.get("ignorable"):
        marks.append("ignorable")
    if field.get("flexibleVersions") == "none":
        marks.append("never_compact")
    json_name = field["name"][0].lower() + field["name"][1:]
    if camel_case(snake_case(field["name"])) != json_name:
        marks.append(f'named("{json_name}")')
    return marks


def declarations(module: Module, facts: Facts) -> str:
    """The text of one file of declarations.

    A structure has Kafka's name, with the message's name as a prefix where two messages of the file share a name.
    """
    messages = [facts[f"{name}.json"] for name in module.messages]
    owners = Counter(name for message in messages for name in _structure_names(message))
    ambiguous = {name for name, count in owners.items() if count > 1 or name in module.messages}
    blocks = [block for message in messages for block in message_blocks(message, module.arrays, ambiguous)]
    used = set().union(*(block.names for block in blocks))
    lines = [f'"""{module.docstring}', "", "Generated by `metadata_log.serde.declare`; not edited by hand.", '"""', ""]
    lines += ["from __future__ import annotations", ""]
    if "Annotated" in used:
        lines += ["from typing import Annotated", ""]
    lines += import_lines("metadata_log.serde.fields", used - {"Annotated", "Uuid"})
    if "Uuid" in used:
        lines.append("from metadata_log.types import Uuid")
    return "\n".join(lines) + "\n\n\n" + "\n\n".join(block.text for block in blocks)


def _structure_names(message: Fact) -> set[str]:
    names: set[str] = {struct["name"] for struct in message.get("commonStructs", [])}
    queue = [*message["fields"], *(each for struct in message.get("commonStructs", []) for each in struct["fields"])]
    while queue:
        field = queue.pop()
        if field["type"].removeprefix("[]") not in TYPES:
            names.add(field["type"].removeprefix("[]"))
        queue += field.get("fields", [])
    return names


def read_facts(paths: Iterable[Path]) -> Facts:
    """Collect schema facts from files, folders and packed files."""
    facts: Facts = {}
    for path in paths:
        if path.is_dir():
            facts |= read_facts(sorted(path.rglob("*.json")))
        elif path.name.endswith(".json.gz"):
            facts |= json.loads(gzip.decompress(path.read_bytes()))
        elif path.name.endswith(".jar"):
            with zipfile.ZipFile(path) as jar:
                schemas = [_schema(jar.read(name).decode()) for name in jar.namelist() if name.endswith(".json")]
            # One file is not named after what it holds.
            facts |= {f"{one['name']}.json": one for one in schemas if is_message(one)}
        else:
            facts[path.name] = _schema(path.read_text())
    return facts


def _schema(text: str) -> Any:
    """A file of facts, without its comments and without what changes no byte."""
    return json.loads(without_comments(text), object_hook=_fact)


def _fact(found: Fact) -> Fact:
    fact = {key: found[key] for key in found if key not in _FOR_READERS}
    if "taggedVersions" in fact:
        fact.setdefault("versions", fact["taggedVersions"])
    return fact


def without_comments(text: str) -> str:
    """JSON without the lines and line ends of comments that Kafka's own schema files have."""
    return _COMMENT.sub(lambda found: found[1] or "", text)


def not_declared(facts: Facts) -> list[str]:
    """One line for each schema that no generated file holds: whoever takes a release over has to look at it."""
    declared = {f"{name}.json" for module in modules(facts) for name in module.messages}
    left = sorted(name for name, fact in facts.items() if is_message(fact) and name not in declared)
    return [f"{name.removesuffix('.json')}: not declared here, type {facts[name]['type']}" for name in left]


def main() -> None:
    """Rewrite the generated files of this repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("facts", nargs="+", type=Path)
    parser.add_argument("--pack", type=Path, help="also write the facts, compressed, to this file")
    parser.add_argument("--since", type=Path, help="list what is different from these facts, to tick off")
    parser.add_argument("--diff", action="store_true", help="show what would change, and write nothing")
    arguments = parser.parse_args()
    facts = read_facts(arguments.facts)
    if arguments.since:
        before = read_facts([arguments.since])
        listed = checklist(before, facts, [one for one in not_declared(facts) if one not in not_declared(before)])
        sys.stdout.write(listed or f"Nothing is different from {arguments.since}.\n")
    if arguments.diff:
        sys.stdout.write(text_diff(ROOT, generate(facts)))
        return
    for path, text in generate(facts).items():
        (ROOT / path).write_text(text)
    if arguments.pack:
        packed = json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()
        arguments.pack.write_bytes(gzip.compress(packed, mtime=0))


if __name__ == "__main__":
    main()
