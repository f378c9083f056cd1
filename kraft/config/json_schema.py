"""A JSON schema of the settings of a node, from the same definitions that a start judges them by.

It is for files of settings in JSON or YAML, as of Helm and operators, and for editors. `python -m
kraft.config.json_schema` prints it; `docs/reference/settings.schema.json` is its output.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from kraft.config.definitions import NODE, OF_QUOTAS, Definition
from kraft.config.documentation import documentation
from kraft.config.kafka_keys import PREFIXES, REFUSED, WITHOUT_EFFECT
from kraft.config.keys import NUMBERS, TEXTS

_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
_WHOLE: Final = {"type": "string", "pattern": "^[+-]?[0-9]+$"}
_NUMBER: Final = {"type": "string", "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"}
_FLAG: Final = {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"}
_TAG: Final = re.compile(r"<[^>]+>")


def schema() -> dict[str, Any]:
    """The schema of the settings of one node, by key."""
    keys = sorted({*NODE, *TEXTS, *NUMBERS, *OF_QUOTAS})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of a node of Apache Kafka in KRaft mode, and of trio-kraft",
        "type": "object",
        "properties": {key: {**_values(key), **_words(key)} for key in keys},
        "patternProperties": {f"^{re.escape(prefix)}": {} for prefix in PREFIXES},
        "additionalProperties": False,
        "required": ["process.roles"],
        "allOf": [
            {"anyOf": [{"required": ["node.id"]}, {"required": ["broker.id"]}]},
            {
                "anyOf": [
                    {"required": ["controller.quorum.voters"]},
                    {"required": ["controller.quorum.bootstrap.servers"]},
                ]
            },
        ],
    }


def _values(key: str) -> dict[str, Any]:
    """The values that a setting may have: of its own kind, or as a text."""
    definition = NODE.get(key) or OF_QUOTAS.get(key)
    if key in NUMBERS:
        return {
            "anyOf": [{"type": "integer", "minimum": NUMBERS[key].minimum, "maximum": NUMBERS[key].maximum}, _WHOLE]
        }
    if definition is None:
        return {"type": "string"}
    match definition.type:
        case "BOOLEAN":
            return {"anyOf": [{"type": "boolean"}, _FLAG]}
        case "SHORT" | "INT" | "LONG":
            return {"anyOf": [{"type": "integer", **_bounds(definition)}, _WHOLE]}
        case "DOUBLE":
            return {"anyOf": [{"type": "number", **_bounds(definition)}, _NUMBER]}
        case "LIST":
            entries = {"type": "string", "minLength": 1}
            several = {"type": "array", "items": {**entries, **_enum(definition)}}
            return {"anyOf": [several if definition.may_be_empty else {**several, "minItems": 1}, {"type": "string"}]}
        case "PASSWORD":
            return {"type": "string", "writeOnly": True}
        case _:
            return {"type": "string", **_enum(definition)}


def _bounds(definition: Definition) -> dict[str, int | float]:
    size = 1 << (_BITS[definition.type] - 1) if definition.type in _BITS else None
    least = definition.least if definition.least is not None or size is None else -size
    most = definition.most if definition.most is not None or size is None else size - 1
    return {name: bound for name, bound in (("minimum", least), ("maximum", most)) if bound is not None}


def _enum(definition: Definition) -> dict[str, Any]:
    if not definition.words:
        return {}
    if definition.is_any_case:
        one = "|".join("".join(f"[{letter.upper()}{letter.lower()}]" for letter in word) for word in definition.words)
        return {"pattern": f"^({one})$"}
    return {"enum": list(definition.words)}


def _words(key: str) -> dict[str, Any]:
    """The purpose of a setting, and its default as a text."""
    known = TEXTS.get(key) or NUMBERS.get(key)
    text = known.doc if known is not None else _first_sentence(documentation("broker", key) or "")
    if key in WITHOUT_EFFECT:
        text += " Without effect in trio-kraft."
    if key in REFUSED:
        text += f" trio-kraft takes the default alone: {REFUSED[key]}"
    definition = NODE.get(key)
    default = str(known.default) if known is not None else None if definition is None else definition.default
    return ({"description": text.strip()} if text else {}) | ({"default": default} if default else {})


def _first_sentence(text: str) -> str:
    plain = " ".join(_TAG.sub(" ", text).split())
    return re.split(r"(?<=[.]) ", plain, maxsplit=1)[0]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")
