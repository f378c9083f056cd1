"""The differences between two images, against a comparison of everything with everything."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from metadata_log.image import MetadataImage
from metadata_log.image.diff import Difference, changed_partitions, differences
from metadata_log.records import metadata as records
from metadata_log.types import Uuid
from replayed_logs import replay
from support.metadata_faults import BROKER, A, B, change, partition, topic
from support.random_metadata import RandomCluster

CONFIG = records.ConfigRecord(resource_type=2, resource_name="a", name="k", value="v")


def between(before: MetadataImage, after: MetadataImage) -> list[tuple[str, str, str, object, object]]:
    return [(one.kind, one.name, one.field, one.before, one.after) for one in differences(before, after)]


def test_an_image_does_not_differ_from_itself_nor_from_one_made_again() -> None:
    log = [topic("a"), partition(0), BROKER, CONFIG]
    image = replay(MetadataImage(), *log)
    assert between(image, image) == []
    assert between(image, replay(MetadataImage(), *log)) == []


def test_a_change_of_leader() -> None:
    image = replay(MetadataImage(), topic("a"), partition(0), partition(1))
    after = replay(image, change(leader=-1, isr=()))
    assert between(image, after) == [
        ("topics", "a-0", "isr", (1,), ()),
        ("topics", "a-0", "leader", 1, -1),
        ("topics", "a-0", "leader_epoch", -1, 0),
        ("topics", "a-0", "partition_epoch", -1, 0),
    ]
    [(found, number, old, new)] = changed_partitions(image.topics, after.topics)
    assert (found.name, number) == ("a", 0)
    assert old is image.topics["a"].partitions[0]
    assert new is after.topics["a"].partitions[0]


def test_a_recreated_topic_is_another_topic() -> None:
    before = replay(MetadataImage(), topic("a"), partition(0))
    after = replay(before, records.RemoveTopicRecord(topic_id=A), topic("a", B), partition(0, B), partition(1, B))
    found = between(before, after)
    assert found[0] == ("topics", "a", "id", A, None)
    assert found[1] == ("topics", "a", "partitions", 1, None)
    assert ("topics", "a-0", "replicas", (1, 2), None) in found
    assert ("topics", "a", "id", None, B) in found
    assert ("topics", "a-1", "leader", None, 1) in found
    assert not any(field == "elr" for _, _, field, _, _ in found), "what is empty is not told"


def test_differences_of_all_record_families_are_listed() -> None:
    before = replay(MetadataImage(), BROKER, CONFIG, records.ProducerIdsRecord(next_producer_id=1000))
    after = replay(
        before,
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
        records.ConfigRecord(resource_type=2, resource_name="a", name="k", value=None),
        records.ConfigRecord(resource_type=4, resource_name="", name="x", value="1"),
        records.ConfigRecord(resource_type=99, resource_name="b", name="x", value="1"),
        records.ClientQuotaRecord(
            entity=(records.EntityData(entity_type="user", entity_name=None),), key="rate", value=1.5
        ),
        records.ProducerIdsRecord(next_producer_id=2000),
        records.AccessControlEntryRecord(id=A, principal="User:u"),
        records.UserScramCredentialRecord(name="u", mechanism=2, iterations=4096),
        records.DelegationTokenRecord(owner="User:o", requester="User:o", token_id="t"),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.RegisterControllerRecord(controller_id=3),
    )
    found = between(before, after)
    for expected in [
        ("features", "group.version", "level", None, 1),
        ("controllers", "controller 3", "id", None, 3),
        ("brokers", "broker 1", "fenced", True, False),
        ("configs", "topic a", "k", "v", None),
        ("configs", "broker <default>", "x", None, "1"),
        ("configs", "resource of type 99 b", "x", None, "1"),
        ("quotas", "user <default>", "rate", None, 1.5),
        ("producer_ids", "producer ids", "next_producer_id", 1000, 2000),
        ("acls", f"acl {A}", "principal", None, "User:u"),
        ("scram", "user u", "SCRAM-SHA-512.iterations", None, 4096),
        ("tokens", "token t", "owner", None, "User:o"),
    ]:
        assert expected in found
    assert [one[0] for one in found] == sorted(
        (one[0] for one in found),
        key=[
            "features",
            "controllers",
            "brokers",
            "configs",
            "quotas",
            "producer_ids",
            "acls",
            "scram",
            "tokens",
        ].index,
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(0, 40))
def test_differences_of_random_images_are_exact(seed: int, before: int, then: int) -> None:
    cluster = RandomCluster(Random(seed))
    for _ in range(before):
        cluster.step()
    old = cluster.image
    for _ in range(then):
        cluster.step()
    new = cluster.image
    found = list(differences(old, new))
    assert {(one.name, one.field, one.before, one.after) for one in found if one.kind == "topics"} == expected(old, new)
    assert (found == []) == all(
        getattr(old, family) == getattr(new, family)
        for family in MetadataImage.__struct_fields__
        if family not in ("end", "features_offset", "transaction")
    )
    mirrored = {Difference(one.kind, one.name, one.field, one.after, one.before) for one in differences(new, old)}
    assert set(found) == mirrored
    assert len(found) == len(set(found))


def expected(old: MetadataImage, new: MetadataImage) -> set[tuple[str, str, object, object]]:
    found = set()
    for topic_id in {**dict(old.topics.by_id), **dict(new.topics.by_id)}:
        was, is_now = flat(old, topic_id), flat(new, topic_id)
        for name, field in {**was, **is_now}:
            left, right = was.get((name, field)), is_now.get((name, field))
            if left != right and (left, right) not in {(None, ()), ((), None)}:
                found.add((name, field, left, right))
    return found


def flat(image: MetadataImage, topic_id: Uuid) -> dict[tuple[str, str], object]:
    one = image.topics.by_id.get(topic_id)
    if one is None:
        return {}
    fields: dict[tuple[str, str], object] = {(one.name, "id"): one.id, (one.name, "partitions"): len(one.partitions)}
    for number, each in enumerate(one.partitions):
        fields |= {(f"{one.name}-{number}", field): value for field, value in asdict(each).items()}
    return fields
