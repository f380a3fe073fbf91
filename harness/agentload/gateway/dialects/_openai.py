"""What OpenAI's two dialects have in common: the shape of errors."""

from __future__ import annotations

import msgspec

encode = msgspec.json.Encoder().encode


def error_type(status: int) -> str:
    """OpenAI's `type` for a status."""
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def error_body(status: int, code: str, message: str) -> bytes:
    """OpenAI's error object; the machine-readable reason is its `code`."""
    error = {"message": message, "type": error_type(status), "param": None, "code": code}
    return encode({"error": error})
