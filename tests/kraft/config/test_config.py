"""Kafka's properties files become a `Config`; every mistake is named with its place and its remedy."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from kraft.access.authorizer import AuthorizerSettings
from kraft.access.tokens import TokenSettings
from kraft.broker.settings import BrokerOptions
from kraft.config import Config, ConfigError, configuration_table
from kraft.config.addresses import parse_host_port
from kraft.config.data_settings import TopicDefaults
from kraft.config.definitions import NODE
from kraft.config.described import Secret
from kraft.config.keys import NUMBERS, SEGMENT_BYTES_OVERRIDE, STANDARD_AUTHORIZER, TEXTS
from kraft.config.listener_settings import TO_BROKERS, TO_CONTROLLERS, ConnectionSettings
from kraft.config.sasl_settings import LoginSettings
from kraft.controller.decision.request_context import AdminSettings, DecisionSettings
from kraft.node.embed import tcp_transport
from kraft.quorum.values import Endpoints, QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.options import ReplicaOptions
from support import ROOT
from transport.limits import MAX_CONNECTIONS
from transport.serving import INT_MAX

GOOD = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9001,2@127.0.0.1:9002,3@[::1]:9003
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:9001
log.dirs=/var/lib/kraft
"""


def segment_bytes(config: Config) -> int:
    """The size of a segment of the metadata log."""
    replica = config.of(ReplicaOptions, directory="", node_id=1, voters=VoterSet.of(()), endpoints=Endpoints())
    return replica.segment_bytes


def authorizer(text: str) -> AuthorizerSettings | None:
    """The settings of the authorizer, if the file has one."""
    return Config.parse(text).of(AdminSettings).authorizer


def test_a_minimal_file_takes_kafkas_defaults() -> None:
    config = Config.parse(GOOD)
    assert config.node_id == 1
    assert [str(voter) for voter in config.voters] == ["1@127.0.0.1:9001", "2@127.0.0.1:9002", "3@[::1]:9003"]
    quorum = config.of(QuorumConfig)
    assert (quorum.election_timeout_ms, quorum.fetch_timeout_ms, quorum.append_linger_ms) == (1000, 2000, 25)
    assert segment_bytes(config) == 1 << 30
    assert config.metadata_log_dir == "/var/lib/kraft"
    assert [str(listener) for listener in config.advertised_listeners] == ["CONTROLLER://127.0.0.1:9001"]
    assert config.warnings == ()


def test_limits_of_connections_reach_the_transport() -> None:
    """Kafka's defaults mean no limit; here they mean one that a node can bear."""
    limits = tcp_transport(Config.parse(GOOD)).serving.limits
    assert 0 < limits.max_connections <= MAX_CONNECTIONS
    assert (limits.max_per_ip, limits.received_bytes, limits.queued_requests) == (INT_MAX, 0, 500)
    given = "max.connections=7\nmax.connections.per.ip=5\nqueued.max.request.bytes=200000000\nqueued.max.requests=9\n"
    config = Config.parse(GOOD + given + "max.connections.per.ip.overrides=10.0.0.1:3, broker : 2,::1:4\n")
    limits = tcp_transport(config).serving.limits
    assert (limits.max_connections, limits.max_per_ip, limits.received_bytes) == (7, 5, 200_000_000)
    assert limits.queued_requests == 9
    assert config.of(ConnectionSettings).max_per_ip_overrides == (("10.0.0.1", 3), ("broker", 2), ("::1", 4))


def test_connections_leave_descriptors_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, allowed in ((1024, 768), (100, 50)):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert tcp_transport(Config.parse(GOOD)).serving.limits.max_connections == allowed


def test_overrides_win() -> None:
    config = Config.parse(GOOD, overrides=["controller.quorum.append.linger.ms=0", "node.id = 2"])
    assert (config.of(QuorumConfig).append_linger_ms, config.node_id) == (0, 2)


