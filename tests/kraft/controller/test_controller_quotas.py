"""Client quotas are judged and written as Kafka's controller does it."""

from __future__ import annotations

from math import isfinite

from metadata_log.records.metadata import ClientQuotaRecord
from support.differential.admin_answers import RECORDED, as_bytes, disagreements, kafkas_records, our_records
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)

NAME_OF_A_HOST, NO_NUMBERS = 13, (27, 28, 31)


def test_answers_and_records_are_kafkas() -> None:
    """Kafka looks up the names of hosts, and takes infinity for a rate; its order of keys is that of a hash map."""
    side = InProcess(release=RECORDED)
    assert sorted(disagreements("quotas", side)) == [NAME_OF_A_HOST, *NO_NUMBERS]
    expected = [
        one
        for one in kafkas_records("quotas")
        if not (isinstance(one[1], ClientQuotaRecord) and (not isfinite(one[1].value) or _names_localhost(one[1])))
    ]
    assert as_bytes(our_records(side)) == as_bytes(expected)


def _names_localhost(record: ClientQuotaRecord) -> bool:
    return any(part.entity_name == "localhost" for part in record.entity)


def asked(entity: dict[str, str | None], *operations: OpData) -> AlterClientQuotasRequest:
    parts = [AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=parts, ops=list(operations))])


def test_an_invalid_quota_key_refuses_the_whole_entity() -> None:
    side = InProcess()
    answer = side.ask(
        asked({"user": None}, OpData(key="producer_byte_rate", value=5.0), OpData(key="nope", value=1.0)), 1
    )
    assert isinstance(answer, AlterClientQuotasResponse)
    assert [one.error_code for one in answer.entries] == [Error.INVALID_REQUEST]
    assert not side.controller.history.latest.quotas.by_entity


def test_unchanged_quotas_write_no_record() -> None:
    side = InProcess()
    request = asked({"client-id": "c", "user": None}, OpData(key="consumer_byte_rate", value=7.0))
    side.ask(request, 1)
    written = len(side.batches)
    side.ask(request, 1)
    assert len(side.batches) == written
    side.ask(asked({"user": None, "client-id": "c"}, OpData(key="consumer_byte_rate", remove=True)), 1)
    assert not side.controller.history.latest.quotas.by_entity
