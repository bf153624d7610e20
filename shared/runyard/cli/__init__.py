"""The `runyard` command."""

from runyard.cli.command import main

__all__ = ["main"]
