"""What is wrong with the command line is said before anything starts: providers, addresses, plug-ins."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from agentload.cli import plugins_first
from agentload.errors import UsageError
from agentload.external_provider import spend_line
from agentload.order import Options, bind_address, prepare
from agentload.registry import check_plugin_folder


def refused(**options: object) -> str:
    with pytest.raises(UsageError) as raised:
        prepare(Options(profile="steady", **options))  # type: ignore[arg-type]
    return str(raised.value)


def test_a_providers_url_is_its_root() -> None:
    assert refused(provider_url="http://127.0.0.1:9000/v1").endswith("http://127.0.0.1:9000, without /v1")
    assert "did you mean 'http://127.0.0.1:9000'?" in refused(provider_url="127.0.0.1:9000")
    assert "secret" not in refused(provider_url="http://me:secret@127.0.0.1:9000")


def test_a_provider_that_runs_already_listens_where_it_does() -> None:
    assert "leave out one of the two" in refused(provider_url="http://127.0.0.1:9000", provider_port=9000)


def test_where_our_provider_is_to_be_started_nobody_may_listen(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"base_url: http://127.0.0.1:8080\nprovider: {{listens: '127.0.0.1:{port}'}}\n")
        said = f"{port}: cannot be listened on: address already in use"
        mend = f"if agentload's provider runs there, say --provider http://127.0.0.1:{port} instead"
        assert refused(provider_port=port) == f"--provider-port {said}: {mend}"
        assert refused(target=str(file)) == f"{file}: provider.listens {said}: {mend}"
        assert refused(locust_web=port) == f"--locust-web {said}"
        named = Options(profile="steady", target=str(file), provider_url=f"http://127.0.0.1:{port}")
        assert prepare(named), "it runs already, and is named"


def test_what_happens_to_a_gateways_process_is_asked_for_at_once(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("base_url: http://127.0.0.1:8080/v1/jobs\n")
    with pytest.raises(UsageError, match=r"\(process: \{pid_file: …, restart: …\}: it is killed"):
        prepare(Options(profile="worker-crash", target=str(file)))


def test_the_same_holds_for_a_target_files_provider(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("base_url: http://127.0.0.1:8080\nprovider: {running: 'http://127.0.0.1:9000/v1'}\n")
    assert refused(target=str(file)).startswith("provider.running http://127.0.0.1:9000/v1: must be")
    assert "leave out one of the two" in refused(target=str(file), provider_port=9000)


def test_a_provider_elsewhere_must_be_allowed() -> None:
    assert "--allow-host 192.0.2.1" in refused(provider_url="http://192.0.2.1:9000")
    assert prepare(
        Options(profile="steady", provider_url="http://192.0.2.1:9000", allow_hosts=("192.0.2.1",))
    )


def test_the_address_for_workers_may_have_a_port() -> None:
    assert bind_address("127.0.0.1") == ("127.0.0.1", 0)
    assert bind_address("0.0.0.0:5557") == ("0.0.0.0", 5557)
    for wrong in ("", ":5557", "host:", "host:port", "host:70000", "host:-1", "host:²"):
        with pytest.raises(UsageError, match="--bind"):
            bind_address(wrong)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["run", "steady", "--plugins", "mine"], ["--plugins", "mine", "run", "steady"]),
        (["run", "--plugins=mine", "steady"], ["--plugins=mine", "run", "steady"]),
        (["--plugins", "a", "list", "--plugins", "b"], ["--plugins", "a", "--plugins", "b", "list"]),
        (["decode", "--", "--plugins", "word"], ["decode", "--", "--plugins", "word"]),
        (["list", "--plugins"], ["--plugins", "list"]),
        (["run", "steady"], ["run", "steady"]),
    ],
)
def test_plugins_may_stand_anywhere(typed: list[str], meant: list[str]) -> None:
    assert plugins_first(typed) == meant


def test_a_plugin_folder_must_add_something(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    check_plugin_folder(tmp_path)
    with pytest.raises(UsageError, match=r"one level too deep \(did you mean '.*'\?\)"):
        check_plugin_folder(tmp_path / "checks")
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"adds nothing: it holds none of arrivals/, .*checks/"):
        check_plugin_folder(tmp_path / "other")
    with pytest.raises(UsageError, match="is not a folder"):
        check_plugin_folder(tmp_path / "missing")


def test_every_seam_is_a_folder_that_plugins_may_have() -> None:
    from agentload import (
        arrivals,
        behaviours,
        checks,
        experiments,
        flavours,
        gateway_faults,
        mutants,
        targets,
        workloads,
    )
    from agentload.registry import PLUGIN_SEAMS
    from agentload.scheduler import policies

    seams = (
        arrivals, behaviours, checks, experiments, flavours, gateway_faults, mutants, targets, workloads,
        policies,
    )  # fmt: skip
    assert {one.SEAM.noun for one in seams} | {"faults", "profiles"} == set(PLUGIN_SEAMS)


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """A target file of a gateway in front of somebody else's provider."""
    file = tmp_path / "gateway.yaml"
    file.write_text("base_url: http://127.0.0.1:8080\nprovider: external\n")
    return str(file)


def test_nobody_spends_somebodys_money_by_mistake(foreign: str) -> None:
    [line] = prepare(Options(profile="steady", target=foreign, allow_cost=True)).warnings
    assert line.startswith("the provider is somebody else's, and a run of steady may cost real money: ")
    for hosts in ((), ("127.0.0.1",), ("api.openai.com",), ("gw.example",)):
        said = refused(target=foreign, allow_hosts=hosts)
        assert said == f"--target {foreign}: provider: external: {line}: if you mean it, say --allow-cost"


def test_a_look_costs_less_than_a_run_and_is_meant_too(foreign: str) -> None:
    look = Options(profile="steady", target=foreign, drives=False)
    with pytest.raises(
        UsageError, match=r"a look at the target may cost real money: .*: if you mean it, say --"
    ):
        prepare(look)


def test_a_host_that_may_be_loaded_is_no_consent_to_cost_and_cost_none_to_a_host(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("base_url: http://gw.example:8080\nprovider: external\n")
    assert "--allow-cost" in refused(target=str(file), allow_hosts=("gw.example",))
    assert "--allow-host gw.example" in refused(target=str(file), allow_cost=True)
    assert prepare(Options(profile="steady", target=str(file), allow_hosts=("gw.example",), allow_cost=True))


def test_a_provider_is_ours_or_somebody_elses(foreign: str) -> None:
    ours = {"provider_url": "http://127.0.0.1:9000"}, {"provider_port": 9000}
    for one in ours:
        said = refused(target=foreign, allow_cost=True, **one)
        assert "is somebody else's, and --provider" in said


def test_what_goes_wrong_at_our_provider_cannot_at_somebody_elses(foreign: str) -> None:
    with pytest.raises(UsageError, match=r"faults\[0\]: outage happens to our provider"):
        prepare(Options(profile="herd", target=foreign, allow_cost=True))


def test_what_a_plan_may_cost_is_counted_with_what_cannot_be() -> None:
    steady = prepare(Options(profile="steady"))
    jobs = [arrival.job for arrival in steady.plan.arrivals]
    said = spend_line(steady.profile, steady.plan)
    assert f"{len(jobs):,} requests with about {sum(job.input_tokens for job in jobs):,} input" in said
    assert said.endswith("and what cannot be counted ahead: retries")
    loops = prepare(Options(profile="runaway-agent"))
    assert "closed-loop users who ask again and again" in spend_line(loops.profile, loops.plan)
