"""The answers that do not depend on the part that serves a listener, and the end of what no part serves."""

from __future__ import annotations

from kraft.replica.replica import Replica
from kraft.replica.rpc.api_versions import describe_versions, refuse_login
from kraft.replica.rpc.describe_rpc import describe_cluster
from kraft.server import Server
from kraft.wire import Answer, Drop, WireRequest
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import ApiVersionsRequest
from transport.protocol.messages.describe_cluster import DescribeClusterRequest


def answer_of_any(replica: Replica, part: Server, request: WireRequest, *, is_broker: bool) -> Answer | Drop:
    """Answer a request that each listener knows, or close the connection.

    Args:
        replica: The replica of the log.
        part: The part that serves the listener.
        request: The request, of no API of the part.
        is_broker: Whether the listener is one of a broker.
    """
    message = request.message
    if request.api_key == ApiKey.API_VERSIONS:
        assert isinstance(message, ApiVersionsRequest), message
        broker = (replica.storage.cluster_id, replica.core.local.id) if is_broker else None
        kraft_version = replica.core.history.kraft_version
        described = describe_versions(part, message, request.version, kraft_version, broker)
        if described.error_code != Error.INVALID_REQUEST:
            part.on_software(
                request.listener, request.peer, message.client_software_name, message.client_software_version
            )
        return Answer(request.request_id, described)
    if isinstance(message, DescribeClusterRequest):
        cluster = describe_cluster(
            message,
            version=request.version,
            listener=request.listener,
            cluster_id=replica.storage.cluster_id,
            leader_id=replica.core.leader.leader_id,
            voters=replica.core.voters,
        )
        return Answer(request.request_id, cluster)
    refusal = refuse_login(message)
    if refusal is None and (is_broker or not part.apis):
        refusal = _refuse_unserved(message)
    if refusal is not None:
        return Answer(request.request_id, refusal)
    where = "listener" if is_broker else "node"
    return Drop(request.request_id, f"this {where} does not serve API {request.api_key}")


def _refuse_unserved(message: Message) -> Message | None:
    # Loaded here, because no client asks that looks at what is advertised.
    from kraft.process.unserved import refuse_unserved

    return refuse_unserved(message)
