"""Asks the gateway whether it is up and which agents it has."""

import asyncio
import http.client
import json
from dataclasses import dataclass

POLL_S = 0.1
TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Probe:
    host: str
    port: int

    async def ready(self) -> None:
        """Returns when the gateway says that it is ready."""
        while not await self._is_ready():  # noqa: ASYNC110 (another process sets no event of ours)
            await asyncio.sleep(POLL_S)

    async def _is_ready(self) -> bool:
        status, _ = await asyncio.to_thread(self._get, "/readyz")
        return status == http.client.OK

    async def agents(self) -> list[str]:
        """The names of the agents that living workers serve, without those that only ran here before; waits for the
        first.
        """
        while True:
            status, body = await asyncio.to_thread(self._get, "/v1/agents")
            items = json.loads(body)["items"] if status == http.client.OK else []
            if served := sorted(item["name"] for item in items if item["liveWorkers"]):
                return served
            await asyncio.sleep(POLL_S)

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status 0: nothing that speaks HTTP listens yet."""
        # No urllib: it would send a loopback address through the environment's proxy.
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()
