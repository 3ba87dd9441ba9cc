"""Tries subjects by turns, each turn in a process that may hang or run out of memory, and keeps what was found."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import re
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import DidNotReproduce, Flaky, HypothesisWarning
from hypothesis.internal.conjecture import engine

from .subject import Subject

EXAMPLES = 200
"""Of one seed."""
TURN = 20.0
"""Seconds of a subject's turn."""
_LONGEST = 600.0  # seconds, after which a turn is ended from outside: an example hangs where no signal reaches it
_MEMORY = 6 * 1024**3
_PACKAGE = str(Path(__file__).parents[2] / "plugins")
_BLOB = re.compile(r"reproduce_failure\('[^']*', (b'[^']*')\)")


@dataclass(frozen=True)
class Finding:
    """An example that isn't handled as it should be.

    Attributes:
        subject: the subject's name.
        seed: whose examples it was among.
        error: what was raised.
        place: the innermost line of Sluice's, by which findings are told apart.
        example: the smallest one that was found.
        blob: by which it is played again; empty where it can't be, and the seed has to do.
        trace: the stack.
    """

    subject: str
    seed: int
    error: str
    place: str
    example: str
    blob: str
    trace: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is the same of findings with one cause."""
        return self.subject, self.error.partition(":")[0], self.place or re.sub(r"\d+", "…", self.error)[:120]

    @property
    def command(self) -> str:
        """Plays it again."""
        if self.blob:
            return f"make fuzz ARGS='--play {self.subject} {self.blob}'"
        return f"make fuzz ARGS='--only {self.subject} --seed {self.seed} --seeds 1'"


@dataclass
class Turn:
    """What a turn has come to."""

    examples: int = 0
    seeds: int = 0
    findings: list[Finding] | None = None


def try_seed(subject: Subject, number: int, examples: int = EXAMPLES) -> tuple[int, Finding | None]:
    """Try a subject with the examples of a seed: how many there were, and the first that fails, made small."""
    engine.MAX_SHRINKING_SECONDS = 60
    tried, failing = 0, [""]

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(subject.inputs)
    def judge(example: Any) -> None:
        nonlocal tried
        tried += 1
        try:
            subject.judge(example)
        except BaseException:
            failing[0] = _in_short(example)  # the last one that fails is the smallest
            raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # of examples that are long to print
        try:
            judge()
        except Exception as error:
            return tried, _finding(subject, number, error, failing[0])
    return tried, None


def play(subject: Subject, blob: str) -> BaseException | None:
    """Play a finding again; what is raised, or None where the example is handled by now."""

    @hypothesis.reproduce_failure(hypothesis.__version__, blob.removeprefix("b").strip("'").encode())
    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(subject.inputs)
    def judge(example: Any) -> None:
        print(f"{subject.name}: {example!r}"[:4000])
        subject.judge(example)

    try:
        judge()
    except DidNotReproduce:
        return None
    except Exception as error:
        return error
    return None


def take_turn(subject: Subject, first: int, seconds: float, most: int | None = None) -> Turn:
    """Try a subject for some seconds, in a process of its own.

    Args:
        subject: the subject.
        first: the first seed; the others follow.
        seconds: for how long.
        most: how many seeds at most.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_process, args=(subject, first, seconds, most, theirs))
    process.start()
    theirs.close()
    turn = Turn(findings=[])
    end = time.monotonic() + seconds + _LONGEST
    try:
        while ours.poll(max(0.0, end - time.monotonic())):
            said = json.loads(ours.recv())
            turn.seeds, turn.examples = turn.seeds + 1, turn.examples + said["examples"]
            if said["finding"]:
                turn.findings.append(Finding(**said["finding"]))
    except EOFError:
        pass
    process.join(timeout=5)
    if process.exitcode != 0:
        what = "it hangs" if process.exitcode is None else f"the process ended with {process.exitcode}"
        process.kill()
        turn.findings.append(Finding(subject.name, first + turn.seeds, f"Died: {what}", "", "", "", ""))
    return turn


def _in_process(subject: Subject, first: int, seconds: float, most: int | None, said: Connection) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + _LONGEST - 5)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    end = time.monotonic() + seconds
    number = first
    while number == first or (time.monotonic() < end and (most is None or number < first + most)):
        tried, finding = try_seed(subject, number)
        said.send(json.dumps({"examples": tried, "finding": asdict(finding) if finding else None}))
        number += 1
    said.close()
    sys.stdout.flush()


def _in_short(example: Any) -> str:
    try:
        text = repr(example)
    except RecursionError:
        text = f"nested {type(example).__name__}"
    return text if len(text) <= 3000 else f"{text[:1500]} … {text[-1000:]} ({len(text)} characters)"


def _finding(subject: Subject, number: int, error: BaseException, example: str) -> Finding:
    inner: BaseException = error
    if isinstance(error, Flaky):
        inner = next(iter(getattr(error, "exceptions", ())), error)
    notes = "\n".join([*getattr(error, "__notes__", ()), *getattr(inner, "__notes__", ())])
    blob = _BLOB.search(notes)
    trace = "".join(traceback.format_exception(inner))[-6000:]
    flaky = "Flaky, " if inner is not error else ""
    error_text = f"{flaky}{type(inner).__name__}: {inner}"[:1500]
    return Finding(subject.name, number, error_text, _place(inner), example, blob[1] if blob else "", trace)


def _place(error: BaseException) -> str:
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(_PACKAGE)]
    return f"{frames[-1].filename.removeprefix(_PACKAGE)[1:]}:{frames[-1].name}" if frames else ""


def shares(subjects: Sequence[Subject]) -> Iterator[Subject]:
    """The subjects by turns, without an end; those with a larger share come more often."""
    due = {one.name: 0.0 for one in subjects}
    by_name = {one.name: one for one in subjects}
    while True:
        name = min(due, key=lambda one: due[one])
        due[name] += 1 / by_name[name].share
        yield by_name[name]
