"""Kills, corrupts, cuts off and fuzzes real studies, and prints what was done and what was lost.

    python scripts/soak.py                        # the whole plan, about an hour on two cores
    python scripts/soak.py --short                # a minute of it, as the test suite does
    python scripts/soak.py --only models --count 500 --seed 3

Every study runs in a process group of its own, forked from this process, which has imported
everything. What is lost is a candidate, a result, a clear word, or time: a crash, a traceback, more
than one line of error, a run left open, another front than that of the undisturbed study. At the
end a table says what was done how often, and what was lost.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mutations
import numpy as np

from seqto.cli import main as seqto_main
from seqto.datasets.digits import DigitsDataset
from seqto.models.embedded import EmbeddedModel
from seqto.secrets import masked
from seqto.types import TensorSpec

FRUGAL = (
    *("dataset.evaluation_size=100", "device.warmup=0", "device.repeats=1"),
    *("search=ladder", "sensitivity=paper", "sensitivity.samples=4"),
)
STUDY = (*FRUGAL, "search.step=4", "device.workers=1")
PATIENCE = 300.0
FUZZ_PATIENCE = 120.0
TOLERANCE = 0.02
"""How far what is measured here may be from what a report says: two of 100 samples."""

DIGIT = (None, 1, 8, 8)
_told_to_end: list[int] = []
"""The signal, if there was one: what is under way ends, and what was done is printed."""


@dataclass
class Step:
    """What one part of the plan did, and what was lost in it."""

    done: int = 0
    lost: list[str] = field(default_factory=list)
    note: str = ""
    times: Counter[str] = field(default_factory=Counter)
    """What was done, and how often."""

    @property
    def told(self) -> str:
        """What was done how often, in words."""
        counted = [f"{count} x {what}" for what, count in self.times.items()]
        return "; ".join([*counted, *([self.note] if self.note else [])])

    def expect(self, holds: bool, what: str) -> None:
        """Count something that was tried; remember it if it does not hold."""
        self.done += 1
        if not holds:
            self.lost.append(what)
            print(f"    lost: {what}", flush=True)


class Child:
    """A command in a process group of its own; what it says goes to a file."""

    def __init__(self, folder: Path, words: Sequence[str], **variables: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"said-{time.monotonic_ns()}.txt"
        sys.stdout.flush()
        self.number = os.fork()
        if self.number == 0:
            _become(folder, self.log, words, variables)

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Return the exit code, negative for a signal; None if it was too slow, and was killed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended, status = os.waitpid(self.number, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        self.signal(signal.SIGKILL)
        os.waitpid(self.number, 0)
        return None

    def signal(self, number: int) -> None:
        """Send a signal to it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, number)

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _become(folder: Path, log: Path, words: Sequence[str], variables: dict[str, str]) -> None:
    """Go on as the command, in this process, which is the fork."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in [each for each in os.environ if each.startswith("MLFLOW_TRACKING")]:
            del os.environ[name]
        os.environ.update({"SEQTO_CACHE": str(folder / "cache"), "COLUMNS": "200", **variables})
        sys.argv = ["seqto", *words]
        seqto_main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def is_clear(child: Child, code: int | None) -> bool:
    """Tell whether a command ended well, or with one clear line."""
    if code is None or code < 0 or "Traceback" in child.said or "unexpected" in child.said:
        return False
    errors = [line for line in child.said.splitlines() if line.startswith("seqto: error:")]
    if code and len(errors) > 1 and errors[-1].endswith("studies failed; see above."):
        # A word with a comma makes a grid of studies, and each has its line.
        return len(errors) == 1 + child.said.count("\nstudy ") + child.said.startswith("study ")
    return not errors if code == 0 else len(errors) == 1


def front_of(folder: Path) -> list[tuple[Any, ...]]:
    """Return the front of the newest report, without what depends on the moment.

    Which of the others are stopped early does.
    """
    reports = sorted(folder.rglob("report.json"), key=lambda path: path.stat().st_mtime)
    if not reports:
        return []
    rows = json.loads(reports[-1].read_text())["candidates"]
    return sorted(
        (
            row["index"],
            row["metrics"]["accuracy_loss"],
            row["metrics"]["size_bytes"],
            row.get("model_sha256", ""),
        )
        for row in rows
        if row["pareto"]
    )


def store_faults(store: Path) -> list[str]:
    """Return what is wrong in a store in which nobody works any more."""
    with contextlib.closing(sqlite3.connect(store)) as held:
        left = held.execute("select count(*) from runs where status = 'RUNNING'").fetchone()[0]
        twice = held.execute(
            "select count(*) from (select p.value, k.value from runs r join tags p on p.run_uuid ="
            " r.run_uuid and p.key = 'mlflow.parentRunId' join tags k on k.run_uuid = r.run_uuid"
            " and k.key = 'seqto.key' where r.status = 'FINISHED' group by 1, 2"
            " having count(*) > 1)"
        ).fetchone()[0]
    faults = [f"{left} runs left open"] if left else []
    return faults + ([f"{twice} candidates finished twice"] if twice else [])


@dataclass(frozen=True)
class Plan:
    """Where, how much and with which chance."""

    folder: Path
    chance: random.Random
    short: bool
    count: int | None
    until: float
    jobs: int = 1
    keep: Path | None = None
    """Where folders go in which something was lost."""

    def times(self, short: int, whole: int) -> Iterator[int]:
        """Yield the numbers of what is done so often, until the time is over."""
        for number in range(self.count or (short if self.short else whole)):
            if _told_to_end or time.monotonic() > self.until:
                return
            yield number


def undisturbed(plan: Plan) -> tuple[list[tuple[Any, ...]], float]:
    """Return the candidates of the study that nobody disturbs, and how long it took."""
    begin = time.monotonic()
    child = Child(plan.folder / "undisturbed", [*STUDY, "-m"])
    if child.wait() != 0:
        sys.exit(f"the undisturbed study failed: {child.said}")
    return front_of(plan.folder / "undisturbed"), time.monotonic() - begin


def kills(plan: Plan) -> Step:
    """SIGKILL, SIGTERM and SIGINT at any moment; the same command goes on."""
    step, (wanted, seconds) = Step(), undisturbed(plan)
    signals = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    for turn in plan.times(1, 24):
        folder, number = plan.folder / f"kill-{turn}", signals[turn % len(signals)]
        child, moment = Child(folder, [*STUDY, "-m"]), plan.chance.uniform(0.05, 1.0) * seconds
        time.sleep(moment)
        child.signal(number)
        code = child.wait()
        what = f"{number.name} after {moment:.1f} s"
        step.times[f"{number.name} at any moment, then the same command"] += 1
        if number != signal.SIGKILL:
            step.expect(
                is_clear(child, 0) and code in (0, 130, 143), f"{what}: {child.said[-200:]}"
            )
        again = Child(folder, [*STUDY, "-m"])
        step.expect(again.wait() == 0 and "Traceback" not in again.said, f"{what}: not resumed")
        step.expect(front_of(folder) == wanted, f"{what}: another front")
        step.expect(not store_faults(folder / "mlflow.db"), f"{what}: the store")
    return step


def workers(plan: Plan) -> Step:
    """SIGKILL of a process that measures candidates, while it does."""
    step, (wanted, _) = Step(), undisturbed(plan)
    for turn in plan.times(1, 10):
        folder = plan.folder / f"worker-{turn}"
        child = Child(folder, [*STUDY, "device.workers=2", "device.repeats=200", "-m"])
        met = _kill_worker(child, plan.chance.uniform(0, 1.5))
        code = child.wait()
        step.times[f"SIGKILL of a process that {'measures' if met else 'has just ended'}"] += 1
        step.expect(code == 0 and is_clear(child, code), f"worker {turn}: {child.said[-300:]}")
        step.expect(front_of(folder) == wanted, f"worker {turn}: another front")
        step.expect(not store_faults(folder / "mlflow.db"), f"worker {turn}: the store")
    return step


def _kill_worker(child: Child, after: float) -> bool:
    """Kill one of the child's own processes, so many seconds after there is one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not _children(child.number):
        time.sleep(0.01)
    time.sleep(after)
    for number in _children(child.number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
            return True
    return False


def _children(number: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{number}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def cache(plan: Plan) -> Step:
    """Damaged files in the cache are made again."""
    step, (wanted, _) = Step(), undisturbed(plan)
    kept = plan.folder / "undisturbed" / "cache"
    for turn in plan.times(1, 8):
        folder = plan.folder / f"cache-{turn}"
        shutil.copytree(kept, folder / "cache")
        for path in sorted(each for each in (folder / "cache").rglob("*") if each.is_file()):
            content = path.read_bytes()
            damaged = mutations.damaged_bytes(content, plan.chance)
            path.write_bytes(damaged)
            step.times["damaged file of the cache"] += 1
        child = Child(folder, [*STUDY, "-m"])
        step.expect(is_clear(child, child.wait()), f"damage {turn}: {child.said[-300:]}")
        step.expect(front_of(folder) == wanted, f"damage {turn}: another front")
    return step


def disk(plan: Plan) -> Step:
    """Fill the disk: one line, and nothing is lost when there is space again."""
    step, (wanted, _) = Step(), undisturbed(plan)
    for size in ("40k", "1m") if plan.short else ("40k", "200k", "600k", "1m", "2m"):
        folder = plan.folder / f"disk-{size}"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            step.note = "left out: nothing can be mounted here"
            return step
        step.times["full disk, then the same command with space"] += 1
        outside = {"SEQTO_CACHE": str(plan.folder / f"disk-{size}-cache")}
        words = [*STUDY, f"hydra.sweep.dir={plan.folder}/disk-out-{size}", "-m"]
        try:
            child = Child(folder, words, **outside)
            child_log, code = child.log, child.wait()
            step.expect(is_clear(child, code), f"{size}: exit {code}: {child_log.name}")
            subprocess.run(["mount", "-o", "remount,size=60m", str(folder)], check=True)
            again = Child(folder, words, **outside)
            step.expect(again.wait() == 0, f"{size}: not resumed: {again.said[-300:]}")
            found = front_of(plan.folder / f"disk-out-{size}")
            step.expect(found == wanted, f"{size}: another front")
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False)
    return step


def server(plan: Plan) -> Step:
    """Studies at once on PostgreSQL behind `scripts/server`, which is killed for a while."""
    step = Step()
    if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        step.note = "left out: no PostgreSQL"
        return step
    layers, studies, seconds = (5, 2, 3) if plan.short else (48, 4, 30)
    with Served(plan.folder / "server") as served:
        children = []
        for number in range(studies):
            folder = plan.folder / f"client-{number}"
            folder.mkdir()
            (folder / "chain.onnx").write_bytes(mutations.chain(layers).SerializeToString())
            words = ["model=local", "model.path=chain.onnx", *FRUGAL, "device.workers=1"]
            words += [f"dataset.seed={number}", f"tracking.uri={served.uri}", "-m"]
            children.append(Child(folder, words))
        served.wait_for_runs(2 * studies)
        served.kill()
        time.sleep(seconds)
        served.start()
        for number, child in enumerate(children):
            code = child.wait(1800)
            step.expect(
                code == 0 and is_clear(child, code),
                f"study {number}: exit {code}: {child.said[-300:]}",
            )
            step.expect("waiting for it to come back" in child.said, f"study {number}: no line")
        faults = served.faults(studies, layers + 2)
        step.expect(not faults, "; ".join(faults))
        step.times[f"server killed for {seconds} s under {studies} studies at once"] += 1
        step.note = f"{studies * (layers + 2)} candidates"
    return step


class Served:
    """`scripts/serve.py` in a folder, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.port = folder, mutations.free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Served":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        script = Path(__file__).with_name("serve.py")
        command = [sys.executable, str(script), "--folder", str(self.folder / "data")]
        with (self.folder / "log.txt").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=log, stderr=log
            )
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"the server did not start: {self.folder / 'log.txt'}")

    def kill(self) -> None:
        """End it without a word; its database goes on."""
        number = self._process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        self._process.kill()
        self._process.wait()
        for child in children:
            os.killpg(int(child), signal.SIGKILL)

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many candidates are finished."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and len(self._runs("FINISHED")) < count:
            time.sleep(0.5)

    def faults(self, studies: int, candidates: int) -> list[str]:
        """Return what is wrong after so many studies of so many candidates."""
        runs = self._runs()
        tags = [run.data.tags for run in runs]
        parents = {
            run.info.run_id
            for run, own in zip(runs, tags, strict=True)
            if own.get("seqto.kind") == "study"
        }
        done = [
            own
            for run, own in zip(runs, tags, strict=True)
            if own.get("seqto.kind") == "candidate" and run.info.status == "FINISHED"
        ]
        finished = Counter(own["mlflow.parentRunId"] for own in done)
        apart = {(own["mlflow.parentRunId"], own["seqto.key"]) for own in done}
        found = [] if len(parents) == studies else [f"{len(parents)} studies"]
        found += [] if set(finished) == parents else ["candidates under another parent"]
        found += [] if len(apart) == len(done) else ["candidates finished twice"]
        found += [
            f"{count} candidates of {parent}"
            for parent, count in finished.items()
            if count != candidates
        ]
        left = sum(run.info.status == "RUNNING" for run in runs)
        return found + ([f"{left} runs left open"] if left else [])

    def _runs(self, status: str = "") -> list[Any]:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(self.uri)
        experiment = client.get_experiment_by_name("seqto")
        if experiment is None:
            return []
        condition = f"attributes.status = '{status}'" if status else ""
        return list(client.search_runs([experiment.experiment_id], condition, max_results=5000))


def nodes(plan: Plan) -> Step:
    """Lose a node, a process or the driver of a ray cluster in the middle of a study."""
    step = Step()
    test = Path(__file__).parent.parent / "tests" / "test_ray.py"
    whats = {
        "node_is_lost": "node of two of a ray cluster lost",
        "kills_its_process": "candidate that kills its process on a node",
        "driver_is_killed": "driver killed, the study goes on from another folder, home, cache",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rA", str(test), "-k", " or ".join(whats)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=test.parent.parent)
    if "skipped" in ended.stdout:
        step.note = "left out: ray is not installed"
        return step
    for part, what in whats.items():
        step.times[what] += 1
        found = re.search(rf"^PASSED .*{part}", ended.stdout, re.MULTILINE)
        step.expect(bool(found), f"{what}: {ended.stdout[-500:]}")
    return step


def models(plan: Plan) -> Step:
    """Mutated ONNX files: one clear line, or a right result."""
    bases = [mutations.chain(3).SerializeToString(), EmbeddedModel().load().to_bytes()]
    words = ["model=local", "model.path=mutated.onnx", *STUDY, "device.seconds=10", "-m"]

    def prepare(folder: Path, number: int) -> list[str]:
        content, how = mutations.mutated_model(bases[number % 4 == 0], plan.chance)
        (folder / "mutated.onnx").write_bytes(content)
        (folder / "how.txt").write_text(how)
        return words

    return _fuzzed(plan, "mutated model", plan.times(8, 500), prepare)


def configs(plan: Plan) -> Step:
    """Mutated words: one clear line, or a right result."""
    from seqto.config.complaints import known_keys

    keys = [key for key in known_keys() if not key.startswith("hydra") and "_target_" not in key]

    def prepare(folder: Path, number: int) -> list[str]:
        words = mutations.mutated_words(sorted(keys), plan.chance)
        (folder / "how.txt").write_text(repr(words))
        return [*STUDY, *words, "-m"]

    return _fuzzed(plan, "mutated config", plan.times(5, 200), prepare)


def data(plan: Plan) -> Step:
    """Mutated samples: one clear line, or a right result."""

    def prepare(folder: Path, number: int) -> list[str]:
        words, how = mutations.mutated_samples(folder, plan.chance)
        (folder / "how.txt").write_text(how)
        sizes = ["dataset.calibration_size=30", "dataset.evaluation_size=60"]
        return ["model=local", "model.path=model.onnx", *words, *STUDY, *sizes, "-m"]

    return _fuzzed(plan, "mutated samples", plan.times(4, 100), prepare)


def _fuzzed(
    plan: Plan, name: str, numbers: Iterable[int], prepare: Callable[[Path, int], list[str]]
) -> Step:
    """Run mutations in folders of their own; show those that something was lost with."""
    step, well, running = Step(), 0, deque[tuple[Path, Child]]()
    store = plan.folder / "empty.db"
    if not store.exists():
        from seqto.tracking.mlflow import MlflowTracker

        _ = MlflowTracker(uri=f"sqlite:///{store}").client

    def end(folder: Path, child: Child) -> bool:
        code = child.wait(FUZZ_PATIENCE)
        wrong = _wrong(folder) if code == 0 else ""
        how = (folder / "how.txt").read_text()
        told = masked(child.said.strip()[-300:])
        step.times[name] += 1
        step.expect(is_clear(child, code) and not wrong, f"{how}: exit {code}: {wrong} {told}")
        if plan.keep is not None and (wrong or not is_clear(child, code)):
            shutil.copytree(folder, plan.keep / folder.name, dirs_exist_ok=True)
        shutil.rmtree(folder)
        return code == 0

    for number in numbers:
        folder = plan.folder / f"{name.replace(' ', '-')}-{number}"
        folder.mkdir()
        shutil.copy(store, folder / "mlflow.db")
        words = prepare(folder, number)
        cache = str(plan.folder / "fuzz-cache")
        running.append((folder, Child(folder, words, SEQTO_CACHE=cache)))
        if len(running) >= plan.jobs:
            well += end(*running.popleft())
    while running:
        well += end(*running.popleft())
    step.note = f"{well} gave a result, {step.done - well} one line"
    return step


def _wrong(folder: Path) -> str:
    """Return what is wrong with a study's answer, measured here by other code; empty if nothing."""
    reports = list(folder.rglob("report.json"))
    answers = list(folder.rglob("balanced.onnx"))
    if not reports:
        return "" if not list(folder.rglob("multirun.yaml")) else "no report"
    report = json.loads(reports[0].read_text())
    rows = [row for row in report["candidates"] if row["state"] == "COMPLETE"]
    if not all(0 <= row["metrics"]["accuracy_loss"] <= 1 for row in rows):
        return "a loss that is none"
    model = folder / "mutated.onnx"
    if not answers or not model.exists():
        return ""
    at = report["recommended"]["balanced"]
    (row,) = [row for row in rows if row["index"] == at]
    said = row["metrics"]["accuracy_loss"]
    try:
        wanted = _classes(model, {})
    except Exception:  # Of ONNX Runtime: seqto mends some models first, such as equal names.
        return ""
    try:
        found = _classes(answers[0], row["session"])
    except Exception as error:
        return f"the answer does not run: {error}"
    differs = float(np.mean(wanted != found))
    return "" if abs(differs - said) <= TOLERANCE else f"differs on {differs:.1%}, not {said:.1%}"


def _classes(path: Path, entries: dict[str, str]) -> np.ndarray:
    """Return the highest of a model's values for each digit of the study."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    samples = DigitsDataset(evaluation_size=100).load([TensorSpec(name, DIGIT, "float32")])
    images = samples.evaluation.inputs[name]
    return np.array([np.argmax(session.run(None, {name: each[None]})[0]) for each in images])


STEPS: dict[str, Callable[[Plan], Step]] = {
    each.__name__: each
    for each in (kills, workers, cache, disk, configs, data, models, server, nodes)
}


@contextlib.contextmanager
def _workplace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="seqto-soak-"))
    # PostgreSQL has a user of its own.
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the plan; return 1 if anything was lost."""
    given = _parser().parse_args(arguments)
    np.seterr(all="ignore")
    signal.signal(signal.SIGTERM, lambda number, _: _told_to_end.append(number))
    begin, rows, lost = time.monotonic(), [], 0
    for name in given.only.split(","):
        if time.monotonic() - begin > 60 * given.minutes or _told_to_end:
            rows.append(f"| {name} | not begun: {given.minutes:g} minutes are over | | | |")
            continue
        with _workplace() as folder:
            start = time.monotonic()
            until = begin + 60 * given.minutes
            chance = random.Random(given.seed)
            plan = Plan(folder, chance, given.short, given.count, until, given.jobs, given.keep)
            step = STEPS[name](plan)
        seconds = time.monotonic() - start
        print(f"{name:<8} {step.done} tried, {len(step.lost)} lost, {seconds:.0f} s", flush=True)
        rows.append(f"| {name} | {step.told} | {step.done} | {len(step.lost)} | {seconds:.0f} |")
        lost += len(step.lost)
    print("\n| step | what was done | looked at | lost | s |\n|---|---|---|---|---|")
    print("\n".join(rows), flush=True)
    return 1 if lost else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, separated by commas")
    parser.add_argument("--count", type=int, help="how often, instead of the plan's number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutations that run at once")
    parser.add_argument("--keep", type=Path, help="a folder for what something was lost with")
    parser.add_argument(
        "--minutes", type=float, default=90, help="what is not begun then is left out"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
