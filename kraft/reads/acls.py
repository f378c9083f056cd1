"""Describes ACLs (Kafka: `AclApis.handleDescribeAcls`, `StandardAuthorizerData.acls`; KIP-801)."""

from __future__ import annotations

from collections.abc import Generator
from heapq import merge
from typing import Any, Final

from msgspec import Struct, structs

from kraft.access.authorizer import LITERAL, WILDCARD
from kraft.limits import ITEMS_PER_STEP
from kraft.reads.reading import Reading
from kraft.steps import Answering, made_of, with_pauses
from metadata_log.image import Acl, MetadataImage
from metadata_log.image.persistent_map import RUN
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.delete_acls import DeleteAclsFilter
from transport.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

UNKNOWN: Final = 0
ANY: Final = 1
MATCH: Final = 2
UNKNOWN_ELEMENTS: Final = "The request contains unknown elements."


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


def describe_acls(reading: Reading, request: DescribeAclsRequest) -> Answering:
    """The ACLs that match the filter, grouped by resource."""
    if not reading.has_authorizer:
        text = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=text)
    wanted = filter_of(request)
    if UNKNOWN in _codes(wanted):
        return DescribeAclsResponse(error_code=Error.INVALID_REQUEST, error_message=UNKNOWN_ELEMENTS)
    by_resource: dict[tuple[int, str, int], list[AclDescription]] = {}
    for at, (_, acl) in enumerate((yield from matching_acls(reading.image, wanted))):
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
    return DescribeAclsResponse(resources=resources)


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter of a request."""
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )


def matching_acls(image: MetadataImage, wanted: AclFilter) -> Generator[None, None, list[tuple[Uuid, Acl]]]:
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
    acls = []
    for sorted_entry in with_pauses(merge(*runs)):
        if sorted_entry is None:
            yield None
        else:
            acls.append(sorted_entry[1:])
    return acls


def _codes(wanted: AclFilter) -> tuple[int, int, int, int]:
    return (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type)
