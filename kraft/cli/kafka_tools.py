"""Translates the options of Kafka's tools to this program's commands: `topics --list` is `topics list`.

Translations only serve as hints: the program runs only commands that the user typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_TOOLS: Final = {
    "acls": "acls",
    "configs": "configs",
    "console-consumer": "consume",
    "console-producer": "produce",
    "dump-log": "dump",
    "features": "features",
    "leader-election": "elect",
    "metadata-quorum": "quorum",
    "metadata-shell": "shell",
    "reassign-partitions": "reassign",
    "server-start": "serve",
    "storage": "storage",
    "topics": "topics",
}
"""The names of Kafka's tools, without kafka- and .sh, and this program's commands."""
_OPTIONS_WITH_VALUES: Final = """
--add-config --allow-host --allow-principal --assignment --bootstrap-controller --bootstrap-server --broker
--broker-list --broker-logger --client --client-metrics --command-config --config --consumer-config --consumer.config
--controller-directory-id --controller-id --delete-config --deny-host --deny-principal --directory --directory-id
--election-type --entity-name --entity-type --feature --files --group --host --ip --metadata --offset --operation
--partition --partitions --principal --producer-config --producer.config --reassignment-json-file --release-version
--replica-assignment --replication-factor --resource-pattern-type --snapshot --timeout --topic --topic-partition
--topics-to-move-json-file --transactional-id --type --user
"""
_WITH_VALUE: Final = frozenset(_OPTIONS_WITH_VALUES.split())
"""Options with a value in the next word."""


class _Line:
    """The words after the command. A translation removes the words that it knows; the rest stays unchanged."""

    def __init__(self, words: Sequence[str]) -> None:
        self._parts = list(_parts(words))

    def action(self, known: Sequence[str]) -> str | None:
        """The first of these words that is an argument, as the name of a subcommand."""
        for part in self._parts:
            if len(part) == 1 and part[0] in known:
                self._parts.remove(part)
                return part[0]
        return None

    def flag(self, *names: str) -> bool:
        """Whether one of these options is present."""
        return any(self._take(name) is not None for name in names)

    def values(self, *names: str) -> list[str]:
        """The values of these options, in the order of the names."""
        words = []
        for name in names:
            while (part := self._take(name)) is not None:
                words += part[1:]
        return words

    def first(self, *names: str) -> str | None:
        """The first value of these options."""
        return next(iter(self.values(*names)), None)

    def rest(self) -> list[str]:
        """The words that no translation has removed."""
        return [word for part in self._parts for word in part]

    def _take(self, name: str) -> list[str] | None:
        for part in self._parts:
            if part[0] == name:
                self._parts.remove(part)
                return part
        return None


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """Options with their values, and separate words; `--name=value` becomes two words."""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name.startswith("--") and equals:
            yield [name, value]
        elif word in _WITH_VALUE and (value := next(rest, "")):
            yield [word, value]
        else:
            yield [word]


def translate_command(words: Sequence[str]) -> list[str] | None:
    """The translation of the words after `kraft`; None if they contain nothing specific to Kafka's tools."""
    typed = [word for word in words if word != "--debug"]
    if not typed or typed[0].startswith("-"):
        return None
    command = typed[0].removeprefix("kafka-").removesuffix(".sh")
    command = _TOOLS.get(command, typed[0])
    line = _Line(typed[1:])
    if command == "storage":
        command = line.action(("format", "random-uuid")) or "format"
    ours = [command, *_TRANSLATIONS.get(command, _unchanged)(line)]
    ours += line.rest()
    if sorted(ours) != sorted(word for part in _parts(typed) for word in part):
        return ours
    # With equal words, order matters only if options precede the command that they belong to.
    is_moved = typed[1:] and typed[1].startswith("-") and not ours[1].startswith("-")
    return ours if command in _GROUPS and is_moved else None


def _unchanged(line: _Line) -> list[str]:
    return []


def _by_flag(line: _Line, *names: str) -> list[str]:
    """A subcommand that is an option of Kafka's tool."""
    if (action := line.action(names)) is not None:
        return [action]
    return next(([name] for name in names if line.flag(f"--{name}")), [])


def _topics(line: _Line) -> list[str]:
    action = _by_flag(line, "list", "describe", "create", "delete", "grow")
    if line.flag("--alter"):
        action = ["grow"]
    topics = line.values("--topic")
    if topics and not action:
        action = ["describe"]
    translated = [*action, *topics]
    for name in ("unavailable", "under-replicated", "under-min-isr", "at-min-isr"):
        if line.flag(f"--{name}-partitions"):
            translated += ["--only", name]
    for assignment in line.values("--replica-assignment"):
        translated += ["--assignment", assignment]
    return translated


def _quorum(line: _Line) -> list[str]:
    action = line.action(("describe", "add-controller", "remove-controller"))
    if action == "describe":
        is_replication = line.flag("--replication", "-re")
        line.flag("--status")
        return ["replication" if is_replication else "status"]
    if action == "remove-controller":
        directory = line.first("--controller-directory-id", "-d")
        named = ["remove", line.first("--controller-id", "-i") or "ID"]
        return named if directory is None else [*named, "--directory-id", directory]
    return ["add", "ID"] if action else _by_flag(line, "status", "replication", "add", "remove", "upgrade")


_ENTITIES: Final = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "groups": "group",
    "client-metrics": "client-metrics",
    "users": "user",
    "clients": "client-id",
    "ips": "ip",
}
"""Kafka's plural and this program's singular name of each kind."""
_SHORT: Final = ("topic", "broker", "broker-logger", "group", "client-metrics", "user", "client", "ip")


