#!/usr/bin/env python3
"""Checks the runner itself: what must fail is reported as failing, with the right words, and what must pass passes.

Each script below runs on its own, with a small shell script in place of qgen.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNNER = Path(__file__).parent / "run.py"

# A name, a script, and a part of the report that must be there; None: the script must pass.
SCRIPTS = [
    ("exact output", "$ echo one; echo two\n  one\n  two\n", None),
    ("other output", "$ echo one\n  two\n", "-two\n+one"),
    ("a line too many", "$ echo one; echo two\n  one\n", "+two"),
    ("a line too few", "$ echo one\n  one\n  two\n", "-two"),
    ("unexpected output", "$ echo one\n", "+one"),
    ("no output where some is expected", "$ true\n  one\n", "-one"),
    ("an empty line", "$ printf 'a\\n\\nb\\n'\n  a\n\n  b\n", None),
    ("an empty line that is missing", "$ printf 'a\\nb\\n'\n  a\n\n  b\n", "@@"),
    ("no newline at the end", "$ printf one\n  one (no-eol)\n", None),
    ("a missing newline", "$ printf one\n  one\n", "+one (no-eol)"),
    ("a newline too many", "$ echo one\n  one (no-eol)\n", "-one (no-eol)"),
    ("unexpected standard error", "$ echo oops >&2\n", "found stderr"),
    ("standard error", "$ echo oops >&2\nstderr: oops\n", None),
    ("standard error of lines", "$ printf 'a\\nb\\n' >&2\nstderr:\n  a\n  b\n", None),
    ("other standard error", "$ echo oops >&2\nstderr: fine\n", "+oops"),
    ("exit code", "$ exit 3\n", "exit code: expected 0, found 3"),
    ("expected exit code", "$ exit 3\nexit: 3\n", None),
    ("exit code of a signal", "$ kill -TERM $$\nexit: 143\n", None),
    ("the first program of a pipe", "$ exit 5 | cat\nexit: 5\n", None),
    ("a good exit where a bad one is expected", "$ true\nexit: 3\n", "exit code: expected 3, found 0"),
    ("glob", "$ echo 12 tokens\n  * tokens (glob)\n", None),
    ("glob that does not fit", "$ echo 12 words\n  * tokens (glob)\n", "+12 words"),
    ("glob within its line", "$ printf 'a\\nb tokens\\n'\n  * tokens (glob)\n", "+a"),
    ("regular expression", "$ echo 12 tokens\n  [0-9]+ tokens (re)\n", None),
    ("regular expression that does not fit", "$ echo many tokens\n  [0-9]+ tokens (re)\n", "+many tokens"),
    ("dots for lines", "$ seq 5\n  1\n  ...\n  5\n", None),
    ("dots for no line", "$ echo 1\n  ...\n  1\n", None),
    ("dots that do not reach", "$ seq 5\n  1\n  ...\n  6\n", "-6"),
    ("a pattern is no exact line", "$ echo 'a.c (re)'\n  abc\n", "+a.c (re)"),
    ("control characters", "$ printf 'a\\007\\n'\n  a\\x07 (esc)\n", None),
    ("bytes that are no UTF-8", "$ printf 'a\\377\\n'\n  a\\xff (esc)\n", None),
    ("escape bytes in a pipe", "$ printf '\\033[m'\n  ...\n", "escape codes in redirected output"),
    ("escape bytes in stderr", "$ printf '\\033[m' >&2\nstderr: ...\n", "escape codes in redirected output"),
    ("escape bytes that are allowed", "$ printf '\\033[m'\n  ...\nallow: escapes\n", None),
    ("escape bytes on a terminal", "$ printf '\\033[m'\n  ...\ntty: out\n", None),
    ("standard input", "$ cat\n  Hi\nstdin: Hi\n", None),
    ("no standard input", "$ cat\n", None),
    ("a terminal", "$ [ -t 0 ] && [ -t 1 ] && [ -t 2 ]\ntty: in out err\n", None),
    ("no terminal", "$ [ -t 0 ] || [ -t 1 ] || [ -t 2 ]\nexit: 1\n", None),
    ("one terminal", "$ [ ! -t 0 ] && [ -t 1 ] && [ ! -t 2 ]\ntty: out\n", None),
    ("a terminal's size", "$ stty size\n  7 50\ntty: in 50x7\n", None),
    ("a conversation", "$ printf 'Name? '; read -r x; echo \"Hi $x\"\n  Name? Hi Tom\ntty: in out\nexpect: Name?\nsend: Tom\\n\n", None),
    ("a pipe that is written to", "$ echo go; read -r x; echo \"$x\"\n  go\n  y\nexpect: go\nsend: y\\n\n", None),
    ("a text that never comes", "$ echo no\n  no\nexpect: yes\n", "ended before `expect: yes`"),
    ("texts in the wrong order", "$ echo a b\n  a b\nexpect: b\nexpect: a\n", "ended before `expect: a`"),
    ("the key Ctrl-C",
     "$ trap 'echo stopped; exit 9' INT; echo go; while sleep 0.05; do :; done\n  go\n  stopped\ntty: in\nexpect: go\nsend: ^C\nexit: 9\n", None),
    ("a signal", "$ trap 'echo stopped; exit 9' TERM; echo go; sleep 5 & wait\n  go\n  stopped\nexpect: go\nsignal: TERM\nexit: 9\n", None),
    ("a signal that is not there", "$ echo go; exec sleep 1\n  go\nexpect: go\nsignal: INT\n", "expected 0, found 130"),
    ("in time", "$ true\nwithin: 5 s\n", None),
    ("late", "$ sleep 0.2\nwithin: 10 ms\n", "ms were expected"),
    ("the same twice", "$ echo x\n  ...\nruns: 2\n", None),
    ("different each time", "$ echo $RANDOM$RANDOM$RANDOM\n  ...\nruns: 2\n", "other bytes"),
    ("JSON", "$ echo '{\"a\": [1]}'\njson: stdout\nwhere: it[\"a\"] == [1]\n", None),
    ("no JSON", "$ echo '{\"a\": '\njson: stdout\n", "no JSON"),
    ("JSON with something after it", "$ echo '{} {}'\njson: stdout\n", "no JSON"),
    ("no output for JSON", "$ true\njson: stdout\n", "no JSON"),
    ("a schema that is not met", "$ echo '{\"schema\": 2}'\njson: stdout schemas/stats.schema.json\n", "is a required property"),
    ("lines of JSON", "$ echo '{}'; echo '{\"a\": 1}'\njsonl: stdout\nwhere: it[1][\"a\"] == 1\n", None),
    ("lines that are no JSON", "$ echo '{}'; echo x\njsonl: stdout\n", "no JSON"),
    ("JSON in a file", "$ echo '[5]' > f\njson: f\nwhere: it == [5]\n", None),
    ("stderr beside JSON", "$ echo '{}'; echo x >&2\njson: stdout\n", "found stderr"),
    ("a condition", "$ echo x\n  x\nwhere: len(out) == 3\n", "not so: len(out) == 3"),
    ("a condition that is no Python", "$ echo x\n  x\nwhere: len(\n", "SyntaxError"),
    ("writes", "$ printf a; printf b\n  ab (no-eol)\nwhere: writes == [b'a', b'b']\n", None),
    ("what is needed is there", "$ false\nneeds: true\n", "exit code"),
    ("what is needed is missing", "$ false\nneeds: false\n", None),
    ("what is skipped is named", "# Why\n$ true\nneeds: false\n\n$ false\n", "skipped: case.t:2: Why (needs: false)"),
    ("known to fail", "$ false\nbroken: it is new\n", None),
    ("known to fail, but passes", "$ true\nbroken: it is new\n", "passes, but is marked `broken: it is new`"),
    ("a file", "file: d/x\n  one\n  two\n$ cat d/x\n  one\n  two\n", None),
    ("one folder for all", "$ echo hi > x\n\n$ cat x\n  hi\n", None),
    ("the program", "$ qgen a\n  qgen was called with a\n", None),
    ("no other environment", "$ echo \"$QGEN_MODEL$NO_COLOR\"\n\n", "found stdout"),
    ("a long command", "$ for i in 1 2; do\n>   echo $i\n> done\n  1\n  2\n", None),
    ("a case after a bad one runs", "$ false\n\n$ echo x\n  y\n", "+x"),
    ("a word that is not known", "$ true\nexitt: 3\n", "unknown, repeated or not indented: exitt: 3"),
    ("a word twice", "$ true\nexit: 0\nexit: 0\n", "unknown, repeated or not indented"),
    ("a terminal that is none", "$ true\ntty: output\n", "expected some of in, out, err"),
    ("no case", "# nothing\n", "no cases"),
]


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        program.write_text('#!/bin/sh\necho "qgen was called with $*"\n')
        program.chmod(0o755)
        for name, script, problem in SCRIPTS:
            path = Path(folder) / "case.t"
            path.write_text(script)
            # Limits as they are written: what must be late has to be late under the sanitizers too. What is skipped is meant to be.
            env = {name: value for name, value in os.environ.items() if name not in ("QGEN_TIME_FACTOR", "QGEN_SKIPPED")}
            done = subprocess.run([sys.executable, RUNNER, "--qgen", program, path], capture_output=True, text=True, env=env)
            report = done.stdout + done.stderr
            if problem is None and done.returncode == 0:
                continue
            if problem is not None and done.returncode == 1 and problem in report and "case.t" in report:
                continue
            bad += 1
            print(f"selftest: {name}: expected {problem or 'no failure'}, found exit code {done.returncode}:\n{report}")
    print(f"selftest: {len(SCRIPTS) - bad} of {len(SCRIPTS)} as expected")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
