"""From a model's name and the settings to a provider, or to a message that names what is missing."""

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from runyard.errors import ModelNotConfigured
from runyard_workers.providers.anthropic import AnthropicProvider
from runyard_workers.providers.demo import DemoProvider
from runyard_workers.providers.registry import Providers

KEY = {"ANTHROPIC_API_KEY": "sk-ant-secret"}


@pytest.mark.parametrize(
    ("model", "kind", "name"),
    [
        ("claude-sonnet-5-5", AnthropicProvider, "claude-sonnet-5-5"),
        ("anthropic:claude-sonnet-5-5", AnthropicProvider, "claude-sonnet-5-5"),
        ("anthropic:family:size", AnthropicProvider, "family:size"),
        ("demo:", DemoProvider, "demo"),
        ("demo:anything", DemoProvider, "anything"),
    ],
)
def test_a_models_name_says_its_provider(model: str, kind: type, name: str) -> None:
    provider, resolved = Providers(environ=KEY).resolve(model)
    assert (type(provider), resolved) == (kind, name)


@pytest.mark.parametrize(
    ("model", "environ", "told"),
    [
        (None, KEY, "RUNYARD_MODEL"),
        ("", KEY, "RUNYARD_MODEL"),
        ("openai:gpt-5.5", KEY, "anthropic: and demo:"),
        ("llama3:8b", {}, "'llama3:'"),
        ("anthropic:", KEY, "names no model"),
        ("claude-sonnet-5-5", {}, "ANTHROPIC_API_KEY is not set"),
        ("claude-sonnet-5-5", {"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY is not set"),
        ("claude-sonnet-5-5", {"ANTHROPIC_API_KEY": "sk-ant-secret\n"}, "ANTHROPIC_API_KEY holds"),
        ("claude-sonnet-5-5", {"ANTHROPIC_API_KEY": " sk-ant-secret"}, "ANTHROPIC_API_KEY holds"),
        ("claude-sonnet-5-5", {"ANTHROPIC_API_KEY": "sk-ant-secret\u200b"}, "ANTHROPIC_API_KEY holds"),
        *(
            ("claude-sonnet-5-5", KEY | {"ANTHROPIC_BASE_URL": url}, "ANTHROPIC_BASE_URL")
            for url in (
                "sk-ant-secret",
                "ftp://secret.example",
                "http://",
                "http://secret.example\n",
                "http://secret .example",
                "http://secret.example:port",
                "http://secret.example:99999",
                "http://[::1",
            )
        ),
    ],
)
def test_what_is_missing_is_named_and_no_secret_shown(model: str | None, environ: dict[str, str], told: str) -> None:
    with pytest.raises(ModelNotConfigured, match=told) as failure:
        Providers(environ=environ).resolve(model)
    assert "secret" not in failure.value.message


def test_the_demo_model_needs_no_key() -> None:
    assert isinstance(Providers(environ={}).resolve("demo:")[0], DemoProvider)


@pytest.mark.parametrize("model", [None, "claude-sonnet-5-5", "openai:gpt-5.5", "demo:"])
def test_in_development_without_a_key_every_model_is_the_demo_model(model: str | None) -> None:
    with capture_logs() as logs:
        providers = Providers(environ={}, dev=True)
        assert isinstance(providers.resolve(model)[0], DemoProvider)
        assert isinstance(providers.resolve(model)[0], DemoProvider)
    assert providers.demo_stands_in
    assert [(log["event"], log["log_level"]) for log in logs] == [("demo model answers", "warning")]


def test_in_development_with_a_key_models_are_real() -> None:
    with capture_logs() as logs:
        providers = Providers(environ=KEY, dev=True)
    assert isinstance(providers.resolve("claude-sonnet-5-5")[0], AnthropicProvider)
    assert (providers.demo_stands_in, logs) == (False, [])
    with pytest.raises(ModelNotConfigured):
        Providers(environ={"ANTHROPIC_API_KEY": "two words"}, dev=True).resolve("claude-sonnet-5-5")


@pytest.mark.anyio
async def test_without_a_key_there_is_nothing_to_warm_or_close() -> None:
    providers = Providers(environ={})
    await providers.warm()
    await providers.aclose()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = "{'anthropic', 'httpx2', 'genai_prices'}"
    code = f"import sys, runyard_workers.providers.registry; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
