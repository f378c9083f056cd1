"""Creates, deletes and describes ACLs (Kafka: `AclControlManager`, `AclApis`; KIP-801).

Brokers enforce the ACLs that they read from the metadata log. This controller enforces them with the `authorizer`.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import merge
from typing import Any, Final

from msgspec import Struct, structs

from kraft.access.authorizer import CLUSTER_NAME, LITERAL, WILDCARD, AclResource
from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import (
    ITEMS_PER_STEP,
    RECORDS_PER_OPERATION,
    ControllerResult,
    Steps,
    VersionedRecord,
    made_of,
    with_pauses,
)
from metadata_log.image import Acl, MetadataImage
from metadata_log.image.acls import acl_record
from metadata_log.image.persistent_map import RUN
from metadata_log.records.metadata import RemoveAccessControlEntryRecord
from metadata_log.types import Uuid, random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from transport.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from transport.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

UNKNOWN: Final = 0
ANY: Final = 1
MATCH: Final = 2
RESOURCE_TYPES: Final = range(ANY, 8)
PATTERN_TYPES: Final = range(ANY, 5)
OPERATIONS: Final = range(ANY, 16)
PERMISSION_TYPES: Final = range(ANY, 4)
_NO_AUTHORIZER: Final = "No Authorizer is configured."
_TOO_MANY: Final = f"Cannot remove more than {RECORDS_PER_OPERATION} acls in a single delete operation."
_UNKNOWN_ELEMENTS: Final = "The request contains unknown elements."


class AclFilter(Struct, frozen=True):
    """A filter for ACLs (`AclBindingFilter`): None matches any name, principal or host; 1 matches any type."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects an ACL. The pattern type MATCH selects each ACL that applies to the named
        resource."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != MATCH:
            return False
        return acl.resource_name == WILDCARD if acl.pattern_type == LITERAL else name.startswith(acl.resource_name)


def create_acls(context: RequestContext, request: CreateAclsRequest) -> Steps:
    """Validate each ACL on its own. An ACL that exists, or that the request repeats, succeeds without a record."""
    _check_configured(context)
    for creation in request.creations:
        _check_concrete(creation)
    added: dict[Acl, None] = {}
    results = []
    for creation in request.creations:
        yield None
        try:
            acl = _entry(creation)
        except ApiError as refused:
            results.append(AclCreationResult(error_code=refused.error, error_message=refused.text))
        else:
            results.append(AclCreationResult())
            if not context.image.acls.has(acl):
                added[acl] = None
    if len(added) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    records = []
    for acl in added:
        yield None
        records.append(VersionedRecord(acl_record(_new_id(context), acl)))
    return ControllerResult(tuple(records), CreateAclsResponse(results=results))


def refuse_create_acls(request: CreateAclsRequest, error: Error, text: str | None = None) -> CreateAclsResponse:
    """The response with the same error for each entry."""
    result = AclCreationResult(error_code=error, error_message=text)
    return CreateAclsResponse(results=[result] * len(request.creations))


def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> Steps:
    """Remove the ACLs that match any filter. An ACL that two filters match is in both results, and is removed once."""
    _check_configured(context)
    removed: dict[Uuid, None] = {}
    results = []
    for asked in request.filters:
        yield None
        try:
            found = yield from _found(context.image, _delete_filter(asked))
        except ApiError as refused:
            results.append(DeleteAclsFilterResult(error_code=refused.error, error_message=refused.text))
        else:
            removed |= dict.fromkeys(acl_id for acl_id, _ in found)
            if len(removed) > RECORDS_PER_OPERATION:
                raise ApiError(Error.INVALID_REQUEST, _TOO_MANY)
            matching = [_matching(acl) for _, acl in found]
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    records = tuple(VersionedRecord(RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in removed)
    return ControllerResult(records, DeleteAclsResponse(filter_results=results))


def refuse_delete_acls(request: DeleteAclsRequest, error: Error, text: str | None = None) -> DeleteAclsResponse:
    """The response with the same error for each filter."""
    result = DeleteAclsFilterResult(error_code=error, error_message=text)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> Steps:
    """The ACLs that match the filter, grouped by resource."""
    if context.admin.authorizer is None:
        text = "No Authorizer is configured on the broker"
        return _described(DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=text))
    wanted = _filter_of(request)
    if UNKNOWN in _codes(wanted):
        return _described(DescribeAclsResponse(error_code=Error.INVALID_REQUEST, error_message=_UNKNOWN_ELEMENTS))
    by_resource: dict[tuple[int, str, int], list[AclDescription]] = {}
    for at, (_, acl) in enumerate((yield from _found(context.committed, wanted))):
        if at % ITEMS_PER_STEP == 0:
            yield None
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_resource.setdefault(key, []).append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
    resources = yield from made_of(
        list(by_resource.items()),
        lambda entry: DescribeAclsResource(
            resource_type=entry[0][0], resource_name=entry[0][1], pattern_type=entry[0][2], acls=entry[1]
        ),
    )
    return _described(DescribeAclsResponse(resources=resources))


