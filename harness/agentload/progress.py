"""Now and then a line about a long computation, so that nobody takes it for stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

EVERY_S = 10.0


@contextmanager
def told(say: Callable[[], None], every_s: float = EVERY_S) -> Generator[None]:
    """Calls `say` every `every_s` seconds of real time while the block runs; never for a shorter one."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(every_s):
            say()

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
