"""Tests of compiled code have it compiled with the first use of a kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metadata_log.serde import codec


@pytest.fixture(scope="package", autouse=True)
def compiled_at_once() -> Iterator[None]:
    """Else most kinds would come too seldom in a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "INTERPRETED_USES", 0)
        yield
