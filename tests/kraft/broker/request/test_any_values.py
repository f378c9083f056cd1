"""Whatever values the fields of a data request have, the broker answers or closes, and its answer can be encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from kraft.broker.apis import FORWARDED
from kraft.config.telemetry_settings import TelemetryConfig
from kraft.wire import Answer
from metadata_log.serde import schema_of
from support.broker.request_brokers import Brokers, NewTopic, batch, produce, topic_id
from support.serde_values import is_flexible, values
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_response

KEY = topic_id(1), 0
TELEMETRY = TelemetryConfig(is_on=True)
DATA_APIS = [
    ApiKey(key)
    for key, api in Brokers([], telemetry=TELEMETRY).requests[101].table.items()
    if api.pauses and key not in FORWARDED
]


@pytest.mark.parametrize("key", DATA_APIS, ids=lambda key: key.name)
@given(data=st.data())
@with_settings(max_examples=40)
def test_any_values_are_answered(key: ApiKey, data: st.DataObject) -> None:
    api = ALL_APIS[key]
    version = data.draw(st.integers(api.versions.lowest, api.versions.highest))
    message = data.draw(values(api.request, version, flexible=is_flexible(api.request, version)))
    assert schema_of(type(message)).api_key == key
    brokers = Brokers([NewTopic("", KEY[0], ((101,),))], telemetry=TELEMETRY)
    brokers.ask(101, produce(KEY, batch(b"a")))
    _, outcome = brokers.send(101, message, version)
    outcomes = [outcome, *brokers.poll(101), *brokers.poll(101, after_ms=2**40)]
    for each in outcomes:
        if isinstance(each, Answer):
            encode_response(key, version, 1, each.message, apis=ALL_APIS)
