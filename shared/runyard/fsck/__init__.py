"""`runyard fsck`: do the database and Redis fit together, while the system runs?

`inspection.py` walks over the runs, `snapshots.py` reads their rows, and each other module checks one kind of
invariant. Nothing here writes, takes a lock, or shows what people and models said. `docs/fsck.md` explains each
finding.
"""
