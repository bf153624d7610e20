"""Service keys: how they are written, hashed and read from a setting."""

import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from runyard.text import NAME_RULE, is_name

PREFIX = "ry_"
PATTERN = re.compile(r"ry_[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceKey:
    """`tenants`: those whose users the key's holder may act for."""

    name: str
    hash: str
    tenants: tuple[str, ...]


def new_key() -> str:
    return f"{PREFIX}{secrets.token_hex(32)}"


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def parse_service_keys(text: str) -> tuple[ServiceKey, ...]:
    """`billing:acme+initech:ry_..., nightly:default:ry_...`: the value of `RUNYARD_SERVICE_KEYS`.

    Raises:
        ValueError: says which entry is wrong, by its place, and why; never what it holds.
    """
    keys = tuple(_parsed(text))
    if len({key.name for key in keys}) < len(keys) or len({key.hash for key in keys}) < len(keys):
        raise ValueError("two entries have the same name or the same key")
    return keys


def _parsed(text: str) -> Iterator[ServiceKey]:
    for place, entry in enumerate(text.split(","), 1):
        name, _, rest = entry.strip().partition(":")
        tenants, _, key = rest.rpartition(":")
        named = tuple(dict.fromkeys(tenants.split("+")))
        if not PATTERN.fullmatch(key):
            raise ValueError(f"entry {place} is not name:tenant+tenant:key with a key of {PREFIX} and 64 hex digits")
        if not all(map(is_name, (name, *named))):
            raise ValueError(f"entry {place}: the name and each tenant must be {NAME_RULE}")
        yield ServiceKey(name=name, hash=hash_of(key), tenants=named)
