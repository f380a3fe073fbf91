"""One request by the load client, in a process of its own: gevent patches nothing of the caller's.

python tls_client.py PORT HOST CA [CERT KEY]     prints the failure and its detail, or the status
"""

from __future__ import annotations

import sys
import time

from agentload.drivers.http1 import Endpoint, Http1Client
from agentload.targets._tls import Trust


class Ear:
    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None: ...

    def feed(self, data: bytes, now_ns: int) -> bool:
        return False


def main(port: str, host: str, ca: str, *client: str) -> None:
    trust = Trust(ca=ca, client_cert=client[0] if client else None, client_key=client[1] if client else None)
    caller = Http1Client(Endpoint(host, int(port), tls=True, trust=trust))
    result = caller.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", time.monotonic_ns() + 10**10, Ear())
    print(result.status if result.failure is None else f"{result.failure.value}: {result.detail}")


if __name__ == "__main__":
    main(*sys.argv[1:])
