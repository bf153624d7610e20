"""`runyard fsck`: does what the database and Redis hold fit together, while the system runs?

`inspection.py` walks, `snapshots.py` reads the rows, the other modules each hold one kind of invariant. Nothing here
writes, takes a lock, or shows what people and models said. `docs/fsck.md` says what each finding means.
"""
