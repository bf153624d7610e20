"""Postgres, Redis and RabbitMQ for the tests."""
