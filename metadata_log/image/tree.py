"""The image as a tree of named nodes, and walks through the tree (Kafka: `org.apache.kafka.image.node`, `GlobVisitor`).

Names and texts are those of Kafka's metadata shell, character by character. There are two exceptions, where the shell
of 4.3.1 is wrong:

- Client quotas of a *default* entity. Kafka leaves the default part out of the name. So the default of all users has an
  empty name, prints no values, and ends `find` with an error; and a user's quota for the default client id shows that
  user's own values a second time. Here the name has the default part, as in `user<default>`.
- `provenance`. Kafka's shell reads a checkpoint as a log, and shows the offset within that file and the file's time.
  Here the node shows the offset, epoch and time of the last record in the image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from metadata_log.image.configs import ResourceType
from metadata_log.image.features import METADATA_VERSION
from metadata_log.image.image import MetadataImage
from metadata_log.image.java_text import (
    acl_text,
    broker_text,
    controller_text,
    double_text,
    partition_text,
    scram_text,
    time_text,
    token_text,
)
from metadata_log.image.names import (
    SCRAM_MECHANISMS,
)
from metadata_log.image.topics import Partition, TopicImage, TopicsImage
from metadata_log.records.redact import shown_config
from metadata_log.releases import METADATA_VERSIONS
from metadata_log.types import NO_OFFSET

Path = tuple[str, ...]
"""The names from the root to a node."""


class Leaf(Struct, frozen=True):
    """A node with a text and without children."""

    text: str


class Directory(Struct, frozen=True):
    """A node with children, each made from its value on access: images hold millions of nodes."""

    values: Mapping[str, Any]
    make: Callable[[Any], Node]

    def names(self) -> list[str]:
        """The names of the children, in Java's order."""
        return sorted(self.values, key=_java_order)

    def child(self, name: str) -> Node | None:
        """The child of this name."""
        return self.make(self.values[name]) if name in self.values else None

    def children(self) -> Iterator[tuple[str, Node]]:
        """All children in order."""
        return ((name, self.make(self.values[name])) for name in self.names())


Node = Leaf | Directory


class Provenance(Struct, frozen=True, kw_only=True):
    """The position of an image in the log: its last record, and that record's time in ms (`MetadataProvenance`)."""

    offset: int = NO_OFFSET
    epoch: int = -1
    timestamp_ms: int = -1


def image_tree(
    image: MetadataImage, provenance: Provenance, *, version: str, commit_id: str, show_secrets: bool = False
) -> Directory:
    """The root: `image`, and `local` with version and commit of the displaying program."""
    local = _directory({"commitId": partial(Leaf, commit_id), "version": partial(Leaf, version)})
    families: dict[str, Callable[[], Node]] = {
        "acls": partial(_acls, image),
        "clientQuotas": partial(_quotas, image),
        "cluster": partial(_cluster, image),
        "configs": partial(_configs, image, show_secrets),
        "delegationToken": partial(_tokens, image, show_secrets),
        "features": partial(_features, image),
        "producerIds": partial(_producer_ids, image),
        "provenance": partial(_provenance, provenance),
        "scram": partial(_scram, image, show_secrets),
        "topics": partial(_topics, image.topics),
    }
    return _directory({"image": partial(_directory, families), "local": lambda: local})


def _directory(children: Mapping[str, Callable[[], Node]]) -> Directory:
    return Directory(children, _call)


def _call(make: Callable[[], Node]) -> Node:
    return make()


def _leaf(value: object) -> Leaf:
    return Leaf(str(value))


