"""A real gateway that carries few requests: `python slow_gateway.py PORT PROVIDER_PORT [SECONDS]`.

A plain proxy, one thread to a connection, that works for SECONDS (0.038: some 26 requests/s) on each request
before it calls the provider, one request at a time, as a single-threaded Python gateway does.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from process_facts import wait_until
from real_gateways import free_port, listens

TAKEN = {"host", "connection", "content-length", "transfer-encoding"}


class Gateway(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int, provider_port: int, seconds: float) -> None:
        super().__init__(("127.0.0.1", port), Proxy)
        self.provider_port, self.seconds = provider_port, seconds
        self.working = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is no news."""


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        gateway = self.server
        assert isinstance(gateway, Gateway)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with gateway.working:
            time.sleep(gateway.seconds)
        upstream = http.client.HTTPConnection("127.0.0.1", gateway.provider_port, timeout=60)
        fields = {name: value for name, value in self.headers.items() if name.lower() not in TAKEN}
        upstream.request("POST", self.path, body, fields)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in TAKEN | {"date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to say."""


@contextmanager
def slow_gateway(folder: Path, seconds: float = 0.038) -> Generator[Path]:
    """Runs it in front of a free port for our provider; yields its target file."""
    port, provider_port = free_port(), free_port()
    file = folder / "target.yaml"
    file.write_text(
        f"base_url: http://127.0.0.1:{port}\nheaders: {{X-Tenant: '{{tenant}}'}}\n"
        f"provider: {{listens: '127.0.0.1:{provider_port}'}}\n"
    )
    command = [sys.executable, __file__, str(port), str(provider_port), str(seconds)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: process.poll() is not None or listens(port), 20)
            yield file
        finally:
            process.terminate()


if __name__ == "__main__":
    Gateway(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).serve_forever()
