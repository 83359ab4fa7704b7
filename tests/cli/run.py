#!/usr/bin/env python3
"""Runs text scripts that say what a shell sees of qgen.

  tests/cli/run.py --qgen build/qgen [FILE.t ...] [-k PATTERN]

A script is a list of cases. A case is a command for bash (pipefail is on) and what must come of it. What a case does
not mention must be empty: standard output, standard error; and the exit code 0. No redirected stream may hold the
escape byte. The cases of a file run in order, in one temporary folder that has a link to `models`; there is no other
environment than HOME and TMP (the folder), MODEL and INT8 (models), ROOT (the repository), SHARED (test data beside
it, may be missing), QGEN (the program, also on the PATH).

  # A comment right above a command is the case's title.
  $ qgen -m $MODEL -p "Once upon a time"      the command, for bash; a line `> …` continues it
    , there was (no-eol)                      standard output, indented by two spaces, here without a newline at its end
    [0-9]+ tokens (re)                        a regular expression; with (glob) only * is special
    \\x07ding (esc)                            bytes that cannot be shown
    ...                                       any lines
  stderr: LINE, or lines indented below       the same for standard error
  exit: 2                                     the exit code; 128 + N after signal N
  stdin: LINE, or lines indented below        text in a pipe (without: /dev/null)
  tty: in out err 80x24                       these streams are terminals, each its own, of this size
  expect: TEXT                                wait for TEXT in the output, after what was awaited before
  send: TEXT                                  type, or write to the pipe: \\n and ^C are what they look like
  signal: INT                                 to the command; these steps follow each other in the order written
  wait: 200 ms
  within: 100 ms                              limit for the fastest of 25 runs on an idle machine, times QGEN_TIME_FACTOR
  runs: 2                                     so many runs give the same bytes on standard output
  json: stderr schemas/stats.schema.json      that stream (or file) is JSON that meets the schema;
  jsonl: stdout schemas/batch.schema.json     or each of its lines is
  where: it["stop"] == "end"                  in Python; it: the JSON, out, err: text, writes: bytes of each write
  allow: escapes                              the model's own escape bytes may come through a pipe
  needs: test -d "$SHARED/data"               skipped where this command, which also has QGEN_TIME_FACTOR, fails: listed by
                                              title at the end, and in the file that the runner's environment variable
                                              QGEN_SKIPPED names
  broken: reason                              known to fail; a failure once it passes
  file: NAME                                  before a command: makes this file from the indented lines below
"""
import argparse
import difflib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from process import FACTOR, Run, ScriptError, milliseconds

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("expect", "send", "signal", "wait")
VALUES = ("exit", "tty", "within", "runs", "json", "jsonl", "allow", "needs", "broken")
BLOCKS = ("stdin", "stderr")


@dataclass
class Case:
    path: str
    line: int
    title: str
    command: str
    blocks: dict = field(default_factory=lambda: {"stdout": [], "stderr": []})
    steps: list = field(default_factory=list)
    where: list = field(default_factory=list)
    values: dict = field(default_factory=dict)

    def words(self, key):
        return self.values.get(key, "").split()


@dataclass
class File:
    name: str
    lines: list


# --- reading scripts

def parse(path):
    """The cases and files of a script, in order."""
    lines = Path(path).read_text().splitlines()
    items, comment, case, i = [], [], None, 0

    def block(start):
        """The indented lines from here on; an empty line counts where another indented one follows."""
        found, end, j = [], start, start
        while j < len(lines) and (lines[j].startswith("  ") or not lines[j].strip()):
            found.append(lines[j][2:])
            j += 1
            if lines[j - 1].startswith("  "):
                end = j
        return found[:end - start], end

    while i < len(lines):
        line, number = lines[i], i + 1
        i += 1
        key, _, value = line.partition(":")
        value = value.strip()
        if not line.strip():
            comment = []
        elif line.startswith("#"):
            comment.append(line[1:].strip())
        elif line.startswith("$ "):
            command = [line[2:]]
            while i < len(lines) and lines[i].startswith("> "):
                command.append(lines[i][2:])
                i += 1
            case = Case(str(path), number, " ".join(comment) or command[0], "\n".join(command))
            case.blocks["stdout"], i = block(i)
            items.append(case)
            comment = []
        elif key == "file":
            content, i = block(i)
            items.append(File(value, content))
            comment = []
        elif case is None:
            raise ScriptError(f"{path}:{number}: expected `$ command` before: {line}")
        elif key in BLOCKS:
            content, i = block(i)
            case.blocks[key] = [value] if value else content
        elif key in STEPS:
            case.steps.append((key, value))
        elif key == "where":
            case.where.append(value)
        elif key == "tty" and not re.fullmatch(r"((in|out|err|\d+x\d+)( |$))+", value):
            raise ScriptError(f"{path}:{number}: expected some of in, out, err and a size like 80x24: {value}")
        elif key in VALUES and key not in case.values:
            case.values[key] = value
        else:
            raise ScriptError(f"{path}:{number}: unknown, repeated or not indented: {line}")
    if not any(isinstance(item, Case) for item in items):
        raise ScriptError(f"{path}: no cases")
    return items


