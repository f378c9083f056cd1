"""`${env:…}`, `${file:…}` and `${dir:…}` in a configuration: resolved as Kafka does, refused where Kafka takes the text
literally, and secret in all that is shown. `tests/interop/controller/test_kafka_config.py` asks Kafka the same.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from kraft.access.tokens import TokenSettings
from kraft.broker.settings import BrokerOptions
from kraft.config import Config, ConfigError, FormatConfig
from kraft.config.described import Secret
from support.kraft.command_line import CLUSTER_ID, run

PACKAGE = "org.apache.kafka.common.config.provider"
CLASSES = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "dir": "DirectoryConfigProvider"}


def rack_of(config: Config) -> str | None:
    """The rack of a broker."""
    return config.of(BrokerOptions, directories=()).rack


def declared(*names: str) -> str:
    lines = [f"config.providers.{name}.class={PACKAGE}.{CLASSES[name]}\n" for name in names]
    return f"config.providers={','.join(names)}\n" + "".join(lines)


def controller(*lines: str, **settings: str) -> str:
    """The text of a controller's file; `settings` have underscores for dots."""
    every = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9001",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9001",
        "log.dirs": "/var/lib/kraft",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    return "".join(f"{key}={value}\n" for key, value in every.items()) + "".join(lines)


def parameter(name: str, key: str, value: str) -> str:
    """A provider with one parameter."""
    return f"{declared(name)}config.providers.{name}.param.{key}={value}\n"


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, source="f")
    with pytest.raises(ConfigError):
        FormatConfig.parse(text, source="f")
    assert caught.value.hint
    return caught.value


def test_a_variable_of_the_environment_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE", "1")
    monkeypatch.setenv("DIRS", " /a , /b ")
    config = Config.parse(controller(declared("env"), node_id="${env:NODE}", log_dirs="${env:DIRS}"))
    assert (config.node_id, config.log_dirs) == (1, ("/a", "/b"))


def test_files_and_directories_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "values").write_text("rack = left\\u0021  \nempty=\n", "utf-8")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("geheim ü\n", "utf-8")
    settings = {
        "broker_rack": f"[${{file:{tmp_path}/values:rack}}${{file:{tmp_path}/values:empty}}]",
        "delegation_token_secret_key": f"${{dir:{tmp_path}/secrets:key}}",
    }
    config = Config.parse(controller(declared("file", "dir"), **settings))
    assert rack_of(config) == "[left!  ]"
    assert config.of(TokenSettings).secret == Secret("geheim ü")


def test_an_override_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGD", "/from/override")
    assert Config.parse(controller(declared("env")), overrides=["log.dirs=${env:LOGD}"]).log_dirs == ("/from/override",)


def test_blanks_around_config_provider_names_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGD", "/data")
    lines = declared("file", "env").replace("file,env", "file , env")
    assert Config.parse(controller(lines, log_dirs="${env:LOGD}")).log_dirs == ("/data",)


def test_provided_values_are_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "${env:TWO}")
    monkeypatch.setenv("TWO", "two")
    assert rack_of(Config.parse(controller(declared("env"), broker_rack="${env:ONE}"))) == "${env:TWO}"


def test_text_that_is_no_reference_stays_unchanged() -> None:
    assert rack_of(Config.parse(controller(broker_rack="$x ${y} $${z {a:b"))) == "$x ${y} $${z {a:b"


@pytest.mark.parametrize(
    ("lines", "value", "said"),
    [
        ("", "${env:LOGD}", "no config provider 'env': config.providers is not set"),
        (declared("file"), "${env:LOGD}", "no config provider 'env': config.providers has only file"),
        (declared("env"), "${env:NO_SUCH_VARIABLE}", "the environment has no variable NO_SUCH_VARIABLE"),
        (declared("env"), "${env:path:LOGD}", "a variable of the environment has no path"),
        (
            parameter("env", "allowlist.pattern", "LOG"),
            "${env:LOGD}",
            "does not allow the vari",
        ),
        (declared("file"), "${file:/no/such/file:key}", "cannot read /no/such/file: No such file"),
        (declared("file"), "${file:key}", "the path is missing"),
        (declared("file"), "${file:/dev/null:key}", "/dev/null has no key key"),
        (declared("dir"), "${dir:/no/such/directory:key}", "has no regular file key"),
        (declared("dir"), "${dir:/:dev}", "has no regular file dev"),
        (declared("dir"), "${dir:/dev:null}", "has no regular file null"),
        (declared("dir"), "${dir:/usr:../etc/passwd}", "has no regular file ../etc/passwd"),
        (
            parameter("file", "allowed.paths", "/usr"),
            "${file:/dev/null:k}",
            "outside of allowed",
        ),
        (
            parameter("dir", "allowed.paths", "/usr"),
            "${dir:/usr/../etc:passwd}",
            "outside of all",
        ),
    ],
)
def test_an_unresolved_reference_is_refused(monkeypatch: pytest.MonkeyPatch, lines: str, value: str, said: str) -> None:
    monkeypatch.setenv("LOGD", "/data")
    failed = refusal(controller(lines, log_dirs=value))
    assert said in failed.what
    assert failed.what.startswith(f"log.dirs={value}: ")
    assert failed.where == "f:6"


