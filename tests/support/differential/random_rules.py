"""Random access rules and questions about them, from few enough names that most of them meet."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import DENY, LITERAL, PREFIXED, AclOperation, AclResource, Authorizer
from kraft.access.authorizer import AuthorizerSettings as Settings
from kraft.access.caller import Caller
from metadata_log.image import Acl, AclsImage
from metadata_log.types import random_uuid

ALLOW: Final = 3
NAMES: Final = ("a", "ab", "abc", "abcd", "b", "ba", "*", "*a", "x.y", "hardcode", "hard")
PRINCIPALS: Final = ("User:alice", "User:bob", "Group:alice", "User:CN=a,O=b:c", "User:root")
HOSTS: Final = ("10.0.0.1", "10.0.0.2", "2001:db8:0:0:0:0:0:1")
RESOURCES: Final = (AclResource.TOPIC, AclResource.GROUP)


class Question(Struct, frozen=True):
    """A question to an authorizer; without a name, about any resource of the type."""

    caller: Caller
    operation: AclOperation
    resource: AclResource
    name: str | None


def random_rule(rng: Random) -> Acl:
    """One rule; denials are the fewer."""
    return Acl(
        resource_type=rng.choice(RESOURCES),
        resource_name=rng.choice(NAMES),
        pattern_type=rng.choice((LITERAL, PREFIXED)),
        principal=rng.choice((*PRINCIPALS[:-1], "User:*")),
        host=rng.choice((*HOSTS, "*", "*", "*")),
        operation=rng.choice(list(AclOperation)),
        permission_type=rng.choice((DENY, ALLOW, ALLOW, ALLOW)),
    )


def random_authorizer(rng: Random, most_rules: int) -> Authorizer:
    """An authorizer with up to so many rules."""
    acls = AclsImage()
    for _ in range(rng.randrange(most_rules)):
        rule = random_rule(rng)
        # Kafka's authorizer fails on a second one.
        if not acls.has(rule):
            acls = acls.put(random_uuid(rng), rule)
    return Authorizer(Settings(frozenset(PRINCIPALS[-1:]), rng.random() < 0.5), acls)


def random_question(rng: Random) -> Question:
    """One question; one of ten is about any resource of a type."""
    kind, _, name = rng.choice(PRINCIPALS).partition(":")
    return Question(
        Caller(kind, name, host=rng.choice(HOSTS)),
        rng.choice(list(AclOperation)[1:]),
        rng.choice(RESOURCES),
        None if rng.random() < 0.1 else rng.choice(NAMES),
    )


def answered(authorizer: Authorizer, question: Question) -> bool:
    """The answer of this authorizer."""
    caller, operation, resource = question.caller, question.operation, question.resource
    if question.name is None:
        return authorizer.authorize_by_type(caller, operation, resource)
    return authorizer.authorize(caller, operation, resource, question.name).is_allowed