def test_an_override_needs_an_equals_sign() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        Config.parse(GOOD, overrides=["node.id"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("node.id=one", "a whole number from 0"),
        ("node.id=-1", "a whole number from 0"),
        ("node.id=-+1", "a whole number from 0"),
        ("node.id=\xb9", "a whole number from 0"),
        ("process.roles=controller\xa0", "no role 'controller\\xa0'"),
        ("node.id=99999999999", "to 2147483647"),
        ("controller.quorum.election.timeout.ms=soon", "a whole number"),
        ("controller.quorum.voters=1:9001", "id@host:port"),
        ("max.connections=-1", "a whole number from 0"),
        ("max.connections.per.ip.overrides=10.0.0.1", "'10.0.0.1' is not host:number"),
        ("max.connections.per.ip.overrides=10.0.0.1:many", "'10.0.0.1:many' is not host:number"),
        ("queued.max.request.bytes=1000", "less than socket.request.max.bytes"),
        ("controller.quorum.voters=1@host:0", "id@host:port"),
        ("listeners=127.0.0.1:9001", "NAME://host:port"),
        ("listeners=CONTROLLER://h:99999", "NAME://host:port"),
        ("listeners=CONTROLLER://h:1,CONTROLLER://h:2", "the same name"),
        ("listeners=CONTROLLER://h:1,PLAINTEXT://h:2", "PLAINTEXT is not in controller.listener.names"),
        ("advertised.listeners=CONTROLLER://0.0.0.0:1", "no other host can reach"),
        ("advertised.listeners=OTHER://h:1", "listener OTHER has no security protocol"),
        ("metadata.log.segment.bytes=1000", "8388608"),
        ("process.roles=leader", "no role 'leader'"),
        ("listener.security.protocol.map=CONTROLLER:MAGIC", "no security protocol MAGIC"),
        ("listener.security.protocol.map=PLAINTEXT:PLAINTEXT", "CONTROLLER"),
    ],
)
def test_a_bad_value_is_named_with_its_line_and_what_is_allowed(line: str, said: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        Config.parse(GOOD + line + "\n", source="node.properties")
    assert caught.value.where == "node.properties:7"
    assert f"{key}={value}" in caught.value.what
    assert said in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "key", ["process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "listeners"]
)
def test_a_missing_key_is_named_with_the_file(key: str) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(key + "="))
    with pytest.raises(ConfigError, match=f"{key.replace('.', '[.]')}.* not set") as caught:
        Config.parse(text, source="node.properties")
    assert caught.value.where == "node.properties"
    assert key in str(caught.value.hint)


def test_a_listener_named_ssl_needs_a_certificate() -> None:
    """Kafka's default map gives such a listener the protocol of its name."""
    named = GOOD.replace("CONTROLLER", "SSL")
    with pytest.raises(ConfigError, match="listener SSL has the protocol SSL, and no certificate") as caught:
        Config.parse(named, source="f")
    assert "ssl.keystore.location" in str(caught.value.hint)
    config = Config.parse(named + "listener.name.ssl.ssl.keystore.location=/k.p12\nssl.client.auth=required\n")
    ((name, tls),) = config.tls.listeners
    assert (name, tls.client_auth, config.listeners[0].protocol) == ("SSL", "required", "SSL")
    outgoing = config.tls.outgoing[TO_CONTROLLERS]
    assert outgoing is not None
    assert outgoing.keystore == tls.keystore


def test_a_listener_named_like_a_protocol_with_login_needs_a_mechanism() -> None:
    """Kafka's default map gives such a listener the protocol of its name."""
    named = GOOD.replace("CONTROLLER", "SASL_PLAINTEXT")
    with pytest.raises(ConfigError, match="listener SASL_PLAINTEXT has a login, and sasl"):
        Config.parse(named, source="f")
    mapped = Config.parse(named + "listener.security.protocol.map=SASL_PLAINTEXT:PLAINTEXT\n")
    assert [listener.protocol for listener in mapped.listeners] == ["PLAINTEXT"]


