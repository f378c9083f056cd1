"""`kraft decode` hides the secrets of messages, records and batches unless `--show-secrets` is given."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraft.cli.files.decode import CONFIG_MESSAGES, HIDDEN_FIELDS, answer, decode_command
from metadata_log.errors import EncodeError
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.config_keys import BROKER, TOPIC
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, TopicRecord, UserScramCredentialRecord
from metadata_log.records.redact import REDACTED
from metadata_log.serde import Message, encode
from metadata_log.serde.fields import ArrayOf, FieldType, Kind, layout_of, schema_of
from support.kraft.command_line import run
from transport.protocol import messages
from transport.protocol.messages import (
    alter_configs,
    alter_user_scram_credentials,
    create_topics,
    describe_configs,
    describe_delegation_token,
    fetch,
    fetch_snapshot,
    incremental_alter_configs,
    produce,
    share_fetch,
)

SECRET = "open-sesame"
RAW = SECRET.encode()
PASSWORD = "ssl.keystore.password"


def record_batch(*values: Message | bytes) -> bytes:
    """A batch of metadata records, or of values as they are."""
    return build_batch(0, 1, 0, [one if isinstance(one, bytes) else encode_record(one, 0) for one in values])


CONFIG = ConfigRecord(resource_type=BROKER, resource_name="1", name=PASSWORD, value=SECRET)
SCRAM = UserScramCredentialRecord(name="alice", mechanism=1, salt=RAW, stored_key=RAW, server_key=RAW, iterations=4096)
CUT = encode_record(SCRAM, 0)[:-3]
"""A record with a secret that cannot be read to its end."""
SOUND = record_batch(TopicRecord(name="shown"), b"4242")
BATCH = record_batch(TopicRecord(name="shown"), CONFIG)


def fetched(records: bytes) -> messages.FetchResponse:
    part = fetch.PartitionData(partition_index=0, high_watermark=9, records=records)
    return messages.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[part])])


def snapshot_piece(records: bytes) -> messages.FetchSnapshotResponse:
    part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(index=0, unaligned_records=records)
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name="t", partitions=[part])
    return messages.FetchSnapshotResponse(topics=[topic])


def produced(records: bytes) -> messages.ProduceRequest:
    part = produce.PartitionProduceData(index=0, records=records)
    return messages.ProduceRequest(topic_data=[produce.TopicProduceData(name="t", partition_data=[part])])


def shared(records: bytes) -> messages.ShareFetchResponse:
    part = share_fetch.PartitionData(partition_index=0, records=records)
    return messages.ShareFetchResponse(responses=[share_fetch.ShareFetchableTopicResponse(partitions=[part])])


def altered(key: str, value: str, kind: int = BROKER) -> messages.AlterConfigsRequest:
    configs = [alter_configs.AlterableConfig(name=key, value=value)]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name="1", configs=configs)
    return messages.AlterConfigsRequest(resources=[resource])


def incremented(key: str, value: str) -> messages.IncrementalAlterConfigsRequest:
    configs = [incremental_alter_configs.AlterableConfig(name=key, value=value)]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    return messages.IncrementalAlterConfigsRequest(resources=[resource])


def described(
    key: str, value: str, kind: int, synonym: str, *, sensitive: bool = False
) -> messages.DescribeConfigsResponse:
    config = describe_configs.DescribeConfigsResourceResult(
        name=key,
        value=value,
        is_sensitive=sensitive,
        synonyms=[describe_configs.DescribeConfigsSynonym(name=synonym, value=value)],
    )
    result = describe_configs.DescribeConfigsResult(resource_type=kind, resource_name="r", configs=[config])
    return messages.DescribeConfigsResponse(results=[result])


def created(key: str, value: str) -> messages.CreateTopicsRequest:
    configs = [create_topics.CreatableTopicConfig(name=key, value=value)]
    return messages.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name="t", configs=configs)])


def created_answer(key: str, value: str) -> messages.CreateTopicsResponse:
    configs = [create_topics.CreatableTopicConfigs(name=key, value=value)]
    return messages.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult(name="t", configs=configs)])


_UPSERTION = alter_user_scram_credentials.ScramCredentialUpsertion(name="alice", salt=RAW, salted_password=RAW)
_TOKEN = describe_delegation_token.DescribedDelegationToken(token_id="shown", hmac=RAW)
SECRETIVE: tuple[Message, ...] = (
    CONFIG,
    SCRAM,
    messages.AlterUserScramCredentialsRequest(upsertions=[_UPSERTION]),
    messages.CreateDelegationTokenResponse(hmac=RAW),
    messages.DescribeDelegationTokenResponse(tokens=[_TOKEN]),
    messages.EnvelopeRequest(request_data=RAW),
    messages.EnvelopeResponse(response_data=RAW),
    messages.ExpireDelegationTokenRequest(hmac=RAW),
    messages.RenewDelegationTokenRequest(hmac=RAW),
    messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + RAW),
    messages.SaslAuthenticateResponse(auth_bytes=RAW),
    fetched(BATCH),
    fetched(BATCH[:-1]),
    fetched(record_batch(CUT)),
    snapshot_piece(BATCH),
    snapshot_piece(BATCH[80:]),
    produced(BATCH),
    shared(BATCH),
    altered(PASSWORD, SECRET),
    altered("apiKey", SECRET, TOPIC),
    incremented(PASSWORD, SECRET),
    created("apiKey", SECRET),
    created_answer("apiKey", SECRET),
    described(PASSWORD, SECRET, BROKER, PASSWORD),
    described("retention.ms", SECRET, TOPIC, PASSWORD, sensitive=True),
)


SHOWN: tuple[tuple[Message, str], ...] = (
    (ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="4242"), "4242"),
    (altered("log.retention.ms", "4242"), "4242"),
    (created("retention.ms", "4242"), "4242"),
    (described("retention.ms", "4242", TOPIC, "log.retention.ms"), "4242"),
    (fetched(SOUND), base64.b64encode(SOUND).decode()),
)
"""Messages without secrets, and what their JSON form shows."""
CLEAR_BYTES = {
    "clientHostAddress",
    "requestPrincipal",
    "userData",
    "memberMetadata",
    "memberAssignment",
    "metadata",
    "assignment",
    "metrics",
}
"""Fields of bytes that hold no secret of Kafka's."""


