"""Names of certificates and mapping rules, against what Java and Kafka made of the same inputs."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from kraft.config.principal_rules import MOST_NAME_CHARACTERS, NoPrincipal, PrincipalRules
from kraft.security.subjects import name_text, subject_of
from support.differential.random_names import JAVA_ONLY, answer_of
from support.interop.certificates import leaf

DATA = Path(__file__).parents[2] / "data"


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((DATA / file).read_bytes()).splitlines()]


@pytest.mark.parametrize("row", rows("dn_names.jsonl.gz"), ids=lambda row: row["java_rfc2253"] or "empty")
def test_a_name_is_printed_as_java_prints_it(row: dict[str, Any]) -> None:
    # The recorded texts have one line each: a newline was written as \n.
    assert name_text(bytes.fromhex(row["der"])).replace("\n", "\\n") == row["java_rfc2253"]


@pytest.mark.parametrize("row", rows("principal_rules.jsonl.gz"), ids=lambda row: row["rules"] or "empty")
def test_a_rule_gives_the_principal_that_kafka_gives(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(ValueError, match=r"."):
            PrincipalRules.parse(row["rules"]).principal_of(row["dn"])
    else:
        assert PrincipalRules.parse(row["rules"]).principal_of(row["dn"]) == row["principal"]


def test_random_rules_give_the_principals_that_kafkas_class_gave() -> None:
    """A slice of the names of `tests/interop/controller/test_kafka_principals.py`, with the recorded answers."""
    found = rows("principal_fuzz.jsonl.gz")
    assert len(found) >= 500
    differing = [row for row in found if answer_of(row["rules"], row["name"]) not in (row["kafka"], JAVA_ONLY)]
    assert not differing


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{Alpha}+",
        r"[a-z&&[^b]]",
        r"[a[b]]",
        r"\QCN\E.*",
        "a|b(?i)c",
        "(x(?i)y)",
        r"CN=\h",
        "(",
        r"\X",
        r"[\0-9]",
        r"\012",
        "a{,3}",
        "{",
        "a{x}",
    ],
)
def test_a_pattern_that_only_java_matches_is_refused_at_the_start(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be matched here"):
        PrincipalRules.parse(f"RULE:{pattern}/x/")


def test_a_name_beyond_the_limit_is_not_matched() -> None:
    with pytest.raises(NoPrincipal, match="characters"):
        PrincipalRules.parse("RULE:(a*)*b/x/").principal_of("a" * (MOST_NAME_CHARACTERS + 1))


def test_the_subject_of_a_whole_certificate() -> None:
    found = load_pem_x509_certificate(leaf("alice").cert_chain_pems[0].bytes())
    assert subject_of(found.public_bytes(Encoding.DER)).startswith("CN=alice,OU=tests,O=trustme")


@given(st.binary(max_size=200))
def test_no_bytes_but_a_certificate_have_a_subject(data: bytes) -> None:
    """Any bytes are a name or a `ValueError`, and never another error."""
    with suppress(ValueError):
        subject_of(data)
