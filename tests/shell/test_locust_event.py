"""Locust's own listeners, CSV files and web UI go on working: every attempt fires its `request` event."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
from agentload.drivers import locust_worker as module
from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.call import Call
from agentload.drivers.locust_common import shard_class, worker_environment
from agentload.drivers.tally import Tally
from agentload.client.logical import AttemptResult
from agentload.model import Outcome, RequestRecord
from locust.exception import StopUser
import json

worker = module.Worker.__new__(module.Worker)
worker.books = books = Bookkeeper(Tally(), worker._tell)
worker.environment = worker_environment(shard_class(lambda: None))
worker.environment.create_local_runner()
heard = []
worker.environment.events.request.add_listener(lambda **event: heard.append(event))

@worker.environment.events.request.add_listener
def ends_the_user(**event):
    raise StopUser

def record(outcome, **more):
    times = {"due_ns": 0, "first_due_ns": 0, "sent_ns": 1_000_000, "ended_ns": 25_000_000}
    return RequestRecord(seq=1, attempt=0, tenant="a", service_class="s", phase="p", outcome=outcome,
                         final=True, **times, **more)

for outcome, more in ((Outcome.ANSWERED, {}), (Outcome.REJECTED, {"status": 429, "reason": "queue-full"})):
    books.keep(record(outcome, **more), Call(AttemptResult(outcome=outcome, sent_ns=0), 0, body_bytes=7))
books.keep(record(Outcome.UNSENT), None)
kept = books.take_records()
entry = worker.environment.stats.get("a", "POST")
print(json.dumps({
    "times": [event["response_time"] for event in heard],
    "lengths": [event["response_length"] for event in heard],
    "exceptions": [event["exception"] and str(event["exception"]) for event in heard],
    "stats": [entry.num_requests, entry.num_failures, entry.max_response_time],
    "records": len(kept),
}))
"""


def test_attempts_fire_locusts_request_event_and_no_listener_can_spoil_the_records() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == {
        "times": [25.0, 25.0],
        "lengths": [7, 7],
        "exceptions": [None, "rejected 429 queue-full"],
        "stats": [2, 1, 25.0],
        "records": 3,
    }
