"""A small gateway of jobs that is nobody's: its own paths, names and states, and a store in SQLite.

    python tests/foreign_jobs.py --port 8080 --upstream http://127.0.0.1:9000 --store tasks.db

`POST /tasks` → 202 `{"task": {"ref": …, "phase": "pending"}}`, `GET /tasks/REF`, `POST /tasks/REF/abort`.
Its broken forms: `--store :memory:` keeps tasks in memory alone, `--twice` puts every task that it finds at
its start back to work, the finished ones, too, `--deaf` hears no abort.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import kill
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from process_facts import wait_until
from real_gateways import free_port, listens

JSON = {"Content-Type": "application/json"}
WORKERS = 8
COLUMNS = "ref text primary key, key text unique, body text, phase text, answer text"
NAMES = """\
flavour: jobs
path: /tasks
poll_s: 0.1
jobs:
  body: {ask: "{prompt}", most: "{max_tokens}"}
  poll: /tasks/{id}
  id: task.ref
  state: task.phase
  done: [ready]
  failed: [broken, aborted]
  expired: []
  reason: task.why
  text: task.answer.choices.0.message.content
  input_tokens: task.answer.usage.prompt_tokens
  output_tokens: task.answer.usage.completion_tokens
"""


class Tasks:
    """All that were accepted, behind one lock; a change is on disk before anybody hears of it."""

    def __init__(self, store: str, *, twice: bool) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(store, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute(f"create table if not exists tasks ({COLUMNS})")
        self.work: SimpleQueue[str] = SimpleQueue()
        self.calls: dict[str, http.client.HTTPConnection] = {}
        found = "phase != 'aborted'" if twice else "phase in ('pending', 'working')"
        for (ref,) in self._db.execute(f"select ref from tasks where {found} order by rowid").fetchall():
            self.work.put(ref)

    def do(self, statement: str, *values: str) -> list[Any]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()

    def accept(self, key: str, body: str) -> dict[str, Any]:
        new = uuid.uuid4().hex
        self.do("insert or ignore into tasks values (?, ?, ?, 'pending', null)", new, key or new, body)
        [(ref, phase)] = self.do("select ref, phase from tasks where key = ?", key or new)
        if ref == new:
            self.work.put(ref)
        return {"task": {"ref": ref, "phase": phase}}

    def show(self, ref: str) -> dict[str, Any] | None:
        found = self.do("select phase, answer from tasks where ref = ?", ref)
        if not found:
            return None
        [(phase, answer)] = found
        return {"task": {"ref": ref, "phase": phase, "answer": answer and json.loads(answer)}}

    def begin(self, ref: str, call: http.client.HTTPConnection) -> bool:
        """A call is about to be made; not for a task that was aborted meanwhile."""
        with self._lock:
            [(phase,)] = self._db.execute("select phase from tasks where ref = ?", (ref,)).fetchall()
            if phase != "aborted":
                self.calls[ref] = call
            return phase != "aborted"

    def abort(self, ref: str) -> dict[str, Any] | None:
        self.do("update tasks set phase = 'aborted' where ref = ? and phase in ('pending', 'working')", ref)
        with self._lock:
            call = self.calls.pop(ref, None)
        if call is not None and call.sock is not None:
            call.sock.shutdown(socket.SHUT_RDWR)
        return self.show(ref)


def work(tasks: Tasks, upstream: str) -> None:
    """One worker: takes tasks up, and asks the provider until it answers."""
    while True:
        ref = tasks.work.get()
        tasks.do("update tasks set phase = 'working' where ref = ? and phase = 'pending'", ref)
        [(phase, body)] = tasks.do("select phase, body from tasks where ref = ?", ref)
        if phase == "aborted":
            continue
        call = http.client.HTTPConnection(upstream, timeout=30)
        asked = json.loads(body)
        chat = {
            "model": "m",
            "messages": [{"role": "user", "content": asked["ask"]}],
            "max_tokens": asked.get("most"),
        }
        try:
            call.connect()
            if not tasks.begin(ref, call):
                continue
            call.request("POST", "/v1/chat/completions", json.dumps(chat), JSON)
            answer = call.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            tasks.work.put(ref)
            continue
        finally:
            tasks.calls.pop(ref, None)
            call.close()
        if answer.status == 200:
            done = "update tasks set phase = 'ready', answer = ? where ref = ? and phase != 'aborted'"
            tasks.do(done, text, ref)
        else:
            tasks.work.put(ref)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    tasks: Tasks
    deaf = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path.endswith("/abort"):
            self._answer(
                404 if self.deaf else 200, self.tasks.abort(self.path.split("/")[2]) if not self.deaf else {}
            )
        else:
            self._answer(202, self.tasks.accept(self.headers.get("X-Request-Key") or "", body))

    def do_GET(self) -> None:
        if self.path == "/ok":
            return self._answer(200, {})
        shown = self.tasks.show(self.path.rpartition("/")[2])
        return self._answer(404 if shown is None else 200, shown or {"error": "no such task"})

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--upstream")
    parser.add_argument("--store")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    told = parser.parse_args()
    Handler.tasks, Handler.deaf = Tasks(told.store, twice=told.twice), told.deaf
    for _ in range(WORKERS):
        threading.Thread(target=work, args=(Handler.tasks, told.upstream), daemon=True).start()
    Server(("127.0.0.1", told.port), Handler).serve_forever()


@dataclass
class ForeignJobs:
    target: Path
    url: str
    provider_port: int


@contextmanager
def serving_jobs(
    folder: Path, *words: str, store: str = "tasks.db", more: str = ""
) -> Generator[ForeignJobs]:
    """One of them, as its owner would run it: `store` may be `:memory:`. `more`: keys of its target file."""
    folder.mkdir(parents=True, exist_ok=True)
    port, provider = free_port(), free_port()
    command = [sys.executable, __file__, "--port", str(port), "--upstream", f"127.0.0.1:{provider}"]
    script = folder / "start"
    start = shlex.join([*command, "--store", store, *words])
    script.write_text(f"#!/bin/sh\n{start} > gateway.log 2>&1 &\necho $! > gateway.pid\n")
    script.chmod(0o700)
    target = folder / "target.yaml"
    target.write_text(
        f"base_url: http://127.0.0.1:{port}\nhealth: /ok\n{NAMES}{more}"
        f"process: {{pid_file: gateway.pid, restart: ./start}}\n"
        f"provider: {{listens: '127.0.0.1:{provider}'}}\n"
    )
    subprocess.run(["./start"], cwd=folder, check=True)
    try:
        wait_until(lambda: listens(port), 20)
        yield ForeignJobs(target, f"http://127.0.0.1:{port}", provider)
    finally:
        with suppress(OSError, ValueError):
            kill(int((folder / "gateway.pid").read_text()), signal.SIGKILL)


if __name__ == "__main__":
    main()
