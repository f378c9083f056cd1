"""Decisions on metadata: an image and a request go in, records and a response come out (Kafka: `QuorumController`).

Names are imported on first access (PEP 562): a broker uses some modules of this package, and no controller.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.controller.controller import QuorumController
    from kraft.controller.decision.result import ControllerResult
    from kraft.controller.settings import ControllerSettings
else:
    _HOMES = {
        "ControllerResult": "kraft.controller.decision.result",
        "ControllerSettings": "kraft.controller.settings",
        "QuorumController": "kraft.controller.controller",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = ["ControllerResult", "ControllerSettings", "QuorumController"]
