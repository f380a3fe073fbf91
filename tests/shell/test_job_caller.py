"""What a client of jobs keeps of an answer's fields."""

from __future__ import annotations

from agentload.drivers.job_caller import MAX_BODY, BodyReader


def test_a_key_that_comes_back_in_a_field_is_not_recorded() -> None:
    reader = BodyReader(lambda text: text.replace("sesame", "***"))
    reader.head(429, [(b"Retry-After", b"sesame"), (b"X-Admission-Reason", b"no sesame")], 0.0)
    assert (reader.retry_after, reader.retry_after_s, reader.reason) == ("***", None, "no ***")


def test_a_body_without_end_is_not_kept() -> None:
    reader = BodyReader(str)
    for _ in range(3):
        reader.feed(b"x" * (MAX_BODY // 2 + 1), 0)
    assert len(reader.body) <= MAX_BODY + MAX_BODY // 2 + 1
