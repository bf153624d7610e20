"""The names of streams' keys in Redis. Every key has a TTL."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamKeys:
    prefix: str

    def frames(self, stream_id: str) -> str:
        """A Redis stream: entry id `<seq>-0`, fields `e` (event, absent for answer text) and `d` (data)."""
        return f"{self.prefix}:stream:{stream_id}"

    def meta(self, stream_id: str) -> str:
        """A hash: generation, state (`live`, `closed`), first, last, bytes, base."""
        return f"{self.prefix}:stream:{stream_id}:meta"

    def channel(self, stream_id: str) -> str:
        """The channel on which each stored batch is published (`runyard.streams.batch`)."""
        return f"{self.prefix}:live:{stream_id}"

    @property
    def finished(self) -> str:
        """A sorted set of the ids of closed streams, by the time of their close in epoch milliseconds
        of Redis' clock.
        """
        return f"{self.prefix}:streams:finished"
