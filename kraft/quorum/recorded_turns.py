"""The turns of a core as a node writes them into a file (`kraft.node.protocol_steps`), for
`docs/protocol/QuorumTrace.tla`.

An ordinary turn appends records, flushes them, fetches or commits, and changes neither role, epoch nor voters: it is
some numbers. Any other turn is there as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

import msgspec
from msgspec.structs import replace

from kraft.quorum.recorded import ProtocolStep

RECORD: Final = Layout(">qqqqB")
"""The time, the log end, the flushed end, the watermark and the kind; of a turn that is not ordinary the length of the
JSON that follows is in place of the log end. The kind comes last: a record without it is none."""
SIZE: Final = RECORD.size
OTHER, ORDINARY, FETCHING = 1, 2, 3


class Raw(msgspec.Struct, frozen=True):
    """A record in the file; of a turn that is not ordinary `log_end` is the length of the JSON before `end`."""

    end: int
    at_ns: int
    log_end: int
    flushed: int
    high_watermark: int
    kind: int


def records_in(data: bytes | memoryview) -> Iterator[Raw]:
    """The whole records from the begin on."""
    at = 0
    while at + SIZE <= len(data):
        at_ns, log_end, flushed, high_watermark, kind = RECORD.unpack_from(data, at)
        at += SIZE + (log_end if kind == OTHER else 0)
        if not kind or at > len(data):
            return
        yield Raw(at, at_ns, log_end, flushed, high_watermark, kind)


def turns_in(data: bytes) -> Iterator[tuple[int, list[ProtocolStep]]]:
    """The turns of a node, each with its time in ns."""
    decoder = msgspec.json.Decoder(list[ProtocolStep])
    last: ProtocolStep | None = None
    flushed = 0
    for one in records_in(data):
        if one.kind == OTHER:
            turn = decoder.decode(data[one.end - one.log_end : one.end])
        else:
            assert last is not None, "the first turn of a process is a start"
            turn = _ordinary_turn(last, flushed, one)
        flushed = one.flushed
        if turn:
            last = turn[-1]
            yield one.at_ns, turn


def _ordinary_turn(last: ProtocolStep, flushed: int, now: Raw) -> list[ProtocolStep]:
    """The steps of a turn, after which only ends and the watermark may be other ones than after the last step."""
    before, is_leader = last.state, last.role == "Leader"
    assert before is not None, last
    steps: list[tuple[str, int, int]] = []
    if now.log_end < before.end:
        steps.append(("Truncate", now.log_end, 0))
    elif now.log_end > before.end:
        steps.append(("AppendData" if is_leader else "Take", now.log_end, 0))
    if now.flushed > min(flushed, now.log_end):
        steps.append(("Flush", now.flushed, 0))
    if now.high_watermark != before.high_watermark:
        steps.append(("Commit" if is_leader else "Hear", now.high_watermark, 0))
    if now.kind == FETCHING:
        steps.append(("Fetch", now.log_end, before.last_epoch))
    state = replace(before, end=now.log_end, high_watermark=now.high_watermark)
    turn = [ProtocolStep(last.replica, what, last.role, last.epoch, end, epoch) for what, end, epoch in steps]
    return [*turn[:-1], *(replace(one, state=state, on_disk=last.on_disk) for one in turn[-1:])]
