"""Rules with several dimensions, by brute force: each pair of rules and each question, against a definition written
apart.

A rule that was written for one dimension may fail where two meet: a DENY for all hosts beside an ALLOW for one, a token
at its renewal period and its maximum lifetime. The products are small enough to be tried whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from random import Random

import pytest
from msgspec import Struct, structs

from delegation_tokens import (
    NOW_MS,
    OTHER,
    OWNER,
    PERIOD_MS,
    RENEWER,
    REQUESTER,
    SECRET,
    a_token,
    token_context,
)
from kraft.access.authorizer import AclOperation, AclResource, Authorizer, AuthorizerSettings
from kraft.access.caller import ANONYMOUS, Caller
from kraft.access.errors import ApiError
from kraft.access.tokens import token_hmac
from kraft.broker.metadata.configs import describe_client_quotas
from kraft.broker.request.reading import Isolation, Readable, look, read
from kraft.broker.request.sessions import Wanted
from kraft.config.data_settings import TopicDefaults
from kraft.config.described import described_settings
from kraft.controller.configs.quotas import alter_client_quotas
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.security.tokens import expire_token, remove_expired, renew_token
from kraft.handling.quotas import PRODUCED, ClientQuotas
from kraft.reads.configs import describe_configs
from kraft.wire import WireRequest
from metadata_log.image import Acl, AclsImage, DelegationToken, MetadataImage
from metadata_log.image.quotas import QuotasImage, replay_quota
from metadata_log.image.tokens import token_record
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support.broker.data_brokers import cluster, new_topic, part_of, started
from support.broker.request_brokers import batch, produce, replayed, wire_request
from support.kraft.plain_logs import Entry, committed, seen_by, stable, transactions, write
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from transport.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from transport.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from transport.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

# -------------------------------------------------------------------------------------------------------------- rights

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALICE = Caller("User", "alice", host="h1")
PATTERNS = ((LITERAL, "a"), (LITERAL, "ab"), (LITERAL, "*"), (PREFIXED, "a"), (PREFIXED, "ab"))
NAMES = ("a", "ab", "abc", "b", "*a")
UNIVERSE = tuple("".join(letters) for size in range(1, 4) for letters in product("abx", repeat=size))
"""Names enough to tell whether a rule leaves any name: each pattern above leaves some of them."""
READ, WRITE, DELETE, ALTER, DESCRIBE = 3, 4, 6, 7, 8
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL = 10, 11, 2


class Rule(Struct, frozen=True):
    """A rule in plain words."""

    permission: int
    pattern: tuple[int, str]
    principal: str
    host: str
    operation: int

    @property
    def acl(self) -> Acl:
        kind, name = self.pattern
        return Acl(AclResource.TOPIC, name, kind, self.principal, self.host, self.operation, self.permission)

    def names(self, name: str) -> bool:
        """Whether the rule is about this topic. A topic whose name begins with a star is named by no wildcard."""
        kind, mine = self.pattern
        if kind == PREFIXED:
            return name.startswith(mine)
        return name == mine or (mine == "*" and name[0] != "*")

    def means(self, caller: Caller) -> bool:
        """Whether the rule is about this caller."""
        return self.principal in ("User:*", f"User:{caller.name}") and self.host in ("*", caller.host)


def is_allowed(rules: Iterable[Rule], caller: Caller, operation: int, name: str, *, by_default: bool) -> bool:
    """The definition: a denial of the operation wins; else a permission of it, or of one that implies it."""
    about = [rule for rule in rules if rule.names(name)]
    if not about:
        return by_default
    mine = [rule for rule in about if rule.means(caller)]
    implying = {operation, ALL}
    if operation == DESCRIBE:
        implying |= {READ, WRITE, DELETE, ALTER}
    if operation == DESCRIBE_CONFIGS:
        implying |= {ALTER_CONFIGS}
    if any(rule.permission == DENY and rule.operation in (operation, ALL) for rule in mine):
        return False
    return any(rule.permission == ALLOW and rule.operation in implying for rule in mine)


def authorizer_of(*rules: Rule, by_default: bool = False) -> Authorizer:
    acls = AclsImage()
    for number, rule in enumerate(rules):
        acls = acls.put(Uuid(bytes([number + 1] * 16)), rule.acl)
    return Authorizer(AuthorizerSettings(frozenset({"User:root"}), by_default), acls)


def pairs(rules: list[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Each pair, in an order that differs between neighbours: no verdict depends on the order."""
    for number, pair in enumerate(combinations(rules, 2)):
        yield pair if number % 2 else pair[::-1]


