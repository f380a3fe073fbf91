"""A client of a gateway without its sockets: bytes out, bytes in, timeouts, retries and records. PURE.

Shared by the live worker, which moves the bytes, and the simulator, which moves none.
"""
