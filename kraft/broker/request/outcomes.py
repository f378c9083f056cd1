"""What comes out of the handlers of data requests (Kafka: `RequestChannel`)."""

from __future__ import annotations

from kraft.broker.asked import Answer, Close, NoAnswer

Outcome = Answer | Close | NoAnswer
