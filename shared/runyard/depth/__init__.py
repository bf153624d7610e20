"""How deep the queues are: what the broker holds, what the rows say, and which workers live."""