def block_bytes(lines):
    text = "\n".join(lines) + "\n" if lines else ""
    return text.removesuffix(" (no-eol)\n").encode() if text.endswith(" (no-eol)\n") else text.encode()


# --- comparing

def render(data, folder):
    """What was written, as the lines that a script would hold."""
    if not data:
        return []
    lines = data.replace(os.fsencode(folder), b"$TMP").decode(errors="backslashreplace").split("\n")
    shown = []
    for line in lines:
        escaped = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda m: f"\\x{ord(m[0]):02x}", line)
        shown.append(escaped + " (esc)" if escaped != line or "\\x" in line else line)
    return shown[:-1] if not lines[-1] else shown[:-1] + [shown[-1] + " (no-eol)"]


def pattern(line):
    """The regular expression for one expected line."""
    if line == "...":
        return r"(?:[^\n]*\n)*"
    body, tail = (line.removesuffix(" (no-eol)"), " (no-eol)") if line.endswith(" (no-eol)") else (line, "")
    if body.endswith(" (re)"):
        body = f"(?:{body[:-5]})"
    elif body.endswith(" (glob)"):
        body = r"[^\n]*".join(map(re.escape, body[:-7].split("*")))
    else:
        body = re.escape(body)
    return body + re.escape(tail) + r"\n"


def compare(name, expected, found):
    """A unified diff, or nothing where it is as expected."""
    if re.fullmatch("".join(map(pattern, expected)), "".join(line + "\n" for line in found)):
        return []
    # Patterns that fit are shown as what they found, so that the diff has only what differs.
    shown, rest = [], list(found)
    for line in expected:
        fits = next((i for i, other in enumerate(rest) if line != "..." and re.fullmatch(pattern(line), other + "\n")), None)
        shown.append(line if fits is None else rest[fits])
        rest = rest if fits is None else rest[fits + 1:]
    return list(difflib.unified_diff(shown, found, f"expected {name}", f"found {name}", lineterm="", n=1))


def load_json(case, result, folder):
    """The JSON that the case names, after a look at its schema, or None; and what is wrong."""
    kind = "jsonl" if "jsonl" in case.values else "json"
    if kind not in case.values:
        return None, []
    source, *schema = case.values[kind].split()
    text = {"stdout": result.out, "stderr": result.err}.get(source)
    if text is None:
        text = (folder / source).read_bytes()
    try:
        documents = [json.loads(line) for line in (text.decode().splitlines() if kind == "jsonl" else [text.decode()])]
    except ValueError as error:
        return None, [f"{source}: no JSON: {error}: {text[:400]!r}"]
    problems = []
    if schema:
        import jsonschema
        validator = jsonschema.Draft7Validator(json.loads((ROOT / schema[0]).read_text()))
        for document in documents:
            problems += [f"{source}: {schema[0]}: {'/'.join(map(str, e.absolute_path))}: {e.message[:300]}"
                         for e in validator.iter_errors(document)]
    return documents if kind == "jsonl" else documents[0], problems


def judge(case, result, folder):
    """Everything about one run that is not as the case expects."""
    problems = list(result.problems)
    expected = int(case.values.get("exit", 0))
    if result.code != expected:
        problems.append(f"exit code: expected {expected}, found {result.code}")
    it, wrong = load_json(case, result, folder)
    problems += wrong
    source = next(iter(case.words("jsonl") + case.words("json")), None)
    for name, data in (("stdout", result.out), ("stderr", result.err)):
        if source != name:
            problems += compare(name, case.blocks[name], render(data, folder))
        on_terminal = name.removeprefix("std") in case.words("tty")
        if b"\x1b" in data and not on_terminal and case.values.get("allow") != "escapes":
            problems.append(f"{name}: escape codes in redirected output: {data!r}")
    names = {"it": it, "out": result.out.decode(errors="replace"), "err": result.err.decode(errors="replace"),
             "writes": result.writes, "json": json, "math": math, "re": re, "folder": folder}
    for expression in case.where:
        try:
            if not eval(expression, names):
                problems.append(f"not so: {expression}" + (f"\n  it = {json.dumps(it)[:2000]}" if it is not None else ""))
        except Exception as error:
            problems.append(f"{expression}: {error!r}")
    return problems