def test_a_controller_that_is_no_voter_is_refused_as_in_kafka() -> None:
    with pytest.raises(ConfigError, match=r"node\.id 4 is not among the voters"):
        Config.parse(GOOD, overrides=["node.id=4"])


def test_a_node_of_a_dynamic_quorum_needs_no_voters_but_a_bootstrap_server() -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("controller.quorum.voters")]
    servers = "controller.quorum.bootstrap.servers=a:9093,[::1]:9094"
    config = Config.parse("\n".join([*lines, servers, "controller.quorum.auto.join.enable=true"]))
    assert (config.voters, config.of(QuorumConfig).auto_join) == ((), True)
    assert config.bootstrap_servers == (("a", 9093), ("::1", 9094))
    with pytest.raises(ConfigError, match=r"nor is controller\.quorum\.bootstrap"):
        Config.parse("\n".join(lines))
    with pytest.raises(ConfigError, match="is not host:port"):
        Config.parse("\n".join([*lines, "controller.quorum.bootstrap.servers=1@a:9093"]))


@pytest.mark.parametrize(("port", "is_good"), [(0, False), (1, True), (65_535, True), (65_536, False)])
def test_a_port_has_two_bytes(port: int, is_good: bool) -> None:
    if is_good:
        assert parse_host_port(f"a:{port}") == ("a", port)
    else:
        with pytest.raises(ValueError, match="is not host:port"):
            parse_host_port(f"a:{port}")


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one() -> None:
    (warning,) = Config.parse(GOOD + "controller.quorum.elections.timeout.ms=5\n", source="f").warnings
    assert "did you mean controller.quorum.election.timeout.ms?" in warning
    assert "f:7" in warning


def test_settings_of_a_broker_cause_no_warning_and_those_without_effect_cause_one() -> None:
    assert Config.parse(GOOD + "log.retention.hours=1\nssl.protocol=TLS\n").warnings == ()
    lines = "num.io.threads=3\nlistener.name.controller.socket.send.buffer.bytes=1\nlog.preallocate=true\n"
    names = "listener.name.controller.socket.send.buffer.bytes, log.preallocate, num.io.threads"
    assert Config.parse(GOOD + lines, source="f").warnings == (f"without effect in this software: {names} (f)",)


def test_metrics_of_clients_that_nobody_can_see_cause_a_warning() -> None:
    line = "kraft.client.telemetry.enable=true\n"
    [warning] = Config.parse(GOOD + line).warnings
    assert "kraft.metrics.listener" in warning
    assert Config.parse(GOOD + line + "kraft.metrics.listener=9404\n").warnings == ()
    with pytest.raises(ConfigError, match="neither true nor false"):
        Config.parse(GOOD + "kraft.client.telemetry.enable=yes\n")


def test_only_the_standard_authorizer_is_accepted() -> None:
    assert authorizer(GOOD + f"authorizer.class.name={STANDARD_AUTHORIZER}\n") == AuthorizerSettings()
    assert authorizer(GOOD) is None
    with pytest.raises(ConfigError, match="cannot load another authorizer"):
        Config.parse(GOOD + "authorizer.class.name=x.StandardAuthorizer\n")


def test_super_users_are_separated_by_semicolons() -> None:
    config = Config.parse(GOOD + "super.users= User:CN=a,O=b ; User:admin;\nallow.everyone.if.no.acl.found=TRUE\n")
    assert config.of(AuthorizerSettings) == AuthorizerSettings(frozenset(("User:CN=a,O=b", "User:admin")), True)
    assert config.warnings == ()
    with pytest.raises(ConfigError, match="'admin' is not Type:name"):
        Config.parse(GOOD + "super.users=admin\n")


def test_controllers_reach_each_other_before_access_rules_are_loaded() -> None:
    with_rules = GOOD + f"authorizer.class.name={STANDARD_AUTHORIZER}\n"
    assert authorizer(with_rules + "early.start.listeners=controller\n") is not None
    with pytest.raises(ConfigError, match="CONTROLLER is missing"):
        Config.parse(with_rules + "early.start.listeners=\n")


