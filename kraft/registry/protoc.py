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

BUILT_IN: Final = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}
"""The files that the common registry's clients import as if it were registered, beside `google/protobuf` and
`google/type`.
"""


class CompileError(Exception):
    """A text is no Protobuf."""


def is_path(name: str) -> bool:
    """Whether a name of an import is a path below the folder of the imports."""
    path = PurePosixPath(name)
    return bool(name) and str(path) == name and not path.is_absolute() and ".." not in path.parts and "\\" not in name


@lru_cache(maxsize=16)
def compiled(files: tuple[tuple[str, str], ...], known: bytes) -> bytes:
    """The `FileDescriptorSet` of the file `MAIN`, serialized, with all that it imports; what is imported comes first.

    Args:
        files: It and the files that it imports, by their paths, also through others.
        known: Those of them that are compiled already, as a serialized `FileDescriptorSet`.

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
        for folder_of, some in (("built-in", BUILT_IN.items()), ("files", files)):
            for name, one in some:
                path = root / folder_of / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(one, "utf-8")
        google = _google_types()
        if google is not None:
            (root / "built-in" / "google").mkdir()
            (root / "built-in" / "google" / "type").symlink_to(google, target_is_directory=True)
        (root / "known").write_bytes(known)
        command = ["protoc", "--include_imports", f"--descriptor_set_out={root / 'out'}"]
        command += [f"-I{root / 'files'}", f"-I{root / 'built-in'}", f"-I{Path(spec.origin).parent / '_proto'}"]
        command += [f"--descriptor_set_in={root / 'known'}"] if known else []
        with _stderr_in(root / "said"):
            failed = protoc.main([*command, MAIN])
        if failed:
            with (root / "said").open(errors="replace") as file:
                said = file.read(4000).replace(f"{root / 'files'}/", "")
            raise CompileError("; ".join(said.strip().splitlines()[:5])[:2000])
        return (root / "out").read_bytes()


def _google_types() -> Path | None:
    """The folder of `google/type/*.proto` in googleapis-common-protos."""
    spec = find_spec("google.type")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else None


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
