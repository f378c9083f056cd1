"""A client of brokers: writes records to topics and reads them (Kafka: `KafkaProducer`, `KafkaConsumer`).

One record, written and read:

    async with open_client([Endpoint("127.0.0.1", 9092)]) as client:
        async with client.producer("orders") as producer:
            delivery = await producer.send(b"three apples", key=b"customer 7")
            print((await delivery.wait()).offset)
        async with client.consumer("orders") as consumer:
            async for record in consumer:
                print(record.offset, record.key, record.value)
"""

from kraft.client.client import (
    Client,
    Consumer,
    Delivery,
    GroupConsumer,
    Producer,
    Transaction,
    TransactionalProducer,
    open_client,
    open_share_consumer,
)
from kraft.client.share_consumer import ShareConsumer
from kraft.client.state.consuming import ConsumerSettings
from kraft.client.state.errors import ClientError
from kraft.client.state.grouping import GroupProtocol, GroupSettings
from kraft.client.state.positions import AtOffset, AtTime, Beginning, ConsumedRecord, End, Isolation
from kraft.client.state.producing import Delivered, ProducerSettings
from kraft.client.state.share_acks import Acknowledged, AcknowledgeType
from kraft.client.state.share_session import AcquireMode
from kraft.client.state.sharing import ShareSettings
from kraft.client.state.transacting import TransactionSettings
from metadata_log.compression import Compression
from metadata_log.lazy_names import public_dir
from metadata_log.records.record import Header

__all__ = [
    "AcknowledgeType",
    "Acknowledged",
    "AcquireMode",
    "AtOffset",
    "AtTime",
    "Beginning",
    "Client",
    "ClientError",
    "Compression",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "Delivered",
    "Delivery",
    "End",
    "GroupConsumer",
    "GroupProtocol",
    "GroupSettings",
    "Header",
    "Isolation",
    "Producer",
    "ProducerSettings",
    "ShareConsumer",
    "ShareSettings",
    "Transaction",
    "TransactionSettings",
    "TransactionalProducer",
    "open_client",
    "open_share_consumer",
]
__dir__ = public_dir(__name__)
