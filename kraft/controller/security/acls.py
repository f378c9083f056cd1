"""Creates and deletes ACLs (Kafka: `AclControlManager`, `AclApis`; KIP-801).

Brokers enforce the ACLs that they read from the metadata log. This controller enforces them with the `authorizer`.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from kraft.access.authorizer import CLUSTER_NAME, AclResource
from kraft.access.cidr import parse_range
from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.limits import RECORDS_PER_OPERATION
from kraft.reads.acls import ANY, MATCH, UNKNOWN, UNKNOWN_ELEMENTS, AclFilter, filter_of, matching_acls
from kraft.supported_features import REFUSALS_OF_4_4
from metadata_log.image import Acl
from metadata_log.image.acls import acl_record
from metadata_log.records.frame import VersionedRecord
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

RESOURCE_TYPES: Final = range(ANY, 8)
PATTERN_TYPES: Final = range(ANY, 5)
OPERATIONS: Final = range(ANY, 16)
PERMISSION_TYPES: Final = range(ANY, 4)
_NO_AUTHORIZER: Final = "No Authorizer is configured."
_RANGES_SINCE: Final = 32
"""The first metadata.version with ranges of addresses as hosts (4.4-IV1)."""
_TOO_MANY: Final = f"Cannot remove more than {RECORDS_PER_OPERATION} acls in a single delete operation."


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
            _check_host(acl.host, context.image.features.metadata_version or 0)
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


def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> Steps:
    """Remove the ACLs that match any filter. An ACL that two filters match is in both results, and is removed once."""
    _check_configured(context)
    removed: dict[Uuid, None] = {}
    results = []
    for asked in request.filters:
        yield None
        try:
            acls = yield from matching_acls(context.image, _delete_filter(asked))
        except ApiError as refused:
            results.append(DeleteAclsFilterResult(error_code=refused.error, error_message=refused.text))
        else:
            removed |= dict.fromkeys(acl_id for acl_id, _ in acls)
            if len(removed) > RECORDS_PER_OPERATION:
                raise ApiError(Error.INVALID_REQUEST, _TOO_MANY)
            matching = [_matching(acl) for _, acl in acls]
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    records = tuple(VersionedRecord(RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in removed)
    return ControllerResult(records, DeleteAclsResponse(filter_results=results))


def _check_configured(context: RequestContext) -> None:
    if context.admin.authorizer is None:
        raise ApiError(Error.SECURITY_DISABLED, _NO_AUTHORIZER)


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


def _check_host(host: str, metadata_version: int) -> None:
    """Refuse no host, and a range that is none or comes too early; any other text is a host, if only in name."""
    if not host and metadata_version >= REFUSALS_OF_4_4:
        raise ApiError(Error.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if metadata_version < _RANGES_SINCE:
        text = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        raise ApiError(Error.UNSUPPORTED_VERSION, text)
    try:
        parse_range(host)
    except ValueError as bad:
        raise ApiError(Error.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {bad}") from bad


def _check_concrete(creation: AclCreation) -> None:
    """Refuse the whole request, as Kafka does, if an entry is valid only as a filter."""
    if UNKNOWN in (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    ):
        # Kafka cannot parse such a request and closes the connection.
        raise ApiError(Error.INVALID_REQUEST, UNKNOWN_ELEMENTS)
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


def _delete_filter(asked: DeleteAclsFilter) -> AclFilter:
    wanted = filter_of(asked)
    if wanted.resource_type not in RESOURCE_TYPES or wanted.pattern_type not in PATTERN_TYPES:
        raise ApiError(Error.INVALID_REQUEST, "Unknown patternFilter.")
    if wanted.operation not in OPERATIONS or wanted.permission_type not in PERMISSION_TYPES:
        raise ApiError(Error.INVALID_REQUEST, "Unknown entryFilter.")
    return wanted


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_message=None, **structs.asdict(acl))
