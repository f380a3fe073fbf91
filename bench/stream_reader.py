"""Reads thousands of streams with one epoll loop and raw sockets, and notes when each event came.

    python bench/stream_reader.py PORT STREAMS OPEN_S < REQUESTS > ARRIVALS

`REQUESTS`: a msgpack list of whole HTTP requests, one for each stream, which are sent evenly over OPEN_S
seconds. It ends when every answer has ended. `ARRIVALS`: msgpack {"arrivals": [[instants of each stream's
events]], "waited": its own run-queue wait as a share of its time}. An instant is on the monotonic clock, in
ns, and is taken before the bytes are looked at. A client of asyncio would be the slower of the two, and so
measure itself.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from pathlib import Path

import msgspec

EVENT = b'"delta":{"content":'
"""Is in every event with tokens, once, and in no other."""
END = b"0\r\n\r\n"
NS = 1_000_000_000
OPENED_AT_ONCE = 32
"""Between two looks at the sockets."""


class Readers:
    """All streams; the loop is in `run`."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._poll = select.epoll()
        self._sockets: dict[int, tuple[socket.socket, list[int]]] = {}
        self.arrivals: list[list[int]] = []

    def run(self, open_s: float) -> None:
        """Opens all streams evenly over that time, and reads them to their ends."""
        began_ns, all_ = time.monotonic_ns(), len(self._requests)
        while len(self.arrivals) < all_ or self._sockets:
            passed_s = (time.monotonic_ns() - began_ns) / NS
            due = min(all_, int(passed_s * all_ / open_s) + 1, len(self.arrivals) + OPENED_AT_ONCE)
            while len(self.arrivals) < due:
                self._open(self._requests[len(self.arrivals)])
            self._read(0.001 if len(self.arrivals) < all_ else 1)

    def _open(self, request: bytes) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port))
        sock.sendall(request)
        sock.setblocking(False)
        self.arrivals.append([])
        self._sockets[sock.fileno()] = sock, self.arrivals[-1]
        self._poll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, patience_s: float) -> None:
        for number, _ in self._poll.poll(patience_s):
            sock, arrivals = self._sockets[number]
            now_ns = time.monotonic_ns()
            data = sock.recv(65_536)
            arrivals.extend([now_ns] * data.count(EVENT))
            if data.endswith(END) or not data:
                self._poll.unregister(number)
                del self._sockets[number]
                sock.close()


def run_queue_wait_s(pid: str = "self") -> float:
    """Seconds that a process could have run and did not (/proc/PID/schedstat); 0 where that is not told."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / NS
    except OSError:
        return 0.0


def main() -> None:
    """One measurement."""
    port, streams, open_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    requests = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[bytes])[:streams]
    readers = Readers(port, requests)
    began, waited = time.monotonic(), run_queue_wait_s()
    readers.run(open_s)
    waited = (run_queue_wait_s() - waited) / (time.monotonic() - began)
    sys.stdout.buffer.write(msgspec.msgpack.encode({"arrivals": readers.arrivals, "waited": waited}))


if __name__ == "__main__":
    main()