def test_the_secret_of_tokens_is_never_printed() -> None:
    config = Config.parse(GOOD + "delegation.token.secret.key=shared-by-all\n")
    tokens = config.of(TokenSettings)
    assert tokens.secret == Secret("shared-by-all")
    assert "shared-by-all" not in f"{config} {config!r} {tokens}"
    assert Config.parse(GOOD).of(TokenSettings).secret is None


def test_every_key_read_here_is_kafkas() -> None:
    gone_in_kafka_4 = {"leader.imbalance.per.broker.percentage"}
    of_its_authorizer = {"allow.everyone.if.no.acl.found", "super.users"}
    ours = {
        *("controller.quorum.lost.leader.backoff.max.ms", "kraft.client.telemetry.enable"),
        *("kraft.metrics.dialect", "kraft.metrics.listener"),
    }
    known = {*TEXTS, *NUMBERS, SEGMENT_BYTES_OVERRIDE}
    assert known - NODE.keys() == gone_in_kafka_4 | of_its_authorizer | ours


def test_the_internal_segment_size_wins_as_in_kafka() -> None:
    text = GOOD + "metadata.log.segment.bytes=8388608\ninternal.metadata.log.segment.bytes=65536\n"
    assert segment_bytes(Config.parse(text)) == 65536


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_address_is_advertised_with_the_address_of_the_voters_setting(host: str) -> None:
    """Host and port are those at which the others look for this voter, such as those of a load balancer."""
    text = GOOD.replace("CONTROLLER://127.0.0.1:9001", f"CONTROLLER://{host}:9093").replace("1@127.0.0.1", "1@node-1")
    assert [str(listener) for listener in Config.parse(text).advertised_listeners] == ["CONTROLLER://node-1:9001"]
    told = Config.parse(text, overrides=["advertised.listeners=CONTROLLER://h:1"])
    assert [str(listener) for listener in told.advertised_listeners] == ["CONTROLLER://h:1"]
    two = ["controller.listener.names=CONTROLLER,OTHER", f"listeners=CONTROLLER://{host}:9093,OTHER://{host}:9094"]
    assert [str(one) for one in Config.parse(text, overrides=two).advertised_listeners][1] == "OTHER://:9094"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_without_a_host_is_advertised_with_the_host_name(host: str) -> None:
    """As in Kafka, where 0.0.0.0 of a broker is an error."""
    text = re.sub("controller.quorum.voters=.*", "controller.quorum.bootstrap.servers=h:9001", GOOD)
    everywhere = Config.parse(text.replace("CONTROLLER://127.0.0.1:9001", f"CONTROLLER://{host}:9001"))
    assert [str(one) for one in everywhere.advertised_listeners] == ["CONTROLLER://:9001"]


def test_an_advertised_listener_without_a_host_is_reached_by_the_host_name() -> None:
    (listener,) = Config.parse(BROKER, overrides=["advertised.listeners=PLAINTEXT://:9092"]).advertised_listeners
    assert (listener.host, listener.port) == ("", 9092)


def test_repeated_entries_count_once_as_in_kafka() -> None:
    lines = ["process.roles=controller,controller", "log.dirs=/a,/b,/a", "controller.quorum.voters=1@a:1,1@b:2"]
    config = Config.parse(GOOD, overrides=lines)
    assert (config.process_roles, config.log_dirs) == (("controller",), ("/a", "/b"))
    assert [str(voter) for voter in config.voters] == ["1@b:2"]


def test_the_older_name_of_the_id_is_read() -> None:
    text = GOOD.replace("node.id=1", "broker.id=1")
    assert Config.parse(text).node_id == 1
    with pytest.raises(ConfigError, match=r"broker\.id=7: it differs from node\.id, which is 1"):
        Config.parse(GOOD + "broker.id=7\n")


def test_metadata_log_dir_may_differ_from_log_dirs() -> None:
    config = Config.parse(GOOD + "metadata.log.dir=/fast\n")
    assert config.metadata_log_dir == "/fast"
    assert config.directories == ("/fast", "/var/lib/kraft")