def asked(message: Message) -> dict[str, object]:
    """A question of `kraft decode --batch` about a message, in the newest version that can carry it."""
    kind = type(message)
    for version in range(schema_of(kind).versions.highest, -1, -1):
        try:
            return {"name": kind.__name__, "version": version, "hex": encode(message, version).hex()}
        except EncodeError:
            continue
    raise AssertionError(f"no version carries {message}")


def leaks(text: str) -> bool:
    """Whether the secret is in a text, as it is, in hexadecimal digits or in base64 at any of three alignments."""
    packed = [base64.b64encode(b" " * shift + RAW)[4:12].decode() for shift in range(3)]
    return any(form in text for form in (SECRET, RAW.hex(), *packed))


@pytest.mark.parametrize("message", SECRETIVE, ids=lambda one: type(one).__name__)
def test_a_message_with_a_secret(message: Message) -> None:
    """The answer hides the secret, and so the bytes from which the answer was read."""
    question = json.dumps({"kind": "message", **asked(message)})
    plain, hidden = answer(question, show_secrets=True), answer(question)
    assert leaks(json.dumps(plain))
    assert not leaks(json.dumps(hidden))
    assert REDACTED in json.dumps(hidden["json"])
    assert hidden["hex"] == REDACTED
    assert hidden["json"].keys() == plain["json"].keys()


@pytest.mark.parametrize(("message", "shown"), SHOWN, ids=lambda one: type(one).__name__)
def test_a_message_without_a_secret(message: Message, shown: str) -> None:
    question = json.dumps({"kind": "message", **asked(message)})
    assert answer(question) == answer(question, show_secrets=True)
    assert shown in json.dumps(answer(question)["json"])


def decoded(*words: str) -> str:
    done = CliRunner().invoke(decode_command, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("record", [CONFIG, SCRAM], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", ["frame", "batch", "record"])
def test_one_record(record: Message, kind: str) -> None:
    words = {
        "frame": ("frame", encode_record(record, 0).hex()),
        "batch": ("batch", record_batch(record).hex()),
        "record": (type(record).__name__, "0", encode(record, 0).hex()),
    }[kind]
    assert leaks(decoded(*words, "--show-secrets"))
    assert not leaks(decoded(*words))
    assert REDACTED in decoded(*words)


def test_a_batch_hides_no_more_than_the_secrets() -> None:
    """Values that are no metadata records are shown; a record with a secret that is cut off is not."""
    values = json.loads(decoded("batch", record_batch(TopicRecord(name="shown"), b"4242", CUT).hex()))["records"]
    topic = encode_record(TopicRecord(name="shown"), 0).hex()
    assert [one["value_hex"] for one in values] == [topic, b"4242".hex(), REDACTED]


def test_a_newer_record_that_cannot_be_read() -> None:
    """The bytes of such a record are hidden if its type is one of secrets."""
    newer = CUT[:2] + b"\x7f" + CUT[3:]
    assert json.loads(decoded("frame", newer.hex(), "--tolerant"))["data"] == {"hex": REDACTED}
    assert leaks(decoded("frame", newer.hex(), "--tolerant", "--show-secrets"))


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_dump_hides_a_newer_record_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(record_batch(CUT[:2] + b"\x7f" + CUT[3:]))
    words = ["dump", "--records", str(segment), *form]
    assert leaks(run(capsys, *words, "--show-secrets").out)
    hidden = run(capsys, *words).out
    assert REDACTED in hidden
    assert not leaks(hidden)


def fields_of(kind: FieldType) -> Iterator[tuple[str, FieldType]]:
    """The JSON names and types of all fields of a declaration, at any depth."""
    if isinstance(kind, ArrayOf):
        yield from fields_of(kind.element)
    elif isinstance(kind, type):
        for field in layout_of(kind):
            yield field.json_name, field.type
            yield from fields_of(field.type)


def test_every_field_is_classified_as_secret_or_public() -> None:
    """A message that Kafka adds has to be looked at."""
    found = set()
    for name in messages.__all__:
        kind = getattr(messages, name)
        for field, form in fields_of(kind):
            if form in (Kind.BYTES, Kind.RECORDS) and field not in {*CLEAR_BYTES, *HIDDEN_FIELDS.get(kind, {})}:
                found.add((name, field))
            if field == "value" and form is Kind.STRING and kind not in CONFIG_MESSAGES:
                found.add((name, field))
    assert found == {("StreamsGroupDescribeResponse", "value"), ("StreamsGroupHeartbeatRequest", "value")}
    for kind, names in HIDDEN_FIELDS.items():
        assert set(names) <= {field for field, _ in fields_of(kind)}, kind
