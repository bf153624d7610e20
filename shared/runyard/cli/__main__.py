"""`python -m runyard.cli` is the `runyard` command."""

from runyard.cli import main

main()
