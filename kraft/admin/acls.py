"""Lists, creates and deletes ACLs (Kafka: `Admin.describeAcls`, `createAcls`, `deleteAcls`; KIP-140, KIP-290).

The ACLs are those of an image, `metadata_log.image.Acl`, with the codes of Kafka's enums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from kraft.admin.client import AdminClient, Refusal, Verdict
from metadata_log.image import Acl
from metadata_log.image.java_text import name_of
from metadata_log.image.names import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES
from transport.protocol.errors import Error
from transport.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from transport.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from transport.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY: Final = 1
"""The code that matches each resource type, pattern type, operation and permission."""

LITERAL: Final = PATTERN_TYPES.index("LITERAL")


class AclFilter(Struct, frozen=True, kw_only=True):
    """Selects ACLs by Kafka's codes; None and `ANY` match everything (Kafka: `AclBindingFilter`, KIP-290).

    The pattern type MATCH (2) with a name selects each ACL that applies to a resource of that name.
    """

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    """The fields of a filter, for requests that describe and for requests that delete."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


async def describe_acls(admin: AdminClient, wanted: AclFilter) -> tuple[Acl, ...]:
    """The ACLs that match a filter (Kafka: `Admin.describeAcls`).

    Args:
        admin: The client.
        wanted: The filter.

    Returns:
        The ACLs, ordered by their fields.

    Raises:
        RequestRefused: The cluster has no authorizer, or the caller has no permission.
        NoController: No controller answered in time.
    """
    request = DescribeAclsRequest(**_filter_fields(wanted))
    answer = await admin.ask_active(request, DescribeAclsResponse, _describe_refusal)
    return _in_order(
        Acl(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            pattern_type=resource.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for resource in answer.resources
        for each in resource.acls
    )


async def create_acls(admin: AdminClient, acls: Sequence[Acl]) -> None:
    """Create ACLs, each separately; an existing ACL stays (Kafka: `Admin.createAcls`).

    Args:
        admin: The client.
        acls: The ACLs.

    Raises:
        SomeRefused: The controller refused some ACLs. The names are those of `acl_text`.
        NoController: No controller answered in time.
    """
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in acls
    ]

    def verdicts(answer: CreateAclsResponse) -> Iterator[Verdict]:
        for acl, result in zip(acls, answer.results, strict=True):
            yield acl_text(acl), result.error_code, result.error_message

    await admin.ask_about_each(CreateAclsRequest(creations=creations), CreateAclsResponse, verdicts)


async def delete_acls(admin: AdminClient, wanted: AclFilter) -> tuple[Acl, ...]:
    """Delete the ACLs that match a filter (Kafka: `Admin.deleteAcls`).

    Args:
        admin: The client.
        wanted: The filter.

    Returns:
        The deleted ACLs, ordered by their fields.

    Raises:
        SomeRefused: The controller refused the filter or some ACLs.
        NoController: No controller answered in time.
    """
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(wanted))])
    answer = await admin.ask_about_each(request, DeleteAclsResponse, _deleted)
    return _in_order(acl for result in answer.filter_results for acl, _, _ in _matching(result))


def acl_text(acl: Acl) -> str:
    """An ACL as short text, with the names of Kafka's enums."""
    pattern = "" if acl.pattern_type == LITERAL else f"{name_of(PATTERN_TYPES, acl.pattern_type)} "
    return (
        f"{name_of(PERMISSION_TYPES, acl.permission_type)} {acl.principal} from {acl.host} "
        f"{name_of(OPERATIONS, acl.operation)} on "
        f"{pattern}{name_of(RESOURCE_TYPES, acl.resource_type)} {acl.resource_name}"
    )


def _in_order(acls: Iterator[Acl]) -> tuple[Acl, ...]:
    return tuple(sorted(acls, key=lambda acl: tuple(getattr(acl, name) for name in Acl.__struct_fields__)))


def _matching(result: DeleteAclsFilterResult) -> Iterator[tuple[Acl, int, str | None]]:
    for each in result.matching_acls:
        acl = Acl(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        yield acl, each.error_code, each.error_message


def _describe_refusal(answer: DescribeAclsResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message


def _deleted(answer: DeleteAclsResponse) -> Iterator[Verdict]:
    for result in answer.filter_results:
        yield "", result.error_code, result.error_message
        for acl, code, text in _matching(result):
            yield acl_text(acl), code, text