def _configs(line: _Line) -> list[str]:
    action = _by_flag(line, "describe", "set", "delete", "append", "subtract")
    line.flag("--alter")
    added = [one for text in line.values("--add-config") for one in re.split(r",(?![^\[]*\])", text)]
    deleted = [one for text in line.values("--delete-config") for one in text.split(",")]
    if added:
        action = ["set"]
    elif deleted:
        action = ["delete"]
    settings = [re.sub(r"=\[(.*)\]$", r"=\1", one) for one in added] or deleted
    return [*action, *_entity(line), *settings]


def _entity(line: _Line) -> list[str]:
    """The kind and the name of the resource."""
    kind, name = line.first("--entity-type"), line.first("--entity-name")
    is_default = line.flag("--entity-default", "--broker-defaults", "--user-defaults", "--client-defaults")
    for short in _SHORT:
        if (value := line.first(f"--{short}")) is not None:
            kind, name = f"{short}s" if short != "client-metrics" else short, value
    if kind is None:
        return ["broker", "default"] if is_default else []
    ours = _ENTITIES.get(kind, kind)
    if ours in ("user", "client-id", "ip"):
        return ["quota", ours if name is None else f"{ours}={name}"]
    return [ours, *(["default"] if is_default and name is None else [] if name is None else [name])]


def _acls(line: _Line) -> list[str]:
    action = _by_flag(line, "list", "add", "remove")
    denied = line.values("--deny-principal")
    translated = action + (["--deny"] if denied and action == ["add"] else ["--permission", "deny"] if denied else [])
    for principal in (*line.values("--allow-principal"), *denied):
        translated += ["--principal", principal]
    for host in line.values("--allow-host", "--deny-host"):
        translated += ["--host", host]
    for pattern in line.values("--resource-pattern-type"):
        if action != ["add"]:
            translated += ["--pattern", pattern]
        elif pattern.lower() == "prefixed":
            translated.append("--prefixed")
    operations = [word.lower() for word in line.values("--operation")]
    line.flag("--force")
    return [*translated, *(word for one in operations for word in ("--operation", one))]


def _elect(line: _Line) -> list[str]:
    kind = line.first("--election-type")
    translated = [kind.lower()] if kind is not None else []
    topic, partition = line.values("--topic"), line.first("--partition")
    if line.flag("--all-topic-partitions"):
        translated.append("--all")
    if topic and partition is not None:
        return [*translated, "--topic-partition", f"{topic[0]}:{partition}"]
    return [*translated, *(word for one in topic for word in ("--topic", one))]


_REASSIGN: Final = {
    "--generate": "plan",
    "--execute": "start",
    "--verify": "list",
    "--list": "list",
    "--cancel": "cancel",
}


def _reassign(line: _Line) -> list[str]:
    action = next((action for flag, action in _REASSIGN.items() if line.flag(flag)), None)
    if action is None:
        return []
    files, brokers = line.values("--reassignment-json-file"), line.first("--broker-list")
    translated = [action, *(files if action in ("start", "cancel") else ())]
    if line.values("--topics-to-move-json-file"):
        translated += ["--topic", "TOPIC"]
    return translated if brokers is None else [*translated, "--to", brokers]


def _features(line: _Line) -> list[str]:
    action = line.action(("describe", "upgrade", "downgrade", "disable"))
    translated = ["downgrade" if action == "disable" else action] if action else []
    for release in line.values("--metadata"):
        translated += ["--feature", f"metadata.version={release}"]
    if action == "disable":
        for feature in line.values("--feature"):
            translated += ["--feature", f"{feature}=0"]
    return translated


def _dump(line: _Line) -> list[str]:
    files = [path for text in line.values("--files") for path in text.split(",")]
    flags = ("--cluster-metadata-decoder", "--print-data-log", "--deep-iteration")
    with_records = [line.flag(flag) for flag in flags]
    ours_too = (
        "--offsets-decoder",
        "--transaction-log-decoder",
        "--share-group-state-decoder",
        "--remote-log-metadata-decoder",
    )
    decoders = [flag for flag in ours_too if files and line.flag(flag)]
    line.flag("--skip-record-metadata")
    return [*(["--records"] if any(with_records) or decoders else []), *decoders, *files]


def _shell(line: _Line) -> list[str]:
    return line.values("--directory", "--snapshot", "-d", "-s")


def _records(line: _Line) -> list[str]:
    translated = line.values("--topic")
    if line.flag("--from-beginning"):
        translated += ["--from", "beginning"]
    for offset in line.values("--offset"):
        translated += ["--from", {"earliest": "beginning", "latest": "end"}.get(offset, offset)]
    for path in line.values("--producer.config", "--consumer.config", "--producer-config", "--consumer-config"):
        translated += ["--command-config", path]
    return translated


_TRANSLATIONS: Final[dict[str, Callable[[_Line], list[str]]]] = {
    "acls": _acls,
    "brokers": lambda line: _by_flag(line, "list", "describe", "unregister"),
    "configs": _configs,
    "consume": _records,
    "dump": _dump,
    "elect": _elect,
    "features": _features,
    "produce": _records,
    "quorum": _quorum,
    "reassign": _reassign,
    "shell": _shell,
    "topics": _topics,
    "users": lambda line: _by_flag(line, "list", "set", "delete"),
}
_GROUPS: Final = frozenset(("acls", "brokers", "configs", "features", "quorum", "topics", "users"))
"""Commands with subcommands that are options in Kafka's tools, or follow options there."""
