"""What Kafka's classes write and read as records of `__remote_log_metadata`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation

ORACLE: Final = Path(__file__).parents[2] / "interop/RemoteLogOracle.java"
FRAME_BYTES: Final = 3
"""The bytes before a body: of the frame's version, of the type and of the version."""
SEED, COUNT = 1, 400
DAMAGES: Final = 3


def vectors(kafka: KafkaInstallation) -> Iterator[dict[str, Any]]:
    """Records that Kafka's serializer has written, with the text of its tool."""
    for name, data, text, form in _asked(kafka, [f"write {SEED} {COUNT}"]):
        frame, body = data[: FRAME_BYTES * 2], data[FRAME_BYTES * 2 :]
        yield {"name": name, "version": 0, "frame": frame, "hex": body, "json": json.loads(form), "text": text}


def damaged(kafka: KafkaInstallation, sound: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same with a changed byte, cut or with a byte too many: what Kafka reads, or None where it refuses them."""
    draw = Random(SEED)
    lines = ["read"]
    for vector in sound:
        data = bytes.fromhex(vector["frame"] + vector["hex"])
        for _ in range(DAMAGES):
            at, what = draw.randrange(len(data)), draw.randrange(8)
            changed = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
            lines.append("read " + (data[:at] if what == 0 else data + b"\0" if what == 1 else changed).hex())
    for _, raw, text, _ in _asked(kafka, lines):
        yield {"hex": raw, "text": None if text.startswith("Error ") else text}


def _asked(kafka: KafkaInstallation, lines: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """The name, the bytes, the text and the JSON in each line of an answer."""
    for line in oracle(kafka, ORACLE, lines).splitlines():
        name, raw, text, form = line.split("\t")
        yield name, raw, bytes.fromhex(text).decode(), bytes.fromhex(form).decode()
