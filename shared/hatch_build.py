"""Puts the example agents, which live beside this distribution in the repository, into its wheel and its sdist."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "runyard/examples"


class ShippedExamples(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An sdist has them in their place already, an editable installation serves the repository's folder.

        Where only this distribution is built (a container image), there are none.
        """
        agents = Path(self.root).parent / "agents"
        if version != "editable" and not (Path(self.root) / PLACE).exists() and agents.is_dir():
            build_data["force_include"][str(agents)] = PLACE
