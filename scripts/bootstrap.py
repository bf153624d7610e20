"""Builds .venv from uv.lock with the Python that runs this file; at once when .venv is as uv.lock wants it.

Needs nothing but Python, and the package registry the first time. Old versions of Python must be able to read this
file: it is what tells them that they are too old.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
TOOLS = ROOT / ".tools"
BUILT_FROM = VENV / ".built-from"
SOURCES = ("uv.lock", "pyproject.toml", "shared/pyproject.toml", "gateway/pyproject.toml", "workers/pyproject.toml")

PYTHON_MIN = (3, 11)
UV_VERSION = "0.13.9"
UV_MIN = (0, 13)  # older ones do not read all that uv.lock holds

SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/cert.pem",  # macOS
)


class CannotBuild(Exception):
    """The message is one line that says what to do."""


def main() -> None:
    if sys.version_info < PYTHON_MIN:
        raise CannotBuild(
            f"{sys.executable} is Python {sys.version.split()[0]}, and 3.11 or newer is needed: "
            "name one with `make PYTHON=/path/to/python3 ...`"
        )
    wanted = fingerprint()
    if (VENV / "bin/python").exists() and BUILT_FROM.exists() and BUILT_FROM.read_text() == wanted:
        return
    print("Installing what Runyard needs into .venv", flush=True)
    environment = build_environment()
    sync = [find_uv(environment), "sync", "--locked", "--compile-bytecode", "--python", sys.executable]
    run(sync, environment, "the packages could not be installed: uv's lines above say why")
    BUILT_FROM.write_text(wanted)


def fingerprint() -> str:
    """Changes with the lock and the metadata, and when the folder is moved: scripts in .venv hold its path."""
    digest = hashlib.sha256(str(ROOT).encode())
    for source in SOURCES:
        digest.update((ROOT / source).read_bytes())
    return digest.hexdigest()


def build_environment() -> "dict[str, str]":
    environment = dict(os.environ, UV_PROJECT_ENVIRONMENT=str(VENV), UV_PYTHON_DOWNLOADS="never")
    environment.pop("VIRTUAL_ENV", None)  # of another project, whose owner happens to have it active
    if any(Path(certificates).exists() for certificates in SYSTEM_CERTIFICATES):
        environment.setdefault("UV_SYSTEM_CERTS", "1")  # those of a company's proxy are only there
    home = environment.get("HOME")
    if not home or not os.access(home, os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(TOOLS / "cache/uv"))
        environment.setdefault("PIP_CACHE_DIR", str(TOOLS / "cache/pip"))
    return environment


def find_uv(environment: "dict[str, str]") -> str:
    """The one on PATH when it is new enough, else one of our own in .tools."""
    own = TOOLS / "uv/bin/uv"
    for found in (shutil.which("uv"), str(own)):
        if found and uv_version(found) >= UV_MIN:
            return found
    if not has_venv():
        install_venv()
    reason = "uv could not be installed: the lines above say why; an installed uv on PATH does as well"
    run([sys.executable, "-m", "venv", "--clear", str(TOOLS / "uv")], environment, reason)
    pip = [str(TOOLS / "uv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, f"uv=={UV_VERSION}"], environment, reason)
    return str(own)


def uv_version(uv: str) -> "tuple[int, ...]":
    """`uv 0.13.9 (x86_64-unknown-linux-gnu)` -> `(0, 13)`; `()` for what does not run."""
    try:
        words = subprocess.run([uv, "--version"], check=True, capture_output=True, text=True).stdout.split()
        return tuple(int(part) for part in words[1].split(".")[:2])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        return ()


def has_venv() -> bool:
    """Debian ships Python without ensurepip, and without it venv makes no pip."""
    probe = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], check=False, stderr=subprocess.DEVNULL)
    return probe.returncode == 0


def install_venv() -> None:
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotBuild(f"{sys.executable} has no venv module: install the package {package}, or uv, and try again")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    reason = f"the package {package} could not be installed: the lines above say why"
    run(["apt-get", "update", "-qq"], environment, reason)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], environment, reason)


def run(command: "list[str]", environment: "dict[str, str]", reason: str) -> None:
    """`reason`: what to say when it fails."""
    if subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode != 0:
        raise CannotBuild(reason)


if __name__ == "__main__":
    try:
        main()
    except CannotBuild as error:
        sys.exit(f"error: {error}")
