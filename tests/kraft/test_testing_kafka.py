"""`kraft.testing.Kafka`: a cluster for any client, its assertions, and its faults."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType
from confluent_kafka.admin._resource import ResourceType as AdminResource

from kraft.admin import SomeRefused
from kraft.config import ConfigError
from kraft.testing import Kafka, KafkaContainer
from kraft.testing.live import NodeDown
from support.wire import known_brokers


@pytest.fixture(scope="module")
def one() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def kafka(one: Kafka) -> Kafka:
    one.reset()
    return one


@pytest.fixture(scope="module")
def many() -> Iterator[Kafka]:
    with Kafka(brokers=3, controllers=3, seed=7) as cluster:
        yield cluster


@pytest.fixture
def cluster(many: Kafka) -> Kafka:
    many.reset()
    return many


def producer(kafka: Kafka, **settings: Any) -> Producer:
    return Producer({**kafka.client_config("confluent-kafka"), "message.timeout.ms": 10_000, **settings})


def sent(kafka: Kafka, topic: str, value: str, **settings: Any) -> KafkaError | None:
    """The outcome of one record of librdkafka."""
    outcomes: list[KafkaError | None] = []
    writing = producer(kafka, **settings)
    writing.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    writing.flush(15)
    [outcome] = outcomes
    return outcome


def consumer(kafka: Kafka, group: str, topic: str, **settings: Any) -> Consumer:
    config = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    reading = Consumer({**kafka.client_config("confluent-kafka"), **config, **settings})
    reading.subscribe([topic])
    return reading


def values_of(reading: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        message = reading.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    return found


def allow(admin: AdminClient, user: str) -> None:
    """Let a user do everything with the topic orders, and nobody else."""
    what = AdminResource.TOPIC, "orders", ResourcePatternType.LITERAL
    acl = AclBinding(*what, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for done in admin.create_acls([acl]).values():
        done.result(10)


# One node


def test_records_are_written_and_read(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3, config={"retention.ms": "1000000"})
    kafka.produce("orders", ["one", b"two", ("key", "three"), ("key", None)], headers={"h": b"1"})
    found = kafka.consume("orders")
    assert sorted((one.value or b"") for one in found) == [b"", b"one", b"three", b"two"]
    assert {one.partition for one in found if one.key == b"key"} == {1}
    assert all(one.headers[0].key == "h" for one in found)
    assert len(kafka.consume("orders", count=4)) == 4
    assert len(kafka.consume("orders", count=9, seconds=0.1)) == 4


def test_aborted_records_are_read_only_if_wanted(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    writing = producer(kafka, **{"transactional.id": "t"})
    writing.init_transactions(60)
    for value, ends in (("aborted", writing.abort_transaction), ("kept", writing.commit_transaction)):
        writing.begin_transaction()
        writing.produce("orders", value)
        assert writing.flush(60) == 0
        ends(60)
    for count in (None, 1):
        assert [one.value for one in kafka.consume("orders", count=count)] == [b"kept"]
    assert [one.value for one in kafka.consume("orders", committed=False)] == [b"aborted", b"kept"]


def test_a_topic_of_another_test_is_told_with_the_cure(kafka: Kafka) -> None:
    kafka.create_topic("twice")
    with pytest.raises(SomeRefused, match="TOPIC_ALREADY_EXISTS") as refused:
        kafka.create_topic("twice")
    assert "call reset() first" in refused.value.__notes__[0]


def test_a_reset_leaves_nothing_and_keeps_the_address(kafka: Kafka) -> None:
    before = kafka.bootstrap_servers
    kafka.create_topic("orders")
    assert sent(kafka, "orders", "one") is None
    reading = consumer(kafka, "group", "orders")
    assert values_of(reading, 1) == [b"one"]
    reading.close()
    admin = AdminClient(kafka.client_config("confluent-kafka"))
    allow(admin, "alice")
    assert kafka.image.acls.by_id
    kafka.reset()
    assert (list(kafka.image.topics.by_name), dict(kafka.image.acls.by_id)) == ([], {})
    assert kafka.bootstrap_servers == before
    assert admin.list_consumer_groups().result(10).valid == []
    kafka.create_topic("orders")
    assert kafka.consume("orders") == []


def test_a_consumer_of_a_session_begins_anew_after_a_reset_and_not_in_a_topic_made_again(kafka: Kafka) -> None:
    """What the page says of librdkafka: it keeps its offset in a topic of the same name."""
    kafka.produce("orders", ["one", "two"])
    settings = {"group.id": "session", "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200}
    consumer = Consumer({**kafka.client_config("confluent-kafka"), **settings})
    consumer.subscribe(["orders"])

    def following() -> bytes | None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                return message.value()
        raise TimeoutError("no record")

    assert [following(), following()] == [b"one", b"two"]
    kafka.delete_topic("orders")
    kafka.create_topic("orders")
    kafka.produce("orders", ["three", "four", "five"])
    assert following() == b"five"
    kafka.reset()
    kafka.produce("orders", ["six"])
    assert following() == b"six"
    consumer.close()


def test_an_unexpected_record_is_shown_as_a_difference(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", ["earlier"])
    with kafka.assert_produces("orders", ["one", "two"]) as found:
        kafka.produce("orders", ["one", "two"])
    assert [one.offset for one in found] == [1, 2]
    with kafka.assert_produces("orders", count=0, seconds=0):
        pass
    with kafka.assert_produces("new", [("k", "v")]):
        kafka.create_topic("new")
        kafka.produce("new", [("k", "v")])
    with pytest.raises(AssertionError) as failure, kafka.assert_produces("orders", ["one", "two"], seconds=0):
        kafka.produce("orders", ["one", "three"])
    assert str(failure.value).splitlines()[1:] == ["  b'one'", "- b'two'", "+ b'three'"]
    with pytest.raises(ValueError, match="either"), kafka.assert_produces("orders"):
        pass


def test_a_group_that_is_behind_is_shown_by_partition(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", ["one", "two"])
    behind = pytest.raises(AssertionError, match="orders-0: committed nothing of 2, 2 behind")
    with behind, kafka.assert_consumed("group", "orders", seconds=0):
        pass
    with kafka.assert_consumed("group", "orders"):
        reading = consumer(kafka, "group", "orders")
        assert values_of(reading, 2) == [b"one", b"two"]
        reading.close()


def test_every_listener_is_there_from_the_start(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    for security in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        config = kafka.client_config("confluent-kafka", security=security, user="alice")
        assert list(AdminClient(config).list_topics(timeout=60).topics) == ["orders"], security
    scram = kafka.client_config("confluent-kafka", security="SASL_SSL", user="bob", mechanism="SCRAM-SHA-512")
    assert list(AdminClient(scram).list_topics(timeout=60).topics) == ["orders"]
    certified = kafka.client_config("confluent-kafka", security="SSL", certificate="carol")
    assert list(AdminClient(certified).list_topics(timeout=60).topics) == ["orders"]
    wrong = {**scram, "sasl.password": "wrong"}
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=1)


def test_a_right_is_granted_to_a_user_who_logs_in(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    admin = AdminClient(kafka.client_config("confluent-kafka"))
    allow(admin, "alice")
    alice = kafka.client_config("confluent-kafka", security="SASL_PLAINTEXT", user="alice")
    bob = kafka.client_config("confluent-kafka", security="SASL_PLAINTEXT", user="bob")
    assert sent(kafka, "orders", "one", **alice) is None
    refused = sent(kafka, "orders", "two", **bob)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_misspelt_name_is_told_with_what_there_is(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match="kafka-python"):
        kafka.client_config("kafka")
    with pytest.raises(ValueError, match="SASL_SSL"):
        kafka.get_bootstrap_server("TLS")
    with pytest.raises(ValueError, match="did you mean Produce"):
        kafka.fail_next("Prodce", "UNKNOWN_SERVER_ERROR")
    with pytest.raises(ValueError, match="did you mean NOT_ENOUGH_REPLICAS or"):
        kafka.fail_next("Produce", "NOT_ENOUGH_REPLICS")
    with pytest.raises(ValueError, match="no API 'Zzzzz'; there are AddOffsetsToTxn, "):
        kafka.fail_next("Zzzzz", "NOT_ENOUGH_REPLICAS")
    with pytest.raises(NodeDown, match="there are 1"):
        kafka.kill(7)
    with pytest.raises(ValueError, match="there are 1"):
        kafka.restart(7)
    with pytest.raises(ValueError, match="no topic 'nope'"):
        kafka.leader("nope")
    kafka.create_topic("one-partition")
    with pytest.raises(ValueError, match="no partition 1; it has 1"):
        kafka.isr("one-partition", 1)
    with pytest.raises(ValueError, match="a cluster has a broker"):
        Kafka(brokers=3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kafka: kafka.delay(1, [50, 10]),
        lambda kafka: kafka.delay(1, [10]),
        lambda kafka: kafka.delay(1, "10"),
        lambda kafka: kafka.delay(1, -1, to=1),
        lambda kafka: kafka.throttle("10"),
        lambda kafka: kafka.break_connection(after_bytes=-1),
        lambda kafka: kafka.slow_disk(1, 0.5),
        lambda kafka: kafka.full_disk(1, free_bytes=-1),
        lambda kafka: kafka.fail_next("Produce", "INVALID_RECORD", 0),
        lambda kafka: kafka.fail_next("Produce", "INVALID_RECORD", "2"),
        lambda kafka: kafka.fail_next("Produce", "NONE"),
        lambda kafka: kafka.fail_next("Produce", 9999),
        lambda kafka: kafka.fail_next("Vote", "INVALID_RECORD"),
        lambda kafka: kafka.clock.jump(float("nan")),
        lambda kafka: kafka.clock.jump("1"),
        lambda kafka: kafka.clock.jump(-1),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_and_harms_nobody(kafka: Kafka, wrong: Callable[[Kafka], None]) -> None:
    kafka.create_topic("orders", config={"retention.ms": 1000_000})
    with pytest.raises(ValueError, match=r"delay|is a whole number|no error|Vote cannot fail|jumps ahead only"):
        wrong(kafka)
    kafka.produce("orders", ["one"])
    assert [one.value for one in kafka.consume("orders")] == [b"one"]


def test_a_setting_that_nobody_knows_is_warned_of() -> None:
    told = "unknown setting num.partitionss; did you mean num.partitions"
    with pytest.warns(UserWarning, match=told), Kafka(settings={"num.partitionss": "3"}) as kafka:
        assert kafka.running == (1,)


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(UserWarning, match="unknown setting"):
        Kafka(settings={"num.partitionss": "3"})
    assert threading.active_count() == before


def test_a_single_text_is_no_list_of_values(kafka: Kafka) -> None:
    with pytest.raises(TypeError, match=r"\['one'\]\?"):
        kafka.produce("orders", "one")
    with pytest.raises(TypeError, match="single value"), kafka.assert_produces("orders", "one"):
        pass


def test_calls_come_from_threads_and_from_any_event_loop(kafka: Kafka) -> None:
    def use(name: str) -> None:
        kafka.create_topic(name)
        kafka.produce(name, [name])
        assert [one.value for one in kafka.consume(name)] == [name.encode()]

    async def in_a_loop(name: str) -> None:
        use(name)

    threads = [threading.Thread(target=use, args=(f"thread-{number}",)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    asyncio.run(in_a_loop("asyncio"))
    trio.run(in_a_loop, "trio")
    assert len(kafka.image.topics.by_name) == 6


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_calls_come_from_anyio(kafka: Kafka, backend: str) -> None:
    anyio = pytest.importorskip("anyio")

    async def use() -> list[bytes | None]:
        kafka.produce("orders", ["one"])
        found = await anyio.to_thread.run_sync(kafka.consume, "orders")
        return [one.value for one in found]

    assert anyio.run(use, backend=backend) == [b"one"]


def test_the_log_of_a_test_has_no_lines_of_nodes(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    began = time.time()
    with Kafka() as other:
        assert any("leader node=1" in line for line in other.log.since(began))
    assert not kafka.log.since(began), "the lines of another cluster"
    kafka.reset()
    assert len(kafka.log.since(began)) > 3
    assert caplog.records == []


def test_a_container_of_testcontainers_is_a_node_here() -> None:
    """Each call of it that the modules of ten public projects have, but for those that say how a container is made."""
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3")
    with pytest.raises(RuntimeError, match=r"not started: call start\(\)"):
        container.get_bootstrap_server()
    assert container.start(timeout=60) is container
    servers = container.start().get_bootstrap_server()
    assert servers == f"{container.get_container_host_ip()}:{container.get_exposed_port(9093)}"
    with pytest.raises(ValueError, match="at port 9093, and not at 29092"):
        container.get_exposed_port(29092)
    container.kafka.produce("orders", ["three apples"])
    assert len(container.kafka.image.topics["orders"].partitions) == 3
    container.stop()
    container.stop()
    with container as again:
        assert not list(again.kafka.image.topics)
    with pytest.raises(ConfigError, match="listeners is set by the cluster"):
        KafkaContainer(port=9092).with_env("KAFKA_LISTENERS", "PLAINTEXT://:9092").start()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Kafka() as warm:
        warm.tls.certificate("warm")
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with Kafka() as kafka:
        assert Path(kafka.tls.ca_file).is_relative_to(tmp_path)
        kafka.create_topic("orders")
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)
    assert list(tmp_path.iterdir()) == []
    kafka.close()
    with pytest.raises(Exception, match="ended"):
        kafka.create_topic("late")


def resets(kafka: Kafka, count: int) -> int:
    """The bytes of all objects that live after so many resets."""
    for number in range(count):
        kafka.reset()
        if not number % 10:
            kafka.create_topic("orders")
            kafka.produce("orders", [b"x" * 1000])
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.soak
def test_memory_is_flat_after_many_resets(one: Kafka) -> None:
    count = 1000
    tracemalloc.start()
    try:
        # First until the lines of the log, which are as many as are kept, take no further room.
        before = resets(one, 120)
        descriptors = len(os.listdir("/proc/self/fd"))
        after = resets(one, count)
    finally:
        tracemalloc.stop()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    # Caches of ids and Trio's heap of deadlines fill up, to three megabytes in all.
    assert after - before < 600_000 + 2_000 * count, "a life of the node is kept"


# Faults


def test_requests_fail_as_often_as_told(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.create_topic("other")
    kafka.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
    assert sent(kafka, "other", "one") is None
    failed = sent(kafka, "orders", "one")
    assert failed is not None
    assert failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    kafka.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 2)
    with kafka.assert_produces("orders", ["two"]):
        assert sent(kafka, "orders", "two", **{"retry.backoff.ms": 1}) is None
    kafka.fail_next("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED")
    transactional = producer(kafka, **{"transactional.id": "t"})
    with pytest.raises(KafkaException, match="authorization"):
        transactional.init_transactions(5)


def test_a_broken_connection_is_made_again(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    writing = producer(kafka)
    writing.produce("orders", "one")
    assert writing.flush(10) == 0
    kafka.break_connection(after_bytes=10)
    writing.produce("orders", "two")
    assert writing.flush(10) == 0
    # librdkafka without idempotence sends the second one again, as it has no answer.
    assert {one.value for one in kafka.consume("orders")} == {b"one", b"two"}


def test_a_client_is_throttled_and_delayed(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    assert sent(kafka, "orders", "one") is None
    kafka.delay(1, 150)
    began = time.monotonic()
    assert sent(kafka, "orders", "two") is None
    assert time.monotonic() - began > 0.3, "connecting and writing are at least two requests"
    kafka.heal()
    throttled: list[float] = []
    kafka.throttle(100)
    writing = producer(kafka, **{"throttle_cb": lambda event: throttled.append(event.throttle_time)})
    writing.produce("orders", "three")
    writing.flush(10)
    writing.poll(0.1)
    assert 0.1 in throttled


def test_a_node_without_a_disk_ends_and_starts_again(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", ["one"])
    kafka.full_disk(1)
    assert sent(kafka, "orders", "two", **{"message.timeout.ms": 500}) is not None
    kafka.wait_until(lambda kafka: kafka.running == ())
    with pytest.raises(NodeDown, match="does not run"):
        kafka.kill(1)
    kafka.heal()
    kafka.restart(1)
    assert [one.value for one in kafka.consume("orders")][:1] == [b"one"]


def test_a_session_ends_when_the_clock_jumps(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    reading = consumer(kafka, "group", "orders", **{"session.timeout.ms": 45_000})
    kafka.produce("orders", ["one"])
    assert values_of(reading, 1) == [b"one"]
    admin = AdminClient(kafka.client_config("confluent-kafka"))
    kafka.pause(1)
    kafka.clock.jump(46)
    kafka.resume(1)

    def has_ended(_: Kafka) -> bool:
        try:
            return not admin.describe_consumer_groups(["group"])["group"].result(10).members
        except KafkaException as loading:
            if loading.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False

    kafka.wait_until(has_ended)
    reading.close()


# Three brokers and three controllers


def test_a_broker_that_dies_is_fenced_and_another_one_leads(cluster: Kafka) -> None:
    cluster.create_topic("orders", partitions=1)
    cluster.produce("orders", ["one"])
    first = cluster.leader("orders")
    cluster.kill(first)
    cluster.wait_until(lambda kafka: kafka.is_fenced(first) and kafka.leader("orders") not in (first, -1))
    assert sent(cluster, "orders", "two") is None
    assert first not in cluster.isr("orders")
    cluster.restart(first)
    cluster.wait_until(lambda kafka: len(kafka.isr("orders")) == 3)
    assert [one.value for one in cluster.consume("orders")] == [b"one", b"two"]


def test_a_broker_that_is_cut_off_leaves_the_isr_and_comes_back(cluster: Kafka) -> None:
    cluster.create_topic("orders", config={"min.insync.replicas": "2"})
    leader = cluster.leader("orders")
    follower = next(one for one in cluster.isr("orders") if one != leader)
    cluster.partition([follower])
    cluster.wait_until(lambda kafka: follower not in kafka.isr("orders"))
    assert sent(cluster, "orders", "one") is None
    cluster.heal()
    cluster.wait_until(lambda kafka: follower in kafka.isr("orders"))


def test_each_broker_names_all_from_the_start(cluster: Kafka) -> None:
    """librdkafka waits for ever when the first broker that it asks names none."""
    for _ in range(4):
        cluster.reset()
        for address in cluster.bootstrap_servers.split(","):
            assert known_brokers(int(address.rpartition(":")[2])) == set(cluster.broker_ids)


def test_the_controllers_elect_another_one(cluster: Kafka) -> None:
    first = cluster.active_controller
    assert first is not None
    cluster.kill(first)
    cluster.wait_until(lambda kafka: kafka.active_controller not in (first, None))
    cluster.create_topic("later")
    cluster.restart(first)


def test_the_picture_has_what_a_controller_that_is_cut_off_lacks(cluster: Kafka) -> None:
    behind = next(one for one in cluster.controller_ids if one != cluster.active_controller)
    cluster.create_topic("later")
    first = cluster.leader("later")
    cluster.partition([behind])
    cluster.stop(first)
    assert "leads later-0" in cluster.picture()
    cluster.heal()
    cluster.restart(first)


def test_leaders_and_coordinators_move(cluster: Kafka) -> None:
    cluster.create_topic("orders")
    before = cluster.leader("orders")
    after = cluster.move_leader("orders")
    assert cluster.leader("orders") == after != before
    with pytest.raises(ValueError, match="in sync"):
        cluster.move_leader("orders", to=999)
    with pytest.raises(ValueError, match="no group"):
        cluster.move_coordinator("group")
    reading = consumer(cluster, "group", "orders")
    cluster.produce("orders", ["one"])
    assert values_of(reading, 1) == [b"one"]
    before = cluster.coordinator("group")
    assert cluster.move_coordinator("group") == cluster.coordinator("group") != before
    cluster.produce("orders", ["two"])
    assert values_of(reading, 1) == [b"two"]
    with cluster.assert_consumed("group", "orders"):
        reading.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_rebalances_when_told(kafka: Kafka, protocol: str) -> None:
    kafka.create_topic("orders")
    given: list[int] = []
    config: dict[str, Any] = {"group.id": "group", "auto.offset.reset": "earliest", "group.protocol": protocol}
    if protocol == "classic":
        config |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000}
    reading = Consumer({**kafka.client_config("confluent-kafka"), **config})
    reading.subscribe(["orders"], on_assign=lambda _, parts: given.append(len(parts)))
    with pytest.raises(ValueError, match="no members"):
        kafka.rebalance("nobody")
    kafka.produce("orders", ["one"])
    assert values_of(reading, 1) == [b"one"]
    assert given == [1]
    kafka.rebalance("group")

    def again(_: Kafka) -> bool:
        reading.poll(0.05)
        return len(given) > 1

    kafka.wait_until(again, seconds=20)
    reading.close()


def test_topics_are_created_while_a_broker_is_cut_off_or_hangs(cluster: Kafka) -> None:
    cluster.partition([101])
    cluster.pause(102)
    cluster.create_topic("orders", replication_factor=1)
    assert "orders" in cluster.image.topics
    cluster.heal()
    cluster.wait_until(lambda kafka: not any(map(kafka.is_fenced, kafka.broker_ids)))


def test_clients_are_cut_off_from_a_broker(cluster: Kafka) -> None:
    cluster.create_topic("orders")
    leader = cluster.leader("orders")
    cluster.partition([leader], ["clients"])
    assert sent(cluster, "orders", "one", **{"message.timeout.ms": 700}) is not None
    assert cluster.leader("orders") == leader, "the controllers hear it"
    cluster.heal()
    assert sent(cluster, "orders", "two") is None


def test_a_delay_between_two_nodes_holds_back_what_all_replicas_have(cluster: Kafka) -> None:
    cluster.create_topic("orders")
    leader = cluster.leader("orders")
    [first, _] = [one for one in cluster.broker_ids if one != leader]
    cluster.delay(leader, (200, 250), to=first)
    began = time.monotonic()
    assert sent(cluster, "orders", "one") is None
    assert time.monotonic() - began >= 0.2
    with pytest.raises(ValueError, match="no node 9"):
        cluster.delay(leader, 10, to=9)


def test_power_fails_and_brokers_stop_in_order(cluster: Kafka) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", ["one"])
    first = cluster.leader("orders")
    cluster.stop(first)
    assert cluster.leader("orders") not in (first, -1), "a broker hands over before it ends"
    cluster.kill(cluster.leader("orders"), loses_power=True)
    cluster.restart(first)
    cluster.wait_until(lambda kafka: kafka.leader("orders") != -1)
    assert [one.value for one in cluster.consume("orders", count=1)] == [b"one"]


def test_requests_fail_as_often_as_told_at_all_brokers_together(cluster: Kafka) -> None:
    topics = [f"led-by-{number}" for number in range(3)]
    for topic in topics:
        cluster.create_topic(topic, replication_factor=1)
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", 2)
    assert [sent(cluster, topic, "one") is None for topic in topics] == [False, False, True]
    with pytest.raises(ValueError, match="no broker 1"):
        cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", node_id=1)


def test_a_slow_disk_makes_a_follower_fall_behind(cluster: Kafka) -> None:
    cluster.create_topic("orders")
    leader = cluster.leader("orders")
    cluster.slow_disk(leader, 200)
    began = time.monotonic()
    assert sent(cluster, "orders", "one") is None
    assert time.monotonic() - began >= 0.2
    cluster.heal()


def test_a_new_cluster_waits_for_no_timer(tmp_path: Path) -> None:
    """One controller begins as a candidate, and the broker knows the leader; an older cluster goes on as it ended."""

    def begun(one: Kafka, state: str) -> list[str]:
        return re.findall(rf"node=(\d+) from=Start to={state}\b", "\n".join(one.log.since(0)))

    with Kafka(controllers=3, directory=tmp_path) as new:
        new.create_topic("kept")
        assert len(begun(new, "Candidate epoch=1")) == 1
        assert "101" in begun(new, "Follower")
        new.reset()
        assert len(begun(new, "Candidate epoch=1")) == 2
        new.create_topic("kept")
    with Kafka(controllers=3, directory=tmp_path) as old:
        assert "kept" in old.image.topics
        assert not begun(old, "Candidate epoch=1")


def test_the_same_seed_draws_the_same() -> None:
    with Kafka(seed=11) as one, Kafka(seed=11) as other, Kafka(seed=12) as third:
        assert one.cluster_id == other.cluster_id != third.cluster_id
