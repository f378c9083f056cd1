"""The registrations of brokers and controllers (Kafka: `Admin.unregisterBroker`, `Admin.unregisterController`)."""

from __future__ import annotations

from kraft.admin.client import AdminClient, Refusal
from transport.protocol.errors import Error
from transport.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from transport.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


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


async def unregister_controller(admin: AdminClient, controller_id: int) -> None:
    """Remove the registration of a lost controller (from Kafka 4.4 on). A live controller registers again.

    Args:
        admin: The client.
        controller_id: The id of the controller.

    Raises:
        RequestRefused: No controller has this id, it is the active one, the metadata.version is older than 4.4-IV2, or
            the caller has no permission.
        NoController: No controller answered in time.
    """
    await admin.ask_active(
        UnregisterControllerRequest(controller_id=controller_id),
        UnregisterControllerResponse,
        lambda answer: (Error.of(answer.error_code), answer.error_message),
    )
