"""Prepares the log directories of a node (Kafka: `Formatter`, as kafka-storage calls it)."""

from __future__ import annotations

import time
import warnings
from random import Random, SystemRandom

from kraft.config import Config, ConfigError
from metadata_log.disk import Disk, OsDisk
from metadata_log.log.log_dir import (
    already_formatted,
    check_formatted,
    first_voter,
    format_directory,
    strange_cluster_id,
)
from metadata_log.records.control import VotersRecord
from metadata_log.types import random_uuid


def format(config: Config, cluster_id: str, *, standalone: bool = False, ignore_formatted: bool = False) -> bool:
    """Prepare the log directories of a node, as `kraft format` does.

    The node is one of the static voters that the configuration names; or it is the first voter of a dynamic quorum
    (`standalone`); or it joins a dynamic quorum, whose nodes `controller.quorum.bootstrap.servers` names.

    Do not call it for a voter whose disk was lost: in a static quorum the empty directory would take the place of one
    that has voted, and in a dynamic quorum a second one would begin.

    Args:
        config: The node's configuration.
        cluster_id: The id that all nodes of the quorum have in common, as `kraft random-uuid` makes it. A warning
            (`UserWarning`) tells of another one: some tools of Kafka's refuse it.
        standalone: Whether the node begins a dynamic quorum.
        ignore_formatted: Leave directories as they are that are formatted for this node and cluster already.

    Returns:
        Whether a directory was formatted.

    Raises:
        ConfigError: The configuration has static voters, and `standalone` is given.
        DirectoryError: A directory is formatted already, or for another node or cluster; nothing is written.
        OSError: The disk has failed.
        TypeError: `config` is no `Config`.
    """
    if not isinstance(config, Config):
        raise TypeError(f"format takes a Config, as Config.load(path) and Config.parse(text) make it, not {config!r}")
    if config.voters and standalone:
        raise ConfigError("the configuration has static voters", where="controller.quorum.voters")
    if (strange := strange_cluster_id(cluster_id)) is not None:
        warnings.warn(strange, stacklevel=2)
    rng = Random(SystemRandom().getrandbits(128))
    voters = first_voters(config, rng) if standalone else None
    return format_all(OsDisk(), config, cluster_id, voters, rng, ignore_formatted=ignore_formatted)


def format_all(
    disk: Disk,
    config: Config,
    cluster_id: str,
    voters: VotersRecord | None,
    rng: Random,
    *,
    ignore_formatted: bool = False,
) -> bool:
    """Format each directory of a node on a disk; returns whether one was formatted. `format` has the errors.

    `voters` are the first voters of a dynamic quorum.
    """
    formatted = check_formatted(disk, config.directories, node_id=config.node_id, cluster_id=cluster_id)
    if formatted and not ignore_formatted:
        raise already_formatted(formatted[0])
    done = []
    for path in config.directories:
        is_metadata = path == config.metadata_log_dir
        made = format_directory(
            disk,
            path,
            node_id=config.node_id,
            cluster_id=cluster_id,
            rng=rng,
            now_ms=time.time_ns() // 1_000_000,
            dynamic=not config.voters,
            initial_voters=voters if is_metadata else None,
            is_controller=config.is_controller and is_metadata,
            ignore_formatted=ignore_formatted,
        )
        done.append(made)
    return any(done)


def first_voters(config: Config, rng: Random) -> VotersRecord:
    """The voters of a quorum of one node. Once that leads, it puts its actual address in place of this one."""
    at = (config.advertised_listeners or config.listeners)[0]
    return VotersRecord(voters=(first_voter(config.node_id, random_uuid(rng), at.name, at.host, at.port),))
