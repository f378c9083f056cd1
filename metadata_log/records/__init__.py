"""Records of the metadata log: their declarations and their envelope."""

from metadata_log.records.frame import (
    CONTROL_RECORDS,
    RECORD_TYPES,
    ControlRecordType,
    FramedRecord,
    decode_control,
    decode_record,
    encode_control,
    encode_control_key,
    encode_record,
    peek_type,
)

__all__ = [
    "CONTROL_RECORDS",
    "RECORD_TYPES",
    "ControlRecordType",
    "FramedRecord",
    "decode_control",
    "decode_record",
    "encode_control",
    "encode_control_key",
    "encode_record",
    "peek_type",
]
