"""Values that differ in their last element only are not equal: for each comparison of a secret, an id or a name.

A comparison that stops early is right for each value that random numbers draw. So each value is tried with its last
byte changed, without its last byte, with one more, cut to its half, empty and doubled.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Callable
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from hmac import digest
from itertools import product
from pathlib import Path
from random import Random

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from msgspec import structs

from delegation_tokens import OWNER, SECRET, a_token, token_context
from kraft.access.authorizer import AclOperation, AclResource, Authorizer, AuthorizerSettings
from kraft.access.caller import Caller
from kraft.access.tokens import token_hmac
from kraft.config.described import Secret
from kraft.config.oauth_settings import TokenRules
from kraft.controller.security import tokens as controller_tokens
from kraft.controller.security.tokens import expire_token, renew_token
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet
from kraft.replica.rpc.rpc import Rpc
from kraft.security.bearer_tokens import judge_of, read_keys
from kraft.security.remote import Remote
from kraft.wire import WireRequest
from metadata_log.errors import DirectoryError
from metadata_log.image import Acl, AclsImage
from metadata_log.log.log_dir import check_formatted, format_directory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.broker.request_brokers import Brokers, NewTopic, batch, fetch, produce, topic_id
from support.differential.controller_sides import InProcess, registration
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused
from transport.protocol.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from transport.protocol.messages.broker_registration import BrokerRegistrationResponse
from transport.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from transport.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from transport.protocol.sasl import plain
from transport.protocol.sasl import scram as transport_scram
from transport.protocol.sasl.credentials import SCRAM_HASHES, Login, ScramKeys, TokenKeys, TokenRefused, Users
from transport.protocol.sasl.plain import PlainServer
from transport.protocol.sasl.scram import ScramClient, ScramServer, keys_of

PRODUCT = Path(__file__).parents[3]
MECHANISMS = tuple(SCRAM_HASHES)
PASSWORD = "correct-horse"


def nearly(value: bytes) -> list[bytes]:
    """Bytes that a comparison which stops early takes for these."""
    changed = [value[:-1] + bytes([value[-1] ^ bit]) for bit in (1, 0x80)]
    others = [*changed, value[:-1], value + b"\0", value + value[-1:], value[: len(value) // 2], b"", value * 2]
    return [other for other in others if other != value]


def nearly_text(value: str) -> list[str]:
    """The same for a text, with its last character in the other case, too."""
    others = [value[:-1] + chr(ord(value[-1]) ^ 1), value[:-1], value + "0", value[: len(value) // 2], "", value * 2]
    return [other for other in (*others, value[:-1] + value[-1].swapcase(), f"{value} ") if other != value]


def nearly_uuid(value: Uuid) -> list[Uuid]:
    """Ids that differ in their last byte, and in their first."""
    return [Uuid(value[:-1] + bytes([value[-1] ^ 1])), Uuid(bytes([value[0] ^ 1]) + value[1:])]


# -------------------------------------------------------------------------------------------------------------- logins


def test_a_password_is_compared_to_its_end() -> None:
    users = Users(passwords={"alice": PASSWORD, "alic": "other", "empty": ""})

    def login(user: str, password: str, authorization_id: str = "") -> Login | None:
        server = PlainServer(users)
        server.respond(f"{authorization_id}\0{user}\0{password}".encode())
        return server.login

    assert login("alice", PASSWORD) == login("alice", PASSWORD, "alice") == Login(Principal(name="alice"))
    refused = [
        *(("alice", password, "") for password in nearly_text(PASSWORD)),
        *((user, PASSWORD, "") for user in nearly_text("alice")),
        *(("alice", PASSWORD, name) for name in nearly_text("alice") if name),
        ("alice", f"{PASSWORD}\0", ""),
        ("empty", "", ""),
        ("empty", "x", ""),
    ]
    for case in refused:
        with pytest.raises(LoginRefused):
            login(*case)


def scram(
    mechanism: str, keys: ScramKeys, *, password: str = PASSWORD, change: Callable[..., str] = lambda final: final
) -> Login | None:
    """A login by SCRAM; `change` spoils the last message of the client. The client judges the server, too."""
    server = ScramServer(mechanism, Users(scram=lambda _, user: keys if user == "alice" else None), "server-nonce")
    client = ScramClient(mechanism, "alice", password, is_token=False, nonce="client-nonce")
    final = client.respond(server.respond(client.begin()))
    assert final is not None
    assert client.respond(server.respond(change(final.decode()).encode())) is None
    return server.login


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_stored_keys_and_proofs_are_compared_to_their_end(mechanism: str) -> None:
    keys = keys_of(mechanism, PASSWORD.encode(), b"salt", 4096)
    assert scram(mechanism, keys) == Login(Principal(name="alice"))
    for stored_key in nearly(keys.stored_key):
        with pytest.raises(LoginRefused):
            scram(mechanism, structs.replace(keys, stored_key=stored_key))
    for server_key in nearly(keys.server_key):
        if server_key.rstrip(b"\0") == keys.server_key:
            # HMAC fills a short key with zeros: these two are one key.
            continue
        with pytest.raises(LoginRefused, match="has not proved"):
            scram(mechanism, structs.replace(keys, server_key=server_key))
    for password in (one for one in nearly_text(PASSWORD) if one):
        with pytest.raises(LoginRefused):
            scram(mechanism, keys, password=password)

    def with_proof(final: str, proof: bytes) -> str:
        return f"{final.rpartition(',p=')[0]},p={base64.b64encode(proof).decode()}"

    def proofs(final: str) -> list[bytes]:
        return nearly(base64.b64decode(final.rpartition(",p=")[2]))

    for number in range(len(nearly(b"x" * 32))):
        with pytest.raises(LoginRefused):
            scram(mechanism, keys, change=lambda final, at=number: with_proof(final, proofs(final)[at]))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_a_client_repeats_is_compared_to_its_end(mechanism: str) -> None:
    """The nonce and the header in the last message. The client here knows the password, and proves what it sends."""
    keys = keys_of(mechanism, PASSWORD.encode(), b"salt", 4096)
    name = SCRAM_HASHES[mechanism]
    client_key = digest(pbkdf2_hmac(name, PASSWORD.encode(), b"salt", 4096), b"Client Key", name)

    def login(header: bytes, nonce: str) -> Login | None:
        server = ScramServer(mechanism, Users(scram=lambda *_: keys), "server-nonce")
        bare = "n=alice,r=client-nonce"
        told = server.respond(f"n,,{bare}".encode()).decode()
        final = f"c={base64.b64encode(header).decode()},r={nonce}"
        signature = digest(keys.stored_key, f"{bare},{told},{final}".encode(), name)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server.respond(f"{final},p={base64.b64encode(proof).decode()}".encode())
        return server.login

    whole = "client-nonceserver-nonce"
    assert login(b"n,,", whole) == Login(Principal(name="alice"))
    for nonce in (*nearly_text(whole), "client-nonce", "server-nonce"):
        with pytest.raises(LoginRefused):
            login(b"n,,", nonce)
    for header in nearly(b"n,,"):
        with pytest.raises(LoginRefused):
            login(header, whole)


def test_secrets_are_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can make a key whose hash differs in the last byte only, so that the values are looked at as they come."""
    seen: list[tuple[bytes | str, bytes | str]] = []

    def compared(one: bytes | str, other: bytes | str) -> bool:
        seen.append((one, other))
        return one == other

    for module in (plain, transport_scram, controller_tokens):
        monkeypatch.setattr(module, "compare_digest", compared)
    for mechanism, name in SCRAM_HASHES.items():
        keys = keys_of(mechanism, PASSWORD.encode(), b"salt", 4096)
        seen.clear()
        assert scram(mechanism, keys) is not None
        nonce, stored_key, signature = seen
        assert set(nonce) == {"client-nonceserver-nonce"}
        assert set(stored_key) == {keys.stored_key}
        assert signature[0] == signature[1]
        assert len(signature[0]) == len(keys.stored_key) == new_hash(name).digest_size
    seen.clear()
    server = PlainServer(Users(passwords={"alice": PASSWORD}))
    server.respond(f"\0alice\0{PASSWORD}".encode())
    assert seen == [(new_hash("sha256", PASSWORD.encode()).digest(),) * 2]
    seen.clear()
    hmac = token_hmac(SECRET, "t")
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1)
    assert renew_token(token_context(a_token(10**9, 10**9), OWNER), request).records
    assert seen == [(hmac, hmac)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_compares_what_a_server_proves_to_its_end(mechanism: str) -> None:
    keys = keys_of(mechanism, PASSWORD.encode(), b"salt", 4096)

    def judged(change: Callable[..., bytes], nonce: str | None = None) -> None:
        server = ScramServer(mechanism, Users(scram=lambda *_: keys), "server-nonce")
        client = ScramClient(mechanism, "alice", PASSWORD, is_token=False, nonce="client-nonce")
        first = server.respond(client.begin())
        if nonce is not None:
            first = first.replace(b"r=client-nonceserver-nonce", f"r={nonce}".encode())
        final = client.respond(first)
        assert final is not None
        proof = base64.b64decode(server.respond(final).decode().removeprefix("v="))
        assert client.respond(b"v=" + base64.b64encode(change(proof))) is None

    judged(lambda proof: proof)
    for number in range(len(nearly(b"x" * 32))):
        with pytest.raises(LoginRefused):
            judged(lambda proof, at=number: nearly(proof)[at])
    for nonce in (*nearly_text("client-nonce")[:5], "client-nonce"):
        with pytest.raises(LoginRefused):
            judged(lambda proof: proof, nonce)


def test_token_ids_and_their_secrets_are_compared_to_their_end() -> None:
    hmac = token_hmac(SECRET, "token-1")
    password = base64.b64encode(hmac).decode()
    mechanism = MECHANISMS[0]
    keys = TokenKeys(keys_of(mechanism, password.encode(), b"salt", 4096), Principal(name="owner", is_token=True), 1)
    users = Users(token=lambda _, token_id: keys if token_id == "token-1" else None, hiding_key=b"h")

    def login(token_id: str, secret: str, *, is_token: bool = True) -> Login | None:
        server = ScramServer(mechanism, users, "s")
        client = ScramClient(mechanism, token_id, secret, is_token=is_token, nonce="c")
        final = client.respond(server.respond(client.begin()))
        assert final is not None
        server.respond(final)
        return server.login

    assert login("token-1", password) == Login(Principal(name="owner", is_token=True), 1)
    cases = [
        *(("token-1", base64.b64encode(one).decode()) for one in nearly(hmac)),
        *((one, password) for one in nearly_text("token-1")),
    ]
    for token_id, secret in cases:
        with pytest.raises(LoginRefused):
            login(token_id, secret)
    with pytest.raises(LoginRefused):
        login("token-1", password, is_token=False)


def test_a_token_is_renewed_and_expired_by_its_whole_hmac() -> None:
    context = token_context(a_token(10**9, 10**9), OWNER)
    hmac = token_hmac(SECRET, "t")
    others = [
        *nearly(hmac),
        *(token_hmac(Secret(secret), "t") for secret in nearly_text(SECRET.value) if secret),
        *(token_hmac(SECRET, name) for name in nearly_text("t")),
    ]
    for given in (hmac, *others):
        renewed = renew_token(context, RenewDelegationTokenRequest(hmac=given, renew_period_ms=1))
        expired = expire_token(context, ExpireDelegationTokenRequest(hmac=given, expiry_time_period_ms=-1))
        for result in (renewed, expired):
            code = getattr(result.response, "error_code", None)
            assert code == (Error.NONE if given == hmac else Error.DELEGATION_TOKEN_NOT_FOUND)
            assert bool(result.records) is (given == hmac)


def test_a_signature_of_a_bearer_token_is_compared_to_its_end() -> None:
    key = ECKey.generate_key("P-256", {"kid": "k"}, auto_kid=False)
    keys = Remote("keys", lambda: (read_keys(json.dumps({"keys": [key.as_dict(private=False)]}).encode()), 60.0))
    keys.read_once()
    rules = TokenRules(keys_url="file:///keys", audiences=("kafka",), issuer="idp")
    judge = judge_of(rules, keys, lambda: 1_000_000_000)
    claims = {"sub": "alice", "iss": "idp", "aud": "kafka", "iat": 999_999, "exp": 1_000_060}

    def token(**changes: str) -> str:
        return jwt.encode({"alg": "ES256", "kid": "k"}, {**claims, **changes}, key, algorithms=["ES256"])

    assert judge(token()).principal == Principal(name="alice")
    head, body, signature = token().split(".")
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    spoiled = [base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in nearly(raw)]
    bad = [f"{head}.{body}.{one}" for one in spoiled]
    bad += [token(aud=one) for one in nearly_text("kafka")] + [token(iss=one) for one in nearly_text("idp")]
    for one in bad:
        with pytest.raises(TokenRefused):
            judge(one)


def test_no_secret_is_compared_in_part() -> None:
    """Each use of `compare_digest` has whole values: no slice, which compares the beginning alone."""
    found = 0
    for package in ("kraft", "transport", "metadata_log"):
        for path in (PRODUCT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "compare_digest" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("compare_digest"):
                    found += 1
                    slices = [one for one in ast.walk(node) if isinstance(one, ast.Slice)]
                    assert slices == [], f"{path}:{node.lineno}"
    assert found >= 5


# -------------------------------------------------------------------------------------------------------------- rights


def test_principals_hosts_and_names_of_rules_are_compared_to_their_end() -> None:
    rule = Acl(AclResource.TOPIC, "orders", 3, "User:alice", "10.0.0.10", AclOperation.READ, 3)
    authorizer = Authorizer(AuthorizerSettings(frozenset({"User:root"})), AclsImage().put(Uuid(bytes([1] * 16)), rule))

    def may(user: str = "alice", host: str = "10.0.0.10", name: str = "orders", kind: str = "User") -> bool:
        return authorizer.authorize(
            Caller(kind, user, host=host), AclOperation.READ, AclResource.TOPIC, name
        ).is_allowed

    assert may()
    assert not any(may(user=other) for other in nearly_text("alice"))
    assert not any(may(host=other) for other in nearly_text("10.0.0.10"))
    assert not any(may(name=other) for other in nearly_text("orders") if other)
    assert not any(may(kind=other) for other in nearly_text("User"))
    assert may(user="root")
    assert not any(may(user=other) for other in nearly_text("root"))


def test_owners_and_renewers_of_tokens_are_compared_to_their_end() -> None:
    hmac = token_hmac(SECRET, "t")
    known = ("owner", "renewer", "second")
    for name, is_known in (
        *((one, True) for one in known),
        *((other, False) for one in known for other in nearly_text(one)),
    ):
        context = token_context(a_token(10**9, 10**9), Caller("User", name))
        result = renew_token(context, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1))
        assert bool(result.records) is is_known, name


# ----------------------------------------------------------------------------------------------------------------- ids


CLUSTER = "qHzHJFSfTqyL0aFpS1bGdg"
REQUESTS: tuple[Callable[[str | None], Message], ...] = (
    lambda cluster: FetchRequest(cluster_id=cluster),
    lambda cluster: VoteRequest(cluster_id=cluster),
    lambda cluster: BeginQuorumEpochRequest(cluster_id=cluster),
    lambda cluster: EndQuorumEpochRequest(cluster_id=cluster),
    lambda cluster: FetchSnapshotRequest(cluster_id=cluster),
    lambda cluster: AddRaftVoterRequest(cluster_id=cluster),
    lambda cluster: RemoveRaftVoterRequest(cluster_id=cluster),
    lambda cluster: UpdateRaftVoterRequest(cluster_id=cluster),
)


@pytest.mark.parametrize("make", REQUESTS)
def test_cluster_ids_of_requests_are_compared_to_their_end(make: Callable[[str | None], Message]) -> None:
    rpc = Rpc(cluster_id=CLUSTER, listener="C")

    def error_for(cluster: str | None) -> int:
        message = make(cluster)
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        request = WireRequest(request_id=1, api_key=api_key, version=0, message=message, listener="C")
        return getattr(rpc.request_from_wire(request), "error_code", 0)

    assert error_for(CLUSTER) != Error.INCONSISTENT_CLUSTER_ID
    assert {error_for(other) for other in nearly_text(CLUSTER)} == {Error.INCONSISTENT_CLUSTER_ID}


def test_ids_of_a_broker_are_compared_to_their_end() -> None:
    side = InProcess()
    request = registration(5)
    assert isinstance(request, BrokerRegistrationRequest)

    def error_for(request: BrokerRegistrationRequest) -> int:
        answer = side.ask(request, 4)
        assert isinstance(answer, BrokerRegistrationResponse)
        return answer.error_code

    for cluster in nearly_text(request.cluster_id):
        assert error_for(structs.replace(request, cluster_id=cluster)) == Error.INCONSISTENT_CLUSTER_ID
    first = side.ask(request, 4)
    assert isinstance(first, BrokerRegistrationResponse)
    # Its session is open, so that no other process may take its id.
    side.controller.note_contact(BrokerHeartbeatRequest(broker_id=5, broker_epoch=first.broker_epoch), side.now_ms)
    for incarnation in nearly_uuid(request.incarnation_id):
        assert error_for(structs.replace(request, incarnation_id=incarnation)) == Error.DUPLICATE_BROKER_REGISTRATION
    assert error_for(request) == Error.NONE


def test_directories_of_voters_are_compared_to_their_end() -> None:
    directory = Uuid(bytes(range(16)))
    key = ReplicaKey(1, directory)
    assert key.matches(key)
    assert not any(key.matches(ReplicaKey(1, other)) for other in nearly_uuid(directory))
    assert not key.matches(ReplicaKey(1))
    assert not key.matches(ReplicaKey(11, directory))
    voters = VoterSet.parse("1@h:1,11@h:2")
    known = VoterSet(tuple(structs.replace(one, key=ReplicaKey(one.key.id, directory)) for one in voters.voters))
    assert known.contains(key)
    assert not any(known.contains(ReplicaKey(1, other)) for other in nearly_uuid(directory))


def test_directories_of_other_clusters_are_refused() -> None:
    disk = MemoryDisk()
    format_directory(disk, "d", node_id=1, cluster_id=CLUSTER, rng=Random(1), now_ms=0)
    assert check_formatted(disk, ["d"], node_id=1, cluster_id=CLUSTER)
    for node_id, cluster in ((11, CLUSTER), *product((1,), nearly_text(CLUSTER))):
        with pytest.raises(DirectoryError):
            check_formatted(disk, ["d"], node_id=node_id, cluster_id=cluster)


def test_topic_ids_are_compared_to_their_end() -> None:
    mine = topic_id(1)
    brokers = Brokers([NewTopic("t", mine, ((101,),))])
    assert brokers.ask(101, produce((mine, 0), batch(b"v"))).responses[0].partition_responses[0].error_code == 0
    assert brokers.ask(101, fetch(((mine, 0), 0))).responses[0].partitions[0].records
    for other in nearly_uuid(mine):
        answer = brokers.ask(101, produce((other, 0), batch(b"v")))
        assert answer.responses[0].partition_responses[0].error_code == Error.UNKNOWN_TOPIC_ID
        answer = brokers.ask(101, fetch(((other, 0), 0)))
        assert answer.responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
