"""The names of partition directories, as brokers give them."""

from __future__ import annotations

import pytest

from metadata_log.log.partition_names import DELETE, FUTURE, STRAY, PartitionName, parse_partition_name

UUID = "6f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", PartitionName("orders", 0)),
        ("a-b.c-17", PartitionName("a-b.c", 17)),
        ("__cluster_metadata-0", PartitionName("__cluster_metadata", 0)),
        (f"orders-3.{UUID}-delete", PartitionName("orders", 3, DELETE)),
        (f"orders-3.{UUID}-future", PartitionName("orders", 3, FUTURE)),
        (f"a.b-3.{UUID}-stray", PartitionName("a.b", 3, STRAY)),
        ("x-1.2-3", PartitionName("x-1.2", 3)),
    ],
)
def test_the_name_of_a_partition_directory_is_parsed(name: str, partition: PartitionName) -> None:
    assert parse_partition_name(name) == partition
    assert str(partition) == f"{partition.topic}-{partition.number}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-0",
        "orders",
        "orders-",
        "orders-x",
        "orders--1x",
        "orders-\u0661",
        f"orders-3.{UUID}-other",
        ".orders-0",
        "a/b-0",
    ],
)
def test_another_name_is_no_partition(name: str) -> None:
    assert parse_partition_name(name) is None
