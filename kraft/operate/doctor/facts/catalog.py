"""Every check by its stable id. A check that is removed keeps its id reserved."""

from __future__ import annotations

from typing import Final

from kraft.operate.doctor.facts.directory_checks import DIRECTORY_CHECKS
from kraft.operate.doctor.facts.finding import Described
from kraft.operate.doctor.facts.image_checks import BEFORE_CHECKS, IMAGE_CHECKS
from kraft.operate.doctor.facts.quorum_checks import QUORUM_CHECKS

CATALOG: Final[dict[str, Described]] = {
    one.id: one for one in (*DIRECTORY_CHECKS, *QUORUM_CHECKS, *IMAGE_CHECKS, *BEFORE_CHECKS)
}
"""The descriptions of all checks, by id."""
