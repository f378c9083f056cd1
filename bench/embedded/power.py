"""The disk as it would be after the power failed: a copy of each file as it was when it was last synced.

`watch` wraps the calls of this process that make data durable (fsync and fdatasync of a file, msync of a mapping) and
those that name files (rename, remove). The copy of a file is made when such a call has returned. So a directory of the
copies has nothing that the process never synced. It has more than a real failure may leave in one respect: a rename and
a removal count at once, although the directory may not be synced.
"""

from __future__ import annotations

import mmap
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_replace = os.replace
"""Without the notes of `watch`."""


class Shadow:
    """The copies of the synced files below a directory."""

    def __init__(self, root: Path, copies: Path) -> None:
        self._root = root.resolve()
        self._copies = copies

    def synced(self, path: str) -> None:
        """A file is on the disk as it is now."""
        copy = self._copy_of(path)
        if copy is not None and os.path.isfile(path):
            copy.parent.mkdir(parents=True, exist_ok=True)
            # A process that is killed here must leave the copy of before: it has not been told that the file is synced.
            made = self._copies.with_name(f"{self._copies.name}-unfinished-{threading.get_ident()}")
            shutil.copyfile(path, made)
            _replace(made, copy)

    def renamed(self, before: str, after: str) -> None:
        """A file has another name; one that was never synced is empty under it."""
        old, new = self._copy_of(before), self._copy_of(after)
        if old is not None and new is not None:
            new.parent.mkdir(parents=True, exist_ok=True)
            if old.exists():
                _replace(old, new)
            else:
                new.write_bytes(b"")

    def removed(self, path: str) -> None:
        """A file is gone."""
        if (copy := self._copy_of(path)) is not None:
            copy.unlink(missing_ok=True)

    def _copy_of(self, path: str) -> Path | None:
        found = Path(os.path.realpath(path))
        return self._copies / found.relative_to(self._root) if found.is_relative_to(self._root) else None


def watch(root: Path, copies: Path) -> None:
    """Keep copies of what is synced below `root`, from now on."""
    shadow = Shadow(root, copies)

    def after(call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def watched(*args: Any, **named: Any) -> Any:
            result = call(*args, **named)
            note(*args)
            return result

        return watched

    def of_descriptor(descriptor: int) -> None:
        shadow.synced(os.readlink(f"/proc/self/fd/{descriptor}"))

    names: dict[int, str] = {}

    class Mapping(mmap.mmap):
        """A mapping that knows its file."""

        def __new__(cls, descriptor: int, *args: Any, **named: Any) -> Any:
            made = super().__new__(cls, descriptor, *args, **named)
            names[id(made)] = os.readlink(f"/proc/self/fd/{descriptor}")
            return made

        def flush(self, *args: Any) -> Any:
            result = super().flush(*args)
            shadow.synced(names[id(self)])
            return result

    changes: dict[str, Any] = {
        "fsync": after(os.fsync, of_descriptor),
        "fdatasync": after(os.fdatasync, of_descriptor),
        "rename": after(os.rename, shadow.renamed),
        "replace": after(os.replace, shadow.renamed),
        "remove": after(os.remove, shadow.removed),
        "unlink": after(os.unlink, shadow.removed),
    }
    for name, function in changes.items():
        setattr(os, name, function)
    vars(mmap)["mmap"] = Mapping