def check(case, environment, folder):
    """Runs a case as often as it asks for; its problems."""
    limit = milliseconds(case.values["within"]) * FACTOR if "within" in case.values else math.inf
    runs = 25 if "within" in case.values else int(case.values.get("runs", 1))
    stdin = block_bytes(case.blocks["stdin"]) if "stdin" in case.blocks else None
    fastest, first = math.inf, None
    for _ in range(runs):
        result = Run(case.command, stdin, case.words("tty"), case.steps, environment, folder).finish()
        problems = judge(case, result, folder)
        if "runs" in case.values and first not in (None, result.out):
            problems += ["another run wrote other bytes:"] + compare("stdout", render(first, folder), render(result.out, folder))
        first = result.out
        fastest = min(fastest, result.seconds * 1000)
        if problems or fastest <= limit < math.inf:
            return problems
        if "within" in case.values:
            time.sleep(0.05)  # a busy machine may have a better moment
    return [] if fastest <= limit else [f"took {fastest:.0f} ms, at most {limit:.0f} ms were expected"]


def run_script(path, qgen, wanted, skipped):
    """Runs a script and prints what failed; the counts of passed, failed, broken and skipped cases. Appends to `skipped` what
    the skipped ones are."""
    counts = {"passed": 0, "failed": 0, "broken": 0, "skipped": 0}
    folder = Path(tempfile.mkdtemp(prefix="qgen-cli-"))
    tools = Path(tempfile.mkdtemp(prefix="qgen-bin-"))
    (folder / "models").symlink_to(ROOT / "models")
    (tools / "qgen").symlink_to(Path(qgen).resolve())
    environment = {name: value for name, value in os.environ.items()
                   if re.fullmatch(r"[AUTL]B?SAN_OPTIONS|LD_LIBRARY_PATH", name)}
    environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder), "TMP": str(folder), "LC_ALL": "C.UTF-8",
                    "TERM": "xterm-256color", "MODEL": "models/stories260K-FP8", "INT8": "models/stories260K-w8a8",
                    "QGEN": str(Path(qgen).resolve()), "ROOT": str(ROOT),
                    "SHARED": str(Path(os.environ.get("QGEN_SHARED", ROOT.parent / "shared")).resolve())}
    told = environment | {"QGEN_TIME_FACTOR": os.environ.get("QGEN_TIME_FACTOR", "")}  # what conditions may ask for
    try:
        for item in parse(path):
            if isinstance(item, File):
                (folder / item.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / item.name).write_bytes(block_bytes(item.lines))
                continue
            # What prepares the ground for others always runs.
            if wanted and "qgen" in item.command and not re.search(wanted, f"{item.title}\n{item.command}"):
                continue
            needs = item.values.get("needs")
            if needs and subprocess.run(["bash", "-c", needs], cwd=folder, env=told, capture_output=True).returncode:
                counts["skipped"] += 1
                skipped.append(f"{Path(path).name}:{item.line}: {item.title} (needs: {needs})")
                continue
            problems = check(item, environment, folder)
            broken = item.values.get("broken")
            if broken and not problems:
                problems = [f"passes, but is marked `broken: {broken}`"]
            elif broken:
                counts["broken"] += 1
                continue
            counts["failed" if problems else "passed"] += 1
            if problems:
                print("\n".join([f"{item.path}:{item.line}: {item.title}", f"$ {item.command}"] + problems), end="\n\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(tools, ignore_errors=True)
    print(f"{Path(path).name}: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n or what == "passed"))
    return counts


def main():
    # A shell starts jobs in the background with Ctrl-C ignored, which their children would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("scripts", nargs="*", metavar="FILE.t", help="default: all beside this program")
    arguments.add_argument("--qgen", required=True, help="the program")
    arguments.add_argument("-k", metavar="PATTERN", help="only cases whose title or command has this regular expression")
    options = arguments.parse_args()
    scripts = options.scripts or sorted(Path(__file__).parent.glob("*.t"))
    if not os.access(options.qgen, os.X_OK):
        arguments.error(f"--qgen {options.qgen}: not a program")
    try:
        skipped = []
        counts = [run_script(script, options.qgen, options.k, skipped) for script in scripts]
        print("".join(f"skipped: {line}\n" for line in skipped), end="")
        if os.environ.get("QGEN_SKIPPED"):
            Path(os.environ["QGEN_SKIPPED"]).write_text("".join(f"{line}\n" for line in skipped), encoding="utf-8")
    except (ScriptError, OSError) as error:
        sys.exit(f"run.py: {error}")
    if options.k and not sum(sum(count.values()) for count in counts):
        sys.exit("run.py: no case matches")
    sys.exit(any(count["failed"] for count in counts))


if __name__ == "__main__":
    main()