def test_continuation_lines_and_comments_do_not_shift_line_numbers() -> None:
    text = "# a comment\n\nprocess.roles=\\\n  controller\nnode.id=x\n" + GOOD.split("node.id=1\n")[1]
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, source="f")
    assert caught.value.where == "f:5"


def test_the_last_of_two_equal_keys_counts_as_in_java() -> None:
    assert Config.parse(GOOD + "log.dirs=/other\n").log_dirs == ("/other",)


def test_a_broken_escape_is_named() -> None:
    with pytest.raises(ConfigError, match="escape") as caught:
        Config.parse(GOOD + "log.dirs=C:\\users\n", source="f")
    assert caught.value.where == "f:7"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read") as caught:
        Config.load(str(tmp_path / "none.properties"))
    assert caught.value.where == str(tmp_path / "none.properties")


def test_the_configuration_of_a_real_controller_is_read() -> None:
    with tarfile.open(ROOT / "tests/data/static3.tar.xz") as archive:
        members = [archive.extractfile(name) for name in archive.getnames() if name.endswith("node.properties")]
        texts = [member.read() for member in members if member is not None]
    assert len(texts) >= 3
    for text in texts:
        config = Config.parse(text)
        assert [voter.id for voter in config.voters] == [1, 2, 3]
        assert segment_bytes(config) == 65536


def test_the_documented_table_is_the_one_in_the_code() -> None:
    assert configuration_table() in (ROOT / "docs/configuration.md").read_text("utf-8")


def test_settings_of_the_controller_are_parsed() -> None:
    chosen = Config.parse(
        GOOD,
        overrides=[
            "num.partitions=3",
            "default.replication.factor=2",
            "broker.session.timeout.ms=5000",
            "unclean.leader.election.enable=TRUE",
            "auto.leader.rebalance.enable=false",
        ],
    )
    topics, decisions = chosen.of(TopicDefaults), chosen.of(DecisionSettings)
    assert (topics.num_partitions, topics.replication_factor, topics.unclean_election) == (3, 2, True)
    assert (decisions.broker_session_timeout_ms, decisions.leader_rebalance_interval_ms) == (5000, 0)
    assert Config.parse(GOOD).of(DecisionSettings).leader_rebalance_interval_ms == 300_000
    with pytest.raises(ConfigError, match="allowed is true or false"):
        Config.parse(GOOD, overrides=["unclean.leader.election.enable=perhaps"])


BROKER = """\
process.roles=broker
node.id=101
controller.quorum.voters=1@127.0.0.1:9001
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9101
log.dirs=/var/lib/kraft-a,/var/lib/kraft-b
"""


def test_a_broker_is_configured_as_kafkas() -> None:
    config = Config.parse(BROKER, overrides=["broker.rack=r1", "controlled.shutdown.enable=false"])
    assert config.is_broker
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://127.0.0.1:9101"]
    broker = config.of(BrokerOptions, directories=())
    assert (broker.heartbeat_interval_ms, broker.initial_registration_timeout_ms) == (2000, 60_000)
    assert (broker.replication.lag_time_max_ms, broker.replication.fetch_wait_max_ms) == (30_000, 500)
    assert (broker.rack, broker.controlled_shutdown, len(config.log_dirs)) == ("r1", False, 2)


TWO_LISTENERS = (
    "listeners=CLIENTS://127.0.0.1:9001,BROKERS://127.0.0.1:9002",
    "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
)


@pytest.mark.parametrize(
    ("lines", "listener"),
    [
        ((), "CLIENTS"),
        (("inter.broker.listener.name=brokers",), "BROKERS"),
        (("listeners=CLIENTS://127.0.0.1:9001,PLAINTEXT://127.0.0.1:9002",), "PLAINTEXT"),
    ],
)
def test_brokers_reach_each_other_at_the_listener_of_the_setting(lines: tuple[str, ...], listener: str) -> None:
    assert Config.parse(BROKER, overrides=[*TWO_LISTENERS, *lines]).inter_broker_listener == listener


