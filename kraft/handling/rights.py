"""The rights of the clients of a broker, by the ACLs in its metadata (Kafka: `AuthHelper`).

The authorizer is that of the controllers. A broker opens its listeners after it has read the metadata log up to its
end, so that the ACLs are loaded before the first client asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec import Struct

from kraft.access.authorizer import (
    CLUSTER_NAME,
    OF_A_CLUSTER,
    AclOperation,
    AclResource,
    Authorizer,
    AuthorizerSettings,
    Denial,
    Verdict,
)
from kraft.access.caller import Caller, host_of_peer
from kraft.access.older_node import Audited
from kraft.limits import VERDICT_CHARACTERS, VERDICTS
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.errors import Error

OF_A_TOPIC: Final = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
"""The operations that a topic supports (`AclEntry.supportedOperations`)."""
OF_A_GROUP: Final = (
    *(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
"""Those that a group supports."""
_Question = tuple[Caller, AclOperation, AclResource, str]
_T = TypeVar("_T")


class Rights:
    """Whether clients may do something. Without an authorizer everything is allowed.

    Args:
        settings: The super users, and what holds without an ACL; None for a broker without an authorizer.
    """

    def __init__(self, settings: AuthorizerSettings | None = None) -> None:
        self.settings = settings
        self.authorizer = None if settings is None else Authorizer(settings)
        """The authorizer over the ACLs of the last image; None if everything is allowed."""
        self.audited: list[Audited] = []
        """The denied operations, for the audit log of the node."""
        self._verdicts: dict[_Question, Verdict] = {}
        self._of_any: dict[_Question, bool] = {}
        """Whether a caller may perform an operation on any resource of a type: a look at all rules of the caller."""

    def use(self, image: MetadataImage) -> None:
        """Judge by the ACLs of an image from now on."""
        if self.authorizer is not None and self.authorizer.acls is not image.acls:
            assert self.settings is not None
            self.authorizer = Authorizer(self.settings, image.acls)
            self._verdicts.clear()
            self._of_any.clear()

    def __call__(
        self,
        asked: WireRequest,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        is_asked: bool = True,
    ) -> bool:
        """Whether the client of a request may perform an operation; a denial is recorded only if `is_asked` is set."""
        if self.authorizer is None or asked.request_id < 0:
            # Whoever has an id below 0 is this broker itself.
            return True
        return self._judge((caller_of(asked), operation, resource, name), is_asked=is_asked)

    def refused_group(self, asked: WireRequest, operation: AclOperation, group_id: str) -> Error:
        """Why a client may not do something with a group: it has no right, or the group has no name; else NONE.

        Kafka takes the empty name only where clients without a group commit and fetch offsets, and describes it.
        """
        if not self(asked, operation, AclResource.GROUP, group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        return Error.NONE if group_id else Error.INVALID_GROUP_ID

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        question = caller, operation, AclResource.CLUSTER, CLUSTER_NAME
        return self.authorizer is None or self._judge(question, is_asked=True)

    def _judge(self, question: _Question, *, is_asked: bool) -> bool:
        assert self.authorizer is not None, question
        verdict = self._verdicts.get(question)
        if verdict is None:
            verdict = self.authorizer.authorize(*question)
            _remember(self._verdicts, question, verdict)
        if is_asked and not verdict.is_allowed:
            self.audited.append(Denial(*question, str(verdict)))
        return verdict.is_allowed

    def of_any(self, asked: WireRequest, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the client may perform an operation on at least one resource of a type; no denial is recorded."""
        if self.authorizer is None:
            return True
        question = caller_of(asked), operation, resource, ""
        is_allowed = self._of_any.get(question)
        if is_allowed is None:
            is_allowed = self.authorizer.authorize_by_type(*question[:3])
            _remember(self._of_any, question, is_allowed)
        return is_allowed

    def of(self, asked: WireRequest) -> Permissions:
        """The rights of the client of one request."""
        return Permissions(self, asked)


def _remember(answers: dict[_Question, _T], question: _Question, answer: _T) -> None:
    """Keep an answer, unless clients have chosen long names."""
    caller, _, _, name = question
    if len(name) > VERDICT_CHARACTERS or len(caller.type) + len(caller.name) > VERDICT_CHARACTERS:
        return
    if len(answers) >= VERDICTS:
        answers.clear()
    answers[question] = answer


class Permissions(Struct, frozen=True):
    """The rights of the client of one request."""

    rights: Rights
    asked: WireRequest

    @property
    def caller(self) -> Caller:
        """The principal and the host of the client."""
        return caller_of(self.asked)

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, is_asked: bool = True
    ) -> bool:
        """Whether the client may perform an operation; a denial is recorded only if `is_asked` is set."""
        return self.rights(self.asked, operation, resource, name, is_asked=is_asked)

    def on_topic(self, name: str) -> int:
        """The permitted operations on a topic, one bit for each."""
        return self._bits(OF_A_TOPIC, AclResource.TOPIC, name)

    def on_group(self, name: str) -> int:
        """The permitted operations on a group, one bit for each."""
        return self._bits(OF_A_GROUP, AclResource.GROUP, name)

    def on_cluster(self) -> int:
        """The permitted operations on the cluster, one bit for each; none for a client that may not describe it."""
        if not self.may(AclOperation.DESCRIBE, AclResource.CLUSTER):
            return 0
        return self._bits(OF_A_CLUSTER, AclResource.CLUSTER, CLUSTER_NAME)

    def _bits(self, operations: Iterable[AclOperation], resource: AclResource, name: str) -> int:
        return sum(1 << one for one in operations if self.may(one, resource, name, is_asked=False))


def caller_of(asked: WireRequest) -> Caller:
    """The principal, the host and the listener of a request."""
    principal = asked.principal
    return Caller(principal.type, principal.name, principal.is_token, host_of_peer(asked.peer), asked.listener)