def test_each_pair_of_rules_about_names_principals_and_hosts() -> None:
    who = list(product((DENY, ALLOW), PATTERNS, ("User:alice", "User:*", "User:bob"), ("h1", "*", "h2"), (READ,)))
    assert len(who) == 90
    denied_by_a_wider_rule = 0
    for first, second in pairs([Rule(*fields) for fields in who]):
        for by_default in (False, True):
            authorizer = authorizer_of(first, second, by_default=by_default)
            for name in NAMES:
                found = authorizer.authorize(ALICE, AclOperation.READ, AclResource.TOPIC, name)
                expected = is_allowed((first, second), ALICE, READ, name, by_default=by_default)
                assert found.is_allowed is expected, (first, second, by_default, name)
                allows = [one for one in (first, second) if is_allowed((one,), ALICE, READ, name, by_default=False)]
                denied_by_a_wider_rule += bool(allows) and not expected
    assert denied_by_a_wider_rule > 500, "the product has the case for which it was made"


def test_each_pair_of_rules_about_operations() -> None:
    whats = list(product((DENY, ALLOW), ((LITERAL, "a"), (PREFIXED, "a")), ("User:alice",), ("h1", "*"), range(2, 14)))
    for first, second in pairs([Rule(*fields) for fields in whats]):
        if first.pattern == second.pattern or first.permission != second.permission:
            authorizer = authorizer_of(first, second)
            for operation in list(AclOperation)[1:12]:
                found = authorizer.authorize(ALICE, operation, AclResource.TOPIC, "a").is_allowed
                expected = is_allowed((first, second), ALICE, operation, "a", by_default=False)
                assert found is expected, (first, second, operation)


def test_a_right_on_any_topic_is_a_right_on_some_topic() -> None:
    """`authorize_by_type` walks patterns; the definition walks topics."""
    who = product((DENY, ALLOW), PATTERNS, ("User:alice", "User:*", "User:bob"), ("h1", "*", "h2"), (READ, ALL, WRITE))
    rules = [Rule(*fields) for fields in who]
    permissions = [one for one in rules if one.permission == ALLOW and one.means(ALICE)]
    denials = [one for one in rules if one.permission == DENY]
    for permission, denial in product(permissions, denials):
        found = authorizer_of(permission, denial).authorize_by_type(ALICE, AclOperation.READ, AclResource.TOPIC)
        expected = any(is_allowed((permission, denial), ALICE, READ, name, by_default=False) for name in UNIVERSE)
        assert found is expected, (permission, denial)


def test_nothing_denies_a_super_user_and_another_name_is_none() -> None:
    every_denial = [Rule(DENY, pattern, "User:*", "*", ALL) for pattern in PATTERNS]
    authorizer = authorizer_of(*every_denial)
    for kind, name in product(("User", "Group"), ("root", "roo", "roott", "Root")):
        found = authorizer.authorize(Caller(kind, name), AclOperation.ALTER, AclResource.TOPIC, "a").is_allowed
        assert found is ((kind, name) == ("User", "root"))


# -------------------------------------------------------------------------------------------------------------- tokens

