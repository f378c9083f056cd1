"""The compiler of Protobuf, as a process of its own: what a stranger sends can neither crash nor stop the registry."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

SECONDS: Final = 20.0
MAIN: Final = "default.proto"
"""The name of a schema that nobody has named, as in the common registry."""


class CompileError(Exception):
    """A text is no Protobuf."""


def is_path(name: str) -> bool:
    """Whether a name of an import is a path below the folder of the imports."""
    path = PurePosixPath(name)
    return bool(name) and str(path) == name and not path.is_absolute() and ".." not in path.parts and "\\" not in name


@lru_cache(maxsize=256)
def compiled(text: str, imports: tuple[tuple[str, str], ...], known: bytes) -> bytes:
    """The `FileDescriptorSet` of one file, serialized.

    Args:
        text: The file.
        imports: Files that it imports, by their paths, also through others.
        known: Imports that are compiled already, as a serialized `FileDescriptorSet`.

    Raises:
        CompileError: The text is no Protobuf, or it takes too long.
    """
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
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_out={root / 'out'}"]
        command += [f"-I{root / 'files'}", f"-I{Path(spec.origin).parent / '_proto'}"]
        command += [f"--descriptor_set_in={root / 'known'}"] if known else []
        try:
            done = subprocess.run(
                [*command, MAIN], capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"the compiler did not end within {SECONDS:g} s") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").replace(f"{root / 'files'}/", "")
            raise CompileError("; ".join(said.strip().splitlines()[:5])[:2000])
        return (root / "out").read_bytes()
