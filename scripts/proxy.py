"""Makes sure that there is an nginx, which a test puts in front of a gateway."""

from scripts.programs import Program, provide

NGINX = Program(
    title="nginx",
    variable="RUNYARD_TEST_NGINX",
    names=("nginx", "/usr/sbin/nginx"),  # where Debian puts it, which is not on everybody's PATH
    package="nginx",
)


if __name__ == "__main__":
    provide(NGINX)