CALLERS = (OWNER, REQUESTER, RENEWER, OTHER, ANONYMOUS, structs.replace(OWNER, is_token=True), Caller("Group", "owner"))
TIMES = (NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + PERIOD_MS - 1, NOW_MS + PERIOD_MS, NOW_MS + PERIOD_MS + 1)
PERIODS = (-(2**63), -1, 0, 1, PERIOD_MS - 1, PERIOD_MS, PERIOD_MS + 1, 2**40)


def refusal_of(caller: Caller, token: DelegationToken) -> Error | None:
    """Who may renew and expire: its owner and its renewers, logged in by something else than a token."""
    if caller.is_token or caller == ANONYMOUS:
        return Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    names = {token.owner, *token.renewers}
    return None if f"{caller.type}:{caller.name}" in names else Error.DELEGATION_TOKEN_OWNER_MISMATCH


def test_each_renewal_ends_within_the_period_and_the_lifetime() -> None:
    for max_ms, expires_ms, caller, asked_ms in product(TIMES, TIMES, CALLERS, PERIODS):
        token = a_token(max_ms, expires_ms)
        refusal = refusal_of(caller, token)
        is_over = max_ms < NOW_MS or expires_ms < NOW_MS
        if refusal is not Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and is_over:
            refusal = Error.DELEGATION_TOKEN_EXPIRED
        period_ms = PERIOD_MS if asked_ms <= 0 or asked_ms > PERIOD_MS else asked_ms
        expected_ms = max_ms if max_ms < NOW_MS + period_ms else NOW_MS + period_ms
        request = RenewDelegationTokenRequest(hmac=token_hmac(SECRET, "t"), renew_period_ms=asked_ms)
        result = renew_token(token_context(token, caller), request)
        answer = result.response
        assert isinstance(answer, RenewDelegationTokenResponse)
        case = max_ms, expires_ms, caller, asked_ms
        if refusal is not None:
            assert (Error(answer.error_code), result.records) == (refusal, ()), case
        else:
            assert (answer.error_code, answer.expiry_timestamp_ms) == (0, expected_ms), case
            assert [one.record for one in result.records] == [
                token_record(structs.replace(token, expiration_timestamp=expected_ms))
            ], case


def test_each_expiry_ends_within_the_lifetime_and_a_negative_one_at_once() -> None:
    for max_ms, expires_ms, caller, asked_ms in product(TIMES, TIMES, CALLERS, PERIODS):
        token = a_token(max_ms, expires_ms)
        refusal = refusal_of(caller, token)
        if refusal is None and asked_ms >= 0 and (max_ms < NOW_MS or expires_ms < NOW_MS):
            refusal = Error.DELEGATION_TOKEN_EXPIRED
        request = ExpireDelegationTokenRequest(hmac=token_hmac(SECRET, "t"), expiry_time_period_ms=asked_ms)
        result = expire_token(token_context(token, caller), request)
        answer = result.response
        assert isinstance(answer, ExpireDelegationTokenResponse)
        case = max_ms, expires_ms, caller, asked_ms
        written = [one.record for one in result.records]
        if refusal is not None:
            assert (Error(answer.error_code), written) == (refusal, []), case
        elif asked_ms < 0:
            assert (answer.error_code, answer.expiry_timestamp_ms) == (0, NOW_MS), case
            assert written == [records.RemoveDelegationTokenRecord(token_id="t")], case
        else:
            expected_ms = max_ms if max_ms < NOW_MS + asked_ms else NOW_MS + asked_ms
            assert (answer.error_code, answer.expiry_timestamp_ms) == (0, expected_ms), case
            assert written == [token_record(structs.replace(token, expiration_timestamp=expected_ms))], case


def test_each_token_is_removed_once_its_last_moment_is_over() -> None:
    for max_ms, expires_ms in product(TIMES, TIMES):
        context = token_context(a_token(max_ms, expires_ms), ANONYMOUS)
        removed = bool(finished(remove_expired(context)).records)
        # The last moment of a token is the last in which a renewal is possible.
        assert removed is (max_ms < NOW_MS or expires_ms < NOW_MS)


