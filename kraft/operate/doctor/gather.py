"""Gathers the facts of all inputs: nodes, the metadata at the end of the best copy, and what this host says: access
rights, free space, addresses of names.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.errors import ConfigError
from kraft.operate.doctor.bundle import read_bundle
from kraft.operate.doctor.facts.log_facts import ImageFacts, LogFacts
from kraft.operate.doctor.facts.node import Facts, HostFacts, LiveFacts, Node, OpenFile
from kraft.operate.doctor.facts.settings import Settings
from kraft.operate.doctor.read_log import read_image_facts
from kraft.operate.doctor.read_nodes import Advance, Source, Unreadable, named, read_nodes
from metadata_log.disk import OsDisk
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import snapshot_name


class GatheredFacts(Struct, frozen=True, kw_only=True):
    """Facts, and the inputs that could not be read."""

    facts: Facts
    unreadable: tuple[Unreadable, ...] = ()


def this_host() -> Source:
    """The disk of this machine, with what its file system says."""
    return Source(disk=OsDisk(), host=host_facts, files=open_files)


def gather(
    configs: Sequence[str],
    directories: Sequence[str],
    bundles: Sequence[str] = (),
    *,
    live: tuple[LiveFacts, ImageFacts | None] | None = None,
    offline: bool = True,
    with_image: bool = True,
    advance: Advance = lambda batches: None,
) -> GatheredFacts:
    """Read properties files with their log directories, log directories and bundles, and add what a live cluster
    reports.

    The metadata of the live cluster wins over that of files. With `offline`, host names are not looked up. `advance`
    hears of numbers of batches read. What cannot be read is listed and not raised.
    """
    local, unreadable = read_nodes(this_host(), configs, directories, advance)
    nodes: list[Node] = list(local)
    bad = list(unreadable)
    images: dict[int, ImageFacts] = {}
    for path in bundles:
        try:
            bundle = read_bundle(path)
        except (ConfigError, OSError) as failed:
            bad.append(Unreadable(path, str(failed)))
            continue
        images |= {len(nodes) + place: image for place, image in bundle.images.items()}
        nodes += (replace(node, host=bundle.manifest.host) for node in bundle.manifest.nodes)
    facts = Facts(nodes=named(nodes), live=None if live is None else live[0])
    image = None if live is None else live[1]
    if image is None and with_image:
        image = _best_image(facts, images, len(local), advance)
    facts = Facts(nodes=facts.nodes, live=facts.live, image=image)
    return GatheredFacts(facts=facts if offline else with_names(facts), unreadable=tuple(bad))


def _best_image(facts: Facts, images: dict[int, ImageFacts], local: int, advance: Advance) -> ImageFacts | None:
    """The metadata at the end of the best copy. A bundle may lack the metadata of its copy; an equal copy stands in."""
    best = facts.best
    if best is None or best.log is None:
        return None
    for place, node in enumerate(facts.nodes):
        if node.log is None or node.log.position != best.log.position:
            continue
        if place in images:
            return images[place]
        if place < local:
            return read_image_facts(OsDisk(), node.log.path, advance)
    return None


def with_names(facts: Facts) -> Facts:
    """The facts with the addresses of the hosts of voters and bootstrap servers, from the resolver of this host."""
    hosts = [host for voter in facts.quorum.voters for _, host, _ in voter.endpoints]
    for node in facts.nodes:
        if node.settings is not None:
            hosts += [host for host, _ in node.settings.bootstrap_servers]
    return replace(facts, names=resolve(hosts))


def host_facts(path: str, log: LogFacts | None) -> HostFacts | None:
    """The facts about a log directory and the copy of the log in it; None if the directory cannot be read."""
    try:
        space = os.statvfs(path)
        mode = os.stat(path).st_mode
        owners = {os.stat(path).st_uid} | {status.st_uid for status in _below(path)}
    except OSError:
        return None
    return HostFacts(
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=space.f_favail if space.f_files else None,
        total_inodes=space.f_files or None,
        owners=tuple(sorted(owners)),
        is_writable=bool(mode & stat.S_IWUSR),
        readable_by_others=()
        if log is None or _is_closed(path, log)
        else tuple(_open_files(_files_of(log), "metadata")),
    )


def _is_closed(path: str, log: LogFacts) -> bool:
    """Whether the log directory or the partition directory keeps other users from every file in it."""
    return any(not os.stat(one).st_mode & stat.S_IXOTH for one in (path, log.path))


def _below(path: str) -> Iterable[os.stat_result]:
    """The entries of a directory, and of the partition directories in it."""
    with os.scandir(path) as entries:
        for entry in entries:
            yield entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and entry.name == "__cluster_metadata-0":
                with os.scandir(entry.path) as inner:
                    yield from (one.stat(follow_symlinks=False) for one in inner)


def _files_of(log: LogFacts) -> list[str]:
    names = [snapshot_name(one) for one in log.snapshots] + [file_name(base) for base in log.segments]
    return [f"{log.path}/{name}" for name in names]


def _open_files(paths: Iterable[str], what: str) -> Iterable[OpenFile]:
    """Those of the files that every user of this host may read."""
    for path in paths:
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            continue
        if mode & stat.S_IROTH:
            yield OpenFile(path, mode, what)


def open_files(settings: Settings) -> tuple[OpenFile, ...]:
    """The settings' own file if it holds secrets, and the key stores it names, where every user may read them."""
    secrets = settings.secrets()
    open_ones = list(_open_files([settings.source], f"holds {', '.join(secrets)}")) if secrets else []
    stores = [
        value.value for key, value in settings.values.items() if key.endswith("keystore.location") and value.value
    ]
    return (*open_ones, *_open_files(stores, "a key store"))


def resolve(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The addresses of each host name; none for a name that does not resolve."""
    addresses: dict[str, tuple[str, ...]] = {}
    for host in dict.fromkeys(hosts):
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses[host] = tuple(sorted({str(answer[4][0]) for answer in answers}))
        except OSError:
            addresses[host] = ()
    return addresses
