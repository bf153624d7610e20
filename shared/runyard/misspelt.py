"""Variables that begin like settings and are none: a misspelt one would be without effect, and nobody would hear of it.

They stop no start. In a rolling deploy a process of the version before is given the settings of the newer one.
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
    """Each with the setting that it may be meant for, as far as one is near."""
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name.upper() not in SETTINGS and not _SERVICE_LINK.search(name):
            yield name, next(iter(difflib.get_close_matches(name.upper(), SETTINGS, n=1, cutoff=0.8)), None)


def warn(environ: Mapping[str, str]) -> None:
    """One line in the log for each; never what they hold."""
    for name, nearest in misspelt(environ):
        hint = {} if nearest is None else {"nearest": nearest}
        log.warning("setting is unknown: it has no effect", setting=name, **hint)
