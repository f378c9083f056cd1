"""Quotas of users, clients and IP addresses (Kafka: `ClientQuotaControlManager`, `QuotaConfig`; KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.limits import RECORDS_PER_OPERATION
from metadata_log.image import MetadataImage
from metadata_log.image.quotas import CLIENT_ID, IP, NO_QUOTAS, USER
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from transport.protocol.errors import Error
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    OpData,
)

Key = tuple[str, float]
"""A numeric type, and its largest value."""
_LONG: Final = ("a LONG", float(2**63 - 1))
_INT: Final = ("an INT", float(2**31 - 1))
_DOUBLE: Final = None
OF_CLIENTS: Final[dict[str, Key | None]] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _DOUBLE,
    "controller_mutation_rate": _DOUBLE,
}
OF_ADDRESSES: Final[dict[str, Key | None]] = {"connection_creation_rate": _INT}
_ROUNDING: Final = 1e-6
"""The tolerance for a whole number."""
Wanted = dict[str, str | None]
"""The names of an entity by entity type; None is the default entity, for names without a quota of their own."""


def alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> Steps:
    """Validate each entity separately; only changes are written."""
    entities = [{part.entity_type: part.entity_name for part in entry.entity} for entry in request.entries]
    records: list[VersionedRecord] = []
    answers: dict[frozenset[tuple[str, str | None]], AlterClientQuotasResponseEntryData] = {}
    for wanted, entry in zip(entities, request.entries, strict=True):
        yield None
        entity = frozenset(wanted.items())
        error: ApiError | None = None
        try:
            if entity in answers or len({one.key for one in entry.ops}) < len(entry.ops):
                raise ApiError(Error.INVALID_REQUEST, f"Ignoring duplicate entity {_in_words(wanted)}")
            records += _changes(context.image, wanted, entry.ops)
        except ApiError as refused:
            error = refused
        answers[entity] = _answer(wanted, error)
    if len(records) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _answer(wanted: Wanted, error: ApiError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.text,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in wanted.items()
        ],
    )


def _in_words(wanted: Wanted) -> str:
    """An entity as Kafka prints it."""
    parts = (f"{kind}={'null' if wanted[kind] is None else wanted[kind]}" for kind in sorted(wanted))
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def _changes(image: MetadataImage, wanted: Wanted, operations: list[OpData]) -> list[VersionedRecord]:
    """The records for one entity; raises `ApiError` if the request is invalid."""
    keys = _keys_of(wanted)
    now = image.quotas.by_entity.get(tuple(sorted(wanted.items())), NO_QUOTAS)
    entity = tuple(EntityData(entity_type=kind, entity_name=wanted[kind]) for kind in sorted(wanted))
    records = []
    for operation in operations:
        if operation.remove:
            if operation.key in now:
                records.append(ClientQuotaRecord(entity=entity, key=operation.key, value=0.0, remove=True))
            continue
        _check_value(keys, operation.key, operation.value)
        if now.get(operation.key) != operation.value:
            records.append(ClientQuotaRecord(entity=entity, key=operation.key, value=operation.value))
    return [VersionedRecord(record) for record in records]


def _keys_of(wanted: Wanted) -> Mapping[str, Key | None]:
    """The quota keys of an entity; raises `ApiError` for an invalid entity."""
    if not wanted:
        raise ApiError(Error.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in wanted.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(Error.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(Error.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP not in wanted:
        return OF_CLIENTS
    if len(wanted) > 1:
        text = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        raise ApiError(Error.INVALID_REQUEST, text)
    address = wanted[IP]
    if address is not None and not _is_address(address):
        raise ApiError(Error.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _is_address(name: str) -> bool:
    """Whether the name is an IP address. Host names are refused, because brokers may resolve them differently."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, Key | None], key: str, value: float) -> None:
    if key not in keys:
        raise ApiError(Error.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not isfinite(value):
        raise ApiError(Error.INVALID_REQUEST, f"Quota {key} must be a finite number")
    if value <= 0:
        raise ApiError(Error.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    kind = keys[key]
    if kind is None:
        return
    name, highest = kind
    if value > highest:
        raise ApiError(Error.INVALID_REQUEST, f"Proposed value for {key} is too large for {name}.")
    if abs(int(value + _ROUNDING) - value) > _ROUNDING:
        raise ApiError(Error.INVALID_REQUEST, f"{key} cannot be a fractional value.")
