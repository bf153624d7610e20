"""RabbitMQ: the running server, and a node for one test, which may be killed."""

import os

import pika
import pytest

URL_VARIABLE = "RUNYARD_TEST_RABBITMQ_URL"
URL_DEFAULT = "amqp://guest:guest@127.0.0.1:5672"


def rabbitmq_server() -> str:
    """Without a server the test fails. Others may use it too: queues of one's own prefix."""
    url = os.environ.get(URL_VARIABLE, URL_DEFAULT)
    try:
        pika.BlockingConnection(pika.URLParameters(url)).close()
    except (pika.exceptions.AMQPError, OSError) as error:
        pytest.fail(
            f"no RabbitMQ at {url}: start it, or name another server in {URL_VARIABLE} ({error!r})", pytrace=False
        )
    return url
