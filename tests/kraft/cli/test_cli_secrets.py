"""No command that reads a log shows a secret without the option for it, not even in a difference."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from msgspec.structs import replace

from kraft.config import definitions
from kraft.config.definitions import NODE
from metadata_log.arrow import Mode, read_records, read_typed
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch, rebuild_batch
from metadata_log.records.config_keys import BROKER, CLIENT_METRICS, GROUP, SHOWN_KEYS, TOPIC
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.records.record import records
from metadata_log.records.redact import is_secret_config
from metadata_log.serde import Message
from support.kraft.command_line import run

SALT = b"salt of alice"
HIDDEN_KEYS = (
    "listener.name.a.plain.sasl.jaas.config",
    "delegation.token.secret.key",
    "apiKey",
    "x.SECRET.y",
    "rsm.config.awsCredential",
    "config.providers.vault.param.token",
    "myDbPassWord",
    "of.no.plug-in",
)
"""Keys of type PASSWORD, keys with the words of secrets in any case, and a key that Kafka does not know."""
RECORDS: tuple[Message, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="first-secret"),
    *(ConfigRecord(resource_type=4, resource_name="1", name=key, value=f"{key}-hush") for key in HIDDEN_KEYS),
    ConfigRecord(resource_type=2, resource_name="t", name="apiKey", value="topic-hush"),
    ConfigRecord(resource_type=99, resource_name="u", name="cleanup.policy", value="nested-hush"),
    ConfigRecord(
        resource_type=4, resource_name="1", name="sasl.oauthbearer.scope", value='{"a": {"clientSecret" : "json-hush"}}'
    ),
    ConfigRecord(
        resource_type=4,
        resource_name="1",
        name="sasl.oauthbearer.token.endpoint.url",
        value="https://me:url-hush@host/t",
    ),
    UserScramCredentialRecord(
        name="alice", mechanism=1, salt=SALT, stored_key=b"s" * 32, server_key=b"t" * 32, iterations=4096
    ),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="424242"),
    ConfigRecord(
        resource_type=4, resource_name="1", name="listener.name.a.ssl.keystore.location", value="/shown/place"
    ),
    ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="second-secret"),
)
LAST = len(RECORDS) - 1
SECRETS = ("hush", "first-secret", "second-secret", SALT.decode(), "s" * 32, "t" * 32)
COMMANDS = {
    "replay": ["replay", "DIR"],
    "replay-all": ["replay", "DIR", "--all"],
    "replay-json": ["replay", "DIR", "--json"],
    "shell": ["shell", "DIR", "tree", "/"],
    "history": ["history", "DIR"],
    "history-json": ["history", "DIR", "--json"],
    "diff": ["diff", "DIR@0", f"@{LAST}"],
    "diff-json": ["diff", "DIR@1", f"@{LAST}", "--json"],
    "dump": ["dump", "--records", "DIR"],
    "dump-json": ["dump", "--records", "--json", "DIR"],
}


def forms(secret: str) -> tuple[str, ...]:
    """How a secret may stand in an output: as it is, or its bytes."""
    return secret, secret.encode().hex()


def leaks(text: str, secrets: Iterable[str] = SECRETS) -> list[str]:
    return [secret for secret in secrets for form in forms(secret) if form in text]


def lay_out(directory: Path, content: bytes) -> Path:
    (directory / f"{0:020}.log").write_bytes(content)
    return directory


def content(*, together: bool = False) -> bytes:
    """The records, one a batch or all in one."""
    if together:
        return build_batch(0, 1, 1000, [encode_record(record, 0) for record in RECORDS])
    return b"".join(
        build_batch(offset, 1, 1000 * (offset + 1), [encode_record(record, 0)]) for offset, record in enumerate(RECORDS)
    )


def zipped(batch: bytes) -> bytes:
    """The batch with its records packed by gzip."""
    packed = gzip.compress(batch[61:], mtime=0)
    checked = (1).to_bytes(2, "big") + batch[23:61] + packed
    header = batch[:8] + (9 + len(checked)).to_bytes(4, "big") + batch[12:17]
    return header + crc32c(checked).to_bytes(4, "big") + checked


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with secrets."""
    return lay_out(tmp_path, content())


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_secrets_are_hidden_unless_asked_for(
    capsys: pytest.CaptureFixture[str], directory: Path, words: list[str]
) -> None:
    words = [word.replace("DIR", str(directory)) for word in words]
    hidden = run(capsys, *words)
    assert (hidden.code, hidden.err) == (0, "")
    assert "alice" in hidden.out
    assert leaks(hidden.out) == []
    assert "424242" in hidden.out
    assert "/shown/place" in hidden.out
    shown = run(capsys, *words, "--show-secrets")
    assert "second-secret" in shown.out
    assert "json-hush" in shown.out
    if words[0] != "history":
        assert "plain.sasl.jaas.config-hush" in shown.out
    assert "(redacted)" not in shown.out


@pytest.mark.parametrize("form", ["history", "diff"])
def test_pages_hide_secrets(capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path, form: str) -> None:
    words = ["history", str(directory)] if form == "history" else ["diff", f"{directory}@0", f"@{LAST}"]
    out = tmp_path / "page.html"
    assert run(capsys, *words, "--html", str(out)).code == 0
    page = out.read_text()
    assert {"history": "/shown/place", "diff": "alice"}[form] in page
    assert leaks(page) == []
    assert run(capsys, *words, "--show-secrets", "--html", str(out)).code == 0
    assert "second-secret" in out.read_text()


# ------------------------------------------------------------------------------------------------------------- bytes