CONTROLLER_LOGIN = (
    "sasl.mechanism.controller.protocol=PLAIN",
    "listener.name.controller.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="a" password="b";',
)


BROKERS_LOGIN = (
    "inter.broker.listener.name=BROKERS",
    "sasl.enabled.mechanisms=SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256",
    "listener.name.brokers.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule"
    ' required username="b" password="c";',
)


def test_brokers_and_controllers_each_have_a_security_protocol_of_their_own() -> None:
    lines = (
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.truststore.location=/all.pem",
        "listener.name.brokers.ssl.keystore.location=/brokers.pem",
        "listener.name.brokers.ssl.truststore.location=/of-brokers.pem",
    )
    config = Config.parse(BROKER, overrides=[*TWO_LISTENERS, *lines, *BROKERS_LOGIN])
    assert config.tls.outgoing[TO_CONTROLLERS] is None
    tls = config.tls.outgoing[TO_BROKERS]
    assert tls is not None
    assert [store.location for store in tls.stores] == ["/brokers.pem", "/of-brokers.pem"]
    login = LoginSettings(mechanism="SCRAM-SHA-256", user="b", password="c")
    assert config.sasl.outgoing == {TO_CONTROLLERS: None, TO_BROKERS: login}

    other_way = ("listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",)
    config = Config.parse(BROKER, overrides=[*TWO_LISTENERS, *other_way, *CONTROLLER_LOGIN])
    login = LoginSettings(mechanism="PLAIN", user="a", password="b")
    assert config.sasl.outgoing == {TO_CONTROLLERS: login, TO_BROKERS: None}


@pytest.mark.parametrize(
    ("without", "more", "why"),
    [
        ("sasl.mechanism", (), "BROKERS has a login, and sasl.mechanism.inter.broker.protocol is not set"),
        ("sasl.mechanism", ("sasl.mechanism.inter.broker.protocol=GSSAPI",), "Kerberos"),
        ("sasl.mechanism", ("sasl.mechanism.inter.broker.protocol=PLAIN",), "plain.sasl.jaas.config is not set"),
        (
            "inter.broker",
            ("security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=BROKERS"),
            "set, too",
        ),
    ],
)
def test_a_login_between_brokers_that_cannot_be_is_refused(without: str, more: tuple[str, ...], why: str) -> None:
    lines = ("listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",)
    login = [line for line in BROKERS_LOGIN if not line.startswith(without)]
    with pytest.raises(ConfigError, match=why):
        Config.parse(BROKER, overrides=[*TWO_LISTENERS, *lines, *login, *more])


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("[::1]", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.1", False),
        ("controller-1.example", False),
    ],
)
def test_a_listener_knows_whether_other_hosts_reach_it(host: str, loopback: bool) -> None:
    (listener,) = Config.parse(GOOD, overrides=[f"listeners=CONTROLLER://{host}:9001"]).listeners
    assert listener.is_loopback == loopback


@pytest.mark.parametrize(
    ("near", "key"),
    [
        ("process.role=controller", "process.roles"),
        ("process.roles=controller\nNode.Id=1", "node.id"),
        ("process.roles=controller\nnode.id=1\ncontroller.listener.name=C", "controller.listener.names"),
        (
            "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\ncontroller.quorum.voter=1@a:1",
            "controller.quorum.voters",
        ),
    ],
)
def test_a_missing_key_is_looked_for_among_the_unknown_ones(near: str, key: str) -> None:
    """The error names the near miss and its line."""
    with pytest.raises(ConfigError) as missing:
        Config.parse(near, source="a.properties")
    typed = near.splitlines()[-1].partition("=")[0]
    assert f"{key} is not set" in str(missing.value)
    assert f"(a.properties:{len(near.splitlines())})" in str(missing.value)
    assert missing.value.hint == f"Did you mean {key} by {typed}?"
