#!/usr/bin/env python3
"""Runs the checkpoints of models.txt again and compares, or prints the line of one more.

    tools/models_check.py [--qgen PROGRAM] [--device DEVICE] [--ids-only] [ID ...]     (make models-check)
    tools/models_check.py --add MODEL [--hardware TEXT] >> models.txt

A checkpoint is looked for under its id in models/ and in the folders that QGEN_MODELS names (separated by colons); one that is
not there is skipped. Each runs on the device of its line, "cpu avx2" being --device cpu:avx2, where family, method, engine, token
ids and the hash of the scores must be equal. On a machine without that device it runs on the one that --device names [auto], and
the hash is not comparable, as on another GPU; a device that the program does not know is a failure. --ids-only takes that device
for all lines and leaves engines and hashes out, for other compilers and sanitizers. Speed is not compared. Exits with 1 where
something differs.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "models.txt"
IDS = 8  # greedy tokens in a line
TOKENS = 16  # generated before the scores are hashed
NO_DEVICE = 5  # the program's exit code where the machine lacks the device


def stop(subject, problem, hint):
    sys.exit(f"models_check: {subject}: {problem}\nhint: {hint}")


@dataclass
class Line:
    """One checkpoint; the fields are the columns of models.txt."""

    id: str
    family: str
    method: str
    engine: str
    ids: str
    hash: str
    speed: str

    def __str__(self):
        return " | ".join((self.id, self.family, self.method, self.engine, self.ids, self.hash, self.speed))

    @property
    def device(self):
        """What --device calls the engine: cpu:avx2 of "cpu avx2, …", cuda of "cuda NVIDIA …", reference."""
        name, _, which = self.engine.split(",")[0].partition(" ")
        return f"cpu:{which}" if name == "cpu" else name

    @property
    def arithmetic(self):
        """The engine without the number of threads, which changes no bit."""
        return ", ".join(part for part in self.engine.split(", ") if not re.fullmatch(r"\d+ threads?", part))


@dataclass
class Failure:
    code: int
    message: str

    def __str__(self):
        return f"exit code {self.code}: {self.message}"


def table():
    lines = []
    for number, text in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        columns = [column.strip() for column in text.split("|")]
        if len(columns) != len(Line.__dataclass_fields__):
            stop(f"{TABLE.name} line {number}", f"has {len(columns)} columns, not 7", "--add prints a whole line")
        lines.append(Line(*columns))
    return lines


def find(model):
    """The folder of an id, or None."""
    places = [ROOT / "models"] + [Path(place) for place in os.environ.get("QGEN_MODELS", "").split(":") if place]
    return next((place / model for place in places if (place / model).exists()), None)


def run(options, path, device, hardware=""):
    """The checkpoint's line as of now, or a Failure."""
    command = [options.qgen, "--model", str(path), "--prompt", "Once upon a time", "--raw", "--no-stdin", "--temp", "0"]
    command += ["--max-tokens", str(TOKENS), "--logprobs", "1", "--stats=json", "--device", device]
    # The environment twins of the options would change the answer.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QGEN_")}
    try:
        done = subprocess.run(command, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
    except OSError as error:
        stop(options.qgen, error.strerror, "build it with make, or name it with --qgen")
    if done.returncode != 0:
        return Failure(done.returncode, done.stderr.strip())
    report = json.loads(done.stderr[done.stderr.index("{") :])
    ids = " ".join(str(step["chosen"]["id"]) for step in report["logprobs"][:IDS])
    speed = f"{report['output']['tokens_per_second']:.0f} tok/s, {hardware}, {datetime.date.today()}"
    name = Path(path).resolve().name
    return Line(name, report["family"], report["method"], report["engine"], ids, report["logits_hash"], speed)


def this_hardware():
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{names[0] if names else os.uname().machine}, {cores} core{'s' if cores > 1 else ''}"


def add(options):
    path = find(options.add) or Path(options.add)
    found = run(options, path, options.device, options.hardware or this_hardware())
    if isinstance(found, Failure):
        stop(path, found, "a line needs a checkpoint that runs")
    print(found)


def compare(options, expected):
    """Prints one line, or more where something differs. Whether all is well, and whether the hash was compared."""
    path = find(expected.id)
    if path is None:
        print(f"{expected.id}: not present")
        return True, False
    columns = ["family", "method", "ids"]
    if options.ids_only:
        found, note = run(options, path, options.device), "hash not compared"
    else:
        found, note = run(options, path, expected.device), "same hash"
        if isinstance(found, Failure) and found.code == NO_DEVICE:
            note = f"hash not comparable here ({found.message.splitlines()[0].removeprefix('qgen: ')})"
            found = run(options, path, options.device)
        elif isinstance(found, Line) and expected.device == "cuda" and found.arithmetic != expected.arithmetic:
            note = f"hash not comparable here ({found.arithmetic}, the line has {expected.arithmetic})"
        else:
            columns += ["arithmetic", "hash"]
    if isinstance(found, Failure):
        print(f"{expected.id}: FAILED: {found}")
        return False, False
    different = [name for name in columns if getattr(found, name) != getattr(expected, name)]
    if not different:
        print(f"{expected.id}: same ids, {note}")
    for name in different:
        print(f"{expected.id}: DIFFERENT {name}\n  expected {getattr(expected, name)}\n  found    {getattr(found, name)}")
    return not different, "hash" in columns


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, usage=argparse.SUPPRESS)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these lines")
    parser.add_argument("--qgen", default=str(ROOT / "build/qgen"), metavar="PROGRAM", help="default: %(default)s")
    device = "as the program's [%(default)s]: for --add, --ids-only, and lines whose device is not here"
    parser.add_argument("--device", default="auto", help=device)
    parser.add_argument("--ids-only", action="store_true", help="no hashes")
    parser.add_argument("--add", metavar="MODEL", help="print a line for this id or folder")
    parser.add_argument("--hardware", metavar="TEXT", help="for --add [processor and cores]")
    options = parser.parse_intermixed_args()
    if options.add:
        return add(options)
    lines = table()
    for model in options.ids:
        if model not in [line.id for line in lines]:
            stop(model, f"no line in {TABLE.name}", f"--add {model} prints one")
    wanted = [line for line in lines if not options.ids or line.id in options.ids]
    results = [compare(options, line) for line in wanted]
    good, hashes = [sum(column) for column in zip(*results)] if results else (0, 0)
    if not options.ids_only:
        print(f"{hashes} of {len(results)} hashes were compared")
    if good < len(results):
        hint = "where the change is meant, replace the line by that of --add"
        stop(TABLE.name, f"{len(results) - good} of {len(results)} checkpoints differ", hint)


if __name__ == "__main__":
    main()
