"""Frames of Kafka 4.3.1 about groups and transactions are read and written the same."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct, convert

from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response

CAPTURED: Final = Path(__file__).parent.parent / "data" / "coordinator_frames.jsonl.xz"
"""The frames of 38 sessions of five clients, and of every API of the coordinators at every version; each once."""


class Frame(Struct, frozen=True):
    """A frame as it went over the wire."""

    api: str
    key: int
    version: int
    is_request: bool
    hex: str

    @property
    def data(self) -> bytes:
        """The bytes without their length."""
        return bytes.fromhex(self.hex)


FRAMES: Final = [convert(json.loads(line), Frame) for line in lzma.decompress(CAPTURED.read_bytes()).splitlines()]


@pytest.mark.parametrize("api", sorted({one.api for one in FRAMES}))
def test_each_frame_is_read_and_written_the_same(api: str):
    for one in FRAMES:
        if one.api != api:
            continue
        if one.is_request:
            header, body = decode_request(one.data, apis=ALL_APIS)
            again = encode_request(one.key, one.version, header.correlation_id, header.client_id, body, apis=ALL_APIS)
        else:
            answered, body = decode_response(one.key, one.version, one.data, apis=ALL_APIS)
            again = encode_response(one.key, one.version, answered.correlation_id, body, apis=ALL_APIS)
        assert again == one.data, (one, body)


def test_both_directions_of_each_api_are_there():
    seen = Counter((one.api, one.is_request) for one in FRAMES)
    assert {(api, is_request) for api, _ in seen for is_request in (True, False)} == set(seen)
