"""Sees to it that there is an nginx, which a test puts in front of a gateway."""

import sys

from scripts.programs import Program
from scripts.services.service import Unusable

NGINX = Program(
    title="nginx",
    variable="RUNYARD_TEST_NGINX",
    names=("nginx", "/usr/sbin/nginx"),  # where Debian puts it, which is not on everybody's PATH
    package="nginx",
)


if __name__ == "__main__":
    try:
        print(f"nginx is {NGINX.see_to()}", flush=True)
    except Unusable as error:
        sys.exit(f"error: {error}")