# -------------------------------------------------------------------------------------------------------------- quotas

Entity = dict[str, str | None]
USERS: tuple[str | None, ...] = ("u", None)
ENTITIES: list[Entity] = [
    {kind: name for kind, name in (("user", user), ("client-id", client)) if name != "-"}
    for user, client in product(("u", None, "-"), ("c", None, "-"))
    if (user, client) != ("-", "-")
]


def strength(entity: Entity, kind: str, name: str) -> int | None:
    """How well an entity names this name: 3 for the name, 2 for the default, 1 if it says nothing; None for another."""
    if kind not in entity:
        return 1
    if entity[kind] is None:
        return 2
    return 3 if entity[kind] == name else None


def quota_of(entities: Iterable[Entity], user: str, client: str) -> Entity | None:
    """The definition of KIP-55: what names the user best; among these, what names the client best."""
    ranked = []
    for number, entity in enumerate(entities):
        ranks = strength(entity, "user", user), strength(entity, "client-id", client)
        if None not in ranks:
            ranked.append((ranks, number, entity))
    return max(ranked, key=lambda each: each[:2], default=(None, 0, None))[2]


def asked(user: str, client: str) -> WireRequest:
    return wire_request(1, 0, 13, MESSAGE, client_id=client, principal=Principal("User", user))


