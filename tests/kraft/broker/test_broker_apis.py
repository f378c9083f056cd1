"""The table of a broker's APIs is the only list of them: what a listener advertises and decodes follows from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kraft.broker import apis
from kraft.broker.apis import FORWARDED
from kraft.broker.requests import Requests
from kraft.config.telemetry_settings import TelemetryConfig
from kraft.coordinators import apis as coordinators
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings, ReplicaManager
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import schema_of
from transport.protocol.apis import ApiKey
from transport.protocol.broker_listener import AT_BROKERS, advertised, broker_request_limit

ROOT = Path(__file__).resolve().parents[3]
CHANGING = {
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT),
    *(ApiKey.PRODUCE, ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID, ApiKey.WRITE_TXN_MARKERS),
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    *(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE),
    *(ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE),
}
"""The APIs that change something of this broker, half of which a bug may have done."""
REQUESTS = Requests(
    ReplicaManager(MemoryDisk(), DataSettings(broker_id=101, directories=())),
    RequestSettings(broker_id=101, telemetry=TelemetryConfig(is_on=True)),
    Random(1),
)


@pytest.mark.parametrize("key", REQUESTS.apis, ids=lambda key: key.name)
def test_an_api_of_the_table_is_decoded_within_limits_advertised_and_attacked(key: ApiKey) -> None:
    # The hostile tests ask everything of this list.
    assert key in AT_BROKERS
    assert broker_request_limit(key).size > 0
    assert advertised(key).highest == AT_BROKERS[key].versions.highest
    api = REQUESTS.table[key]
    assert (api.is_complete is None) == (api.end is None)
    assert (api.refuse is None) == (key in CHANGING)


def test_the_table_is_in_the_order_of_keys_and_has_all_that_is_forwarded() -> None:
    assert list(REQUESTS.apis) == sorted(set(REQUESTS.apis)) == sorted(REQUESTS.table)
    assert set(REQUESTS.apis) >= FORWARDED
    assert {key for key, api in REQUESTS.table.items() if api.needs_login} - FORWARDED == {
        ApiKey.DESCRIBE_DELEGATION_TOKEN
    }


def test_an_api_has_one_row_with_its_own_messages() -> None:
    assert not apis.ROWS.keys() & coordinators.ROWS.keys()
    for key, api in REQUESTS.table.items():
        assert schema_of(api.message).api_key == key, key


def keys_in(path: Path) -> Iterator[str]:
    """The keys that a module names, as often as it names them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ApiKey":
            yield node.attr


def test_only_its_row_names_an_api() -> None:
    """Whatever else the code needs to know of an API is a column of the row, or follows from one."""
    named = [
        (key, path.relative_to(ROOT).as_posix())
        for folder in ("broker", "coordinators", "handling", "partitions")
        for path in sorted((ROOT / "kraft" / folder).rglob("*.py"))
        for key in keys_in(path)
    ]
    assert {path for _, path in named} == {
        "kraft/broker/apis.py",
        "kraft/coordinators/apis.py",
        "kraft/coordinators/share_apis.py",
    }
    rows = [key for key, _ in named]
    assert len(rows) == len(set(rows)) > 30


def test_at_most_six_files_change_for_an_api() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("### An API of the broker\n")[2].partition("\n### ")[0]
    files = re.findall(r"^- `([^`]+)`", section, flags=re.M)
    assert 0 < len(files) <= 6
    for name in files:
        assert (ROOT / name).exists(), name


def test_the_apis_of_all_kinds_of_groups_are_advertised():
    names = {key.name for key in REQUESTS.apis}
    assert {"STREAMS_GROUP_HEARTBEAT", "STREAMS_GROUP_DESCRIBE", "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"} <= names
    assert {"CONSUMER_GROUP_HEARTBEAT", "JOIN_GROUP", "INIT_PRODUCER_ID", "SHARE_FETCH"} <= names
