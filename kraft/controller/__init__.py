"""Decisions on metadata: an image and a request go in, records and a response come out (Kafka: `QuorumController`)."""

from kraft.controller.controller import QuorumController
from kraft.controller.decision.result import ApiError, ControllerResult, VersionedRecord
from kraft.controller.settings import ControllerSettings

__all__ = ["ApiError", "ControllerResult", "ControllerSettings", "QuorumController", "VersionedRecord"]
