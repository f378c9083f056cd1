"""Brokers check the rights of clients that log in: ours alone, and beside a broker of Kafka with the same answers."""

from __future__ import annotations

from contextlib import closing
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAuthorizationFailedError

from authorized_brokers import OURS, THEIRS, AuthorizedBrokers, Client, authorized_brokers
from rights_matrix import SECRET, TOPIC, USERS, facts, requests_of, rules, topics
from support.interop.broker_cluster import STARTED
from support.interop.real_kafka import KafkaInstallation, eventually
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AlterUserScramCredentialsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    MetadataRequest,
)
from transport.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from transport.protocol.messages.describe_user_scram_credentials import UserName
from transport.protocol.messages.metadata import MetadataRequestTopic

pytestmark = pytest.mark.kafka
SECONDS = 60
ITERATIONS = 4096
SCRAM_SHA_256 = 1
CODE = " error_code"


def set_up(cluster: AuthorizedBrokers, *brokers: int) -> None:
    """Make the topics and the rules through our broker, and wait until each broker knows them."""
    with cluster.client(OURS, "admin") as admin:
        for request, version in ((topics(*brokers), 7), (rules(), 3)):
            answer = admin.ask(request, version)
            assert {code for _, code in facts(answer)} == {0}, answer
    for broker in brokers:
        with cluster.client(broker, "dora") as last, cluster.client(broker, "admin") as admin:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=SECRET[broker])])

            def knows(last: Any = last, admin: Any = admin, wanted: Any = wanted) -> bool:
                directories = last.ask(DescribeLogDirsRequest(topics=None), 4)
                assert isinstance(directories, DescribeLogDirsResponse)
                known = {code for at, code in facts(admin.ask(wanted, 12)) if at.endswith(CODE)}
                return directories.error_code == 0 and known == {0}

            eventually(knows, f"broker {broker} knows the topics and the rules", SECONDS)


def answers(cluster: AuthorizedBrokers, broker: int, user: str) -> dict[str, list[tuple[str, int]]]:
    """The answers of a broker to each request of a user; names of the broker and of its topics are left out."""
    found = {}
    with cluster.client(broker, user) as client:
        for name, (message, version) in requests_of(user, broker).items():
            answer = client.ask(message, version)
            while getattr(answer, "error_code", 0) == Error.COORDINATOR_LOAD_IN_PROGRESS:
                answer = client.ask(message, version)  # the broker waits for its first block of producer ids
            found[name] = sorted(
                {(at.replace(TOPIC[broker], "topic").replace(str(broker), "id"), code) for at, code in facts(answer)}
            )
    return found


def test_our_broker_and_one_of_kafka_give_each_user_the_same_codes(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with authorized_brokers(tmp_path, *USERS) as cluster:
        theirs = cluster.begin_kafkas(kafka)
        cluster.start_ours()
        theirs.wait_for(STARTED)
        set_up(cluster, OURS, THEIRS)
        compared, different = 0, {}
        for user in USERS[1:]:
            expected, found = answers(cluster, THEIRS, user), answers(cluster, OURS, user)
            for name in expected:
                compared += len(found[name])
                if found[name] != expected[name]:
                    different[user, name] = found[name], expected[name]
        assert different == {}
        assert compared > 400

        def a_denial_of_mallory_is_logged() -> bool:
            """Each operation has one line a second: the denial of another user may have taken the line."""
            answers(cluster, OURS, "mallory")
            return "principal='User:mallory'" in cluster.processes[OURS].text

        eventually(a_denial_of_mallory_is_logged, "the broker logs a denial of mallory", SECONDS)


def kafka_python(cluster: AuthorizedBrokers, user: str, password: str) -> dict[str, Any]:
    """The options of kafka-python to log in at our broker by SCRAM."""
    return {
        "bootstrap_servers": f"127.0.0.1:{cluster.ports[OURS]}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def test_users_of_the_metadata_log_log_in_at_our_broker_and_have_their_rights(tmp_path: Path) -> None:
    with authorized_brokers(tmp_path, "admin", "dora") as cluster:
        cluster.start_ours()
        set_up(cluster, OURS)
        with cluster.client(OURS, "admin") as admin:
            salt = b"salt-of-a-test"
            made = admin.ask(
                AlterUserScramCredentialsRequest(
                    upsertions=[
                        ScramCredentialUpsertion(
                            name=user,
                            mechanism=SCRAM_SHA_256,
                            iterations=ITERATIONS,
                            salt=salt,
                            salted_password=pbkdf2_hmac("sha256", f"{user}-word".encode(), salt, ITERATIONS),
                        )
                        for user in ("alice", "bob")
                    ]
                ),
                0,
            )
            assert {code for _, code in facts(made)} == {0}, made

            def knows() -> bool:
                wanted = DescribeUserScramCredentialsRequest(users=[UserName("bob")])
                answer = admin.ask(wanted, 0)
                assert isinstance(answer, DescribeUserScramCredentialsResponse)
                return {one.error_code for one in answer.results} == {0}

            eventually(knows, "the broker knows the users", SECONDS)

        bob = kafka_python(cluster, "bob", "bob-word")
        with closing(KafkaProducer(**bob, acks="all")) as producer:
            assert producer.send(TOPIC[OURS], value=b"v", partition=0).get(SECONDS).offset == 0
            with pytest.raises(TopicAuthorizationFailedError):
                producer.send(SECRET[OURS], value=b"v", partition=0).get(SECONDS)
        with closing(KafkaConsumer(**bob, enable_auto_commit=False)) as consumer:
            consumer.assign([TopicPartition(TOPIC[OURS], 0)])
            consumer.seek(TopicPartition(TOPIC[OURS], 0), 0)
            with pytest.raises(TopicAuthorizationFailedError):
                consumer.poll(SECONDS * 1000)
        alice = kafka_python(cluster, "alice", "alice-word")
        with closing(KafkaConsumer(**alice, enable_auto_commit=False)) as consumer:
            consumer.assign([TopicPartition(TOPIC[OURS], 0)])
            consumer.seek(TopicPartition(TOPIC[OURS], 0), 0)
            [records] = consumer.poll(SECONDS * 1000).values()
            assert [one.value for one in records] == [b"v"]
        with Client(cluster.ports[OURS], "dora", "a-guess") as guessing:
            assert guessing.login.error_code == Error.SASL_AUTHENTICATION_FAILED
