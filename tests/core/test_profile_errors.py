"""Every mistake in a profile is found at once, each in one line with its place and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload import profile
from agentload.errors import ExitCode, ProfileError

VALID = """\
name: tiny
about: The smallest profile that shows every part.
phases:
  - {name: warm-up, seconds: 1, record: false}
  - {name: baseline, seconds: 10}
  - {name: noise, seconds: 10, replays: baseline}
provider: {slots: 4}
gateway: {pools: {shared: {slots: 4, classes: {standard: {max_queue: 8}, premium: {}}}}}
tenants:
  - {name: quiet, count: 2, arrivals: {kind: uniform, rate: 5}, workload: {kind: chat}}
  - {name: flood, class: premium, during: [noise], users: 3, workload: {kind: fixed}, client: hammer}
checks:
  - victim-latency: {victims: [quiet]}
  - bounded-queue
"""


def lines(text: str) -> list[str]:
    with pytest.raises(ProfileError) as raised:
        profile.parse(text, "p.yaml")
    assert raised.value.exit_code is ExitCode.USAGE
    return list(raised.value.lines)


def test_the_text_that_the_mistakes_start_from_is_valid() -> None:
    assert profile.parse(VALID, "p.yaml").name == "tiny"


JOBS = VALID.replace("gateway: {pools:", "gateway: {jobs: {}, pools:").replace(
    "  - {name: quiet, count: 2, arrivals: {kind: uniform, rate: 5}, workload: {kind: chat}}",
    "  - {name: quiet, count: 2, arrivals: {kind: uniform, rate: 5}, workload: {kind: chat}, job: JOB}",
)


def with_job(job: str) -> str:
    """The valid text, with durable jobs."""
    return JOBS.replace("JOB}", job + "}")


def test_a_tenant_with_durable_jobs_is_valid() -> None:
    order = profile.parse(with_job("{steps: [chat, {tool: {name: t, seconds: 1}}], poll_s: 0.2}"), "p.yaml")
    job = order.tenants[0].job
    assert job is not None
    assert [step.chat for step in job.steps] == [True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_job("{steps: [talk]}"), "tenants[0].job.steps[0]"),
        (with_job("{steps: [{tool: {seconds: -1}}]}"), "tenants[0].job.steps[0].tool.seconds: must be >= 0"),
        (with_job("{steps: [{}]}"), "tenants[0].job.steps[0]: must be either `chat` or `{tool: {…}}`"),
        (with_job("{steps: []}"), "tenants[0].job.steps"),
        (with_job("{}"), "tenants[0].job.steps: is required"),
        (with_job("{steps: [chat], client: x}"), "tenants[0].job.client: unknown key"),
        (
            with_job("{steps: [chat]}, client: hammer"),
            "tenants[0].client: a job's client posts and polls: leave this out beside job",
        ),
        (
            with_job("{steps: [chat]}").replace("jobs: {}, ", ""),
            "tenants[0].job: the gateway keeps no jobs: add `jobs: {}` below `gateway:`",
        ),
        (
            with_job("{steps: [chat]}").replace("users: 3,", "users: 3, job: {steps: [chat]},"),
            "tenants[1].job: jobs come as arrivals, not from users: write arrivals instead",
        ),
    ],
)
def test_a_mistake_about_durable_jobs_has_its_place(text: str, said: str) -> None:
    assert any(said in line for line in lines(text)), lines(text)


MISTAKES = [
    (
        "name: tiny",
        "name: two words",
        "1:7: name: must be letters, digits, '-' and '_', starting with a letter",
    ),
    ("name: tiny", "nam: tiny", "1:1: nam: unknown key (did you mean 'name'?)"),
    ("name: tiny", "name: tiny\nseed: -1", "2:7: seed: must be >= 0, got -1"),
    ("name: tiny", "name: tiny\nseed: 1.5", "2:7: seed: must be a whole number, got 1.5"),
    ("seconds: 1,", "seconds: 1:30,", "4:30: phases[0].seconds: must be a number, got '1:30'"),
    ("seconds: 1,", 'seconds: "1",', "4:30: phases[0].seconds: must be a number, got '1'"),
    ("seconds: 1,", "seconds: 0,", "4:30: phases[0].seconds: must be > 0, got 0"),
    ("record: false", "record: no", "4:41: phases[0].record: must be true or false, got 'no'"),
    (
        "replays: baseline",
        "replays: basline",
        "6:41: phases[2].replays: no earlier phase 'basline' (did you mean 'bas",
    ),
    (
        "replays: baseline",
        "replays: noise",
        "6:41: phases[2].replays: no earlier phase 'noise' (known: warm-up, basel",
    ),
    (
        "seconds: 10, replays",
        "seconds: 9, replays",
        "6:28: phases[2].seconds: must be 10, as long as the phase 'base",
    ),
    ("name: noise", "name: baseline", "6:12: phases[2].name: there is a phase 'baseline' already"),
    ("slots: 4}\ngateway", "slot: 4}\ngateway", "7:12: provider.slot: unknown key (did you mean 'slots'?)"),
    (
        "provider: {slots: 4}",
        "provider: {overflow: drop}",
        "7:22: provider.overflow: must be one of 'refuse' or 'queue'",
    ),
    (
        "provider: {slots: 4}",
        "provider: {latency: {first_token: 3}}",
        "7:22: provider.latency.first_token: unknown key",
    ),
    ("provider: {slots: 4}", "provider: [1]", "7:11: provider: must be a mapping, got a list"),
    (
        "max_queue: 8",
        "max_queue: -8",
        "8:70: gateway.pools.shared.classes.standard.max_queue: must be >= 0, got -8",
    ),
    ("gateway: {pools", "gateway: {policy: lifo, pools", "8:19: gateway.policy: no policy named 'lifo'"),
    (
        "max_queue: 8}",
        "min_units: 800}",
        "8:27: gateway.pools.shared: the classes' min_units add up to 800, more than",
    ),
    ("name: quiet", "name: 'quiet\\n'", "10:12: tenants[0].name: must be letters"),
    ("name: quiet,", "", "10:5: tenants[0].name: is required"),
    ("count: 2", "count: 0", "10:26: tenants[0].count: must be >= 1, got 0"),
    (
        "kind: uniform",
        "kind: unifrom",
        "10:46: tenants[0].arrivals.kind: no arrival named 'unifrom' (did you mean 'unif",
    ),
    (
        "kind: uniform, ",
        "",
        "10:39: tenants[0].arrivals: needs a kind (known: bursts, constant, poisson, ramp, steps, uniform)",
    ),
    ("rate: 5", "rate: fast", "10:61: tenants[0].arrivals.rate: must be a number, got 'fast'"),
    ("rate: 5", "rate: true", "10:61: tenants[0].arrivals.rate: must be a number, got true"),
    ("rate: 5", "rat: 5", "10:55: tenants[0].arrivals.rat: unknown key (did you mean 'rate'?)"),
    ("rate: 5", "rate: 1e-320", "10:61: tenants[0].arrivals.rate: must be at least 1e-06, got 9.99989e-321"),
    ("rate: 5", "rate: 1e6", "10:61: tenants[0].arrivals.rate: must be <= 100000, got 1000000"),
    (
        "rate: 5",
        "rate: 1e5",
        "10:39: tenants[0].arrivals: brings the plan to 4.2e+06 requests: lower the rate or shorten",
    ),
    ("rate: 5", "rate: ~", "10:61: tenants[0].arrivals.rate: must be a number, got nothing"),
    (
        "{kind: chat}",
        "{kind: chat, output_tokens: {min: 9, max: 2}}",
        "10:103: tenants[0].workload.output_tokens: min 9 is",
    ),
    (
        "{kind: chat}",
        "{kind: chat, input_tokens: 3}",
        "10:75: tenants[0].workload: input_tokens must be at least 13",
    ),
    ("{kind: chat}", "{kind: chat, stream: 2}", "10:96: tenants[0].workload.stream: must be <= 1, got 2"),
    ("{kind: chat}", "", "10:75: tenants[0].workload: must be a mapping with a kind, got nothing"),
    (
        "class: premium",
        "class: premum",
        "11:26: tenants[1].class: the gateway has no class 'premum' (did you mean 'prem",
    ),
    (
        "during: [noise]",
        "during: [nois]",
        "11:44: tenants[1].during[0]: no phase 'nois' (did you mean 'noise'?)",
    ),
    ("users: 3, ", "", "11:5: tenants[1]: needs arrivals (an open loop), users (a closed loop)"),
    (
        "rate: 5}",
        "rate: 5}, users: 2",
        "10:72: tenants[0].users: has arrivals already: a tenant is an open loop or a",
    ),
    ("rate: 5}", "rate: 5}, think_s: 2", "10:74: tenants[0].think_s: only closed loops (users) think"),
    ("name: flood", "name: quiet", "11:12: tenants[1].name: the name 'quiet' is taken by tenants[0]"),
    ("name: flood", "name: quiet-2", "11:12: tenants[1].name: the name 'quiet-2' is taken by tenants[0]"),
    ("users: 3", "users: 3, weight: -2", "11:70: tenants[1].weight: must be > 0, got -2"),
    (
        "client: hammer",
        "client: hamer",
        "11:95: tenants[1].client.kind: no behaviour named 'hamer' (did you mean 'hammer'?)",
    ),
    (
        "client: hammer",
        "client: {kind: obeys, tries: 3}",
        "11:109: tenants[1].client.tries: unknown key (known: timeout_s",
    ),
    (
        "victims: [quiet]",
        "victims: [quit]",
        "13:31: checks[0].victim-latency.victims: no tenant 'quit' (did you mean 'qui",
    ),
    ("victims: [quiet]", "baseline: before", "13:32: checks[0].victim-latency.baseline: no phase 'before'"),
    ("victims: [quiet]", "max_ratio: 1", "13:33: checks[0].victim-latency.max_ratio: must be > 1, got 1"),
    (
        "victims: [quiet]",
        "victim: [quiet]",
        "13:22: checks[0].victim-latency.victim: unknown key (did you mean 'victims'?)",
    ),
    (
        "bounded-queue",
        "bounded-queu",
        "14:5: checks[1]: no check named 'bounded-queu' (did you mean 'bounded-queue'?)",
    ),
    (
        "- bounded-queue",
        "- {a: 1, b: 2}",
        "14:5: checks[1]: must be a check's name, or one name with parameters, got a m",
    ),
    ("- bounded-queue", "- 3", "14:5: checks[1]: must be a check's name, or one name with parameters, got 3"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "line"), MISTAKES, ids=[line.split(": ", 1)[1][:50] for *_, line in MISTAKES]
)
def test_a_mistake_is_one_line(right: str, wrong: str, line: str) -> None:
    assert right in VALID
    found = lines(VALID.replace(right, wrong, 1))
    assert [one for one in found if one.startswith(f"p.yaml:{line}")], found


def test_a_model_that_the_provider_does_not_serve_is_told() -> None:
    asks = VALID.replace("name: flood,", "name: flood, model: larg,")
    assert profile.parse(asks, "p.yaml").tenants[-1].model == "larg"
    [line] = lines(asks.replace("{slots: 4}", "{slots: 4, any_model: false, models: [large]}", 1))
    assert line.endswith("tenants[1].model: the provider serves no model 'larg' (did you mean 'large'?)")


def test_a_default_reference_must_exist_too() -> None:
    text = VALID.replace("name: baseline", "name: before").replace("replays: baseline", "replays: before")
    [line] = lines(text)
    assert line.startswith("p.yaml:13:21: checks[0].victim-latency: needs a phase 'baseline', or another one")


def test_no_recorded_phase() -> None:
    text = VALID.replace("seconds: 10", "record: false, seconds: 10")
    assert lines(text) == [
        "p.yaml:4:3: phases: no phase is recorded: leave out `record: false` for at least one"
    ]


def test_all_mistakes_at_once_in_file_order() -> None:
    text = VALID
    for right, wrong in (
        ("name: tiny", "nam: tiny"),
        ("seconds: 1,", "seconds: x,"),
        ("slots: 4}\ngateway", "slots: -4}\ngateway"),
        ("rate: 5", "rate: -5"),
        ("class: premium", "class: premum"),
        ("during: [noise]", "during: [nois]"),
        ("victims: [quiet]", "victims: [quit], max_ratio: 0"),
        ("bounded-queue", "bounded-queu"),
    ):
        text = text.replace(right, wrong, 1)
    found = lines(text)
    assert [line.split(": ")[1] for line in found] == [
        "nam",
        "phases[0].seconds",
        "provider.slots",
        "tenants[0].arrivals.rate",
        "tenants[1].class",
        "tenants[1].during[0]",
        "checks[0].victim-latency.victims",
        "checks[0].victim-latency.max_ratio",
        "checks[1]",
    ]
    numbers = [int(line.split(":")[1]) for line in found]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "p.yaml: is empty; a profile needs a name, phases, tenants and checks"),
        ("# only a comment\n", "p.yaml: is empty; a profile needs a name, phases, tenants and checks"),
        ("- 1\n", "p.yaml:1:1: must be a mapping, got a list"),
        ("hello", "p.yaml:1:1: must be a mapping, got 'hello'"),
    ],
)
def test_what_is_no_profile_at_all(text: str, line: str) -> None:
    assert lines(text) == [line]


def test_a_file_is_named_as_the_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(VALID.replace("rate: 5", "rate: 0"))
    with pytest.raises(
        ProfileError, match=r"^mine.yaml:10:61: tenants\[0\].arrivals.rate: must be > 0, got 0$"
    ):
        profile.load("mine.yaml")
