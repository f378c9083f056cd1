from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.sim.state.forking import forked
from metadata_log.image import ImageHistory, MetadataDelta, MetadataImage, ReplayError, ResourceType
from metadata_log.image.image import _CHANGES
from metadata_log.records import metadata as records
from metadata_log.records.frame import RECORD_TYPES
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

KEYS = st.sampled_from(["metrics", "interval.ms", "match"])
RESOURCES = st.tuples(st.sampled_from([2, 4, 16]), st.sampled_from(["", "1", "2"]))
CHANGES = st.lists(st.tuples(RESOURCES, KEYS, st.none() | st.text(max_size=3)), max_size=30)


def end(offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=1, offset=offset)


def replay(image: MetadataImage, *changes: Message) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, record in enumerate(changes, image.end.offset):
        delta.replay(record, offset)
    return delta.apply(end(image.end.offset + len(changes)))


def config(name: str, value: str | None, resource: tuple[int, str] = (16, "a")) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)


@settings(deadline=None)
@given(CHANGES)
def test_configs_follow_a_plain_dict_and_old_images_never_change(
    changes: list[tuple[tuple[int, str], str, str | None]],
) -> None:
    expected: dict[tuple[int, str], dict[str, str]] = {}
    image = MetadataImage()
    seen: list[tuple[MetadataImage, dict[tuple[int, str], dict[str, str]]]] = []
    for resource, name, value in changes:
        values = expected.get(resource, {})
        values = {**values, name: value} if value is not None else {k: v for k, v in values.items() if k != name}
        expected = {key: one for key, one in {**expected, resource: values}.items() if one}
        image = replay(image, config(name, value, resource))
        seen.append((image, expected))
    for old, was in seen:
        assert {key: dict(values) for key, values in old.configs.by_resource.items()} == was
    at_once = replay(MetadataImage(), *(config(name, value, resource) for resource, name, value in changes))
    assert at_once.configs == image.configs


def test_features() -> None:
    image = replay(
        MetadataImage(),
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.FeatureLevelRecord(name="share.version", feature_level=1),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.FeatureLevelRecord(name="kraft.version", feature_level=1),
    )
    assert image.features.metadata_version == 30
    assert image.features.all_levels() == (("metadata.version", 30), ("share.version", 1))
    assert image.features.level("group.version") == 0
    assert MetadataImage().features.metadata_version is None, "an empty log is told from level 0"


def test_a_later_controller_registration_replaces_the_earlier() -> None:
    ids = [Uuid(bytes([n] * 16)) for n in (1, 2)]
    image = replay(
        MetadataImage(), *(records.RegisterControllerRecord(controller_id=3, incarnation_id=one) for one in ids)
    )
    assert image.controllers.by_id[3].incarnation_id == ids[1]


def test_an_aborted_transaction_is_undone() -> None:
    before = replay(MetadataImage(), config("metrics", "x"))
    open_ = replay(before, records.BeginTransactionRecord(name="t"), config("metrics", "y"), config("match", "z"))
    assert open_.configs.of((16, "a"))["metrics"] == "y", "its own controller sees what it has written"
    assert open_.stable.configs == before.configs, "others do not"
    aborted = replay(open_, records.AbortTransactionRecord(reason="r"))
    assert aborted.configs == before.configs
    assert aborted.transaction is None
    assert aborted.end.offset == 5, "the offset goes on"
    ended = replay(open_, records.EndTransactionRecord())
    assert ended.stable is ended
    assert ended.configs == open_.configs


@pytest.mark.parametrize("record", [records.EndTransactionRecord(), records.AbortTransactionRecord()])
def test_a_transaction_that_never_began_is_a_fault(record: Message) -> None:
    with pytest.raises(ReplayError, match="no transaction is open"):
        replay(MetadataImage(), record)


def test_a_transaction_within_a_transaction_is_a_fault() -> None:
    with pytest.raises(ReplayError, match="the transaction from offset 0 is open"):
        replay(MetadataImage(), records.BeginTransactionRecord(), records.BeginTransactionRecord())


def test_every_record_type_is_named_in_the_table() -> None:
    """A record type without an entry must be an error, not silence."""
    assert set(_CHANGES) == set(RECORD_TYPES.values())

    class StrangeRecord(Message, frozen=True):
        pass

    with pytest.raises(ReplayError, match="StrangeRecord at offset 0"):
        replay(MetadataImage(), StrangeRecord())


def test_reverting_drops_uncommitted_images() -> None:
    images = [MetadataImage()]
    history = ImageHistory(images[0])
    for number in range(1, 6):
        images.append(replay(history.latest, config("metrics", str(number))))
        history.appended(images[-1])
    assert history.committed is images[0]
    history.commit(3)
    assert history.committed is images[3]
    assert history.latest is images[5]
    fork = forked(history)
    history.rollback()
    assert history.latest is images[3]
    assert fork.latest is images[5], "a fork is not touched"
    history.replayed(replay(history.latest, config("metrics", "other")))
    assert history.committed is history.latest


def test_resource_types_are_kafkas() -> None:
    assert [(kind.name, kind.value) for kind in ResourceType] == [
        ("UNKNOWN", 0),
        ("TOPIC", 2),
        ("BROKER", 4),
        ("BROKER_LOGGER", 8),
        ("CLIENT_METRICS", 16),
        ("GROUP", 32),
    ]
