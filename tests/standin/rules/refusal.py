"""Why a request would be refused, in the API's own words wherever they are known from public error reports."""


class InvalidTranscript(Exception):
    """The Messages API would answer 400 `invalid_request_error` with this message."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
