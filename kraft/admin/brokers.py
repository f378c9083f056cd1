"""Brokers, as far as one asks a controller about them by name (Kafka: `Admin.unregisterBroker`; KIP-185)."""

from __future__ import annotations

from kraft.admin.client import AdminClient, Refusal
from transport.protocol.errors import Error
from transport.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def unregister_broker(admin: AdminClient, broker_id: int) -> None:
    """Forget a broker that will not come back; one that lives registers again by itself.

    Raises `RequestRefused` and `NoController`.
    """
    await admin.ask_active(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse, _refusal)


def _refusal(answer: UnregisterBrokerResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message
