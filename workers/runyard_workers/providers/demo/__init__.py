"""The demo model: an agent's streamed answers and tool calls without a provider."""

from runyard_workers.providers.demo.provider import DemoProvider

__all__ = ["DemoProvider"]
