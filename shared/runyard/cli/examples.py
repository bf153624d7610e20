"""The example agents that ship with Runyard, for `runyard dev` in a folder that has none."""

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
"""In an installed wheel. In a checkout they are in `agents/`, and this folder does not exist."""

FOLDER = Path("agents")
"""Where a person's own are looked for, in the folder that the command is started in."""


def agents_folder() -> Path:
    return EXAMPLES if EXAMPLES.is_dir() and not FOLDER.is_dir() else FOLDER
