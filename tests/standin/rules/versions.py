"""The `anthropic-version` values in use: https://platform.claude.com/docs/en/api/versioning.

2026-10-21 took the sampling parameters away; the 2.x SDKs send it.
"""

LATEST = "2026-10-21"
VERSIONS = frozenset({LATEST, "2023-06-01"})


def has_sampling(version: str) -> bool:
    return version != LATEST
