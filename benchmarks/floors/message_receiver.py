"""A process whose one actor says when it was called: the other end of `messages.py`. Ends with its standard input."""

import sys
import time

import dramatiq

from benchmarks.floors.messages import ACTOR, POLL_MS, bare_broker


def main() -> None:
    url, namespace = sys.argv[1:]
    broker = bare_broker(url, namespace)

    def empty() -> None:
        sys.stdout.write(f"{time.monotonic_ns()}\n")
        sys.stdout.flush()

    broker.declare_actor(
        dramatiq.Actor(empty, broker=broker, actor_name=ACTOR, queue_name=namespace, priority=0, options={})
    )
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=POLL_MS)
    worker.start()
    sys.stdin.read()
    worker.stop()


if __name__ == "__main__":
    main()
