"""The exceptions of Anthropic's SDK and of the HTTP client below it, translated once. Importing this costs seconds."""

import anthropic
import httpx2

from runyard.errors import ProviderError, ProviderUnavailable
from runyard_workers.providers.failures import api_failure, cut_stream
from runyard_workers.providers.retry_hints import retry_after_s, says_whether_to_retry

SDK_ERRORS = (anthropic.AnthropicError, httpx2.HTTPError)


def translated(error: Exception, *, model: str, secret: str) -> ProviderError:
    """One of `SDK_ERRORS` -> what is stored on the run."""
    match error:
        case anthropic.APIStatusError():
            said = (error.api_message or error.response.reason_phrase).replace(secret, "[redacted]")
            headers = error.response.headers
            return api_failure(
                status=error.status_code,
                error_type=error.type,
                said=said,
                model=model,
                is_passing=says_whether_to_retry(headers),
                retry_after_s=retry_after_s(headers),
            )
        case anthropic.APIConnectionError():
            reason = type(error.__cause__ or error).__name__
            return ProviderUnavailable(
                f"the provider cannot be reached ({reason}): check ANTHROPIC_BASE_URL and the network",
                status=None,
                type="connection_error",
            )
        case httpx2.HTTPError():
            return cut_stream()
        case _:
            return ProviderError(f"the provider's SDK failed ({type(error).__name__})", status=None, type=None)


def showable(error: Exception, *, secret: str) -> Exception | None:
    """The error as a cause that logs may print; None where its text repeats the secret, as some providers' do."""
    return None if secret in str(error) else error
