"""The text of a peer's error, without Java's internals."""

from __future__ import annotations

import pytest

from transport.protocol.server_text import server_text

REQUEST = (
    "Request(processor=1, connectionId=127.0.0.1:9093-127.0.0.1:51234-0-3, "
    "session=org.apache.kafka.network.Session@3a2f1c9d, listenerName=ListenerName(SASL), securityProtocol=SASL_SSL, "
    "buffer=null, envelope=None)"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, None),
        ("", None),
        ("Topic 'a' already exists.", "Topic 'a' already exists."),
        (f"Request {REQUEST} is not authorized.", "Request is not authorized."),
        (f"Request {REQUEST} needs CLUSTER permission", "Request needs CLUSTER permission"),
        ("org.apache.kafka.common.errors.TopicExistsException: Topic 'a' already exists.", "Topic 'a' already exists."),
        (
            "java.util.concurrent.CompletionException: org.apache.kafka.common.errors.InvalidTopicException: bad name",
            "bad name",
        ),
        ("org.apache.kafka.common.errors.UnknownServerException", None),
        ('java.lang.NullPointerException: Cannot invoke "java.util.Map.get(Object)" because "<local4>" is null', None),
        (
            "The request failed: java.lang.IllegalStateException: no\n\tat kafka.server.KafkaApis.handle(K.scala:217)",
            "The request failed",
        ),
        ("first line\n\tat org.apache.kafka.Foo.bar(Foo.java:1)", "first line"),
        (
            "Unknown ConfigResource(type=TOPIC, name='a') here",
            "Unknown ConfigResource(type=TOPIC, name='a') here",
        ),
        (
            "Invalid value org.example.Policy for configuration create.topic.policy.class.name: not found",
            "Invalid value org.example.Policy for configuration create.topic.policy.class.name: not found",
        ),
        ("Object Foo(a=1", "Object Foo(a=1"),
    ],
)
def test_a_text_is_cut_to_a_sentence(text: str | None, told: str | None) -> None:
    assert server_text(text) == told
