"""What nginx and HAProxy say of themselves, and what may be done to their processes."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from agentload import doctor, targets
from agentload.doctor.decidable import Chance, prospects
from agentload.doctor.findings import Grade, own_values
from agentload.drivers.foreign_hand import ForeignHand
from agentload.drivers.foreign_process import ForeignProcess
from agentload.drivers.target_probe import await_ready
from agentload.gateway_faults import Act
from agentload.order import Options
from agentload.targets import Target
from process_facts import wait_until
from real_gateways import binary, free_port, running

pytestmark = pytest.mark.live
METRICS = """\
metrics:
  url: /metrics
  waiting: haproxy_backend_current_queue{proxy="provider"}
  in_flight: haproxy_backend_current_sessions{proxy="provider"}
process: {pid: PID}
"""


def test_haproxys_queue_and_memory_are_read_and_make_checks_decidable(tmp_path: Path) -> None:
    with running("haproxy, no limit, metrics", tmp_path, free_port()) as file:
        [pid] = [one.pid for one in psutil.Process().children() if one.name() == "haproxy"]
        file.write_text(f"{file.read_text()}\n{METRICS.replace('PID', str(pid))}")
        seen = doctor.examine(Options(profile="noisy-neighbor", target=str(file)), 4)
    assert set(seen.gauges) == {"waiting", "in_flight", "resident_bytes"}
    assert own_values(seen).grade is Grade.GOOD
    chances = {one.check: (one.chance, one.because) for one in prospects(seen)}
    assert chances["bounded-memory"][0] is Chance.YES
    assert chances["queue-age-alert"] == (Chance.NO, "needs metrics.queue_age_s in the target file")


def test_nginx_is_a_master_and_its_workers(tmp_path: Path) -> None:
    with running("nginx", tmp_path, free_port()) as file:
        restart = f"{binary('nginx')} -p {tmp_path} -c nginx.conf"
        file.write_text(f"{file.read_text()}\nprocess: {{pid_file: nginx.pid, restart: '{restart}'}}\n")
        target = targets.load(str(file), {})
        assert target.process is not None
        process = ForeignProcess(target.process, "process")
        hand = ForeignHand(process, lambda: await_ready(target))
        master = process.find()
        assert len(process.family()) >= 2
        assert process.resident_bytes() > psutil.Process(master).memory_info().rss
        try:
            hand.do(Act.PAUSE)
            assert not answers(target, 0.3)
            hand.do(Act.RESUME)
            assert answers(target, 10)
            hand.do(Act.KILL)
            assert process.family(fresh=True) == []
            hand.do(Act.START)
            assert answers(target, 10)
            assert process.find() != master
        finally:
            hand.mend()
            for pid in reversed(process.family(fresh=True)):
                psutil.Process(pid).kill()
            wait_until(lambda: not process.family(fresh=True))


def answers(target: Target, seconds: float) -> bool:
    """Whether a byte comes back in that time (nginx's own 502 here: no provider stands behind it)."""
    with closing(socket.create_connection((target.host, target.port), timeout=seconds)) as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return bool(sock.recv(1))
        except TimeoutError:
            return False