def refuse_describe_acls(_: DescribeAclsRequest, error: Error, text: str | None = None) -> DescribeAclsResponse:
    """The response with an error and without ACLs."""
    return DescribeAclsResponse(error_code=error, error_message=text)


def _described(response: DescribeAclsResponse) -> ControllerResult:
    return ControllerResult(response=response)


def _check_configured(context: RequestContext) -> None:
    if context.admin.authorizer is None:
        raise ApiError(Error.SECURITY_DISABLED, _NO_AUTHORIZER)


def _codes(wanted: AclFilter) -> tuple[int, int, int, int]:
    return (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type)


def _entry(creation: AclCreation) -> Acl:
    """The ACL of a creation entry. Raises `ApiError` with Kafka's messages, checked in Kafka's order."""
    if creation.resource_type == AclResource.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise ApiError(Error.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise ApiError(Error.INVALID_REQUEST, "Invalid empty resource name")
    for field, code, known in (
        ("resourceType", creation.resource_type, RESOURCE_TYPES),
        ("patternType", creation.resource_pattern_type, PATTERN_TYPES),
        ("operation", creation.operation, OPERATIONS),
        ("permissionType", creation.permission_type, PERMISSION_TYPES),
    ):
        if code not in known:
            raise ApiError(Error.INVALID_REQUEST, f"Invalid {field} UNKNOWN")
    if ":" not in creation.principal:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"Could not parse principal from `{creation.principal}` "
            "(no colon is present separating the principal type from the principal name)",
        )
    return Acl(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )


def _check_concrete(creation: AclCreation) -> None:
    """Refuse the whole request, as Kafka does, if an entry is valid only as a filter."""
    if UNKNOWN in (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    ):
        # Kafka cannot parse such a request and closes the connection.
        raise ApiError(Error.INVALID_REQUEST, _UNKNOWN_ELEMENTS)
    if ANY in (
        creation.resource_type,
        creation.operation,
        creation.permission_type,
    ) or creation.resource_pattern_type in (ANY, MATCH):
        raise ApiError(Error.UNKNOWN_SERVER_ERROR)


def _new_id(context: RequestContext) -> Uuid:
    """An id that no ACL has yet."""
    while (acl_id := random_uuid(context.rng)) in context.image.acls.by_id:
        pass
    return acl_id


def _filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )


def _delete_filter(asked: DeleteAclsFilter) -> AclFilter:
    wanted = _filter_of(asked)
    if wanted.resource_type not in RESOURCE_TYPES or wanted.pattern_type not in PATTERN_TYPES:
        raise ApiError(Error.INVALID_REQUEST, "Unknown patternFilter.")
    if wanted.operation not in OPERATIONS or wanted.permission_type not in PERMISSION_TYPES:
        raise ApiError(Error.INVALID_REQUEST, "Unknown entryFilter.")
    return wanted


def _found(image: MetadataImage, wanted: AclFilter) -> Generator[None, None, list[tuple[Uuid, Acl]]]:
    """The ACLs that match a filter, ordered by resource and principal."""
    runs: list[list[tuple[tuple[Any, ...], Uuid, Acl]]] = [[]]
    for entry in with_pauses(iter(image.acls.by_id.items())):
        if entry is None:
            yield None
            continue
        acl_id, acl = entry
        if wanted.matches(acl):
            runs[-1].append((structs.astuple(acl), acl_id, acl))
            if len(runs[-1]) == RUN:
                runs[-1].sort()
                runs.append([])
                yield None
    runs[-1].sort()
    found = []
    for sorted_entry in with_pauses(merge(*runs)):
        if sorted_entry is None:
            yield None
        else:
            found.append(sorted_entry[1:])
    return found


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_message=None, **structs.asdict(acl))
