"""The target of each figure.

The peers' figures were taken on the same kind of machine (2 cores) with a stand-in model and one step of 20 deltas:
langgraph-api 0.16 (keeps all in memory), Aegra 0.11 and Agno 3.1 (Postgres and Redis).
"""

from benchmarks.report import Target

FIRST_TOKEN = (
    Target(text="8 ms or less (Aegra 32, Agno 42, inline 7.7)", limit=8),
    Target(text="at most 4 times a bare message", limit=4, of_ratio=True),
)
RUNS_PER_S = (
    Target(text="85 or more: 5 times Aegra and Agno", limit=85, at_least=True),
    Target(text="92 or more: twice Agno inline", limit=92, at_least=True),
)
CPU_PER_RUN = (Target(text="13 ms or less (langgraph 13, Aegra 55)", limit=13),)
LONG_STREAM = (Target(text="10,000 or more (langgraph 3,625)", limit=10_000, at_least=True),)
CPU_PER_FRAME = (Target(text="at most 3 times the floor", limit=3, of_ratio=True),)
REPLAY = (Target(text="at most 4 times the floor (Aegra 151)", limit=4, of_ratio=True),)
RESUME = (Target(text="at most 1/10 of a full replay", limit=0.1, of_ratio=True),)
RECOVERY = (Target(text="15 s or less", limit=15),)
CANCEL = (Target(text="p95 300 ms or less", limit=300),)
CANCEL_WITHOUT_REDIS = (Target(text="p95 2,500 ms or less", limit=2500),)
POLLING = (Target(text="the same, whatever the number of runs", limit=1.1, of_ratio=True),)
CLAIM_BACKLOG = (Target(text="at most twice as much", limit=2, of_ratio=True),)
FAN_OUT = (Target(text="0.6 of the floor or more", limit=0.6, of_ratio=True, at_least=True),)
DELAY = (Target(text="p50 below 1 ms", limit=1),)
READER_MEMORY = (Target(text="16 KB or less", limit=16),)
GROWTH = (Target(text="at most 1.5 times as much", limit=1.5, of_ratio=True),)
