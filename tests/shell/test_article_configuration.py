"""The configuration as the article prints it, indented as YAML must be, starts the gateway."""

from __future__ import annotations

from pathlib import Path

from agentload.drivers.processes import Child
from agentload.gateway import config_file
from agentload.scheduler.config import WhenFull
from article import ARTICLE, CLASSES
from gateway_scene import CHAT, Gateway, chat, provider


def test_every_value_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(ARTICLE)
    config, _ = config_file.load(path)
    pool = config.pools["agent-shared"]
    assert pool.capacity_units == 100
    assert {n: (c.nominal_share, c.min_units, c.max_queue) for n, c in pool.classes.items()} == CLASSES
    full = [c.response_when_full for c in pool.classes.values()]
    assert full == [WhenFull.REJECT, WhenFull.DEFER, WhenFull.DEFER]
    retry, estimation = config.retry, config.estimation
    assert (retry.max_attempts, retry.base_seconds, retry.max_seconds, retry.jitter) == (6, 2, 120, "full")
    assert (estimation.max_reservation_units, estimation.update_window) == (40, 500)
    assert estimation.safety_multiplier == 1.25


def test_the_gateway_starts_with_it_and_serves_every_class(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(ARTICLE)
    (tmp_path / "provider").mkdir()
    with provider(tmp_path / "provider") as upstream:
        arguments = ["-m", "agentload.gateway", "--port", "0", "--config", str(path)]
        with Child.start(
            "gateway", [*arguments, "--upstream", upstream.url], tmp_path / "gateway.log"
        ) as child:
            running = Gateway(child)
            with running.http as http:
                for name in CLASSES:
                    answer = http.post(
                        CHAT, json=chat(), headers={"X-Tenant": "acme", "X-Service-Class": name}
                    )
                    assert answer.status_code == 200
