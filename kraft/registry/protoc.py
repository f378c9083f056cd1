"""The compiler of Protobuf. It is to run in a process that may end: it is made of C++, and stops for nobody."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

MAIN: Final = "default.proto"
"""The name of a schema that nobody has named, as in the common registry."""


class CompileError(Exception):
    """A text is no Protobuf."""


def is_path(name: str) -> bool:
    """Whether a name of an import is a path below the folder of the imports."""
    path = PurePosixPath(name)
    return bool(name) and str(path) == name and not path.is_absolute() and ".." not in path.parts and "\\" not in name


@lru_cache(maxsize=16)
def compiled(text: str, imports: tuple[tuple[str, str], ...], known: bytes) -> bytes:
    """The `FileDescriptorSet` of one file, serialized.

    Args:
        text: The file.
        imports: Files that it imports, by their paths, also through others.
        known: Imports that are compiled already, as a serialized `FileDescriptorSet`.

    Raises:
        CompileError: The text is no Protobuf.
    """
    from grpc_tools import protoc

    spec = find_spec("grpc_tools")
    assert spec is not None
    assert spec.origin is not None
    with TemporaryDirectory(prefix="trio-kraft-") as folder:
        root = Path(folder)
        (root / "files").mkdir()
        for name, one in ((MAIN, text), *imports):
            path = root / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one, "utf-8")
        (root / "known").write_bytes(known)
        command = ["protoc", f"--descriptor_set_out={root / 'out'}"]
        command += [f"-I{root / 'files'}", f"-I{Path(spec.origin).parent / '_proto'}"]
        command += [f"--descriptor_set_in={root / 'known'}"] if known else []
        with _stderr_in(root / "said"):
            failed = protoc.main([*command, MAIN])
        if failed:
            with (root / "said").open(errors="replace") as file:
                said = file.read(4000).replace(f"{root / 'files'}/", "")
            raise CompileError("; ".join(said.strip().splitlines()[:5])[:2000])
        return (root / "out").read_bytes()


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Let what is said at stderr, also by C++, be in a file."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
