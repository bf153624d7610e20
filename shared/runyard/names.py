"""What names may be. Parts of longer ones: `<prefix>.<queue>` at the broker, `<prefix>:...` in Redis, `fn:<name>`."""

import re

AGENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""An agent is called as its file is, so this is what a worker can import."""

PART = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
PART_RULE = "1 to 64 letters, digits, '_' and '-', with a letter or '_' first"
"""dramatiq's rule for queues without the dot: dead letters of a queue are `<queue>.XQ`, delayed messages `<queue>.DQ`,
and two pairs of prefix and queue must not make one name."""

FUNCTION_PREFIX = "fn:"
"""In rows and manifests a function is called `fn:<name>`: no agent's name has a colon."""
