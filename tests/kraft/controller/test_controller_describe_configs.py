"""A controller shows its own configuration and what is set for others, and no secret."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.config import Config
from kraft.config.definitions import NODE
from kraft.config.described import described_settings
from kraft.config.kafka_keys import READ
from metadata_log.serde import Message
from support.differential.admin_answers import RECORDED, SECURED, codes, disagreements, only, plain, settings_told
from support.differential.controller_cluster import Cluster, Stage
from support.differential.controller_sides import InProcess
from support.differential.controller_stories import SET, configure, create, topic
from transport.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    incremental_alter_configs,
)
from transport.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
FILE = {
    "process.roles": "controller",
    "node.id": "1",
    "log.dirs": "/var/lib/kafka",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "hidden-away",
}
OF_A_KEY_OF_BROKERS, LOGGERS, ONE_LOGGER, NO_TYPES = 9, 15, 16, (24, 25, 26)


def side_with(file: dict[str, str]) -> InProcess:
    return InProcess(admin=SECURED, release=RECORDED, own_settings=tuple(described_settings(file)))


def describe(side: Stage, kind: int, name: str, *keys: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    assert isinstance(answer, DescribeConfigsResponse)
    (result,) = answer.results
    assert (result.error_code, result.error_message) == (0, "")
    return {one.name: one for one in result.configs}


def test_answers_are_kafkas() -> None:
    """Kafka knows more loggers; for types that do not exist it has other words."""
    side = side_with(FILE)
    assert disagreements("configs", side, codes) == {}
    known = settings_told("describe_configs")
    found = disagreements("describe_configs", side, lambda answer: only(known, plain(answer)))
    assert sorted(found) == [OF_A_KEY_OF_BROKERS, LOGGERS, ONE_LOGGER, *NO_TYPES]
    assert set(disagreements("describe_configs", side, codes)) == set()
    kafkas, ours = found[OF_A_KEY_OF_BROKERS]
    assert [one for one in _known(kafkas) if one["name"] != "log.dirs"] == [
        one for one in _known(ours) if one["name"] != "log.dirs"
    ]


def _known(answer: Any) -> list[Any]:
    (result,) = answer["results"]
    return list(result["configs"])


def test_every_public_setting_of_kafka_is_described() -> None:
    """An empty default is no missing one, and what this software does not read has Kafka's default."""
    found = describe(side_with(FILE), BROKER, "1")
    assert {name for name, key in NODE.items() if not key.is_internal} <= set(found)
    assert not [name for name, key in NODE.items() if key.is_internal and name in found]
    assert [found[key].value for key in ("config.providers", "num.io.threads", "log.roll.ms")] == ["", "8", None]
    assert (found["broker.id"].value, found["broker.id"].config_source) == ("1", 4), "as set as node.id"


@pytest.mark.parametrize(
    ("file", "key", "value", "synonyms"),
    [
        ({}, "retention.ms", "604800000", []),
        ({"log.retention.hours": "100"}, "retention.ms", "360000000", []),
        (
            {"log.retention.ms": "7", "log.retention.hours": "100"},
            "retention.ms",
            "7",
            [("log.retention.ms", "7", 4), ("log.retention.hours", "100", 4), ("log.retention.hours", "168", 5)],
        ),
        ({}, "follower.replication.throttled.replicas", "", []),
        ({}, "segment.bytes", "1073741824", [("log.segment.bytes", "1073741824", 5)]),
    ],
)
def test_a_topic_has_the_synonyms_of_brokers(
    file: dict[str, str], key: str, value: str, synonyms: list[tuple[str, str, int]]
) -> None:
    """As Kafka 4.4.0 answers: a value in another unit counts, and is no synonym alone."""
    cluster = Cluster(101, own_settings=tuple(described_settings({"node.id": "1", **file})))
    cluster.do(create(topic("t")))
    found = describe(cluster.controller, TOPIC, "t", key)[key]
    assert [(one.name, one.value, one.source) for one in found.synonyms] == synonyms
    assert (found.value, found.config_source) == (value, synonyms[0][2] if synonyms else 5)


def test_settings_that_only_the_log_has_are_described() -> None:
    """Tools wait for the value that they have set: it was taken for a secret."""
    side = side_with({})
    wanted = {"leader.replication.throttled.rate": "1000", "listener.name.internal.ssl.truststore.type": "PKCS12"}
    for key, value in wanted.items():
        config = incremental_alter_configs.AlterableConfig(name=key, config_operation=SET, value=value)
        one = incremental_alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
        side.ask(IncrementalAlterConfigsRequest(resources=[one]), 1)
    found = describe(side, BROKER, "1", *wanted)
    assert {key: (one.value, one.is_sensitive) for key, one in found.items()} == {
        key: (value, False) for key, value in wanted.items()
    }
    rate = found["leader.replication.throttled.rate"]
    assert (rate.read_only, rate.config_type) == (False, 5)


