"""Service keys written and revoked directly in the database, at once, where the command takes a second."""

import json

from tests.integration.stack import Stack

from runyard.service_keys import hash_of, new_key


def add_key(stack: Stack, name: str, *tenants: str) -> str:
    key = new_key()
    stack.execute(
        "INSERT INTO service_keys (name, hash, last_four, tenants, created_at)"
        " VALUES (:name, :hash, :last, :tenants, 0)",
        name=name,
        hash=hash_of(key),
        last=key[-4:],
        tenants=json.dumps(tenants),
    )
    return key


def revoke_key(stack: Stack, name: str) -> None:
    stack.execute("UPDATE service_keys SET revoked_at = 1 WHERE name = :name", name=name)
