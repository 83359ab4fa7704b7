#!/usr/bin/env python3
"""Checks bench/versus.py with made-up programs: what it runs, in which order, what it makes of the answers, what it refuses.

    tests/tools/versus_test.py
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

VERSUS = Path(__file__).resolve().parents[2] / "bench" / "versus.py"

# Each program writes its command line into a log, and is a tenth faster each time it runs the same.
HEAD = """#!{python}
import json, os, sys
if any(name.startswith("QGEN_") for name in os.environ):
    sys.exit("options from outside")
def given(flag):
    return [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == flag]
def counts(flag):
    return [int(part) for text in given(flag) for part in text.split(",")]
if "--help" in sys.argv:
    sys.exit({usage!r})
with open({log!r}, "a+") as log:
    log.seek(0)
    command = "{name} " + " ".join(sys.argv[1:]) + "\\n"
    faster = 1 + log.readlines().count(command) / 10
    log.write(command)
"""
QGEN = """
share = dict(read_share=0.5) if counts("-n") != [0] else dict(peak="int8", peak_share=0.25)
kind, lengths = ("decode", counts("-n")) if counts("-n") != [0] else ("prefill", counts("-p"))
points = [dict(kind=kind, tokens=n, depth=d) for d in counts("-d") for n in lengths]
tests = [dict(tokens_per_second=dict(median=point["tokens"] * faster), **point, **share) for point in points]
print(json.dumps(dict(model="m", method="int8", engine="cpu", kv_type="f16", tests=tests)))
"""
PEER = """
threads, = counts("-t")
pairs = [tuple(map(int, text.split(","))) for text in given("-gp")]
rows = [dict(n_prompt=p, n_gen=0, n_depth=d) for d in counts("-d") or [0] for p in counts("-p") if p]
rows += [dict(n_prompt=0, n_gen=n, n_depth=d) for d in counts("-d") or [0] for n in counts("-n") if n]
rows += [dict(n_prompt=p, n_gen=n) for p, n in pairs]
if {pairs}:
    rows = [{{key: row[key] for key in ("n_prompt", "n_gen")}} for row in rows]
for row in rows:
    row.update(n_threads=threads, samples_ts=[2.0 * (row["n_gen"] or row["n_prompt"])])
