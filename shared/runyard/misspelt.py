"""Warns of environment variables that begin like settings but are none, since a misspelt setting has no effect.

They do not stop the start: in a rolling deploy an older version may run with the settings of the newer one.
"""

import difflib
import re
from collections.abc import Iterator, Mapping

import structlog

from runyard.settings import PREFIX, CallerSettings, Settings

SETTINGS = {f"{PREFIX}{name.upper()}" for kind in (Settings, CallerSettings) for name in kind.model_fields}

_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)|_PORT$")
"""What Kubernetes sets in every pod beside a Service `runyard-...`.
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

log = structlog.get_logger()


def misspelt(environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """By name, with the setting that is probably meant, if there is one with a similar name."""
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name.upper() not in SETTINGS and not _SERVICE_LINK.search(name):
            yield name, next(iter(difflib.get_close_matches(name.upper(), SETTINGS, n=1, cutoff=0.8)), None)


def warn(environ: Mapping[str, str]) -> None:
    """Log one line for each, without its value."""
    for name, nearest in misspelt(environ):
        hint = {} if nearest is None else {"nearest": nearest}
        log.warning("setting is unknown: it has no effect", setting=name, **hint)
