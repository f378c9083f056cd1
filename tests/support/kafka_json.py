"""The form in which captured frames and damaged messages give `records` fields: by their size only."""

import base64


def with_sizes(json):
    """`json` with every `records` field replaced by its size in bytes, as Kafka's verbose loggers print it."""
    match json:
        case dict():
            return dict(
                size_of(key, value) if is_records(key, value) else (key, with_sizes(value))
                for key, value in json.items()
            )
        case list():
            return [with_sizes(value) for value in json]
        case _:
            return json


def is_records(key, value):
    return key in {"records", "unalignedRecords"} and isinstance(value, str)


def size_of(key, value):
    return f"{key}SizeInBytes", len(base64.b64decode(value))
