"""A program that tests run: found on the machine, or else installed from Debian (as root)."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.services import debian
from scripts.services.service import Unusable


@dataclass(frozen=True, kw_only=True)
class Program:
    title: str
    variable: str
    """An environment variable that names another program than those on PATH."""
    names: tuple[str, ...]
    package: str

    def find(self) -> Path:
        """Raises `Unusable` if there is none; the message says what to do."""
        if named := os.environ.get(self.variable):
            if os.access(named, os.X_OK):
                return Path(named)
            raise Unusable(f"{self.variable} names {named}, which cannot be run")
        for name in self.names:
            if found := shutil.which(name):
                return Path(found)
        raise Unusable(
            f"no {self.title} on PATH: install Debian's package {self.package}, or name one in {self.variable}"
        )

    def find_or_install(self) -> Path:
        """The same, but it is installed first if that is needed and allowed."""
        try:
            return self.find()
        except Unusable:
            if os.environ.get(self.variable) or not debian.here():
                raise
        print(f"Installing {self.title}", flush=True)
        debian.install([self.package])
        return self.find()


def provide(program: Program) -> None:
    """A command's whole work: make sure that the program is there and print where, or exit with one line."""
    try:
        print(f"{program.title} is {program.find_or_install()}", flush=True)
    except Unusable as error:
        sys.exit(f"error: {error}")
