"""The logs and snapshots of real clusters, taken apart into fields and written again by us, are the same files."""

from __future__ import annotations

from collections import Counter

from metadata_log.log.log import MetadataLog
from metadata_log.log.segment import file_name, parse_file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import rebuild_batch, write_batch
from metadata_log.records.frame import decode_control, decode_record, encode_control, encode_record
from metadata_log.records.record import Record, records
from support.real_data import real_files

_CONTROL_KEY_BYTES = 4


def fields_again(record: Record, *, control: bool) -> Record:
    """The record with its value encoded anew from the message that it decodes to."""
    key, value = record.key, record.value or b""
    if control:
        _, message = decode_control(key or b"", value)
        assert message is not None
        _, key, value = encode_control(message)
        assert len(key) == _CONTROL_KEY_BYTES
    else:
        frame = decode_record(value)
        assert frame.record is not None
        value = encode_record(frame.record, frame.version)
    return Record(record.offset, record.timestamp, record.timestamp_delta, key, value, record.headers)


def test_every_real_file_from_its_fields() -> None:
    """Kafka 3.9 and 4.3, controllers and brokers: header from its attributes, records from their messages."""
    count: Counter[str] = Counter()
    for path, content, _ in real_files():
        again = b""
        for batch in scan(content, where=path):
            found = [fields_again(record, control=batch.is_control) for record in records(batch)]
            assert rebuild_batch(batch, found) == batch.data, (path, batch.base_offset)
            again += write_batch(found, epoch=batch.epoch, control=batch.is_control)
            count["records"] += len(found)
        assert again == content, path
        count[path.rpartition(".")[2]] += 1
    assert count["records"] >= 29_803
    assert count["log"] >= 19
    assert count["checkpoint"] >= 50


def test_every_real_segment_through_the_log() -> None:
    """Appended batch by batch to an empty log that begins there, and read back in pieces."""
    count = 0
    for path, content, _ in real_files():
        base = parse_file_name(path.rpartition("/")[2])
        if base is None:
            continue
        disk = MemoryDisk()
        log = MetadataLog.open(disk, "d")
        log.reset_to(base)
        for batch in scan(content):
            log.append(batch.data)
        pieces = []
        offset = base
        while data := log.read(offset, 7000):
            pieces.append(data)
            *_, last = scan(data)
            offset = last.next_offset
        assert b"".join(pieces) == content, path
        log.close()
        assert disk.read(f"d/{file_name(base)}") == content, path
        count += 1
    assert count >= 19
