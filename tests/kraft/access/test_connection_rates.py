"""How fast connections may be made: Kafka's arithmetic, in virtual time."""

from __future__ import annotations

from math import isnan
from typing import Final

import pytest

from kraft.access.connection_rates import BY_ADDRESS, ConnectionRates, CreationRates, plain_address
from kraft.limits import QUOTA_RATES
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from support.broker.request_brokers import replayed

START: Final = 1_795_387_605_000
HERE, THERE = "10.0.0.1", "10.0.0.2"


def rates(
    *, of_all: int | None = None, inside: int | None = None, outside: int | None = None, **quotas: float
) -> ConnectionRates:
    """The rates of a broker with a listener between brokers; quotas by address, `others` for all others."""
    made = ConnectionRates(["INSIDE", "OUTSIDE"], "INSIDE")
    own = {name: bound for name, bound in (("INSIDE", inside), ("OUTSIDE", outside)) if bound is not None}
    made.limits = CreationRates(by_listener=own) if of_all is None else CreationRates(of_all, own)
    use(made, quotas)
    return made


def use(made: ConnectionRates, quotas: dict[str, float]) -> None:
    records = [
        ClientQuotaRecord(
            entity=(EntityData(entity_type="ip", entity_name=None if name == "others" else name),),
            key=BY_ADDRESS,
            value=value,
        )
        for name, value in quotas.items()
    ]
    made.use(replayed(MetadataImage(), *records).quotas)


def test_a_listener_waits_until_it_is_within_its_rate() -> None:
    """Ten a second over ten seconds are 100 at once; the next one is a tenth of a second too early."""
    made = rates(outside=10)
    assert [made.wait_ms("OUTSIDE", START) for _ in range(100)] == [0] * 100
    assert [made.wait_ms("OUTSIDE", START) for _ in range(2)] == [100, 200]
    assert made.wait_ms("INSIDE", START) == 0


def test_no_wait_is_longer_than_a_window() -> None:
    made = rates(outside=1)
    assert max(made.wait_ms("OUTSIDE", START) for _ in range(100)) == 1000
    assert rates(outside=0).wait_ms("OUTSIDE", START) == 1000


def test_connections_come_at_the_rate_of_the_listener() -> None:
    made, now_ms, count = rates(outside=20), START, 0
    while now_ms < START + 60_000:
        count += now_ms >= START + 20_000
        now_ms += 1 + made.wait_ms("OUTSIDE", now_ms)
    assert 19 <= count / 40 <= 21


def test_the_rate_of_all_bounds_each_listener_and_not_the_one_between_brokers() -> None:
    made = rates(of_all=10, inside=1000)
    assert sum(made.wait_ms("INSIDE", START) for _ in range(1000)) == 0
    assert [made.wait_ms("OUTSIDE", START) for _ in range(101)][-2:] == [0, 100]
    # A listener that stands alone is bound by both.
    alone = ConnectionRates(["INSIDE"], "INSIDE")
    alone.limits = CreationRates(10)
    assert [alone.wait_ms("INSIDE", START) for _ in range(101)][-2:] == [0, 100]


def test_the_rate_of_all_counts_those_of_all_listeners() -> None:
    made = ConnectionRates(["A", "B"])
    made.limits = CreationRates(10, {"A": 1000, "B": 1000})
    waits = [made.wait_ms(name, START) for _ in range(51) for name in ("A", "B")]
    assert waits[:100] == [0] * 100
    assert waits[100:] == [100, 200]


def test_a_connection_of_an_address_above_its_quota_counts_for_nobody() -> None:
    made = rates(of_all=10, **{HERE: 1})
    for _ in range(10):
        assert made.wait_ms("OUTSIDE", START) == 0
        assert made.hold_ms("OUTSIDE", HERE, START) == 0
    for _ in range(3):
        assert made.wait_ms("OUTSIDE", START) == 0
        assert made.hold_ms("OUTSIDE", HERE, START) == 1000
    assert made.hold_ms("OUTSIDE", THERE, START) == 0
    assert dict(made.by_address(START)) == {HERE: 1.0}
    assert made.of_all(START) == 1.0
    assert [(one.listener, one.per_second) for one in made.uses(START)] == [("INSIDE", 0.0), ("OUTSIDE", 1.0)]


def test_the_quota_of_all_others_holds_for_each_of_them() -> None:
    made = rates(others=1, **{HERE: 2})
    assert [made.hold_ms("OUTSIDE", HERE, START) for _ in range(21)][-2:] == [0, 500]
    for address in (THERE, "10.0.0.3"):
        assert [made.hold_ms("OUTSIDE", address, START) for _ in range(11)][-2:] == [0, 1000]


def test_a_quota_that_changes_holds_at_once() -> None:
    made = rates(**{HERE: 1})
    assert [made.hold_ms("OUTSIDE", HERE, START) for _ in range(11)][-1] == 1000
    use(made, {HERE: 100.0})
    assert made.hold_ms("OUTSIDE", HERE, START) == 0
    use(made, {})
    assert [made.hold_ms("OUTSIDE", HERE, START) for _ in range(2000)] == [0] * 2000


@pytest.mark.parametrize("name", ["::1", "0:0:0:0:0:0:0:1", "0000::1"])
def test_an_address_has_one_quota_however_it_is_written(name: str) -> None:
    made = rates(**{name: 1})
    assert [made.hold_ms("OUTSIDE", "::1", START) for _ in range(11)][-1] == 1000
    assert plain_address("::ffff:10.0.0.1") == HERE


def test_so_many_addresses_are_counted() -> None:
    made = rates(others=1)
    for number in range(QUOTA_RATES + 10):
        made.hold_ms("OUTSIDE", f"host-{number}", START)
    found = [address for address, _ in made.by_address(START)]
    assert (len(found), found[0]) == (QUOTA_RATES, f"host-{QUOTA_RATES + 9}")


def test_the_waits_are_averages_of_those_that_were_not_0() -> None:
    made = rates(outside=10, **{HERE: 1})
    for _ in range(102):
        made.wait_ms("OUTSIDE", START)
    for _ in range(11):
        made.hold_ms("OUTSIDE", HERE, START)
    inside, outside = made.uses(START)
    assert outside.wait_ms == pytest.approx(150)
    assert outside.address_wait_ms == pytest.approx(1000)
    assert isnan(inside.wait_ms)
    assert isnan(inside.address_wait_ms)
