"""No command that looks into a log shows a secret unless it is asked to, not even in what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

from metadata_log.batch import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.serde import Message

SALT = b"salt of alice"
RECORDS: tuple[Message, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="first-secret"),
    ConfigRecord(
        resource_type=4, resource_name="1", name="listener.name.a.plain.sasl.jaas.config", value="jaas-secret"
    ),
    UserScramCredentialRecord(
        name="alice", mechanism=1, salt=SALT, stored_key=b"s" * 32, server_key=b"t" * 32, iterations=4096
    ),
    ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="second-secret"),
)
SECRETS = ("first-secret", "jaas-secret", "second-secret", SALT.hex(), (b"s" * 32).hex())
COMMANDS = {
    "replay": ["replay", "DIR"],
    "replay-all": ["replay", "DIR", "--all"],
    "replay-json": ["replay", "DIR", "--json"],
    "shell": ["shell", "DIR", "tree", "/"],
    "history": ["history", "DIR"],
    "history-json": ["history", "DIR", "--json"],
    "diff": ["diff", "DIR@0", "@4"],
    "diff-json": ["diff", "DIR@1", "@4", "--json"],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with secrets."""
    batches = (
        build_batch(offset, 1, 1000 * (offset + 1), [encode_record(record, 0)]) for offset, record in enumerate(RECORDS)
    )
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(batches))
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_secrets_are_hidden_unless_asked_for(
    capsys: pytest.CaptureFixture[str], directory: Path, words: list[str]
) -> None:
    words = [word.replace("DIR", str(directory)) for word in words]
    hidden = run(capsys, *words)
    assert (hidden.code, hidden.err) == (0, "")
    assert "alice" in hidden.out
    assert [secret for secret in SECRETS if secret in hidden.out] == []
    shown = run(capsys, *words, "--show-secrets")
    assert "second-secret" in shown.out
    if words[0] != "history":
        assert "jaas-secret" in shown.out
    assert "(redacted)" not in shown.out