def _java_order(name: str) -> bytes:
    """The sort key of Java strings: UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _acls(image: MetadataImage) -> Directory:
    by_id = {str(id_): acl for id_, acl in image.acls.by_id.items()}
    return _directory({"byId": lambda: Directory(by_id, lambda acl: Leaf(acl_text(acl)))})


def _quotas(image: MetadataImage) -> Directory:
    by_name = {_entity_name(entity): quotas for entity, quotas in image.quotas.by_entity.items()}
    return Directory(by_name, lambda quotas: Directory(quotas, lambda value: Leaf(double_text(value))))


_ENTITY_TYPES: Final = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))


def _entity_name(entity: Iterable[tuple[str, str | None]]) -> str:
    """`clientId(c)_user(u)`, with backslashes before special characters; `user<default>` for the default."""
    named = dict(entity)
    parts = []
    for type_, shown in _ENTITY_TYPES:
        if type_ in named:
            name = named[type_]
            parts.append(f"{shown}<default>" if name is None else f"{shown}({_escape(name)})")
    return "_".join(parts)


def _escape(name: str) -> str:
    return re.sub(r"([\\()])", r"\\\1", name)


def _cluster(image: MetadataImage) -> Directory:
    brokers = {str(id_): broker for id_, broker in image.brokers.by_id.items()}
    controllers = {str(id_): controller for id_, controller in image.controllers.by_id.items()}
    return _directory(
        {
            "brokers": lambda: Directory(brokers, lambda broker: Leaf(broker_text(broker))),
            "controllers": lambda: Directory(controllers, lambda controller: Leaf(controller_text(controller))),
        }
    )


def _configs(image: MetadataImage, show_secrets: bool) -> Directory:
    by_name = {
        f"{_resource_type(type_)}:{name}" if name else _resource_type(type_): (type_, values)
        for (type_, name), values in image.configs.by_resource.items()
    }

    def resource(found: tuple[int, Mapping[str, str]]) -> Directory:
        type_, values = found
        shown = {key: shown_config(type_, key, value, show_secrets=show_secrets) for key, value in values.items()}
        return Directory(shown, Leaf)

    return Directory(by_name, resource)


_RESOURCE_TYPES: Final = {int(type_): type_.name for type_ in ResourceType}


def _resource_type(code: int) -> str:
    return _RESOURCE_TYPES.get(code, "UNKNOWN")


def _tokens(image: MetadataImage, show_secrets: bool) -> Directory:
    return Directory(image.tokens.by_id, lambda token: Leaf(token_text(token, show_secrets=show_secrets)))


def _features(image: MetadataImage) -> Directory:
    values: dict[str, object] = {
        f"finalized_{name}": level for name, level in image.features.all_levels() if name != METADATA_VERSION
    }
    values["metadataVersion"] = _metadata_version(image.features.metadata_version)
    return Directory(values, _leaf)


def _metadata_version(level: int | None) -> str:
    if level is None:
        return "Optional.empty"
    names = {value: name for name, value in METADATA_VERSIONS.items()}
    return f"Optional[{names.get(level, f'level {level}')}]"


def _producer_ids(image: MetadataImage) -> Directory:
    return Directory({"nextProducerId": image.producer_ids.next_producer_id}, _leaf)


def _provenance(provenance: Provenance) -> Leaf:
    time = time_text(provenance.timestamp_ms)
    return Leaf(f"offset {provenance.offset}, epoch {provenance.epoch}, time {time}")


def _scram(image: MetadataImage, show_secrets: bool) -> Directory:
    by_mechanism: dict[str, dict[str, object]] = {name: {} for name in SCRAM_MECHANISMS.values()}
    for user, credentials in image.scram.by_user.items():
        for mechanism, credential in credentials.items():
            by_mechanism[SCRAM_MECHANISMS[mechanism]][user] = credential
    return Directory(
        by_mechanism,
        lambda users: Directory(users, lambda credential: Leaf(scram_text(credential, show_secrets=show_secrets))),
    )


def _topics(topics: TopicsImage) -> Directory:
    by_id = {str(id_): topic for id_, topic in topics.by_id.items()}
    return _directory(
        {
            "byId": lambda: Directory(by_id, _topic),
            "byName": lambda: Directory(topics.by_name, lambda id_: _topic(topics.by_id[id_])),
        }
    )


def _topic(topic: TopicImage) -> Directory:
    children: dict[str, Callable[[], Node]] = {
        str(number): partial(_partition, partition) for number, partition in enumerate(topic.partitions)
    }
    children["name"] = partial(Leaf, topic.name)
    children["id"] = partial(_leaf, topic.id)
    return _directory(children)


def _partition(partition: Partition) -> Leaf:
    return Leaf(partition_text(partition))


def absolute(path: str, working_directory: Path = ()) -> Path:
    """The names of a typed path; `.` and `..` are resolved, and repeated slashes count as one."""
    names = [] if path.startswith("/") else list(working_directory)
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in {"", "."}:
            names.append(name)
    return tuple(names)


def matches(root: Node, glob: Path) -> Iterator[tuple[Path, Node]]:
    """The nodes that match a path with `*`, `?`, `{a,b}` and `\\` in its names, with their paths, in order."""
    nodes: list[tuple[Path, Node]] = [((), root)]
    for name in glob:
        pattern = _pattern(name)
        nodes = [
            ((*path, child_name), child)
            for path, node in nodes
            if isinstance(node, Directory)
            for child_name, child in _children_like(node, name, pattern)
        ]
    return iter(nodes)


def _children_like(node: Directory, name: str, pattern: re.Pattern[str] | None) -> Iterator[tuple[str, Node]]:
    names = [name] if pattern is None else [each for each in node.names() if pattern.fullmatch(each)]
    return ((each, child) for each in names if (child := node.child(each)) is not None)


def _pattern(glob: str) -> re.Pattern[str] | None:
    """The pattern of a name; None if the glob matches only itself, as a malformed glob does."""
    output = ""
    literal = True
    in_group = False
    characters = iter(glob)
    for character in characters:
        special = True
        match character:
            case "?":
                output += "."
            case "*":
                output += ".*"
            case "\\":
                output += re.escape(next(characters, "\\"))
            case "{" if in_group:
                return None
            case "{":
                output += "(?:"
                in_group = True
            case "," if in_group:
                output += "|"
            case "}" if in_group:
                output += ")"
                in_group = False
            case _:
                output += re.escape(character)
                special = False
        literal &= not special
    return None if literal or in_group else re.compile(output, re.DOTALL)


def tree_lines(node: Node, depth: int = 0) -> Iterator[str]:
    """The lines of a node and its descendants, two spaces deeper at each level (`ShellNodePrinter`)."""
    indent = "  " * depth
    if isinstance(node, Leaf):
        yield indent + node.text
        return
    for name, child in node.children():
        yield f"{indent}{name}:"
        yield from tree_lines(child, depth + 1)


def find_lines(node: Node, path: str) -> Iterator[str]:
    """The paths of a node and its descendants."""
    yield path
    if isinstance(node, Directory):
        prefix = path if path == "/" else f"{path}/"
        for name, child in node.children():
            yield from find_lines(child, prefix + name)
