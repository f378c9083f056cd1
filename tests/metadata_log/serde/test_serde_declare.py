"""The committed declarations are what the generator makes of Kafka's schema facts."""

import copy
import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from metadata_log.releases import FEATURES, METADATA_CHANGES, METADATA_VERSIONS
from metadata_log.serde.declare import ROOT, generate, not_declared, read_facts
from metadata_log.serde.declare_changes import changes, text_diff
from metadata_log.serde.declare_tables import snake_case
from metadata_log.serde.fields import Versions, camel_case

DATA = Path(__file__).parents[2] / "data"
FACTS = read_facts([DATA / "schemas.json.gz"])
GENERATED = generate(FACTS)


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_generated_files_are_current(path):
    """A declaration edited by hand would be lost with the next Kafka release."""
    assert (ROOT / path).read_text() == GENERATED[path]


def test_no_generated_file_is_left_over():
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "transport/protocol/messages").glob("*.py")}
    assert found <= set(GENERATED)


def test_a_new_version_is_one_readable_line():
    """A field of a new Kafka release must come out as an annotation, not as another class."""
    vote = FACTS["VoteRequest.json"]
    newer = vote | {
        "validVersions": "0-3",
        "fields": [*vote["fields"], {"name": "NewThing", "type": "int8", "versions": "3+", "default": "0x10"}],
    }
    text = generate(FACTS | {"VoteRequest.json": newer})["transport/protocol/messages/vote.py"]
    assert "    new_thing: Annotated[Int8, since(3)] = 16\n" in text
    assert '@request(api_key=52, versions="0-3", flexible="0+")' in text


def doctored():
    """The facts of a release to come: a field more, a version more, a type changed, a message and an error more."""
    facts = copy.deepcopy(FACTS)
    vote = facts["VoteRequest.json"]
    vote["validVersions"] = "0-3"
    partitions = next(field for field in vote["fields"] if field["name"] == "Topics")["fields"][1]
    partitions["fields"].append({"name": "Reason", "type": "string", "versions": "3+", "ignorable": True})
    partitions["fields"][0]["type"] = "int64"
    del facts["VoteResponse.json"]["fields"][-1]
    facts["PauseRequest.json"] = {
        "name": "PauseRequest", "type": "request", "apiKey": 93, "validVersions": "0", "flexibleVersions": "0+",
        "fields": [],
    }  # fmt: skip
    facts["errors.json"].append({"code": 999, "name": "PAUSED", "retriable": True})
    return facts


def test_changes_of_a_new_release_are_listed():
    """The list to read first in an upgrade to the next Kafka release."""
    assert changes(FACTS, FACTS) == []
    assert changes(FACTS, doctored()) == [
        "PauseRequest: new: type request, apiKey 93, validVersions 0, flexibleVersions 0+",
        "VoteRequest: validVersions 0-2 -> 0-3",
        "VoteRequest.Topics.Partitions.PartitionIndex: type int32 -> int64",
        "VoteRequest.Topics.Partitions.Reason: new: type string, versions 3+, ignorable True",
        "VoteResponse.NodeEndpoints: gone: type []NodeEndpoint, versions 1+, taggedVersions 1+, tag 0",
        "errors.json 999: new: name PAUSED, retriable True",
    ]


def test_the_diff_option_shows_changes_and_writes_nothing(tmp_path):
    newer = doctored()
    path = tmp_path / "facts.json.gz"
    path.write_bytes(gzip.compress(json.dumps(newer).encode()))
    shown = subprocess.run(
        [sys.executable, "-m", "metadata_log.serde.declare", path, "--diff", "--since", DATA / "schemas.json.gz"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "VoteRequest: validVersions 0-2 -> 0-3\n" in shown
    assert '\n-@request(api_key=52, versions="0-2", flexible="0+")\n' in shown
    assert '\n+@request(api_key=52, versions="0-3", flexible="0+")\n' in shown
    assert '\n+    reason: Annotated[String, since(3), ignorable] = ""\n' in shown
    assert "\n+    PAUSED = 999\n" in shown
    assert text_diff(ROOT, GENERATED) == ""


def test_it_is_said_that_nothing_is_different():
    facts = DATA / "schemas.json.gz"
    shown = subprocess.run(
        [sys.executable, "-m", "metadata_log.serde.declare", facts, "--diff", "--since", facts],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == f"Nothing is different from {facts}.\n"


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


def test_kafkas_own_files_are_read_with_their_comments(tmp_path):
    """The licence in front, lines between fields, two slashes inside of a string, and what is for people alone."""
    text = (
        '// Licensed\n{\n  "name": "X", // the name\n  "default": "a//b",\n  "about": "see https://kafka.apache.org",\n'
        '  "validVersions": "0", "fields": [{"name": "Y", "type": "int8", "taggedVersions": "0+", "tag": 0}]\n}\n'
    )
    path = tmp_path / "X.json"
    path.write_text(text)
    field = {"name": "Y", "type": "int8", "taggedVersions": "0+", "tag": 0, "versions": "0+"}
    facts = {"X.json": {"name": "X", "default": "a//b", "validVersions": "0", "fields": [field]}}
    assert read_facts([path]) == facts
    with zipfile.ZipFile(tmp_path / "kafka.jar", "w") as jar:
        jar.writestr("common/message/Other.json", text)
        jar.writestr("kafka/other.json", "[]")
    assert read_facts([tmp_path / "kafka.jar"]) == facts


def test_nothing_of_a_release_is_left_out_in_silence():
    """Keys of maps, levels of releases and features, and schemas that no generated file holds."""
    newer = copy.deepcopy(FACTS)
    newer["DescribeProducersRequest.json"]["fields"][0]["fields"][0].pop("mapKey")
    newer["metadata_versions.json"].append({"version": "9.9-IV0", "level": 99, "production": True})
    newer["Stray.json"] = {"name": "Stray", "type": "data", "validVersions": "0", "fields": []}
    assert changes(FACTS, newer) == [
        "DescribeProducersRequest.Topics.Name: mapKey True -> none",
        "Stray: new: type data, validVersions 0",
        "metadata_versions.json 9.9-IV0: new: level 99, production True",
    ]
    assert set(not_declared(newer)) - set(not_declared(FACTS)) == {"Stray: not declared here, type data"}
    del newer["metadata_versions.json"]
    assert "metadata_versions.json: not compared, as one of the releases comes without it" in changes(FACTS, newer)


def test_the_table_of_releases_is_kafkas():
    """Levels of metadata.version for production, and features, as the jars of the newest release have them."""
    production = {one["version"]: one["level"] for one in FACTS["metadata_versions.json"] if one["production"]}
    assert production == METADATA_VERSIONS
    lossy = {one["level"] for one in FACTS["metadata_versions.json"] if one["did_metadata_change"]}
    assert {level for level in lossy if level in production.values()} == METADATA_CHANGES
    for feature in FACTS["features.json"]:
        name = feature["feature"]
        if name in FEATURES:
            levels = [one for one in feature["levels"] if 0 < one["level"] <= feature["latest_production"]]
            defaults = tuple(METADATA_VERSIONS[one["bootstrap_metadata_version"]] for one in levels)
            assert FEATURES[name].defaults == defaults, name
