"""Several profiles in a row as one gate for CI: one summary, one junit.xml, one exit code.

Leaves a folder per run beside `summary.md`, `junit.xml` and `gate.json`, each rewritten after every run, so
that ^C leaves what was done; and with the reason where there was no run, for a CI shows these files alone.
A run that proved nothing is made once more: on a shared machine stalls happen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentload import calibration, rundir, screen
from agentload import profile as profiles
from agentload import run as live
from agentload.calibration.decision import TooSmallError, decide
from agentload.conclusion import Conclusion
from agentload.errors import AgentloadError, ExitCode, UsageError
from agentload.interrupts import INTERRUPTED, raising
from agentload.judge import UNDECLARED
from agentload.model import Severity, Status, Verdict
from agentload.order import Prepared
from agentload.profile.scale import AUTO
from agentload.report import terminal, text
from agentload.report.summary import escaped
from agentload.rundir import file_name, write_file

WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.USAGE,
    ExitCode.UNREACHABLE,
    ExitCode.FAILED,
    ExitCode.INCONCLUSIVE,
    ExitCode.PASSED,
)
ENDS_THE_GATE = (ExitCode.INTERRUPTED, ExitCode.USAGE, ExitCode.UNREACHABLE)
"""Nothing more can be learnt: the user wants out, the disk is full, or there is nothing left to load."""
FILES = ("summary.md", "junit.xml", "gate.json")

RunOne = Callable[[live.Options, Console], Conclusion]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    profiles: tuple[str, ...] = ()
    """Empty: every bundled profile."""
    out: Path | None = None
    reruns: int = 1
    """How often an inconclusive run is made again."""
    each: live.Options
    """Everything else, the same for every run; its `profile` and `out` are filled in here."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the gate, as gate.json lists it."""

    profile: str
    folder: str
    verdict: str
    exit_code: int
    failed: list[str]
    """Checks that did not pass, worst first."""
    undeclared: bool = False
    """It is inconclusive only for what the target does not declare: no other run would decide it."""
    rerun_of: str | None = None
    """The folder of the inconclusive run that this one repeats."""
    not_run: str | None = None
    """Why there was no run, or none to its end: the target cannot be reached, say, or `--scale auto` found it
    too slow for this profile."""


def run(options: Options) -> int:
    """Every profile, then the summary. Raises AgentloadError for wrong input, before anything is started."""
    console = screen.console()
    names = options.profiles or tuple(profiles.names())
    each = msgspec.structs.replace(options.each, beside=names)
    options = msgspec.structs.replace(options, profiles=names, each=each)
    prepared = _prepared(options, console)
    gate = Gate(options, _folder(options), console)
    with raising():
        with gate.telling(names[0]):
            gate.run_one = _calibrated(options, prepared, console) or gate.run_one
        for name in names:
            if gate.play(name) in ENDS_THE_GATE:
                break
    gate.print_summary()
    return gate.exit_code()


def _prepared(options: Options, console: Console) -> dict[str, Prepared]:
    """Every profile, read and checked. What is wrong is left in `--out`, too, where a CI looks for it."""
    prepared: dict[str, Prepared] = {}
    for name in options.profiles:
        try:
            prepared[name] = live.prepare(msgspec.structs.replace(options.each, profile=name))
        except AgentloadError as error:
            if options.out is not None:
                with suppress(AgentloadError):
                    Gate(options, _folder(options), console).not_begun(name, name, error)
            raise
    return prepared


def _folder(options: Options) -> Path:
    """A new one. What a gate left in which nothing was run holds no evidence, and gives way.

    Raises as `rundir.new_folder` does.
    """
    out = options.out
    with suppress(OSError, ValueError, LookupError, TypeError):
        if out is not None and not any(one.is_dir() or one.name not in FILES for one in out.iterdir()):
            runs = msgspec.json.decode((out / "gate.json").read_bytes())["runs"]
            for name in FILES if all(one["not_run"] for one in runs) else ():
                (out / name).unlink(missing_ok=True)
    return rundir.new_folder("gate", datetime.now(), out=out)


def _calibrated(options: Options, prepared: Mapping[str, Prepared], console: Console) -> RunOne | None:
    """With `--scale auto`, what makes each run by one calibration for all, in the first profile's names."""
    if options.each.scale != AUTO:
        return None
    asks = {name: calibration.asked(one) for name, one in prepared.items()}
    found = calibration.measure(options.each, next(iter(prepared.values())), list(asks.values()), console)

    def run_one(each: live.Options, where: Console) -> Conclusion:
        ask = asks[each.profile]
        settled = calibration.apply(each, decide(ask.profile, ask.demand, found), where)
        return live.record(*settled, where)

    return run_one


