"""An independent reader and writer of Kafka's messages (kio) sees in Kafka's vectors what we see."""

import dataclasses
import datetime
import enum
import io
import uuid
from collections import Counter
from importlib import import_module
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from metadata_log.serde import decode, encode, schema_of
from metadata_log.serde.declare_tables import snake_case
from metadata_log.serde.fields import Role
from metadata_log.types import Uuid
from support.serde_golden import golden
from support.serde_values import CLASSES

MODULES = {Role.REQUEST: "request", Role.RESPONSE: "response", Role.HEADER: "header", Role.DATA: "data"}


def kio_class(cls, version):
    """The class of one version, or None where kio has no such message."""
    schema = schema_of(cls)
    package = snake_case(schema.name.removesuffix("Request").removesuffix("Response"))
    if schema.role is Role.HEADER:
        package = snake_case(schema.name)
    try:
        found = import_module(f"kio.schema.{package}.v{version}.{MODULES[schema.role]}")
    except ImportError:
        return None
    return getattr(found, schema.name, None)


def compare(ours, theirs, path, found):
    """Compare what has the same name on both sides; kio renames times, and has fields of its other versions."""
    match theirs:
        case _ if dataclasses.is_dataclass(theirs):
            for field in dataclasses.fields(theirs):
                # A field that Kafka 4.4 replaced by a wider one keeps its former name in kio.
                name = next((one for one in (f"{field.name}_legacy", field.name) if hasattr(ours, one)), None)
                if name is not None:
                    compare(getattr(ours, name), getattr(theirs, field.name), f"{path}.{field.name}", found)
            return
        case tuple() if ours is not None:
            assert len(ours) == len(theirs), path
            for one, other in zip(ours, theirs, strict=True):
                compare(one, other, path, found)
            return
        case enum.Enum():
            same = ours == theirs.value
        case uuid.UUID():
            same = ours == theirs.bytes
        case datetime.timedelta():
            same = theirs == datetime.timedelta(milliseconds=ours)
        case datetime.datetime():
            return
        case None:  # also the zero uuid
            same = ours is None or ours == Uuid.ZERO
        case _:
            same = ours == theirs
    assert same, (path, ours, theirs)
    found["values"] += 1


def test_an_independent_library_agrees_on_every_message_that_it_has():
    """Our declarations and our expectations have the same source; kio is an independent implementation."""
    found, seen, refusals = Counter[Any](), set(), Counter[Any]()
    for line in [*golden("messages"), *golden("data")]:
        cls, version, raw = CLASSES[line["name"]], line["version"], bytes.fromhex(line["hex"])
        theirs = kio_class(cls, version)
        if theirs is None or "unknown_tagged" in line:
            found["not in kio"] += 1
            continue
        try:
            entity, end = entity_reader(theirs)(raw, 0)
        except (
            ValueError,
            OutOfBoundValue,
        ) as refused:  # unknown times and error codes
            refusals[type(refused).__name__] += 1
            continue
        assert end == len(raw), line["name"]
        message = decode(cls, version, raw)
        compare(message, entity, line["name"], found)
        again = io.BytesIO()
        entity_writer(theirs)(again, entity)
        assert again.getvalue() == raw == encode(message, version), line["name"]
        found["vectors"] += 1
        seen.add((line["name"], version))
    print(dict(found), dict(refusals), f"{len(seen)} messages and versions")
    assert found["vectors"] > 3500
    assert len(seen) > 600
