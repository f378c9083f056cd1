"""Authorizes operations by ACLs, without state of its own (Kafka: `StandardAuthorizer`, `StandardAuthorizerData`;
KIP-801).

A DENY entry overrides all ALLOW entries. Without a matching entry the operation is denied, unless
`allow.everyone.if.no.acl.found` is set. Super users may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from kraft.access.caller import Caller
from kraft.access.cidr import is_in_range
from kraft.access.errors import ApiError
from kraft.config.authorizer_settings import read_allows_without_acl, read_super_users
from kraft.config.key import Key, build
from kraft.config.settings_reader import SettingsReader
from metadata_log.image import Acl, AclsImage
from metadata_log.image.acls import ResourcePattern
from transport.protocol.errors import Error


class AclOperation(IntEnum):
    """The operations on resources (Kafka's enum of this name)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResource(IntEnum):
    """The types of resources (Kafka: `org.apache.kafka.common.resource.ResourceType`)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
ALL_PRINCIPALS: Final = "User:*"
LITERAL: Final = 3
PREFIXED: Final = 4
DENY: Final = 2
IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
"""For each operation, the operations that imply it when they are allowed. Denials imply nothing."""
OF_A_CLUSTER: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
"""The operations that a cluster resource supports (`AclEntry.supportedOperations`)."""
_ANY_NAME: Final = "hardcode"
"""The placeholder resource name that Kafka uses to check an operation on all resources of a type."""


class AuthorizerSettings(Struct, frozen=True):
    """`super.users` as (type, name) pairs, and `allow.everyone.if.no.acl.found`."""

    super_users: Annotated[frozenset[str], Key("super.users", read=read_super_users)] = frozenset()
    allows_without_acl: Annotated[bool, Key("allow.everyone.if.no.acl.found", read=read_allows_without_acl)] = False


def authorizer_of(reader: SettingsReader) -> AuthorizerSettings | None:
    """The settings of the authorizer; None if the file names none."""
    return build(AuthorizerSettings, reader, {}) if reader.text("authorizer.class.name") else None


class Verdict(Struct, frozen=True):
    """Whether an operation is allowed, and the rule that decided: an ACL, or Kafka's name of a setting."""

    is_allowed: bool
    rule: Acl | str

    def __str__(self) -> str:
        """The rule, as in Kafka's audit log."""
        if not isinstance(self.rule, Acl):
            return self.rule
        # Loaded here, because most clusters have no ACLs.
        from metadata_log.image.java_text import acl_text

        return f"MatchingAcl(acl={acl_text(self.rule)})"


class Denial(Struct, frozen=True):
    """A denied operation, for the audit log (Kafka's logger is `kafka.authorizer.logger`)."""

    caller: Caller
    operation: AclOperation
    resource: AclResource
    name: str
    rule: str


SUPER_USER: Final = Verdict(is_allowed=True, rule="SuperUser")
DEFAULT_ALLOW: Final = Verdict(is_allowed=True, rule="DefaultAllow")
DEFAULT_DENY: Final = Verdict(is_allowed=False, rule="DefaultDeny")


class Authorizer(Struct, frozen=True):
    """The ACLs of one image. Until they are loaded, the authorizer admits only super users."""

    settings: AuthorizerSettings
    acls: AclsImage = AclsImage()
    is_loaded: bool = True

    def authorize(self, caller: Caller, operation: AclOperation, resource: AclResource, name: str) -> Verdict:
        """Judge one operation on one resource. Raises `ApiError` until the ACLs are loaded."""
        if caller.principal in self.settings.super_users:
            return SUPER_USER
        if not self.is_loaded:
            # Kafka's AuthorizerNotReadyException has no error code of its own.
            raise ApiError(Error.UNKNOWN_SERVER_ERROR)
        principals = (ALL_PRINCIPALS,) if caller.principal == ALL_PRINCIPALS else (ALL_PRINCIPALS, caller.principal)
        allowed: Acl | None = None
        has_rules = False
        for pattern in self._patterns(resource, name):
            by_principal = self.acls.by_pattern.get(pattern)
            if by_principal is None:
                continue
            has_rules = True
            for principal in principals:
                for acl in by_principal.get(principal, ()):
                    if _applies(acl, operation, caller.host):
                        if acl.permission_type == DENY:
                            return Verdict(is_allowed=False, rule=acl)
                        allowed = allowed or acl
        if allowed is not None:
            return Verdict(is_allowed=True, rule=allowed)
        return DEFAULT_ALLOW if self.settings.allows_without_acl and not has_rules else DEFAULT_DENY

    def authorize_by_type(self, caller: Caller, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the caller may perform the operation on at least one resource of this type
        (`Authorizer.authorizeByResourceType`).

        As in Kafka, no operation implies another here.
        """
        if self.authorize(caller, operation, resource, _ANY_NAME).is_allowed:
            return True
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for principal in {ALL_PRINCIPALS: True, caller.principal: True}:
            for pattern in self.acls.by_principal.get(principal, ()):
                kind, pattern_type, name = pattern
                if kind == resource:
                    for acl in self.acls.by_pattern[pattern][principal]:
                        if acl.operation in (operation, AclOperation.ALL) and _is_from(acl, caller.host):
                            (denied if acl.permission_type == DENY else allowed).add((pattern_type, name))
        if (LITERAL, WILDCARD) in denied:
            return False
        lengths = {len(name) for pattern_type, name in denied if pattern_type == PREFIXED and name}
        return any(
            (pattern_type, name) == (LITERAL, WILDCARD)
            or not (
                (pattern_type, name) in denied
                or any(length <= len(name) and (PREFIXED, name[:length]) in denied for length in lengths)
            )
            for pattern_type, name in allowed
        )

    def _patterns(self, resource: AclResource, name: str) -> Iterator[ResourcePattern]:
        """The patterns that can match a resource, the most specific first."""
        yield (resource, LITERAL, name)
        for prefix in self.acls.prefixes(resource, name):
            yield (resource, PREFIXED, prefix)
        # As in Kafka, the wildcard does not apply to a resource with a name that begins with a wildcard.
        if not name.startswith(WILDCARD):
            yield (resource, LITERAL, WILDCARD)


def _is_from(acl: Acl, host: str) -> bool:
    """Whether an ACL is about a client with this address, whatever the metadata.version."""
    return acl.host in (WILDCARD, host) or is_in_range(acl.host, host)


def _applies(acl: Acl, operation: AclOperation, host: str) -> bool:
    """Whether an ACL of this resource and principal applies to the operation from this host."""
    if not _is_from(acl, host):
        return False
    if acl.operation in (AclOperation.ALL, operation):
        return True
    return acl.permission_type != DENY and acl.operation in IMPLIED_BY.get(operation, ())
