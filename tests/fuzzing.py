"""Seeded mutation of valid examples: the same seed spoils them in the same ways."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from random import Random

HTTP_SCRAPS = (
    b"\r\n", b"\n\n", b"\r\r", b"\0", b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 999 \r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 1e9\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Content-Encoding: gzip\r\n",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\0" * 40, b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    b"Retry-After: 99999999999999999999\r\n", b"Retry-After: nan\r\n", b"retry-after-ms: nan\r\n",
    b"retry-after-ms: -inf\r\n", b"retry-after-ms: 1e400\r\n",
    b"Retry-After: 1 Jan 2000 1:1:1 +" + b"9" * 30 + b"\r\n",
    b"Retry-After: Fri, 31 Feb 99999 99:99:99 GMT\r\n", b"Server-Timing: queue;dur=" + b"9" * 400 + b"\r\n",
    b"x-should-retry: maybe\r\n", b"X-Admission-Reason: " + b"r" * 5000 + b"\r\n", b"data: ",
    b"event: error\n", b"data: [DONE]\n\n", b": ping\n\n", b"id: 1\nretry: 5\n", b"0\r\n\r\n",
    b"ffffffffffffffff\r\n", b"1" * 30, b"9" * 5000, b"-1", b"1e999", b"1e308", b"NaN", b"null", b"true",
    b"[]", b"{}", b'"\\ud800"', b'"\\u0000"', b"[" * 400 + b"]" * 400, b"[" * 3000,
    b'{"a":' * 300 + b"1" + b"}" * 300, b'{"error": {"code": [[]], "message": {"a": 1}}}',
    b'{"error": ' + b"[" * 800 + b"]" * 800 + b"}",
    b'"usage": {"prompt_tokens": -5, "completion_tokens": 1e30},',
    b'"completion_tokens": 123456789012345678901234,',
    b'"content": ' + b"[" * 500 + b'"x"' + b"]" * 500 + b",", b'"id": "../../x HTTP/1.1\\r\\nHost: b",',
    b'"eta_s": 1e308,', b'"type": "error",', b'"type": "response.completed",', b'"type": "message_stop",',
    b'"status": "failed",', b'"state": true,', b'"delta": [[]],', b'"id": "..",', b'"output": 5,',
    b"event: message_stop\n", b"data: {}\n\n", b"Location: //elsewhere/x\r\n", b"/../../",
    b'"results": [{"kind": "tool", "output": {"call": "x"}}, {"kind": "tool", "output": {"call": 1e9}}],',
)  # fmt: skip
YAML_SCRAPS = (
    b"\t", b"\0", b"\n", b"\r", b"\x85", b"\xe2\x80\xa8", b"\xff\xfe", b"\xc3(", b"\xef\xbb\xbf", b"\x1b[31m",
    b"\xf0\x9f\x92\xa9", b"&a ", b"*a", b"*nowhere", b"<<: *a\n", b"<<: [*a, *a, *a]\n", b"<<: 5\n",
    b"&a [*a, *a]", b"&a {x: *a}", b"? [a, b]\n: c\n", b"!!binary aGk=",
    b"!!python/object/apply:os.system [x]", b"!!set {a, b}", b"!!omap [a: 1]", b"!!float 'x'", b"!!int {}",
    b"!%ED%A0%80 x", b"!%0Ax y", b"!<tag:yaml.org,2002:str> 5", b"! x", b"%YAML 9.9\n---\n", b"---\n",
    b"...\n", b"- ", b": ", b"? ", b"1e999", b"1e15", b"-1e400", b"0x" + b"f" * 5000, b"0o777", b"0o8",
    b"9" * 5000, b"1:30", b".inf", b".nan", b"1_000", b"-0", b"yes", b"~", b"null", b"true", b"''",
    b'"\\ud800"', b'"\\0"', b'"a\\nb"', b'"\\x1b"', b"|\n  x\n", b">-\n", b"[", b"]", b"{", b"}", b"[" * 50,
    b"[" * 2000, b"{a: " * 40, b"- " * 60, b"x" * 5000, b"[" + b"[]," * 300 + b"]", b"# ", b"'", b'"', b"@",
    b"`", b"99999999999", b"-1", b"0", b"1e-300", b"999999999999999", b"{tenant", b"{env:X}", b"{env:}",
    b"http://[::1", b"http://a:b@c", b"http://h:99999", b"127.0.0.1:" + b"9" * 5000, b"\xe2\x92\x88.com",
    b"{kind: x}", b"{kind: [1]}", b"kind: poisson\n", b"flavour: jobs\n", b"flavour: http\n", b"jobs: {}\n",
    b"{prompt}", b"{max_tokens}", b"{id}", b"a..b", b"background: true\n", b"body: {a: [{b: 1}]}\n",
)  # fmt: skip


def spoilt(examples: Sequence[bytes], scraps: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` examples, each with one to six things done to it: bits flipped, stretches cut out, doubled or
    swapped with those of another, scraps put in, numbers blown up, ends cut off."""
    random = Random(seed)
    for _ in range(count):
        data = random.choice(examples)
        for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
            data = _spoil(random, data, examples, scraps)[:200_000]
        yield data


def pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """The bytes as a network might cut them: at once, one by one, or anywhere."""
    most = random.choice((1, 7, 100, 65_536)) if len(data) < 4_000 else 16_384
    start = 0
    while start < len(data):
        end = start + random.randint(1, most)
        yield data[start:end]
        start = end


def peak_kib() -> int:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _spoil(random: Random, data: bytes, examples: Sequence[bytes], scraps: Sequence[bytes]) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    match random.randrange(9):
        case 0:
            return _flipped(random, data)
        case 1:
            return data[:start] + data[min(end, start + random.choice((1, 5, 50, 500))) :]
        case 2:
            return data[:start] + data[start:end] * random.choice((2, 3, 30)) + data[end:]
        case 3:
            other = random.choice(examples)
            return data[:start] + other[random.randrange(len(other)) :]
        case 4:
            return data[:start]
        case 5:
            return _number_changed(random, data, scraps)
        case 6:
            return _value_replaced(random, data, scraps)
        case _:
            return data[:start] + random.choice(scraps) + data[start:]


def _flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 4, 40)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _number_changed(random: Random, data: bytes, scraps: Sequence[bytes]) -> bytes:
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    at = random.choice(places)
    return data[:at] + random.choice((b"-", b"9" * 20, b"9" * 400, b"0.", b"1e", *scraps)) + data[at + 1 :]


def _value_replaced(random: Random, data: bytes, scraps: Sequence[bytes]) -> bytes:
    """What follows a colon, up to the end of its line or value."""
    colons = [at for at, byte in enumerate(data) if byte == 58]
    if not colons:
        return data
    at = random.choice(colons) + 1
    ends = [end for mark in (b"\n", b",", b"}") if (end := data.find(mark, at)) >= 0]
    return data[:at] + b" " + random.choice(scraps) + data[min(ends, default=len(data)) :]
