"""The depth of queues as metrics, measured when the metrics are read."""

import asyncio
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from runyard.depth.queues import QueueDepth
from runyard.errors import StoreUnavailable
from runyard.metrics import DEPTH
from runyard_gateway.depth import Depths

ANSWER_S = 5.0


class DepthSamples(Collector):
    """Collected in the thread that serves metrics, which asks the event loop for the depth."""

    def __init__(self, depths: Depths) -> None:
        self._depths = depths
        self._loop = asyncio.get_running_loop()

    def describe(self) -> Iterator[Metric]:
        """Does not read the depth: it is called on the event loop, which would wait for itself."""
        yield from _families().values()

    def collect(self) -> Iterator[Metric]:
        families = _families()
        try:
            depth = asyncio.run_coroutine_threadsafe(self._depths.now(), self._loop).result(ANSWER_S)
        except (StoreUnavailable, TimeoutError, RuntimeError):
            families["runyard_depth_known"].add_metric([], 0)
        else:
            families["runyard_depth_known"].add_metric([], 1)
            for queue in depth.of_all():
                _add(families, queue)
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {name: GaugeMetricFamily(name, meaning, labels=labels) for name, (meaning, labels) in DEPTH.items()}


def _add(families: dict[str, GaugeMetricFamily], depth: QueueDepth) -> None:
    queue = depth.queue
    for status, runs in (("queued", depth.queued), ("running", depth.running), ("waiting", depth.waiting)):
        families["runyard_queue_runs"].add_metric([queue, status], runs)
    if (messages := depth.messages) is not None:
        for state, count in (("ready", messages.ready), ("delayed", messages.delayed), ("dead", messages.dead)):
            families["runyard_queue_messages"].add_metric([queue, state], count)
    for each in depth.priorities:
        families["runyard_queue_queued"].add_metric([queue, each.priority], each.queued)
        families["runyard_queue_oldest_seconds"].add_metric([queue, each.priority], (each.oldest_ms or 0) / 1000)
        claimable_s = (each.oldest_claimable_ms or 0) / 1000
        families["runyard_queue_claimable_oldest_seconds"].add_metric([queue, each.priority], claimable_s)
    families["runyard_queue_workers"].add_metric([queue], depth.workers.living)
    families["runyard_queue_draining"].add_metric([queue], depth.workers.draining)
    families["runyard_queue_slots"].add_metric([queue], depth.workers.slots)
    for unserved in depth.unserved:
        families["runyard_queue_unserved"].add_metric([queue, unserved.agent], unserved.queued)
