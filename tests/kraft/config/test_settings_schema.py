"""The JSON schema of settings: the page has the one of this code, and it takes the values that a start takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kraft.config.definitions import NODE, BadValue, Definition, checked
from kraft.config.json_schema import schema
from kraft.config.keys import NUMBERS
from support import ROOT

SCHEMA = schema()
LEAST = {"process.roles": "controller", "node.id": 1, "controller.quorum.voters": "1@localhost:9093"}


def errors(**settings: Any) -> list[str]:
    return [one.message for one in Draft202012Validator(SCHEMA).iter_errors({**LEAST, **settings})]


def test_the_file_is_printed_from_the_settings() -> None:
    """`python -m kraft.config.json_schema > docs/reference/settings.schema.json` writes it anew."""
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads((ROOT / "docs/reference/settings.schema.json").read_text()) == json.loads(json.dumps(SCHEMA))


def test_a_file_of_a_node_passes_and_what_is_amiss_does_not() -> None:
    assert (
        errors(
            **{"log.dirs": ["a", "b"], "listener.name.x.ssl.keystore.location": "k", "auto.create.topics.enable": True}
        )
        == []
    )
    assert any("nmu.partitions" in one for one in errors(**{"nmu.partitions": 3}))
    for key in LEAST:
        left = {name: value for name, value in LEAST.items() if name != key}
        assert not Draft202012Validator(SCHEMA).is_valid(left), key


def candidates(one: Definition) -> list[object]:
    """Values around the limits of a setting."""
    match one.type:
        case "BOOLEAN":
            return [True, False, "TRUE", "yes", "", 1]
        case "SHORT" | "INT" | "LONG" | "DOUBLE":
            step = 1 if one.type != "DOUBLE" else 0.25
            ends = [end + more for end in (one.least, one.most) if end is not None for more in (-step, 0, step)]
            sizes = {"SHORT": [2**15 - 1, 2**15], "INT": [2**31 - 1, 2**31], "LONG": [2**63 - 1, 2**63]}.get(
                one.type, []
            )
            return [*ends, *sizes, "word", "", True, "1 2"]
        case "LIST":
            return [list(one.words[:1]) or ["a"], [], [1]]
        case _:
            return [*one.words, "word-of-nobody", 3]


@pytest.mark.parametrize("kind", ["BOOLEAN", "SHORT", "INT", "LONG", "DOUBLE", "LIST", "STRING", "CLASS", "PASSWORD"])
def test_a_value_is_valid_where_a_start_takes_it(kind: str) -> None:
    tried = 0
    for key, one in NODE.items():
        if one.type != kind or one.limits.startswith("other"):
            continue
        validator = Draft202012Validator({**SCHEMA["properties"][key]})
        for value in candidates(one):
            tried += 1
            assert validator.is_valid(value) == taken(one, value), (key, value)
    assert tried >= 20


def taken(one: Definition, value: object) -> bool:
    """Whether a start takes the value, of its own kind or as a text."""
    if one.type in ("INT", "SHORT", "LONG", "DOUBLE") and isinstance(value, bool):
        return False
    if one.type == "BOOLEAN" and not isinstance(value, bool | str):
        return False
    if one.type in ("STRING", "CLASS", "PASSWORD") and not isinstance(value, str):
        return False
    if one.type == "LIST" and isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return False
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if one.name in NUMBERS and isinstance(value, int):
        return NUMBERS[one.name].minimum <= value <= NUMBERS[one.name].maximum
    try:
        checked(one, text)
    except BadValue:
        return False
    return True


def test_every_default_is_valid() -> None:
    for key, facts in SCHEMA["properties"].items():
        if facts.get("default"):
            assert Draft202012Validator(facts).is_valid(facts["default"]), key
