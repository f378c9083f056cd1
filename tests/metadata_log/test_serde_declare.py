"""The committed declarations are what the generator makes of Kafka's schema facts."""

from pathlib import Path

import pytest

from metadata_log.serde.declare import ROOT, generate, read_facts
from metadata_log.serde.declare_tables import snake_case
from metadata_log.serde.fields import Versions, camel_case

FACTS = read_facts([Path(__file__).parents[1] / "data" / "schemas.json.gz"])
GENERATED = generate(FACTS)


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_generated_files_are_current(path):
    """A declaration edited by hand would be lost with the next Kafka release."""
    assert (ROOT / path).read_text() == GENERATED[path]


def test_no_generated_file_is_left_over():
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "transport/protocol/messages").glob("*.py")}
    assert found <= set(GENERATED)


def test_a_new_version_is_one_readable_line():
    """What a new Kafka release adds must come out as an annotation, not as another class."""
    vote = FACTS["VoteRequest.json"]
    newer = vote | {
        "validVersions": "0-3",
        "fields": [*vote["fields"], {"name": "NewThing", "type": "int8", "versions": "3+", "default": "0x10"}],
    }
    text = generate(FACTS | {"VoteRequest.json": newer})["transport/protocol/messages/vote.py"]
    assert "    new_thing: Annotated[Int8, since(3)] = 16\n" in text
    assert '@request(api_key=52, versions="0-3", flexible="0+")' in text


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        ("LeaderId", "leader_id"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("NewIsrWithEpochs", "new_isr_with_epochs"),
        ("TopicId", "topic_id"),
        ("IP", "ip"),
    ],
)
def test_names(kafka, ours):
    assert snake_case(kafka) == ours


def test_camel_case():
    assert camel_case("new_isr_with_epochs") == "newIsrWithEpochs"


@pytest.mark.parametrize("text", ["0-2", "3+", "7", "none"])
def test_versions_read_and_print(text):
    assert str(Versions.parse(text)) == text


def test_versions_contain():
    assert 3 in Versions.parse("3+")
    assert 2 not in Versions.parse("3+")
    assert 0 not in Versions.parse("none")
    assert Versions.parse("2-5").intersect(Versions.parse("4+")) == Versions.parse("4-5")
