"""Files that Apache Kafka has written, kept in `tests/data` as compressed archives and unpacked on demand."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from support import DATA


@cache
def archive(name: str) -> dict[str, bytes]:
    """The files of `tests/data/NAME.tar.xz` by their paths in it."""
    found = {}
    with tarfile.open(DATA / f"{name}.tar.xz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                found[member.name.removeprefix("./")] = content.read()
    return found


def json_lines(name: str, path: str) -> list[dict[str, Any]]:
    """A file of an archive that holds one JSON object a line."""
    return [json.loads(line) for line in archive(name)[path].splitlines()]


def real_files() -> list[tuple[str, bytes, list[dict[str, Any]]]]:
    """Every different log and snapshot of the real clusters: path, content, and what Kafka reads in it by batches."""
    found = []
    seen = set()
    for name, clusters in (("static3", [""]), ("clusters", ["dynamic3/", "failover/", "old39/", "format/"])):
        files = archive(name)
        for cluster in clusters:
            expected = json.loads(files[f"{cluster}expected.json"])
            for path, decoding in sorted(expected.items()):
                content = files[cluster + path]
                if content not in seen:
                    seen.add(content)
                    found.append((cluster + path, content, json_lines(name, cluster + decoding)))
    return found


def unpack(name: str, prefix: str, target: Path) -> Path:
    """Write the files of an archive that lie under `prefix`, or all of them, into `target`, which is returned."""
    for path, content in archive(name).items():
        if not prefix or path.startswith(f"{prefix}/"):
            file = target / path[len(f"{prefix}/") if prefix else 0 :]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return target
