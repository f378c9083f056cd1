"""The sequences that are compared with Kafka's controller reach everything that it can be asked to write.

`tests/interop/controller/test_controller_differential.py` tells the same ones to a running Kafka.
"""

from __future__ import annotations

from random import Random

import pytest

from kraft.controller.apis import APIS, Write
from kraft.controller.decision.request_context import DecisionSettings
from support.differential.admin_answers import SECURED
from support.differential.controller_coverage import ERRORS, Coverage
from support.differential.controller_draws import DEFAULT_RUN, STEPS, Draw
from support.differential.controller_sides import InProcess, Side
from support.differential.controller_stories import told
from transport.protocol.apis import APIS as SERVED
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


@pytest.fixture(scope="module")
def reached() -> Coverage:
    """The coverage of the sequences of the default run."""
    seed, count = DEFAULT_RUN
    controller = InProcess(
        max_idle_interval_ms=0, decisions=DecisionSettings(broker_session_timeout_ms=600_000), admin=SECURED
    )
    side, coverage = Side(controller.ask), Coverage()
    for number in range(count):
        draw = Draw(Random(seed * 1000 + number), f"s{number}", side, lambda: controller.controller.history.latest)
        for step in draw.sequence(STEPS):
            coverage.note(side, step, told(side, [step])[0])
    return coverage


def test_every_writing_api_has_a_generator() -> None:
    writes = {api.key for api in APIS.values() if isinstance(api, Write)}
    # 4.3.1, which answers to the draws, does not serve this one: see test_unregister_controller.
    writes.remove(ApiKey.UNREGISTER_CONTROLLER)
    assert set(ERRORS) == {*writes, ApiKey.ENVELOPE}


@pytest.mark.parametrize("key", list(ERRORS), ids=lambda key: key.name)
def test_every_version_and_every_error_is_reached(key: ApiKey, reached: Coverage) -> None:
    versions = SERVED[key].versions
    assert set(reached.versions[key]) == set(range(versions.lowest, versions.highest + 1))
    assert reached.errors[key][Error.NONE] > 0
    assert ERRORS[key] - set(reached.errors[key]) == set()


def test_every_forwardable_api_is_drawn_in_an_envelope(reached: Coverage) -> None:
    assert {key for key in ERRORS if SERVED[key].forwardable} - set(reached.forwarded) == set()


def test_every_option_is_used(reached: Coverage) -> None:
    only_looked_at = {
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
    }
    others = {
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "allow_replication_factor_change"),
        (ApiKey.BROKER_HEARTBEAT, "want_fence"),
        (ApiKey.BROKER_HEARTBEAT, "want_shut_down"),
    }
    assert {(key, "validate_only") for key in only_looked_at} | others <= set(reached.options)
