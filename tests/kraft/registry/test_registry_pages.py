"""The reference of the registry has the routes, types and limits of the code."""

from __future__ import annotations

from pathlib import Path

from kraft.registry import checking, requests, schemas, worker
from kraft.registry.requests import ROUTES
from kraft.registry.service import LIMITS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "schema-registry.md").read_text()


def routes() -> str:
    rows = [f"| {one.method} | `{one.path}` | {one.about} |" for one in ROUTES]
    return "\n".join(["| method | path | what |", "| --- | --- | --- |", *rows])


def types() -> str:
    rows = [f"| {name} | {one.about} |" for name, one in schemas.TYPES.items()]
    return "\n".join(["| type | how it is read and compared |", "| --- | --- |", *rows])


def limits() -> str:
    mib = f"{requests.MAX_MEMORY >> 20} MiB"
    return (
        f"A body has at most {LIMITS.body_bytes:,} bytes, a record {requests.MAX_VALUE:,}, a subject's name "
        f"{requests.MAX_SUBJECT:,} characters;\na schema refers to at most {requests.MAX_IMPORTS} others, also "
        f"through others. There are at most {requests.MAX_VERSIONS:,} versions that take {mib} of memory\n"
        f"with the settings of subjects, {requests.MAX_LISTED:,} of them or {requests.MAX_LISTED_BYTES >> 20} MiB "
        f"in an answer, {LIMITS.connections} connections, and {LIMITS.requests_per_second:,} requests a second. "
        f"A question about schemas\nhas at most {requests.MAX_PARTS:,} of them and their references, with "
        f"{requests.MAX_QUESTION:,} characters: longer histories need a level without _TRANSITIVE."
    )


def processes() -> str:
    small, larger, largest = checking.KINDS
    return (
        f"a question of at most {small.most_bytes:,} bytes {small.seconds:g} s of\nCPU time, one of "
        f"{larger.most_bytes:,} {larger.seconds:g} s, a larger one {largest.seconds:g} s, each "
        f"{worker.MEMORY_BYTES >> 20} MiB of memory"
    )


def test_the_page_has_all_routes() -> None:
    assert routes() in PAGE


def test_the_page_has_all_types() -> None:
    assert types() in PAGE


def test_the_page_has_the_limits() -> None:
    assert limits() in PAGE
    assert processes() in PAGE
