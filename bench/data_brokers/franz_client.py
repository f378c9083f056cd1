"""The client franz-go under full load: a program in Go, built once, that runs anew for each measurement."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from data_brokers.clients import ANSWER_SECONDS, MIB, RECORD_BYTES

_SOURCE: Final = Path(__file__).parent / "franz"
_BUILD_SECONDS: Final = 600.0


class FranzClient:
    """Produces in batches of 64 KiB, and consumes an assigned partition. Needs Go, and its module proxy once."""

    name = "franz"

    def __enter__(self) -> FranzClient:
        self._directory = tempfile.TemporaryDirectory(prefix="franz-")
        self._program = str(Path(self._directory.name) / "franz")
        build = ["go", "build", "-o", self._program, "."]
        subprocess.run(build, cwd=_SOURCE, check=True, timeout=_BUILD_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def produce(self, bootstrap: str, topic: str, records: int, acks: str) -> float:
        """As `JavaProducer.produce`."""
        return self._run("produce", bootstrap, topic, acks, records)

    def consume(self, bootstrap: str, topic: str, records: int) -> float:
        """As `data_brokers.clients.consume`."""
        return self._run("consume", bootstrap, topic, "-", records)

    def _run(self, how: str, bootstrap: str, topic: str, acks: str, records: int) -> float:
        command = [self._program, how, bootstrap, topic, acks, str(records), str(RECORD_BYTES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * ANSWER_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return records * RECORD_BYTES / MIB / float(done.stdout)
