"""A setting that is misspelt is told of, with the one that was meant; what it holds is not."""

import pytest
from structlog.testing import capture_logs

from runyard.misspelt import misspelt, warn


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("RUNYARD_WORKER_SLOT", "RUNYARD_WORKER_SLOTS"),
        ("runyard_worker_slot", "RUNYARD_WORKER_SLOTS"),
        ("RUNYARD_DATABSE_URL", "RUNYARD_DATABASE_URL"),
        ("RUNYARD_JWT_SECRETS", "RUNYARD_JWT_SECRET"),
        ("RUNYARD_TOKENS", "RUNYARD_TOKEN"),
        ("RUNYARD_FLUX_CAPACITOR", None),
    ],
)
def test_what_is_no_setting_is_told_with_the_nearest(given: str, meant: str | None) -> None:
    assert list(misspelt({given: "3", "PATH": "/bin"})) == [(given, meant)]


@pytest.mark.parametrize(
    "name",
    [
        "RUNYARD_WORKER_SLOTS",
        "runyard_worker_slots",  # settings are read whatever the case
        "RUNYARD_URL",
        "RUNYARDS_SLOTS",
        "ANTHROPIC_API_KEY",
        "RUNYARD_GATEWAY_SERVICE_HOST",
        "RUNYARD_GATEWAY_SERVICE_PORT_HTTP",
        "RUNYARD_GATEWAY_PORT",
        "RUNYARD_GATEWAY_PORT_8000_TCP_ADDR",
    ],
)
def test_what_is_a_setting_or_others_is_not(name: str) -> None:
    assert list(misspelt({name: "3"})) == []


def test_one_line_each_without_the_value() -> None:
    with capture_logs() as lines:
        warn({"RUNYARD_JWT_SECRETS": "hush", "RUNYARD_MODELL": "x"})
    assert [(line["log_level"], line["setting"], line["nearest"]) for line in lines] == [
        ("warning", "RUNYARD_JWT_SECRETS", "RUNYARD_JWT_SECRET"),
        ("warning", "RUNYARD_MODELL", "RUNYARD_MODEL"),
    ]
    assert "hush" not in str(lines)
