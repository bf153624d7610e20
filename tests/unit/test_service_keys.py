"""Service keys: how one looks, and those that come with the deployment."""

import hashlib
import re

import pytest

from runyard.service_keys import PATTERN, ServiceKey, hash_of, new_key, parse_service_keys

KEY, OTHER = "ry_" + "0f" * 32, "ry_" + "1e" * 32


def test_a_new_key_is_found_by_scanners() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    text = f"RUNYARD_KEY={' '.join(keys)};"
    assert set(re.findall(r"ry_[0-9a-f]{64}", text)) == keys
    assert all(PATTERN.fullmatch(key) for key in keys)


def test_a_key_is_known_by_its_hash() -> None:
    assert hash_of(KEY) == hashlib.sha256(KEY.encode()).hexdigest()


def test_keys_of_the_deployment() -> None:
    found = parse_service_keys(f"billing:acme+initech+acme:{KEY}, nightly:default+default:{OTHER}")
    assert found == (
        ServiceKey(name="billing", hash=hash_of(KEY), tenants=("acme", "initech")),
        ServiceKey(name="nightly", hash=hash_of(OTHER), tenants=("default",)),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (KEY, "entry 1 is not name:tenant"),
        (f"a:{KEY}", "entry 1: the name and each tenant"),
        (f":acme:{KEY}", "entry 1: the name and each tenant"),
        (f"a:acme+:{KEY}", "entry 1: the name and each tenant"),
        (f"a:acme:{KEY},", "entry 2 is not name:tenant"),
        (f"a:acme:{KEY},b:acme:{OTHER[:-1]}", "entry 2 is not name:tenant"),
        (f"a:acme:{KEY.upper()}", "entry 1 is not name:tenant"),
        (f"a:acme:{KEY},a:acme:{OTHER}", "the same name or the same key"),
        (f"a:acme:{KEY},b:acme:{KEY}", "the same name or the same key"),
    ],
)
def test_what_is_no_key_of_a_deployment_is_named_and_not_shown(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_service_keys(given)
    assert not re.search("(0f|1e){4}", str(caught.value), re.IGNORECASE)
