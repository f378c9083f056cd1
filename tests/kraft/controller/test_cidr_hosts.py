"""Ranges of addresses as hosts of access rules: the table of Kafka 4.4.0, CreateAcls and the authorizer."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from kraft.access import cidr
from kraft.access.cidr import is_in_range, parse_range
from metadata_log.records.metadata import FeatureLevelRecord
from support import DATA
from support.differential.admin_answers import SECURED
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import CreateAclsRequest, CreateAclsResponse
from transport.protocol.messages.create_acls import AclCreation

TABLE: list[dict[str, Any]] = list(map(json.loads, gzip.decompress((DATA / "cidr.jsonl.gz").read_bytes()).splitlines()))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["pattern"])
def test_the_table_of_the_jvm(row: dict[str, Any]) -> None:
    pattern = row["pattern"]
    for address, is_in in row["hosts"].items():
        assert is_in_range(pattern, address) is is_in, address
    if row["valid"]:
        parse_range(pattern)
        return
    with pytest.raises(ValueError, match=re.escape(row["error"].partition(": ")[2]) + "$"):
        parse_range(pattern)


@pytest.mark.parametrize(
    ("level", "host", "error", "text"),
    [
        (32, "10.14.0.0/16", Error.NONE, None),
        (
            *(31, "10.14.0.0/16", Error.UNSUPPORTED_VERSION),
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        ),
        (
            33,
            "10.0.0.0/33",
            Error.INVALID_REQUEST,
            "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
        ),
        (31, "a.host.name", Error.NONE, None),
        (31, "", Error.INVALID_REQUEST, "Host pattern cannot be null or empty"),
        (31, "*", Error.NONE, None),
    ],
)
def test_a_range_is_created_from_4_4_on(level: int, host: str, error: Error, text: str | None) -> None:
    side = InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=level),), admin=SECURED)
    rule = AclCreation(
        resource_type=2,
        resource_name="audit",
        resource_pattern_type=3,
        principal="User:a",
        host=host,
        operation=3,
        permission_type=3,
    )
    answer = side.ask(CreateAclsRequest(creations=[rule]), 3)
    assert isinstance(answer, CreateAclsResponse)
    [result] = answer.results
    assert (Error(result.error_code), result.error_message) == (error, text if error else result.error_message)


def test_the_ranges_of_very_many_rules_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is judged by each rule in turn: what is forgotten before its next turn is parsed for each request."""
    parsed: list[str] = []

    def counted(host: str) -> object:
        parsed.append(host)
        return parse_range(host)

    monkeypatch.setattr(cidr, "parse_range", counted)
    hosts = [f"10.{at >> 8}.{at & 255}.0/28" for at in range(10_000)]
    for address in ("192.168.0.1", "10.3.9.15"):
        found = [host for host in hosts if is_in_range(host, address)]
    assert (found, len(parsed)) == (["10.3.9.0/28"], len(hosts))