print(json.dumps(rows))
"""
DEPTHS = "-p, --n-prompt <n>\n -d, --n-depth <n>\n -fa, --flash-attn <on|off|auto>\n"
PAIRS = "-p, --n-prompt <n>\n -gp <pp,tg>\n -fa, --flash-attn <0|1>\n -rtr, --run-time-repack <0|1>\n"


class Versus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qgen-versus-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = self.folder / "log"
        self.model = self.folder / "model.gguf"
        self.model.write_bytes(b"GGUF")
        self.qgen = self.program("qgen", self.folder / "qgen", QGEN)

    def program(self, name, path, body, usage=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        head = HEAD.format(python=sys.executable, name=name, log=str(self.log), usage=usage)
        path.write_text(head + body)
        path.chmod(0o755)
        return path

    def peer(self, name, body=None, usage=DEPTHS):
        self.program(name, self.folder / name / "bin" / "llama-bench", body or PEER.format(pairs=usage == PAIRS), usage)
        return str(self.folder / name)

    def versus(self, *arguments, qgen=None):
        argv = [sys.executable, VERSUS, "--qgen", qgen or self.qgen, "--model", self.model, *arguments]
        environment = os.environ | {"QGEN_DEVICE": "reference"}
        return subprocess.run(list(map(str, argv)), capture_output=True, text=True, env=environment)

    def good(self, *arguments):
        out = self.folder / "out.json"
        done = self.versus(*arguments, "--json", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(out.read_text()), done.stdout

    def refused(self, expected, *arguments, **options):
        done = self.versus(*arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(expected, done.stderr)
        self.assertRegex(done.stderr, r"\nhint: .+\n$")

    def logged(self):
        """Program, and the options of the test, in the order of the runs."""
        return [line.split(" ", 1) for line in self.log.read_text().splitlines()]

    def test_ratios(self):
        tests = ["-p", "128,512", "-n", "64", "-d", "0,1024", "-t", "1,2"]
        result, text = self.good("--peer", self.peer("a"), *tests, "--rounds", "3")
        names = [(row["name"], row["threads"]) for row in result["tests"]]
        self.assertEqual(names, [(name, t) for t in (1, 2) for name in ("pp128", "pp512", "tg64", "tg64 @ d1024")])
        for row in result["tests"]:
            # qgen is at 1, 1.1 and 1.2 times the count, the peer at 2 times.
            for found, expected in zip(row["ratio"]["rounds"], [0.5 * n for n in (1, 1.1, 1.2)]):
                self.assertAlmostEqual(found, expected)
            self.assertAlmostEqual(row["ratio"]["median"], 0.55)
            expected = (0.25, "int8") if row["kind"] == "prefill" else (0.5, "read")
            self.assertEqual((row["share"]["median"], row["share_of"]), expected)
        self.assertEqual(result["rounds"], 3)
        self.assertIn("0.55 (0.50-0.60)", text)
        self.assertRegex(text, r"\ntg64 @ d1024 +2 +a +70\.4 \(64\.0-76\.8\) +128\.0 \(128\.0-128\.0\) .* 50% read\n")

    def test_markdown(self):
        _, text = self.good("--peer", "name=" + self.peer("a"), "-p", "8", "-n", "0", "-t", "1", "--rounds", "1", "--md")
        self.assertIn("\n| test | threads | peer |", text)
        self.assertIn("\n| pp8 | 1 | name | 8.00 (8.00-8.00) | 16.0 (16.0-16.0) | 0.50 (0.50-0.50) | 25% int8 |\n", text)

    def test_turns(self):
        self.good("--peer", self.peer("a"), "--peer", self.peer("b"), "-p", "8", "-n", "4", "-d", "0", "-t", "1", "--rounds", "4")
        runs = [name for name, _ in self.logged()]
        self.assertEqual(["".join(runs[i : i + 3]) for i in range(0, len(runs), 3)],
                         ["qgenab"] * 2 + ["abqgen"] * 2 + ["bqgena"] * 2 + ["qgenab"] * 2)

    def test_commands(self):
        depths = self.peer("depths")
        self.good("--peer", depths, "--peer", self.peer("pairs", usage=PAIRS), "--peer", f"own={depths} -fa 0 -b 512",
                  "--qgen-options=--kv f32", "-p", "8", "-n", "4", "-d", "0,16", "-t", "2", "--rounds", "1")
        model = re.escape(str(self.model))
        expected = [
            ("qgen", r"bench --model M --rounds 1 --output json --threads 2 -p 8 -n 0 -d 0 --kv f32"),
            ("depths", r"-m M -r 1 -o json -t 2 -fa 1 -p 8 -n 0"),
            ("pairs", r"-m M -r 1 -o json -t 2 -fa 1 -rtr 1 -p 8 -n 0"),
            ("depths", r"-m M -r 1 -o json -t 2 -fa 0 -b 512 -p 8 -n 0"),
            ("qgen", r"bench --model M --rounds 1 --output json --threads 2 -p 0 -n 4 -d 0,16 --kv f32"),
            ("depths", r"-m M -r 1 -o json -t 2 -fa 1 -p 0 -n 4 -d 0,16"),
            ("pairs", r"-m M -r 1 -o json -t 2 -fa 1 -p 0 -n 4 -gp 16,4"),
            ("depths", r"-m M -r 1 -o json -t 2 -fa 0 -b 512 -p 0 -n 4 -d 0,16"),
        ]
        found = self.logged()
        self.assertEqual(len(found), len(expected))
        for (name, line), (expected_name, pattern) in zip(found, expected):
            self.assertEqual(name, expected_name)
            self.assertRegex(line, "^" + pattern.replace("M ", model + " ") + "$")

    def test_other_models(self):
        result, text = self.good("--peer", self.peer("a"), "--qgen-dummy", "x/fp8", "--qgen-model", self.model,
                                 "--qgen-options=", "--qgen-options=--device cpu:avx2",
                                 "-p", "8", "-n", "0", "-t", "1", "--rounds", "1")
        self.assertEqual([row["qgen"] for row in result["tests"]],
                         ["qgen model.gguf", "qgen model.gguf --device cpu:avx2", "qgen fp8", "qgen fp8 --device cpu:avx2"])
        self.assertIn("\npp8   1        qgen fp8 ", text)
        self.assertIn("--dummy x/fp8", self.log.read_text())

    def test_errors(self):
        few = ["-p", "8", "-n", "4", "-d", "0", "-t", "1", "--rounds", "1"]
        good = self.peer("a")
        self.refused("no-qgen: no such program", "--peer", good, *few, qgen=self.folder / "no-qgen")
        self.refused("nowhere: no bin/llama-bench there", "--peer", self.folder / "nowhere", *few)
        self.refused("a: named twice", "--peer", good, "--peer", good, *few)
        bad = self.peer("bad", usage="Illegal instruction")
        self.refused("--help does not say what llama-bench takes\n  Illegal instruction\n", "--peer", bad)
        self.refused("old: its llama-bench knows no depths", "--peer", self.peer("old", usage="--n-prompt"))
        failing = self.peer("failing", "print('x\\n' * 50 + 'cannot load', file=sys.stderr)\nsys.exit(3)\n")
        self.refused("failing: exit code 3\n" + "  x\n" * 7 + "  cannot load\n", "--peer", failing, *few)
        self.refused("killed: signal 9", "--peer", self.peer("killed", "import os\nos.kill(os.getpid(), 9)\n"), *few)
        self.refused("text: did not print JSON (found 'oops')", "--peer", self.peer("text", "print('oops')\n"), *few)
        self.refused("none: its JSON has not what is needed", "--peer", self.peer("none", "print('[]')\n"), *few)
        for arguments in (["-p", "0", "-n", "0"], ["-t", "0"], ["-p", "many"], ["--rounds", "0"]):
            self.assertEqual(self.versus("--peer", good, *arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main()
