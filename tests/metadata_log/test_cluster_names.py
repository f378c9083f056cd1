"""The file of cluster names, in each of its forms, and what it refuses."""

from __future__ import annotations

import pytest

from metadata_log.cluster_names import ClusterName, ClusterNames, ClusterNamesError, format_of, parse_cluster_names

ONE, OTHER = "A3gcw2Qkrwsj8xyJO7bBIw", "c92P2-zHd3OC2pYwL82DeQ"
TOML = f"""
[clusters.{ONE}]
name = "orders-eu"
environment = "production"
labels = {{ team = "orders", tier = 1 }}

[clusters.{OTHER}]
name = "audit"
"""
CSV = f"cluster,name,environment,team,tier\n{ONE},orders-eu,production,orders,1\n{OTHER},audit,,,\n"
JSON = f"""[{{"cluster": "{ONE}", "name": "orders-eu", "environment": "production",
"labels": {{"team": "orders", "tier": 1}}}},
{{"cluster": "{OTHER}", "name": "audit"}}]"""
LINES = f"""{{"cluster": "{ONE}", "name": "orders-eu", "environment": "production", "team": "orders", "tier": 1}}
{{"cluster": "{OTHER}", "name": "audit"}}
"""
WANTED = ClusterNames(
    {
        ONE: ClusterName(ONE, "orders-eu", "production", {"team": "orders", "tier": "1"}),
        OTHER: ClusterName(OTHER, "audit"),
    }
)


@pytest.mark.parametrize(("form", "text"), [("toml", TOML), ("csv", CSV), ("json", JSON), ("json", LINES)])
def test_each_form_says_the_same(form: str, text: str) -> None:
    names = parse_cluster_names(text.encode(), form=form, where="clusters")
    assert names == WANTED
    assert parse_cluster_names(b"\xef\xbb\xbf" + text.encode(), form=form, where="clusters") == WANTED
    assert (names.name(ONE), names.name("another")) == ("orders-eu", "another")
    assert (names.environment(ONE), names.environment(OTHER)) == ("production", None)
    assert (names.id_of("audit"), names.id_of(ONE)) == (OTHER, ONE)


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("csv", f"cluster,name\n{ONE},a\n{OTHER},a\n", f"two clusters have the name 'a': {ONE} and {OTHER}"),
        ("csv", f"cluster,name\n{ONE},a\n{ONE},b\n", f"the cluster {ONE} is listed twice"),
        ("csv", f"cluster,name\n{ONE},{OTHER}\n{OTHER},b\n", f"the name of cluster {ONE} is the id of another cluster"),
        ("csv", f"cluster,name\n{ONE},\n", "the entry has no name"),
        ("csv", "id,name\nx,y\n", "the entry has no cluster"),
        ("toml", "[clusters", "this is no TOML"),
        ("toml", "[names]\na = 1\n", r"no tables \[clusters.ID\]"),
        ("json", '[{"cluster": ', "this is no JSON"),
        ("json", "[1]", "a list of objects"),
        ("json", f'[{{"cluster": "{ONE}", "name": "a", "labels": 7}}]', "labels are a map of texts"),
        ("csv", "\udcff", "this is no CSV"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_place(form: str, text: str, said: str) -> None:
    with pytest.raises(ClusterNamesError, match=said) as refused:
        parse_cluster_names(text.encode(errors="surrogateescape"), form=form, where="names.file")
    assert (refused.value.where or "").startswith("names.file")


def test_the_suffix_says_the_form() -> None:
    assert [format_of(path) for path in ("a.toml", "b/C.CSV", "s3://x/y.json", "dir.parquet/")] == [
        "toml",
        "csv",
        "json",
        "parquet",
    ]
    with pytest.raises(ClusterNamesError, match="are read from files of"):
        format_of("names.yaml")