def image_with(entities: Iterable[tuple[Entity, float]]) -> MetadataImage:
    quotas = QuotasImage()
    for entity, value in entities:
        parts = tuple(records.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
        quotas = replay_quota(quotas, records.ClientQuotaRecord(entity=parts, key=PRODUCED, value=value))
    return structs.replace(MetadataImage(), quotas=quotas)


def test_each_set_of_quotas_and_each_client() -> None:
    requests = {(user, client): asked(user, client) for user, client in product(("u", "v"), ("c", "d", ""))}
    for chosen in product((False, True), repeat=len(ENTITIES)):
        present = [entity for entity, is_there in zip(ENTITIES, chosen, strict=True) if is_there]
        quotas = ClientQuotas()
        quotas.use(image_with((entity, 1.0 + at) for at, entity in enumerate(present)))
        for (user, client), request in requests.items():
            expected = quota_of(present, user, client)
            bound = None if expected is None else 1.0 + present.index(expected)
            assert quotas.bound(PRODUCED, request) == bound, (present, user, client)


MESSAGE = produce((Uuid(bytes(16)), 0), batch(b"v"))


def test_clients_share_a_quota_if_it_names_neither_of_them() -> None:
    """A quota of a user is for all clients of the user together, one of a client id for all users."""
    clients = list(product(("u", "v"), ("c", "d")))
    for entity in ENTITIES:
        for first, second in product(clients, clients):
            one, other = (
                wire_request(1, 0, 13, MESSAGE, client_id=c, principal=Principal("User", u)) for u, c in (first, second)
            )
            quotas = ClientQuotas()
            quotas.use(image_with([(entity, 10.0)]))
            quotas.charge(PRODUCED, one, 1000, NOW_MS)
            waits = quotas.charge(PRODUCED, other, 0, NOW_MS) > 0
            is_meant = all(quota_of([entity], *each) is not None for each in (first, second))
            same_user = "user" not in entity or first[0] == second[0]
            same_client = "client-id" not in entity or first[1] == second[1]
            assert waits is (is_meant and same_user and same_client), (entity, first, second)


def test_each_entity_and_key_that_may_be_altered() -> None:
    """Users and clients may be combined, addresses may not; an empty name is none."""
    for user, client, address, other in product(
        ("-", "u", None, ""), ("-", "c", None, ""), ("-", "10.0.0.1", None, ""), ("-", "x")
    ):
        given = (("user", user), ("client-id", client), ("ip", address), ("host", other))
        entity: Entity = {kind: name for kind, name in given if name != "-"}
        for key in ("producer_byte_rate", "connection_creation_rate", "no_such_rate"):
            is_address = set(entity) == {"ip"}
            is_client = bool(entity) and set(entity) <= {"user", "client-id"}
            keys = {"connection_creation_rate"} if is_address else {"producer_byte_rate"}
            is_sound = (is_address or is_client) and "" not in entity.values() and key in keys
            parts = [
                AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ]
            request = AlterClientQuotasRequest(
                entries=[AlterClientQuotasRequestEntryData(entity=parts, ops=[OpData(key=key, value=5.0)])]
            )
            context = token_context(a_token(0, 0), OWNER)
            result = finished(alter_client_quotas(context, request))
            answer = result.response
            assert isinstance(answer, AlterClientQuotasResponse)
            assert (answer.entries[0].error_code == 0) is is_sound, (entity, key)
            assert bool(result.records) is is_sound


def test_each_filter_of_described_quotas() -> None:
    """EXACT, DEFAULT and ANY for users and clients, strict or not, over all entities."""
    image = image_with((entity, 1.0 + at) for at, entity in enumerate(ENTITIES))
    hows = (None, EXACT, DEFAULT_NAME, ANY_NAME)
    for user, client, strict in product(hows, hows, (False, True)):
        wanted = {"user": user, "client-id": client}
        components = [
            ComponentData(entity_type=kind, match_type=how, match=NAMED[kind] if how == EXACT else None)
            for kind, how in wanted.items()
            if how is not None
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        answer = finished(describe_client_quotas(image, request))
        found = [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries or []]
        expected = [entity for entity in ENTITIES if is_found(entity, wanted, is_strict=strict)]
        assert sorted(map(repr, found)) == sorted(repr(dict(sorted(entity.items()))) for entity in expected), wanted


NAMED = {"user": "u", "client-id": "c"}
EXACT, DEFAULT_NAME, ANY_NAME = 0, 1, 2


@pytest.mark.parametrize("how", [EXACT, DEFAULT_NAME, ANY_NAME])
@pytest.mark.parametrize("other", ["user", "client-id"])
def test_a_filter_of_addresses_goes_with_no_other(other: str, how: int) -> None:
    components = [
        ComponentData(entity_type="ip", match_type=ANY_NAME, match=None),
        ComponentData(entity_type=other, match_type=how, match=NAMED[other] if how == EXACT else None),
    ]
    with pytest.raises(ApiError, match="IP filter component should not be used"):
        finished(describe_client_quotas(image_with([]), DescribeClientQuotasRequest(components=components)))


def is_found(entity: Entity, wanted: dict[str, int | None], *, is_strict: bool) -> bool:
    """Each part of the filter is a part of the entity, with the name or the default; strictly there is no other."""
    named = {kind for kind, how in wanted.items() if how is not None}
    if not named <= set(entity) or (is_strict and named != set(entity)):
        return False
    return all(
        how not in (EXACT, DEFAULT_NAME) or entity[kind] == (NAMED[kind] if how == EXACT else None)
        for kind, how in wanted.items()
    )


# ------------------------------------------------------------------------------------------------------ configurations

TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
Values = list[tuple[str | None, int]]
"""Values with their sources."""


def described(context: RequestContext, kind: int, name: str, key: str) -> tuple[tuple[str | None, int], Values]:
    """The value of a key with its source, and the synonyms."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    asked = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    answer = finished(describe_configs(context.reading, asked))
    assert isinstance(answer, DescribeConfigsResponse)
    ((config,),) = (one.configs for one in answer.results)
    return (config.value, config.config_source), [(one.value, one.source) for one in config.synonyms]


@pytest.mark.parametrize(
    ("key", "of_brokers", "default"),
    [("retention.bytes", "log.retention.bytes", "-1"), ("max.message.bytes", "message.max.bytes", "1048588")],
)
def test_each_set_of_layers_of_a_configuration(key: str, of_brokers: str, default: str) -> None:
    """The first layer that has a value gives it, and all that have one are named in their order."""
    dynamic = {
        TOPIC: records.ConfigRecord(resource_type=2, resource_name="t", name=key, value="1000"),
        DYNAMIC_BROKER: records.ConfigRecord(resource_type=4, resource_name="1", name=of_brokers, value="2000"),
        DYNAMIC_DEFAULT: records.ConfigRecord(resource_type=4, resource_name="", name=of_brokers, value="3000"),
    }
    layers = {TOPIC: "1000", DYNAMIC_BROKER: "2000", DYNAMIC_DEFAULT: "3000", STATIC: "4000"}
    for chosen in product((False, True), repeat=len(layers)):
        present = [source for source, is_there in zip(layers, chosen, strict=True) if is_there]
        image = replayed(
            MetadataImage(),
            records.TopicRecord(name="t", topic_id=Uuid(bytes([7] * 16))),
            records.ConfigRecord(resource_type=2, resource_name="tt", name=key, value="7"),
            *(dynamic[source] for source in present if source in dynamic),
        )
        expected: Values = [*((layers[source], source) for source in present), (default, DEFAULT)]
        context = structs.replace(
            token_context(a_token(0, 0), OWNER),
            committed=image,
            version=4,
            defaults=TopicDefaults(node_id=1),
            own_settings=tuple(described_settings({of_brokers: "4000"} if STATIC in present else {})),
        )
        assert described(context, 2, "t", key) == (expected[0], expected), chosen
        without_topic = [one for one in expected if one[1] not in (TOPIC, DEFAULT)]
        if without_topic:
            # What no layer sets is not described for a broker: only Kafka's brokers know their defaults.
            found, synonyms = described(context, 4, "1", of_brokers)
            assert (found, synonyms[: len(without_topic)]) == (without_topic[0], without_topic), chosen


# ------------------------------------------------------------------------------------------------ aborted transactions


@pytest.mark.parametrize("seed", range(8))
def test_readers_of_committed_records_at_each_offset_and_watermark(seed: int) -> None:
    """Transactions of three producers beside each other and beside plain records, read from each offset, at each
    watermark, in answers of one batch and of many.
    """
    disk = MemoryDisk()
    manager = started(1, replayed(cluster(1), *new_topic((1,), configs=SMALL)), disk)
    log, history, rng = part_of(manager).log, list[Entry](), Random(seed)
    write(log, rng, history, 36)
    assert len({one.producer for one in transactions(history) if one.is_aborted}) > 1
    for watermark in range(log.end_offset + 1):
        log.raise_high_watermark(watermark)
        end = stable(history, watermark)
        for offset in range(end + 1):
            for most in (1, 400, 100_000):
                wanted = Wanted(-1, offset, -1, 0, most)
                part = part_of(manager)
                answer = look(part, wanted, Isolation.TXN_COMMITTED)
                if isinstance(answer, Readable):
                    answer = read(manager, answer, wanted, Isolation.TXN_COMMITTED, most, at_least_one=True)
                assert (answer.error_code, answer.last_stable_offset) == (0, end)
                fetched = bytes(answer.records or b"")
                until = max([offset, *(one.last_offset + 1 for one in scan(fetched))])
                told = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
                found = [at for at in seen_by(fetched, told) if at >= offset]
                assert found == committed(history, offset, until), (watermark, offset, most)
                assert until <= end
                assert until > offset or offset == end or whole_batch_at(history, offset).last >= end


def whole_batch_at(history: list[Entry], offset: int) -> Entry:
    """The batch with an offset."""
    return next(entry for entry in history if entry.last >= offset)


SMALL = {"internal.segment.bytes": "500", "index.interval.bytes": "150"}