def select(text: str | None) -> tuple[str, ...]:
    """`--profiles a,b`. Raises UsageError for an empty name."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UsageError(
            f"--profiles {text}: names are separated by single commas, e.g. steady,noisy-neighbor"
        )
    return names


class Gate:
    """The runs so far."""

    def __init__(
        self, options: Options, folder: Path, console: Console, run_one: RunOne | None = None
    ) -> None:
        self.options, self.folder, self.console = options, folder, console
        self.entries: list[Entry] = []
        self.run_one = run_one or _live
        self._suites: dict[str, bytes] = {}
        self._texts: dict[str, str] = {}
        self._begun: set[str] = set()
        """Profiles, as the user named them."""

    def play(self, name: str) -> ExitCode:
        """One profile, and once more while it stays inconclusive."""
        label = self._label(name)
        entry = self._play_once(name, label, None)
        for again in range(self.options.reruns):
            if entry.exit_code != ExitCode.INCONCLUSIVE or entry.not_run:
                break
            if entry.undeclared:
                self.console.print(
                    f"\n{entry.profile} would be inconclusive again: see what is to be declared"
                )
                break
            self.console.print(f"\n{entry.profile} was inconclusive: once more")
            entry = self._play_once(name, f"{label}-again-{again + 1}", entry.folder)
        return ExitCode(entry.exit_code)

    def counted(self) -> list[Entry]:
        """The last run of each profile: a rerun stands for the run that it repeats."""
        repeated = {entry.rerun_of for entry in self.entries}
        return [entry for entry in self.entries if entry.folder not in repeated]

    def exit_code(self) -> ExitCode:
        """The worst over the runs that count."""
        codes = {entry.exit_code for entry in self.counted()}
        return next((code for code in WORST_FIRST if code in codes), ExitCode.INCONCLUSIVE)

    def print_summary(self) -> None:
        """One line for each profile."""
        table = Table(box=None, pad_edge=False, title="gate", title_justify="left")
        for heading in ("profile", "verdict", "did not pass"):
            table.add_column(heading, overflow="fold")
        for entry in self.counted():
            colour = terminal.COLOURS.get(entry.verdict, "yellow")
            table.add_row(entry.profile, Text(entry.verdict, style=colour), ", ".join(entry.failed))
        self.console.print()
        self.console.print(table)
        for name in FILES:
            self.console.print(f"  {self.folder / name}", soft_wrap=True)

    @contextmanager
    def telling(self, name: str, label: str | None = None, rerun_of: str | None = None) -> Generator[None]:
        """What ends the gate in between is left behind as that profile's, and goes on its way."""
        try:
            yield
        except BaseException as error:
            self.not_begun(name, label or self._label(name), error, rerun_of)
            raise

    def not_begun(self, name: str, label: str, error: BaseException, rerun_of: str | None = None) -> Entry:
        """A profile of which nothing was recorded: it proves nothing, and is said why."""
        because = str(error) if isinstance(error, AgentloadError) else f"{type(error).__name__}: {error}"
        code = error.exit_code if isinstance(error, AgentloadError) else ExitCode.INCONCLUSIVE
        if isinstance(error, KeyboardInterrupt):
            because, code = INTERRUPTED, ExitCode.INTERRUPTED
        if isinstance(error, TooSmallError) and self.options.each.inconclusive_passes:
            code = ExitCode.PASSED
        entry = Entry(
            profile=_name_of(name),
            folder=label,
            verdict=Status.INCONCLUSIVE,
            exit_code=int(code),
            failed=["not run"],
            rerun_of=rerun_of,
            not_run=because,
        )
        self.entries.append(entry)
        self._begun.add(name)
        self._suites[label] = _suite_of_nothing(entry, "skipped" if code is ExitCode.PASSED else "error")
        words = "\n".join(f"> {escaped(line)}" for line in because.splitlines())
        symbol = text.SYMBOLS[Status.INCONCLUSIVE]
        self._texts[label] = f"## {symbol} {escaped(entry.profile)}: not run\n\n{words}\n"
        self._write()
        return entry

    def _label(self, name: str) -> str:
        """The profile's own name, made unique among the folders."""
        own = file_name(_name_of(name))
        taken = {entry.folder for entry in self.entries}
        candidates = (own, *(f"{own}-{number}" for number in range(2, len(taken) + 3)))
        return next(label for label in candidates if label not in taken)

    def _play_once(self, name: str, label: str, rerun_of: str | None) -> Entry:
        folder = self.folder / label
        each = msgspec.structs.replace(self.options.each, profile=name, out=folder)
        self.console.rule(label, style="dim")
        try:
            with self.telling(name, label, rerun_of):
                conclusion = self.run_one(each, self.console)
        except AgentloadError as error:
            self.console.print(str(error), style="red", soft_wrap=True)
            return self.entries[-1]
        entry = Entry(
            profile=conclusion.result.run.profile.name,
            folder=label,
            verdict=conclusion.result.summary["verdict"],
            exit_code=int(conclusion.exit_code),
            failed=_not_passed(conclusion.result.summary),
            undeclared=_undeclared(conclusion.result.verdicts),
            rerun_of=rerun_of,
        )
        self.entries.append(entry)
        self._begun.add(name)
        self._suites[label] = _read(folder / "junit.xml")
        self._texts[label] = _read(folder / "summary.md").decode()
        self._write()
        return entry

    def _write(self) -> None:
        counted = self.counted()
        facts = {"schema": 1, "exit_code": self.exit_code(), "runs": self.entries}
        write_file(
            self.folder / "gate.json", msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n"
        )
        write_file(self.folder / "junit.xml", merged([self._suites[entry.folder] for entry in counted]))
        write_file(self.folder / "summary.md", "\n".join(self._summary(counted)).encode())

    def _summary(self, counted: list[Entry]) -> Iterator[str]:
        yield "# agentload gate\n"
        yield "| profile | verdict | did not pass |"
        yield "|---|---|---|"
        for entry in counted:
            yield f"| {entry.profile} | {entry.verdict} | {', '.join(entry.failed)} |"
        if left := [escaped(name) for name in self.options.profiles if name not in self._begun]:
            yield f"\nNot begun when this was written: {', '.join(left)}"
        for entry in counted:
            yield "\n" + self._texts[entry.folder]


