"""Random bytes: every decoder of messages, records and frames reads the bytes or refuses them with a named error.

Case n of a seed is the same in every run. FUZZ_SEED sets the seed, FUZZ_CASE runs that one case of it only.
"""

import os
import time
import tracemalloc
from collections import Counter
from random import Random
from typing import Any

import pytest

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.records import decode_control, decode_record, encode_control, encode_record
from metadata_log.records.frame import CONTROL_RECORDS, read_record
from metadata_log.serde import decode_from, encode
from metadata_log.serde.primitives import Reader, read_struct
from support.serde_golden import FAMILIES, golden
from support.serde_values import CLASSES, is_flexible
from transport.protocol import headers
from transport.protocol.broker_apis import ALL_APIS

SEED = int(os.environ.get("FUZZ_SEED", "20260611"))
EXTREMES = [
    b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08",
    b"\xff" * 5, b"\xff" * 10, b"\x7f\xff", b"\x80\x00",
]  # fmt: skip


def damaged(raw, others, rng):
    """`raw` after one to four accidents: flipped, cut, repeated, moved, overwritten, or run into another one."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.randint(1, 12))
        match rng.randrange(8):
            case 0 if data:
                data[at - 1] ^= 1 << rng.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = data[at:to] * rng.randint(1, 4)
            case 3:
                piece = data[at:to]
                del data[at:to]
                there = rng.randrange(len(data) + 1)
                data[there:there] = piece
            case 4:
                extreme = rng.choice(EXTREMES)
                data[at : at + len(extreme)] = extreme
            case 5:
                data[at:at] = rng.choice(EXTREMES)
            case 6:
                data[at:] = rng.choice(others)[at:]
            case _:
                data[at:to] = rng.randbytes(to - at)
    return bytes(data)


def try_message(cls, version, raw):
    """Both readers agree on what it is and where it ends, and what is read is written and read again the same."""
    try:
        message, end = reference(cls, version, raw)
        expected = encoded_again(message, end, version)
    except DecodeError:
        with pytest.raises(DecodeError) as caught:
            decode_from(cls, version, raw)
        assert caught.value.position in range(len(raw) + 1)
        return "refused"
    assert encoded_again(*decode_from(cls, version, raw), version) == expected
    if expected[0] is None:
        return "read"
    message, end = decode_from(cls, version, expected[0])
    assert (encode(message, version), end) == (expected[0], len(expected[0]))
    return "read and written"


def reference(cls, version, raw):
    reader = Reader(raw)
    return read_struct(reader, cls, version, flexible=is_flexible(cls, version)), reader.position


def encoded_again(message, end, version):
    """Bytes compare where values may not: NaN is not itself. None for what may be read, but not be written."""
    try:
        return encode(message, version), end
    except EncodeError:
        return None, end


def try_record(raw):
    """A record value; the two ways of reading it agree."""
    try:
        framed = decode_record(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_record(raw)
        return "refused"
    again = read_record(raw)
    assert repr(again) == repr((framed.type, framed.version, framed.name, framed.record))  # NaN is not itself
    try:
        decode_record(raw, strict=True)
    except DecodeError:
        assert framed.record is None
    if framed.record is None:
        return "kept"
    try:
        encode_record(framed.record, framed.version)
    except EncodeError:
        return "read"
    return "read and written"


def try_control(raw):
    split = 4 if len(raw) % 7 else len(raw) % 5
    try:
        _, message = decode_control(raw[:split], raw[split:])
        if message is not None:
            encode_control(message)
    except (DecodeError, EncodeError):
        return "refused"
    return "read"


def try_request(raw):
    try:
        header, body = headers.decode_request(raw, apis=ALL_APIS)
        key, version = header.request_api_key, header.request_api_version
        headers.encode_request(key, version, header.correlation_id, header.client_id, body, apis=ALL_APIS)
    except (DecodeError, EncodeError):
        return "refused"
    return "read"


def try_response(key, version, raw):
    try:
        header, body = headers.decode_response(key, version, raw, apis=ALL_APIS)
        headers.encode_response(key, version, header.correlation_id, body, apis=ALL_APIS)
    except (DecodeError, EncodeError):
        return "refused"
    return "read"


def targets():
    """The decoders and inputs to damage: (decoder, its arguments, the bytes)."""
    for family in FAMILIES:
        for line in golden(family):
            cls, raw = CLASSES[line["name"]], bytes.fromhex(line["hex"])
            yield try_message, (cls, line["version"]), raw
            if family == "records":
                yield try_record, (), bytes.fromhex(line["frame"]) + raw
            if cls in CONTROL_RECORDS.values():
                number = next(number for number, each in CONTROL_RECORDS.items() if each is cls)
                yield try_control, (), bytes(3) + bytes([number]) + raw
    for line in golden("frames"):
        raw, known = bytes.fromhex(line["hex"]), line["api_version"] in ALL_APIS[line["api_key"]].versions
        if line["direction"] == "request":
            yield try_request, (), raw
        elif known:
            yield try_response, (line["api_key"], line["api_version"]), raw


def run_case(number, chosen, by_decoder):
    """One case; every hundredth also measures memory, which must stay within the scale of the input."""
    rng = Random(f"{SEED}/{number}")
    decoder, arguments, raw = rng.choice(chosen)
    data = damaged(raw, by_decoder[decoder], rng)
    measured = number % 100 == 99
    if measured:
        tracemalloc.start()
    began = time.process_time()
    try:
        outcome = decoder(*arguments, data)
        spent = time.process_time() - began
        peak = tracemalloc.get_traced_memory()[1] if measured else 0
    except BaseException:
        print(f"FUZZ_SEED={SEED} FUZZ_CASE={number} {decoder.__name__} {arguments} {data.hex()}")
        raise
    finally:
        tracemalloc.stop()
    assert spent < 2, f"FUZZ_SEED={SEED} FUZZ_CASE={number}: {spent} s for {len(data)} bytes"
    assert peak < 4_000_000 + 400 * len(data), f"FUZZ_SEED={SEED} FUZZ_CASE={number}: {peak} for {len(data)} bytes"
    return decoder.__name__, outcome


@pytest.mark.parametrize(
    ("seconds", "first"), [(10, 0), *(pytest.param(150, 10**9 * n, marks=pytest.mark.soak) for n in range(1, 5))]
)
def test_decoders_survive_anything(seconds, first):
    """An unexpected exception from bytes that any client can send would end a node.

    The ten minutes of the soak are in parts with other cases each, so that continuous integration has room for one.
    """
    chosen = list(targets())
    by_decoder: dict[Any, Any] = {}
    for decoder, _, raw in chosen:
        by_decoder.setdefault(decoder, []).append(raw)
    if "FUZZ_CASE" in os.environ:
        print(run_case(int(os.environ["FUZZ_CASE"]), chosen, by_decoder))
        return
    found, number, end = Counter[Any](), first, time.monotonic() + seconds
    while time.monotonic() < end:
        found[run_case(number, chosen, by_decoder)] += 1
        number += 1
    print(f"FUZZ_SEED={SEED}: {number - first} cases from {first} in {seconds} s: {dict(sorted(found.items()))}")
    assert {decoder for decoder, _ in found} == {decoder.__name__ for decoder in by_decoder}
    assert {outcome for _, outcome in found} == {"refused", "read", "kept", "read and written"}
