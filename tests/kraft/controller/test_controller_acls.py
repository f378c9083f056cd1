"""ACLs are made, removed and listed as Kafka's controller does it, those of ranges of addresses too."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from kraft.access import cidr
from kraft.access.cidr import is_in_range, parse_range
from kraft.controller import ControllerResult
from kraft.reads.acls import AclFilter
from metadata_log.image import Acl
from metadata_log.records.metadata import FeatureLevelRecord
from support import DATA
from support.differential.admin_answers import RECORDED, SECURED, disagreements, kafkas_records, our_records, plain
from support.differential.controller_sides import InProcess
from support.work_counted import lines_run
from transport.protocol.errors import Error
from transport.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from transport.protocol.messages.create_acls import AclCreation
from transport.protocol.messages.delete_acls import DeleteAclsFilter

TOPIC, ANY, MATCH, LITERAL, PREFIXED, READ, ALLOW = 2, 1, 2, 3, 4, 3, 3
EVERYTHING = DeleteAclsFilter(
    resource_type_filter=ANY,
    resource_name_filter=None,
    pattern_type_filter=ANY,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


def creation(name: str, **changes: Any) -> AclCreation:
    defaults: dict[str, Any] = {
        "resource_type": TOPIC,
        "principal": "User:p",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(resource_name=name, **(defaults | changes))


def test_answers_and_records_are_kafkas() -> None:
    side = InProcess(admin=SECURED, release=RECORDED)
    assert disagreements("acls", side) == {}
    assert our_records(side) == kafkas_records("acls")


def test_without_an_authorizer_there_are_no_acls() -> None:
    assert disagreements("open", InProcess(release=RECORDED)) == {}
    side = InProcess()
    created = side.ask(CreateAclsRequest(creations=[creation("t")]), 3)
    assert isinstance(created, CreateAclsResponse)
    assert plain(created)["results"] == [
        {"error_code": Error.SECURITY_DISABLED, "error_message": "No Authorizer is configured.", "unknown_tagged": []}
    ]
    described = side.ask(DescribeAclsRequest(), 3)
    assert isinstance(described, DescribeAclsResponse)
    assert described.error_code == Error.SECURITY_DISABLED
    assert not side.controller.history.latest.acls.by_id


def test_a_duplicate_acl_in_a_request_is_stored_once() -> None:
    side = InProcess(admin=SECURED, release=RECORDED)
    side.ask(CreateAclsRequest(creations=[creation("t"), creation("t")]), 3)
    side.ask(CreateAclsRequest(creations=[creation("t")]), 3)
    assert len(side.controller.history.latest.acls.by_id) == 1


def test_deleting_more_acls_than_one_operation_allows_is_refused() -> None:
    side = InProcess(admin=SECURED, release=RECORDED)
    for part in range(3):
        names = (f"{part}-{number}" for number in range(4000))
        side.ask(CreateAclsRequest(creations=[creation(name) for name in names]), 3)
    removed = side.ask(DeleteAclsRequest(filters=[EVERYTHING]), 3)
    assert isinstance(removed, DeleteAclsResponse)
    (result,) = removed.filter_results
    assert (result.error_code, result.error_message) == (
        Error.INVALID_REQUEST,
        "Cannot remove more than 10000 acls in a single delete operation.",
    )
    assert len(side.controller.history.latest.acls.by_id) == 12_000


@pytest.mark.parametrize(
    ("pattern", "name", "entry_pattern", "entry_name", "found"),
    [
        (LITERAL, "t", LITERAL, "t", True),
        (LITERAL, "t", LITERAL, "*", False),
        (LITERAL, "t", PREFIXED, "t", False),
        (ANY, "t", PREFIXED, "t", True),
        (ANY, "t-1", PREFIXED, "t", False),
        (MATCH, "t-1", PREFIXED, "t", True),
        (MATCH, "t-1", LITERAL, "*", True),
        (MATCH, "t-1", PREFIXED, "*", False),
        (MATCH, "t", PREFIXED, "t-1", False),
        (PREFIXED, None, PREFIXED, "t", True),
        (PREFIXED, None, LITERAL, "t", False),
    ],
)
def test_acl_filters_match_resource_patterns(
    pattern: int, name: str | None, entry_pattern: int, entry_name: str, found: bool
) -> None:
    acl = Acl(TOPIC, entry_name, entry_pattern, "User:p", "*", READ, ALLOW)
    assert AclFilter(ANY, name, pattern, None, None, ANY, ANY).matches(acl) is found


def test_very_many_acls_are_described_in_steps_and_in_order() -> None:
    """A broker's first answer to DescribeAcls took a third of a second in one turn."""
    side = InProcess(admin=SECURED, release=RECORDED)
    for part in range(3):
        names = (f"{part}-{number}" for number in range(3000))
        side.ask(CreateAclsRequest(creations=[creation(name) for name in names]), 3)
    everything = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    steps: Any = side.controller.steps(everything, 3, 1, 0)
    found: list[ControllerResult] = []

    def step() -> None:
        try:
            next(steps)
        except StopIteration as done:
            found.append(done.value)

    most = count = 0
    while not found:
        most = max(most, lines_run(step))
        count += 1
    assert count > 500
    assert most < 4000
    response = found[0].response
    assert isinstance(response, DescribeAclsResponse)
    described = [one.resource_name for one in response.resources]
    assert len(described) == 9000
    assert described == sorted(described)


# Ranges of addresses as hosts of access rules: the table of Kafka 4.4.0, CreateAcls and the authorizer.


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
