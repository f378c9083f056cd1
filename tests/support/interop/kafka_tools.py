"""Apache Kafka's tools in one Java process that stays: what each prints, and its exit code."""

from __future__ import annotations

import re
import struct
import subprocess
from types import TracebackType
from typing import Self

from support import TESTS
from support.interop.real_kafka import KafkaInstallation

SOURCE = TESTS / "interop" / "Tools.java"


class KafkaTools:
    """Runs tools one at a time while the block lasts; far quicker than a process for each."""

    def __init__(self, kafka: KafkaInstallation) -> None:
        command = kafka.command(str(SOURCE), heap="512m")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the main method of a class to its end, whatever its exit code."""
        assert self._process.stdin is not None
        words = (tool, *args, stdin)
        self._process.stdin.write(struct.pack(">i", len(words)))
        for word in words:
            text = word.encode()
            self._process.stdin.write(struct.pack(">i", len(text)) + text)
        self._process.stdin.flush()
        code = self._number()
        said = [self._read(self._number()).decode() for _ in range(2)]
        return subprocess.CompletedProcess((tool, *args), code, *said)

    def _number(self) -> int:
        return int(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, "the process of the tools has ended"
        return data


def printed(ran: subprocess.CompletedProcess[str], names: re.Pattern[str]) -> list[str]:
    """How a tool has ended and what it has printed, without names that differ between two runs, in an order that does
    not matter.
    """
    told = [f"exit {ran.returncode}"]
    for text in (ran.stdout, ran.stderr):
        lines = [" ".join(names.sub("#", line).split()) for line in text.splitlines()]
        told += sorted(line for line in lines if line and not line.startswith(("at ", "...")))
    return told
