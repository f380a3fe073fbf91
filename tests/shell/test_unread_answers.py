"""A client that never reads a stream that never ends."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

from gateway_scene import RawClient, chat, gateway

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"' + b"a " * 5_000 + b'"}}]}\n\n'


def pour(listener: socket.socket) -> None:
    """Answer one call without end."""
    call, _ = listener.accept()
    with call, suppress(OSError):
        call.sendall(HEAD)
        while True:
            call.sendall(EVENT)


def test_at_its_end_the_gateway_cuts_who_does_not_read_and_says_no_more_than_that(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=pour, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            gateway(tmp_path, url, {"server": {"drain_s": 0.2}}) as own,
            RawClient(own.port, chat(stream=True), {}) as client,
        ):
            client.read_until(b"data: ")  # and never again
            own.child.process.send_signal(signal.SIGTERM)
            assert own.child.wait(15) == 0
            log = own.child.log.read_text()
            assert "Traceback" not in log
            assert "ASGI" not in log