def _name_of(profile: str) -> str:
    """The profile's own name, whatever file it is read from; as it was typed where it cannot be read."""
    try:
        return profiles.load(profiles.find(profile)).name
    except AgentloadError:
        return profile


def _undeclared(verdicts: Sequence[Verdict]) -> bool:
    """Whether everything that proved nothing rests on what the target does not say."""
    open_ones = [v for v in verdicts if v.severity is Severity.MUST and v.status is Status.INCONCLUSIVE]
    return bool(open_ones) and all(UNDECLARED in verdict.details for verdict in open_ones)


def merged(documents: list[bytes]) -> bytes:
    """One `<testsuites>` of all the suites, with its totals added up."""
    root = ElementTree.Element("testsuites", {"name": "agentload"})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for document in documents:
        if not document:
            continue
        for suite in ElementTree.fromstring(document).iter("testsuite"):
            root.append(suite)
            for name in totals:
                totals[name] += int(suite.get(name, "0"))
    for name, total in totals.items():
        root.set(name, str(total))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite_of_nothing(entry: Entry, ending: str) -> bytes:
    """junit.xml of a profile that was not run: one case, `run`, which says why."""
    root = ElementTree.Element("testsuites")
    counts = {
        "tests": "1",
        "failures": "0",
        "errors": str(int(ending == "error")),
        "skipped": str(int(ending != "error")),
    }
    suite = ElementTree.SubElement(root, "testsuite", {"name": entry.profile, **counts})
    case = ElementTree.SubElement(suite, "testcase", {"classname": entry.profile, "name": "run"})
    ElementTree.SubElement(case, ending, {"message": text.printable(entry.not_run)})
    written: bytes = ElementTree.tostring(root, encoding="utf-8")
    return written


def _live(options: live.Options, console: Console) -> Conclusion:
    return live.record(options, live.prepare(options), console)


def _not_passed(summary: dict[str, Any]) -> list[str]:
    checks = [check for check in summary["checks"] if check["severity"] == "must"]
    order = (Status.FAILED, Status.INCONCLUSIVE)
    return [check["check"] for status in order for check in checks if check["status"] == status]


def _read(path: Path) -> bytes:
    """A report of a run; nothing where that report could not be made (it has been said already)."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
