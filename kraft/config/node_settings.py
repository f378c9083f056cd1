"""The identity of a node: its roles, its id, its voters, its directories (Kafka: `KafkaConfig`, `QuorumConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.config.addresses import ANY_ADDRESS, QuorumVoter, parse_host_port, parse_voter, split_list
from kraft.config.keys import INT_MAX
from kraft.config.properties import Setting
from kraft.config.settings_reader import SettingsReader
from metadata_log.zookeeper_mode import MIGRATE_FIRST

BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
CONTROLLER: Final = "controller"
BROKER: Final = "broker"
ROLES: Final = "process.roles"
ZOOKEEPER: Final = "zookeeper.connect"


def is_of_zookeeper(settings: Mapping[str, Setting]) -> bool:
    """Whether settings are those of a node in ZooKeeper mode, which has no roles (Kafka 3.9: `requiresZookeeper`)."""
    return bool(ZOOKEEPER in settings and not (ROLES in settings and split_list(settings[ROLES].value)))


def read_roles(reader: SettingsReader) -> tuple[str, ...]:
    """The roles of the node; as in Kafka, a role that is named twice counts once."""
    roles = split_list(reader.text("process.roles"))
    if not roles:
        if is_of_zookeeper(reader.settings):
            raise reader.bad(ZOOKEEPER, "this node is in ZooKeeper mode", hint=MIGRATE_FIRST)
        raise reader.missing("process.roles", "Add process.roles=controller.")
    for role in roles:
        if role not in ("broker", "controller"):
            raise reader.bad(
                "process.roles", f"there is no role {role!r}", hint="Allowed: broker, controller, or both."
            )
    return tuple(dict.fromkeys(roles))


def read_node_id(reader: SettingsReader) -> int:
    """The id of the node, from 0; `broker.id` is its older name (Kafka: `AbstractKafkaConfig.populateSynonyms`)."""
    older, key = "broker.id", "node.id"
    if not reader.text(key):
        if older not in reader.settings:
            raise reader.missing(key, "Add node.id=N, with the id of this node in controller.quorum.voters.")
        return reader.whole_number(older, 0, INT_MAX)
    node_id = reader.whole_number(key, 0, INT_MAX)
    if older in reader.settings and reader.whole_number(older, -1, INT_MAX) != node_id:
        raise reader.bad(older, f"it differs from {key}, which is {node_id}", hint=f"Leave {older} out.")
    return node_id


def read_voters(reader: SettingsReader, node_id: int, role: str = CONTROLLER) -> tuple[QuorumVoter, ...]:
    """The static voters, by id; empty if the configuration names bootstrap servers of a dynamic quorum instead."""
    key = "controller.quorum.voters"
    entries = reader.entries(key, parse_voter)
    if not entries:
        if reader.entries(BOOTSTRAP_SERVERS, parse_host_port):
            return ()
        raise reader.not_set(
            key,
            f"{key} is not set, nor is {BOOTSTRAP_SERVERS}",
            hint=f"Name every voter of a static quorum: {key}=id@host:port,… "
            f"or some controllers of a dynamic one: {BOOTSTRAP_SERVERS}=host:port,…",
        )
    # As in Kafka, the last one of several entries with the same id counts.
    entries = tuple({voter.id: voter for voter in entries}.values())
    ids = [voter.id for voter in entries]
    for voter in entries:
        if voter.host in ANY_ADDRESS:
            raise reader.bad(
                key, f"no other host can reach {voter}", hint="Use an address that all nodes can route to."
            )
    if role == BROKER and node_id in ids:
        raise reader.bad(key, f"node.id {node_id} is among the voters", hint="A broker alone is no voter.")
    if role == CONTROLLER and node_id not in ids:
        raise reader.bad(
            key,
            f"node.id {node_id} is not among the voters",
            hint="A controller of a static quorum is one of its voters: check node.id, or add it to the list.",
        )
    return tuple(sorted(entries, key=lambda voter: voter.id))


def read_log_dirs(reader: SettingsReader) -> tuple[str, ...]:
    """The data directories: `log.dirs`, or else `log.dir`."""
    for key in ("log.dirs", "log.dir"):
        paths = split_list(reader.text(key))
        if any("\0" in path for path in paths):
            raise reader.bad(key, "a path holds a zero byte")
        if paths:
            return tuple(dict.fromkeys(paths))
    raise reader.bad("log.dirs", "no directory is named", hint="Add log.dirs=PATH.")
