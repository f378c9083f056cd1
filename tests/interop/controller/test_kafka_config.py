"""A properties file as Kafka and as our nodes read it: config providers, listeners, formatted directories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from judged_settings import BROKER, CONTROLLER
from kraft.access.tokens import TokenSettings
from kraft.broker.settings import BrokerOptions
from kraft.config import Config, ConfigError
from support.interop.kafka_or_skip import oracle
from support.interop.kafka_tools import KafkaTools
from support.interop.our_nodes import kraft
from support.interop.real_kafka import STORAGE_TOOL, KafkaInstallation

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent.parent / "ConfigOracle.java"
PACKAGE = "org.apache.kafka.common.config.provider"
ENV = f"config.providers=env\nconfig.providers.env.class={PACKAGE}.EnvVarConfigProvider\n"
FILES = (
    f"config.providers=file,dir\nconfig.providers.file.class={PACKAGE}.FileConfigProvider\n"
    f"config.providers.dir.class={PACKAGE}.DirectoryConfigProvider\n"
)
TOPIC_DEFAULTS = (
    "compression.type",
    "compression.zstd.level",
    "log.cleaner.min.cleanable.ratio",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.preallocate",
    "log.retention.ms",
    "unclean.leader.election.enable",
)

READ = {
    "environment": CONTROLLER + ENV + "node.id=${env:ORACLE_NODE}\nlog.dirs=${env:ORACLE_DIRS}\n",
    "allowed variables": CONTROLLER + ENV + "config.providers.env.param.allowlist.pattern=ORACLE_[A-Z]+\n"
    "log.dirs=${env:ORACLE_DIRS}\n",
    "two files": CONTROLLER
    + FILES
    + "broker.rack=[${file:TMP/values:rack}|${dir:TMP/secrets:key}|${file:TMP/values:empty}]\n"
    "delegation.token.secret.key=${dir:TMP/secrets:key}\n",
    "allowed paths": CONTROLLER + FILES + "config.providers.file.param.allowed.paths=/usr,TMP/secrets/../values\n"
    "broker.rack=${file:TMP/./values:rack}\n",
    "value of a value": CONTROLLER + ENV + "broker.rack=${env:ORACLE_NESTED}\n",
    "no reference": CONTROLLER + ENV + "broker.rack=$x ${y} $${z {a:b\n",
    "protocol of a name": BROKER,
    "defaults of topics": CONTROLLER + "log.cleanup.policy=compact, delete\ncompression.type=zstd\n"
    "log.preallocate=TRUE\nlog.cleaner.min.cleanable.ratio=.25e0\nlog.message.timestamp.type=LogAppendTime\n",
    "map": BROKER + "listeners=A://h:1,B://h:2\nadvertised.listeners=A://h:1,B://h:2\ninter.broker.listener.name=A\n"
    "listener.security.protocol.map=A:PLAINTEXT,b:plaintext,CONTROLLER:PLAINTEXT,C:SSL\n",
}
"""What both read, and alike. TMP stands for a directory of the test."""
REFUSED = {
    "class": CONTROLLER + "config.providers=v\nconfig.providers.v.class=com.example.Vault\n",
    "short class": CONTROLLER + "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\n",
    "path of a variable": CONTROLLER + ENV + "broker.rack=${env:a:ORACLE_NODE}\n",
    "pattern": CONTROLLER + ENV + "config.providers.env.param.allowlist.pattern=(\n",
    "file": CONTROLLER + FILES + "broker.rack=${file:TMP/none:rack}\n",
    "missing allowed path": CONTROLLER + FILES + "config.providers.file.param.allowed.paths=TMP/none\n",
    "relative allowed path": CONTROLLER + FILES + "config.providers.dir.param.allowed.paths=usr\n",
    "no protocol": BROKER.replace("PLAINTEXT", "INTERNAL"),
    "SSL beside another": CONTROLLER
    + "listeners=CONTROLLER://h:1,SSL://h:2\ncontroller.listener.names=CONTROLLER,SSL\n",
    "empty map": CONTROLLER + "listener.security.protocol.map=\n",
    "map without the controllers": BROKER + "listener.security.protocol.map=PLAINTEXT:PLAINTEXT\n",
    "map names twice": CONTROLLER + "listener.security.protocol.map=CONTROLLER:PLAINTEXT,controller:PLAINTEXT\n",
    **{f"topics' {key}": f"{CONTROLLER}{key}=hush\n" for key in TOPIC_DEFAULTS},
    "map with an unknown protocol": CONTROLLER + "listener.security.protocol.map=CONTROLLER:PLAINTEXT,A:MAGIC\n",
}
"""What both refuse."""
LITERAL = {
    "no provider": CONTROLLER + "broker.rack=${env:ORACLE_NODE}\n",
    "another provider": CONTROLLER + ENV + "broker.rack=${vault:a:b}\n",
    "no class": CONTROLLER + "config.providers=env\nbroker.rack=${env:ORACLE_NODE}\n",
    "no variable": CONTROLLER + ENV + "broker.rack=${env:ORACLE_NONE}\n",
    "variable that is not allowed": CONTROLLER + ENV + "config.providers.env.param.allowlist.pattern=ORACLE\n"
    "broker.rack=${env:ORACLE_NODE}\n",
    "no key": CONTROLLER + FILES + "broker.rack=${file:TMP/values:none}\n",
    "no path": CONTROLLER + FILES + "broker.rack=${file:rack}\n",
    "no directory": CONTROLLER + FILES + "broker.rack=${dir:TMP/none:key}\n",
    "path that is not allowed": CONTROLLER + FILES + "config.providers.dir.param.allowed.paths=TMP/secrets/key\n"
    "broker.rack=${dir:TMP/secrets:key}\n",
    "link out of what is not a file": CONTROLLER + FILES + "broker.rack=${dir:TMP:secrets}\n",
}
"""References that Kafka takes literally, and we refuse: see docs/differences.md."""
IN_THE_CLEAR = {
    "controller named SSL": CONTROLLER.replace("CONTROLLER", "SSL"),
    "controller named SASL_PLAINTEXT": CONTROLLER.replace("CONTROLLER", "SASL_PLAINTEXT"),
    "mapped to SASL_SSL": CONTROLLER + "listener.security.protocol.map=CONTROLLER:SASL_SSL\n",
}
"""What Kafka serves protected once its other settings are complete, and we refuse until they are."""


def test_a_configuration_file_is_read_or_refused_as_by_kafka(
    kafka: KafkaInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_NODE", "1")
    monkeypatch.setenv("ORACLE_DIRS", " /a , /b ")
    monkeypatch.setenv("ORACLE_NESTED", "${env:ORACLE_NODE}")
    (tmp_path / "values").write_text("rack = left\\u00fc  \nempty=\n", "utf-8")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("geheim \u00fc\n", "utf-8")
    cases = {**READ, **REFUSED, **LITERAL, **IN_THE_CLEAR}
    texts = [text.replace("TMP", str(tmp_path)) for text in cases.values()]
    paths = [tmp_path / f"{number}.properties" for number in range(len(cases))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    answers = oracle(kafka, SOURCE, [str(path) for path in paths]).splitlines()
    for name, text, path, answer in zip(cases, texts, paths, answers, strict=True):
        kind, *said = answer.replace("\\n", "\n").split("\t")
        try:
            config: Config | None = Config.load(str(path))
        except ConfigError as refused:
            config, why = None, str(refused)
        if name in READ:
            assert config is not None, f"{name}: {why}"
            assert (kind, *said) == ("read", *facts(config)), name
        else:
            assert config is None, name
        if name in REFUSED:
            assert kind == "refused", (name, answer)
        if name in LITERAL:
            reference = text.rsplit("broker.rack=", 1)[1].strip()
            assert (kind, said[2]) == ("read", reference), name
            assert reference in why or "config.providers.env.class is not set" in why
        if name in IN_THE_CLEAR:
            assert kind == "read", name
            assert "=PLAINTEXT}" not in said[4], (name, answer)
            assert "has a login, and sasl.enabled.mech" in why or "has the protocol SSL, and no certificate" in why


def facts(config: Config) -> tuple[str, ...]:
    """The facts of a configuration, as the oracle prints them."""
    protocols = ", ".join(f"{one.name}={one.protocol}" for one in sorted(config.listeners, key=lambda one: one.name))
    secret = config.of(TokenSettings).secret
    shown = "null" if secret is None else secret.value
    rack = config.of(BrokerOptions, directories=()).rack or "null"
    return str(config.node_id), ",".join(config.log_dirs), rack, shown, f"{{{protocols}}}"


def test_storage_tools_read_and_check_the_same_directories(
    kafka: KafkaInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kafka-storage format` and `kraft format`, one after the other on copies of one directory: same exit codes, and
    the same directories with a meta.properties afterwards.
    """
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "home"))
    home = tmp_path / "home"
    first, second = (
        CONTROLLER.replace("node.id=1", f"node.id={node}").replace("=1@", f"={node}@") + ENV for node in (1, 2)
    )
    one, other, more = (tmp_path / f"{name}.properties" for name in ("one", "other", "more"))
    one.write_text(first + "log.dirs=${env:ORACLE_HOME}/a\n")
    other.write_text(second + "log.dirs=${env:ORACLE_HOME}/a\n")
    more.write_text(first + "log.dirs=${env:ORACLE_HOME}/b,${env:ORACLE_HOME}/a\n")
    steps: list[tuple[Path, str, list[str], int]] = [
        (one, "A", [], 0),
        (one, "A", [], 1),
        (one, "A", ["-g"], 0),
        (one, "B", [], 1),
        (one, "B", ["-g"], 1),
        (other, "A", [], 1),
        (other, "A", ["-g"], 1),
        (more, "A", [], 1),
        (more, "B", ["-g"], 1),
        (more, "A", ["-g"], 0),
        (more, "A", ["-g"], 0),
    ]
    with KafkaTools(kafka) as tools:
        for number, (config, cluster_id, words, code) in enumerate(steps):
            arguments = ["format", "-c", str(config), "-t", cluster_id, *words]
            before = tmp_path / f"before-{number}"
            shutil.copytree(home, before) if home.exists() else before.mkdir()
            theirs = tools.run(STORAGE_TOOL, *arguments)
            afterwards = formatted(home)
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(before, home)
            ours = kraft(*arguments, "--release-version", "4.3")
            assert (theirs.returncode, ours.returncode) == (code, code), (number, theirs, ours)
            assert formatted(home) == afterwards, number
    assert formatted(home) == ["a", "b"]
    assert not (Path.cwd() / "${env:ORACLE_HOME}").exists()


def formatted(home: Path) -> list[str]:
    """The names of the log directories that have a meta.properties."""
    return sorted(path.parent.name for path in home.glob("*/meta.properties"))
