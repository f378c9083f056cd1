"""ACLs are made, removed and listed as Kafka's controller does it."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller import ControllerResult
from kraft.reads.acls import AclFilter
from metadata_log.image import Acl
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
