"""A simulated object store: fsspec's file system in memory, which counts the requests and the bytes that it serves."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

PROTOCOL = "counted"


class CountedStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Each call is a request, as S3 would serve it."""

    protocol = PROTOCOL
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    requests: ClassVar[Counter[str]] = Counter()
    read_bytes: ClassVar[int] = 0
    largest_bytes: ClassVar[int] = 0
    _guard: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace(f"{PROTOCOL}://", "memory://", 1)))

    @classmethod
    def reset(cls) -> None:
        """Count from zero."""
        cls.requests.clear()
        cls.read_bytes = cls.largest_bytes = 0

    @classmethod
    def clear(cls) -> None:
        """Remove everything."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.reset()

    @classmethod
    def total(cls) -> int:
        """The requests since `reset`."""
        return sum(cls.requests.values())

    def _count(self, kind: str, size: int = 0) -> None:
        with self._guard:
            self.requests[kind] += 1
            CountedStore.read_bytes += size
            CountedStore.largest_bytes = max(CountedStore.largest_bytes, size)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._count("list")
        return super().ls(path, detail=detail, **options)

    def find(self, path: str, **options: Any) -> Any:
        self._count("list")
        return super().find(path, **options)

    def info(self, path: str, **options: Any) -> Any:
        self._count("head")
        return super().info(path, **options)

    def exists(self, path: str, **options: Any) -> bool:
        self._count("head")
        return bool(super().exists(path, **options))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        found = self.store.get(self._strip_protocol(path))
        if found is None:
            self._count("get")
            raise FileNotFoundError(path)
        content = bytes(found.getbuffer()[start:end])
        self._count("get", len(content))
        return content

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        self._count("put")
        super().pipe_file(path, value, **options)

    def rm_file(self, path: str) -> None:
        self._count("delete")
        super().rm_file(path)

    def get_file(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a file was copied whole")


fsspec.register_implementation(PROTOCOL, CountedStore, clobber=True)
