"""Kafka's properties files become a `Config`; every mistake is named with its place and its remedy."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kraft.config import USED_KEYS, Config, ConfigError, UsageError, kafka_keys

GOOD = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9001,2@127.0.0.1:9002,3@[::1]:9003
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:9001
log.dirs=/var/lib/kraft
"""
DATA = Path(__file__).parent.parent / "data"


def test_a_minimal_file_takes_kafkas_defaults() -> None:
    config = Config.parse(GOOD)
    assert config.node_id == 1
    assert [tuple(voter) for voter in config.voters] == [
        (1, "127.0.0.1", 9001),
        (2, "127.0.0.1", 9002),
        (3, "::1", 9003),
    ]
    assert (config.election_timeout_ms, config.fetch_timeout_ms, config.append_linger_ms) == (1000, 2000, 25)
    assert config.segment_bytes == 1 << 30
    assert config.metadata_log_dir == "/var/lib/kraft"
    assert config.warnings == ()


def test_overrides_win() -> None:
    config = Config.parse(GOOD, overrides=["controller.quorum.append.linger.ms=0", "node.id = 2"])
    assert (config.append_linger_ms, config.node_id) == (0, 2)


def test_an_override_needs_an_equals_sign() -> None:
    with pytest.raises(UsageError, match="key=value"):
        Config.parse(GOOD, overrides=["node.id"])


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("node.id=one", "a whole number from 0"),
        ("node.id=-1", "a whole number from 0"),
        ("controller.quorum.election.timeout.ms=soon", "a whole number"),
        ("controller.quorum.voters=1:9001", "id@host:port"),
        ("controller.quorum.voters=1@a:1,1@b:2", "distinct ids"),
        ("listeners=127.0.0.1:9001", "NAME://host:port"),
        ("metadata.log.segment.bytes=1000", "8388608"),
        ("process.roles=leader", "controller, broker"),
        ("listener.security.protocol.map=CONTROLLER:MAGIC", "CONTROLLER:PLAINTEXT"),
    ],
)
def test_a_bad_value_is_named_with_its_line_and_what_is_allowed(line: str, allowed: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        Config.parse(GOOD + line + "\n", source="node.properties")
    assert caught.value.where == "node.properties, line 7"
    assert value in caught.value.what
    assert key in caught.value.what
    assert allowed in str(caught.value.hint)


@pytest.mark.parametrize(
    "key", ["process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "listeners"]
)
def test_a_missing_key_is_named(key: str) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(key + "="))
    with pytest.raises(ConfigError, match=f"{key.replace('.', '[.]')} is not set"):
        Config.parse(text)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("process.roles=broker,controller", "broker role"),
        ("controller.listener.names=OTHER", "OTHER"),
        ("listener.security.protocol.map=CONTROLLER:SSL", "SSL"),
    ],
)
def test_what_is_not_there_yet_is_said(line: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Config.parse(GOOD + line)


def test_a_dynamic_quorum_is_said_to_come_later() -> None:
    text = GOOD.replace("controller.quorum.voters=", "controller.quorum.bootstrap.servers=")
    with pytest.raises(ConfigError, match="dynamic quorums"):
        Config.parse(text)


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one() -> None:
    (warning,) = Config.parse(GOOD + "controller.quorum.elections.timeout.ms=5\n", source="f").warnings
    assert "controller.quorum.election.timeout.ms" in warning
    assert "line 7" in warning


def test_keys_of_brokers_are_accepted_in_silence() -> None:
    assert Config.parse(GOOD + "num.io.threads=3\nlog.retention.hours=1\nssl.protocol=TLS\n").warnings == ()


def test_security_that_is_not_enforced_is_not_silent() -> None:
    (warning,) = Config.parse(GOOD + "authorizer.class.name=x.StandardAuthorizer\n").warnings
    assert "has no effect" in warning


def test_every_key_read_here_is_kafkas() -> None:
    assert sorted(USED_KEYS - kafka_keys()) == []


def test_continuation_lines_and_comments_do_not_shift_line_numbers() -> None:
    text = "# a comment\n\nprocess.roles=\\\n  controller\nnode.id=x\n" + GOOD.split("node.id=1\n")[1]
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, source="f")
    assert caught.value.where == "f, line 5"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read") as caught:
        Config.load(str(tmp_path / "none.properties"))
    assert caught.value.where == str(tmp_path / "none.properties")


def test_the_configuration_of_a_real_controller_is_read() -> None:
    with tarfile.open(DATA / "static3.tar.xz") as archive:
        names = [name for name in archive.getnames() if name.endswith("node.properties")]
        texts = [archive.extractfile(name).read().decode() for name in names]  # type: ignore[union-attr]
    assert len(texts) >= 3
    for text in texts:
        config = Config.parse(text)
        assert [voter.node_id for voter in config.voters] == [1, 2, 3]
        assert config.segment_bytes == 65536
