"""Metrics of a process, as Prometheus reads them."""

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.processes import eventually

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(port: int) -> Samples:
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).raise_for_status().text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


async def shows(port: int, name: str, expected: float, **labels: str) -> None:
    """A scrape may find a look that is a second old, and a count a moment before it is raised."""
    await eventually(lambda: value(scraped(port), name, **labels) == expected, f"{name} {labels} = {expected}")
