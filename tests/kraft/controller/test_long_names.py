"""Names that clients choose: a name of 32 KB costs no more than one of a topic, and decides the same."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.access.authorizer import (
    DENY,
    LITERAL,
    PREFIXED,
    AclOperation,
    AclResource,
    Authorizer,
    AuthorizerSettings,
)
from kraft.access.caller import Caller
from kraft.agenda import Agenda
from kraft.controller.decision.request_context import AdminSettings
from kraft.controller.decision.result import Steps
from kraft.controller.decision.slots import SLOTS
from kraft.controller.decisions import NOTHING, Decisions, Work
from kraft.wire import WireRequest
from metadata_log.image import Acl, AclsImage
from metadata_log.serde import Message
from metadata_log.types import random_uuid
from support.differential.controller_sides import InProcess
from support.differential.controller_stories import ANONYMOUS, LOOPBACK, A, topic
from support.work_counted import lines_run
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import encode_request
from transport.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, EnvelopeRequest

ALLOW = 3
ALICE = Caller("User", "alice", host="10.0.0.1")
SUPER = Caller("User", "admin", host="10.0.0.1")
LONGEST = 32_000
HEAD = 249
EMOJI = "\U0001f4a9"


def rule(name: str, pattern_type: int = PREFIXED, permission_type: int = ALLOW) -> Acl:
    return Acl(
        resource_type=AclResource.GROUP,
        resource_name=name,
        pattern_type=pattern_type,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission_type=permission_type,
    )


def image_of(*acls: Acl) -> AclsImage:
    rng, image = Random(1), AclsImage()
    for acl in acls:
        image = image.put(random_uuid(rng), acl)
    return image


def may_read(image: AclsImage, name: str) -> bool:
    authorizer = Authorizer(AuthorizerSettings(), image)
    return authorizer.authorize(ALICE, AclOperation.READ, AclResource.GROUP, name).is_allowed


@pytest.mark.parametrize("first", ["b", EMOJI])
def test_a_long_name_costs_what_a_short_one_does(first: str) -> None:
    image = image_of(rule("a"), rule("abc"), rule("b" * 100), rule("c" * HEAD))
    short, long = first + "x" * (HEAD - 1), first + "x" * (LONGEST - 1)
    assert lines_run(lambda: may_read(image, long)) <= lines_run(lambda: may_read(image, short)) + 5
    assert lines_run(lambda: may_read(image, long)) < 100


def test_rules_of_other_principals_cost_nothing_where_any_resource_will_do() -> None:
    """A user without rights asks for a producer id: Kafka looks for any topic that the user may write to."""
    image = image_of(*(rule(f"r{number}") for number in range(500)))
    bob = Caller("User", "bob", host="10.0.0.1")
    authorizer = Authorizer(AuthorizerSettings(), image)
    assert lines_run(lambda: authorizer.authorize_by_type(bob, AclOperation.READ, AclResource.GROUP)) < 100
    assert authorizer.authorize_by_type(ALICE, AclOperation.READ, AclResource.GROUP)


def names(rng: Random) -> str:
    """Names that share beginnings, about as long as the heads by which long prefixes are found."""
    return "".join(rng.choice("ab") for _ in range(2)) + "x" * rng.choice((0, 1, HEAD - 3, HEAD - 2, HEAD, 2000, 2001))


@given(st.integers(min_value=0))
def test_long_prefixes_decide_as_a_search_of_all_rules(seed: int) -> None:
    rng, image = Random(seed), AclsImage()
    for _ in range(rng.randrange(25)):
        known = sorted(image.by_id)
        if known and rng.random() < 0.3:
            image = image.remove(rng.choice(known))
        else:
            image = image.put(
                random_uuid(rng), rule(names(rng), rng.choice((LITERAL, PREFIXED)), rng.choice((ALLOW, ALLOW, DENY)))
            )
    for _ in range(10):
        name = names(rng)
        about = [
            acl
            for acl in image.by_id.values()
            if (name.startswith if acl.pattern_type == PREFIXED else name.__eq__)(acl.resource_name)
        ]
        is_denied = any(acl.permission_type == DENY for acl in about)
        assert may_read(image, name) is (bool(about) and not is_denied)


def steps_and_lines(steps: Steps) -> tuple[int, int]:
    """How many steps a decision makes, and the most lines of one of them."""
    most = count = 0
    is_over = False

    def step() -> None:
        nonlocal is_over
        try:
            next(steps)
        except StopIteration:
            is_over = True

    while not is_over:
        most = max(most, lines_run(step))
        count += 1
    return count, most


@pytest.mark.parametrize("has_authorizer", [False, True])
@pytest.mark.parametrize("is_forwarded", [False, True])
def test_no_step_of_create_topics_depends_on_the_length_of_a_name(has_authorizer: bool, is_forwarded: bool) -> None:
    """30 names of 32 KB kept an active controller busy until its quorum elected another one."""
    admin = AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:admin",))) if has_authorizer else None)
    process = InProcess(admin=admin, max_idle_interval_ms=0)

    def most_lines(length: int) -> int:
        asked = CreateTopicsRequest(topics=[topic(f"{EMOJI}{'x' * (length - 9)}{at:08}", [A]) for at in range(30)])
        request: Message = asked
        if is_forwarded:
            data = encode_request(ApiKey.CREATE_TOPICS, 7, 1, "client", asked)
            request = EnvelopeRequest(data, ANONYMOUS, LOOPBACK)
        return steps_and_lines(process.controller.steps(request, 0 if is_forwarded else 7, 1, 0, SUPER))[1]

    # The first request compiles the codecs of its records.
    most_lines(HEAD + 1)
    assert most_lines(LONGEST - 1) <= 3 * most_lines(HEAD + 1)


def test_a_turn_makes_fewer_steps_of_a_large_request() -> None:
    """Each of 200 names of 32 KB is decoded, copied into a text, and encoded twice: a step is as long as its names."""
    process, decisions = InProcess(admin=AdminSettings(), max_idle_interval_ms=0), Decisions(Agenda(SLOTS))

    def turns(length: int) -> int:
        asked = CreateTopicsRequest(topics=[topic(f"{EMOJI}{'x' * length}{at:08}", [A]) for at in range(150)])
        message = EnvelopeRequest(encode_request(ApiKey.CREATE_TOPICS, 7, 1, "client", asked), ANONYMOUS, LOOPBACK)
        request = WireRequest(request_id=1, api_key=ApiKey.ENVELOPE, version=0, message=message, listener="CONTROLLER")
        work = Work(lambda controller, now_ms: controller.steps(message, 0, 1, now_ms, SUPER), request)
        count, answers = 1, [decisions.decide(work, process.controller, 0)]
        while answers[-1] is NOTHING:
            count += 1
            answers += decisions.turn(process.controller, count)
        return count

    assert turns(1000) == 1
    assert turns(LONGEST - 10) > 1


def test_kafkas_order_is_kept_the_right_is_judged_before_the_name() -> None:
    """A caller without the right does not learn whether a name is valid."""
    name = "x" * 300
    for authorizer, error in (
        (None, Error.INVALID_TOPIC_EXCEPTION),
        (AuthorizerSettings(), Error.TOPIC_AUTHORIZATION_FAILED),
    ):
        process = InProcess(admin=AdminSettings(authorizer=authorizer), max_idle_interval_ms=0)
        answer = process.controller.handle(CreateTopicsRequest(topics=[topic(name, [A])]), 7, 1, 0, ALICE).response
        assert isinstance(answer, CreateTopicsResponse)
        (made,) = answer.topics
        assert made.error_code == error
