"""The registrations of brokers (Kafka: `Admin.unregisterBroker`, KIP-185)."""

from __future__ import annotations

from kraft.admin.client import AdminClient, Refusal
from transport.protocol.errors import Error
from transport.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def unregister_broker(admin: AdminClient, broker_id: int) -> None:
    """Unregister a lost broker (Kafka: `Admin.unregisterBroker`, KIP-185). A live broker registers again.

    Args:
        admin: The client.
        broker_id: The id of the broker.

    Raises:
        RequestRefused: No broker has this id, or the caller has no permission.
        NoController: No controller answered in time.
    """
    await admin.ask_active(
        UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse, _refusal_of_unregistering
    )


def _refusal_of_unregistering(answer: UnregisterBrokerResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message