def test_bytes_are_hidden(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    found = run(capsys, "dump", "--hex", str(directory))
    assert found.code == 0
    assert leaks(found.out) == []
    assert b"424242".hex() in found.out
    shown = run(capsys, "dump", "--hex", "--show-secrets", str(directory))
    assert set(leaks(shown.out)) == set(SECRETS)


def test_compressed_bytes_are_hidden(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Compression hides nothing: any reader can unpack the bytes."""
    packed = zipped(content(together=True))
    directory = lay_out(tmp_path, packed)
    hidden = run(capsys, "dump", "--hex", str(directory))
    assert "(redacted)  records, gzip" in hidden.out
    assert packed[70:90].hex() not in hidden.out
    shown = run(capsys, "dump", "--hex", "--show-secrets", str(directory))
    assert packed[70:90].hex() in shown.out


@pytest.mark.parametrize("damage", ["crc", "field", "frame", "count"])
def test_damaged_bytes_are_hidden(capsys: pytest.CaptureFixture[str], tmp_path: Path, damage: str) -> None:
    """Damage makes no secret readable: neither in a batch that cannot be read, nor in a record, nor after one."""
    whole = bytearray(content(together=damage != "crc"))
    [*batches] = scan(bytes(whole))
    if damage == "crc":
        for batch in batches[1:]:
            whole[batch.position + 20] ^= 1
    else:
        [batch] = batches
        contents = list(records(batch))
        if damage == "field":
            contents = [replace(item, value=(item.value or b"")[:-1]) for item in contents]
        elif damage == "frame":
            contents = [replace(item, value=b"\x02" + (item.value or b"")[1:]) for item in contents]
        whole = bytearray(rebuild_batch(batch, contents))
        if damage == "count":
            whole = bytearray(with_count(bytes(whole), 1))
    directory = lay_out(tmp_path, bytes(whole))
    hidden = run(capsys, "dump", "--hex", str(directory))
    assert hidden.code == 1
    assert leaks(hidden.out) == []
    assert "(redacted)" in hidden.out
    shown = run(capsys, "dump", "--hex", "--show-secrets", str(directory))
    assert leaks(shown.out)


def with_count(batch: bytes, count: int) -> bytes:
    """The batch with another number of records in its header, and a CRC that is right."""
    changed = batch[:57] + count.to_bytes(4, "big") + batch[61:]
    return changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]


# ------------------------------------------------------------------------------------------------------------- Arrow


def everything(table: pa.Table) -> str:
    return repr(
        [{k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()} for row in table.to_pylist()]
    )


@pytest.mark.parametrize("decoder", ["numpy", "python"])
@pytest.mark.parametrize("view", ["records", "ConfigRecord", "UserScramCredentialRecord"])
def test_columns_hide_secrets(directory: Path, view: str, decoder: str) -> None:
    def table(**more: bool) -> pa.Table:
        path = str(directory)
        read = partial(read_records, path) if view == "records" else partial(read_typed, path, view)
        return read(decoder=decoder, **more).read_all()

    hidden = everything(table())
    assert leaks(hidden) == []
    assert "(redacted)" in hidden
    shown = everything(table(show_secrets=True))
    assert leaks(shown)
    assert "(redacted)" not in shown
    if view != "UserScramCredentialRecord":
        assert "424242" in hidden


def test_columns_hide_undecodable_records(tmp_path: Path) -> None:
    value = encode_record(ConfigRecord(resource_type=4, name="ssl.key.password", value="some-hush"), 0)[:-1]
    path = str(lay_out(tmp_path, build_batch(0, 1, 1, [value])))
    for table in (
        read_records(path, mode=Mode.PERMISSIVE).read_all(),
        read_typed(path, "ConfigRecord", mode=Mode.PERMISSIVE).read_all(),
    ):
        assert table.num_rows == 1
        assert leaks(everything(table)) == []


# -------------------------------------------------------------------------------------------------------------- keys


def test_known_config_keys_are_those_of_kafka() -> None:
    """Only keys that this software's own tables, taken from Kafka, know and hold for no password may be shown."""
    assert {
        TOPIC: set(definitions.TOPIC),
        BROKER: {key for key, one in NODE.items() if one.type != "PASSWORD"},
        GROUP: set(definitions.GROUP),
        CLIENT_METRICS: set(definitions.CLIENT_METRICS),
    } == SHOWN_KEYS


@pytest.mark.parametrize(
    ("type_", "key", "value", "secret"),
    [
        (TOPIC, "retention.ms", "1", False),
        (BROKER, "retention.ms", "1", True),
        (TOPIC, "message.format.version", "2.0", True),
        (BROKER, "log.retention.ms", "1", False),
        (BROKER, "listener.name.client.ssl.keystore.type", "PEM", False),
        (BROKER, "listener.name.client.ssl.key.password", "x", True),
        (BROKER, "listener.name.client.scram-sha-256.sasl.jaas.config", "x", True),
        (GROUP, "consumer.session.timeout.ms", "1", False),
        (GROUP, "consumer.secret", "1", True),
        (CLIENT_METRICS, "match", "client_id=a", False),
        (8, "kafka.request", "DEBUG", True),
        (BROKER, "ssl.principal.mapping.rules", "RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT", False),
        (BROKER, "listener.security.protocol.map", "A:SSL,B:PLAINTEXT", False),
        (BROKER, "ssl.provider", "x API_TOKEN=abc", True),
        (BROKER, "ssl.provider", "-----BEGIN RSA PRIVATE KEY-----", True),
        (TOPIC, "retention.ms", None, False),
    ],
)
def test_a_setting_is_secret_by_type_key_and_value(type_: int, key: str, value: str | None, secret: bool) -> None:
    assert is_secret_config(type_, key, value) == secret