@pytest.mark.parametrize(
    ("lines", "said", "where"),
    [
        ("config.providers=env\n", "config.providers=env: config.providers.env.class is not set", "f:7"),
        (
            "config.providers=vault\nconfig.providers.vault.class=com.example.Vault\n",
            "config.providers.vault.class=com.example.Vault: this software cannot load",
            "f:8",
        ),
        (parameter("env", "allowlist.pattern", "("), "no regular expression", "f:9"),
        (
            parameter("file", "allowed.paths", "/no/such"),
            "/no/such is not an absolute",
            "f:9",
        ),
        (parameter("dir", "allowed.paths", "usr"), "usr is not an absolute", "f:9"),
        (declared("env") + "config.providers.x.class=${env:HOME}\n", "not resolved in the declaration", "f:9"),
    ],
)
def test_an_unavailable_config_provider_is_refused(lines: str, said: str, where: str) -> None:
    failed = refusal(controller(lines))
    assert said in failed.what
    assert failed.where == where


def test_allowed_paths_match_whole_path_components(tmp_path: Path) -> None:
    for name in ("in", "in-side"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(name)
    only = parameter("dir", "allowed.paths", f"{tmp_path}/in/.")
    inside, beside = (f"${{dir:{tmp_path}/{name}:key}}" for name in ("in", "in-side"))
    assert rack_of(Config.parse(controller(only, broker_rack=inside))) == "in"
    assert "outside" in refusal(controller(only, broker_rack=beside)).what
    assert rack_of(Config.parse(controller(parameter("dir", "allowed.paths", "/"), broker_rack=beside))) == "in-side"


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("node.id", "s3cret"),
        ("controller.quorum.voters", "1@127.0.0.1:9001,s3cret"),
        ("controller.quorum.voters", "7@s3cret:9001"),
        ("listeners", "CONTROLLER://s3cret:9001,S3CRET://127.0.0.1:9001"),
        ("controller.listener.names", "s3cret"),
        ("process.roles", "s3cret"),
        ("super.users", "s3cret"),
        ("authorizer.class.name", "s3cret"),
        ("controller.quorum.fetch.timeout.ms", "s3cret"),
        ("auto.leader.rebalance.enable", "s3cret"),
        ("log.retention.hours", "s3cret"),
        ("compression.type", "s3cret"),
        ("log.cleaner.min.cleanable.ratio", "s3cret"),
        ("log.cleanup.policy", "delete,s3cret"),
        ("log.message.timestamp.type", "s3cret"),
        ("log.preallocate", "s3cret"),
        ("listener.security.protocol.map", "CONTROLLER:s3cret"),
    ],
)
def test_errors_do_not_show_provided_values(monkeypatch: pytest.MonkeyPatch, key: str, secret: str) -> None:
    monkeypatch.setenv("HIDDEN", secret)
    text = controller(declared("env"), **{key.replace(".", "_"): "${env:HIDDEN}"})
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, source="f")
    assert "${env:HIDDEN}" in caught.value.what
    shown = f"{caught.value} {caught.value.hint} {''.join(traceback.format_exception(caught.value))}"
    assert "s3cret" not in shown.lower()


def test_an_error_does_not_show_provided_values_of_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "4711")
    failed = refusal(controller(declared("env"), node_id="${env:HIDDEN}"))
    assert "node.id ${env:HIDDEN} is not among the voters" in failed.what


def test_a_provided_setting_is_described_as_sensitive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "12")
    settings = {"log_retention_hours": "${env:HIDDEN}", "num_partitions": "${env:HIDDEN}", "broker_rack": "plain"}
    found = {one.name: one for one in Config.parse(controller(declared("env"), **settings)).described}
    assert found["num.partitions"].is_sensitive
    assert found["log.retention.hours"].is_sensitive
    assert not found["broker.rack"].is_sensitive
    assert found["log.retention.hours"].value == "12", "topics inherit it"


def test_format_resolves_references_in_log_dirs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kraft format` once made a directory with the name `${env:LOGD}`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGD", str(tmp_path / "data"))
    path = tmp_path / "node.properties"
    path.write_text(controller(log_dirs="${env:LOGD}"))
    done = run(capsys, "format", "-c", str(path), "-t", CLUSTER_ID)
    assert (done.code, "no config provider 'env'" in done.err) == (1, True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["node.properties"]
    path.write_text(controller(declared("env"), log_dirs="${env:LOGD}"))
    assert run(capsys, "format", "-c", str(path), "-t", CLUSTER_ID).code == 0
    assert (tmp_path / "data" / "meta.properties").exists()