def test_kafkas_texts_about_settings_are_told_on_request() -> None:
    side = side_with(FILE)
    for kind, name, key in ((BROKER, "1", "log.retention.hours"), (GROUP, "g", "consumer.session.timeout.ms")):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        for is_told in (True, False):
            request = DescribeConfigsRequest(resources=[resource], include_documentation=is_told)
            answer: Any = side.ask(request, 4)
            text = answer.results[0].configs[0].documentation
            assert len(text) > 50 if is_told else text is None


def test_provided_values_are_shown_where_kafka_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic shows the default that holds for it, wherever that comes from (Kafka: `createTopicConfigEntry`); the node
    does not show it. What could not be a default does not let the node start, so that no other secret gets there.
    """
    monkeypatch.setenv("PROVIDED", "4242")
    text = (
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=C://127.0.0.1:0\n"
        "controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs=/var/lib/kafka\nconfig.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "log.retention.ms=${env:PROVIDED}\nbroker.rack=${env:PROVIDED}\n"
    )
    cluster = Cluster(101, own_settings=Config.parse(text).described)
    cluster.do(create(topic("t")))
    side = cluster.controller
    of_topic = describe(side, TOPIC, "t")
    inherited = of_topic.pop("retention.ms")
    assert (inherited.value, inherited.config_source, inherited.is_sensitive) == ("4242", 4, False)
    assert "4242" not in repr(of_topic)
    assert "4242" not in repr(describe(side, BROKER, "1"))


def test_sensitive_and_unknown_settings_are_never_shown() -> None:
    text = (
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=C://127.0.0.1:0\n"
        "controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs=/var/lib/kafka\n"
        "delegation.token.secret.key=hidden-away\nssl.key.password=hidden-too\nlistener.name.c.x=hidden-also\n"
    )
    config = Config.parse(text)
    assert "hidden-" not in repr(config)
    side = InProcess(own_settings=config.described)
    found = describe(side, BROKER, "1")
    for name in ("delegation.token.secret.key", "ssl.key.password", "listener.name.c.x"):
        assert (found[name].value, found[name].is_sensitive) == (None, True)
    assert "hidden-" not in repr(found)


def test_a_standby_describes_itself() -> None:
    side = side_with(FILE)
    side.controller.renounce()
    assert describe(side, BROKER, "1", "node.id")["node.id"].value == "1"
    assert describe(side, BROKER_LOGGER, "1") == {}
    unknown: Message = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="nope", configuration_keys=None)]
    )
    assert codes(side.ask(unknown, 4)) == {0, 3}


def test_describing_all_brokers_shows_only_dynamic_cluster_settings() -> None:
    """As of a controller of Kafka's, which was asked the same: settings of one broker, and no numbers, are left out."""
    cluster = Cluster()
    cluster.do(
        configure(
            BROKER,
            "",
            ("log.retention.ms", SET, "5"),
            ("message.max.bytes", SET, " 77 "),
            ("nonsense", SET, "hidden, as it may be a secret"),
            ("background.threads", SET, "abc"),
            ("ssl.engine.factory.class", SET, "of one broker"),
            ("group.share.session.timeout.ms", SET, "45000"),
        )
    )
    found = describe(cluster.controller, BROKER, "")
    assert {name: (one.value, one.is_sensitive, one.read_only) for name, one in found.items()} == {
        "log.retention.ms": ("5", False, False),
        "message.max.bytes": (" 77 ", False, False),
        "min.insync.replicas": ("1", False, False),
        "nonsense": (None, True, True),
    }


def test_an_internal_key_of_a_topic_is_described_only_where_the_topic_sets_it() -> None:
    """As recorded from a broker of Kafka 4.3.1, which also accepts values that `segment.bytes` may not have."""
    cluster = Cluster(101)
    cluster.do(create(topic("small", internal_segment_bytes="4096"), topic("usual")))
    side = cluster.controller
    small, usual = describe(side, TOPIC, "small"), describe(side, TOPIC, "usual")
    assert small.keys() - usual.keys() == {"internal.segment.bytes"}
    found = small["internal.segment.bytes"]
    assert (found.value, found.config_source, found.config_type) == ("4096", 1, 3)
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [("internal.segment.bytes", "4096", 1)]
    assert describe(side, TOPIC, "usual", "internal.segment.bytes", "segment.bytes").keys() == {"segment.bytes"}
    cluster.do(configure(TOPIC, "small", ("internal.segment.bytes", SET, "0")))
    assert describe(side, TOPIC, "small")["internal.segment.bytes"].value == "0"


def test_each_setting_that_is_read_is_described_if_the_file_does_not_set_it() -> None:
    """Kafka describes every setting that it has. Clients ask for one by its name, and take no answer for an error."""
    side = side_with(FILE)
    told = describe(side, BROKER, "1")
    shown = {name for name in READ if name in NODE and not NODE[name].is_internal}
    assert shown <= told.keys()
    plain_ones = {name for name in shown - FILE.keys() if not told[name].is_sensitive}
    differing = {name for name in plain_ones if (told[name].value or "") != (NODE[name].default or "")}
    assert differing == {"broker.id"}, "which follows from node.id"
    assert describe(side, BROKER, "1", "log.cleaner.backoff.ms") == {
        "log.cleaner.backoff.ms": told["log.cleaner.backoff.ms"]
    }
