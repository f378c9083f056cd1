"""What the file system and the resolver of this host say: access rights, free space, addresses of names."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable

from kraft.operate.doctor.facts.log_facts import LogFacts
from kraft.operate.doctor.facts.node import HostFacts, OpenFile
from kraft.operate.doctor.facts.settings import Settings
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import snapshot_name


def host_facts(path: str, log: LogFacts | None) -> HostFacts | None:
    """The facts about a log directory and the copy of the log in it; None if the directory cannot be looked at."""
    try:
        space = os.statvfs(path)
        mode = os.stat(path).st_mode
        owners = {os.stat(path).st_uid} | {found.st_uid for found in _below(path)}
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
    found = list(_open_files([settings.source], f"holds {', '.join(secrets)}")) if secrets else []
    stores = [
        value.value for key, value in settings.values.items() if key.endswith("keystore.location") and value.value
    ]
    return (*found, *_open_files(stores, "a key store"))


def resolve(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The addresses of each host name; none for a name that does not resolve."""
    found: dict[str, tuple[str, ...]] = {}
    for host in dict.fromkeys(hosts):
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found[host] = tuple(sorted({str(answer[4][0]) for answer in answers}))
        except OSError:
            found[host] = ()
    return found
