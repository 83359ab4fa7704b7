#!/usr/bin/env python3
"""Speed beside llama.cpp and its relatives: the programs take turns, so that they meet the same moods of the machine.

    bench/versus.py --qgen build/qgen --peer llama.cpp=BUILD_DIR [--peer ...] --model FILE.gguf

A round runs every program once for each kind of test (prefill at depth 0, decoding at every depth) and number of threads; each
round begins with another program. What counts is the median of the rounds' own ratios: speeds wander, neighbours do not.

A peer is [NAME=]BUILD_DIR or [NAME=]BUILD_DIR OPTIONS in one argument; it runs BUILD_DIR/bin/llama-bench. OPTIONS replace what
is given to it otherwise, the best for each kind of test: `-fa 1`, and for prefill also `-rtr 1` where that is known
(ik_llama.cpp repacks the weights when it loads them: prefill gains by it, decoding loses).
--qgen-model, --qgen-dummy and --qgen-options may be repeated: qgen then takes part once for each model with each options. They
name what qgen runs in place of FILE.gguf; a peer has no FP8, say, and is compared by the same shape in Q8_0.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

LAST_LINES = 8  # of a failing program's output
# The environment twins of qgen's options would change what is measured.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("QGEN_")}


def stop(subject, problem, hint):
    sys.exit(f"{Path(sys.argv[0]).stem}: {subject}: {problem}\nhint: {hint}")


def say(text):
    print(f"versus: {text}", file=sys.stderr, flush=True)


def numbers(least):
    """A parser of lists of integers."""

    def parse(text):
        try:
            out = [int(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a list of integers") from None
        if min(out) < least:
            raise argparse.ArgumentTypeError(f"'{text}': expected numbers from {least}")
        return list(dict.fromkeys(out))

    return parse


def split(text):
    """The words of options in one argument, as a shell would have them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        stop(repr(text), f"no list of options ({error})", "quote as in a shell")


# ---- the programs ----


def finished(label, argv):
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=CLEAN)
    except OSError as error:
        stop(label, f"cannot be run ({error.strerror}: {argv[0]})", "was it built for this machine?")


def run(label, argv):
    """What a program writes to standard output, as JSON."""
    done, command = finished(label, argv), shlex.join(argv)
    if done.returncode != 0:
        how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-LAST_LINES:]
        stop(label, f"{how}\n" + "".join(f"  {line}\n" for line in last).rstrip("\n"), f"run it alone: {command}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        start = done.stdout.strip()[:200]
        stop(label, f"did not print JSON (found '{start}')", f"run it alone: {command}")


def test_name(test):
    kind, tokens, depth, _ = test
    return f"{'pp' if kind == 'prefill' else 'tg'}{tokens}" + (f" @ d{depth}" if depth else "")


class Qgen:
    def __init__(self, label, program, source, options):
        self.label, self.options = label, {"prefill": options, "decode": options}
        self.start = [program, "bench", *source, "--rounds", "1", "--output", "json"]
        self.about = {}

    def command(self, kind, tokens, depths, threads):
        lists = ["-p", joined(tokens), "-n", "0"] if kind == "prefill" else ["-p", "0", "-n", joined(tokens)]
        return [*self.start, "--threads", str(threads), *lists, "-d", joined(depths), *self.options[kind]]

    def results(self, output, threads):
        """Test -> tokens per second and the share of what the machine can do."""
        self.about = {key: output[key] for key in ("model", "method", "engine", "kv_type")}
        out = {}
        for row in output["tests"]:
            share = row["read_share"] if row["kind"] == "decode" else row["peak_share"]
            of = "read" if row["kind"] == "decode" else row["peak"]
            out[row["kind"], row["tokens"], row["depth"], threads] = (row["tokens_per_second"]["median"], share, of)
        return out


class Peer:
    """A llama-bench. llama.cpp's takes depths with -d, ik_llama.cpp's as pairs with -gp."""

    def __init__(self, label, program, model, options, usage):
        self.label = label
        self.takes_depths, self.takes_pairs = "--n-depth" in usage, "-gp <" in usage
        attention = ["-fa", "1"] * ("-fa," in usage)
        self.options = {"prefill": attention + ["-rtr", "1"] * ("-rtr," in usage), "decode": attention}
        if options is not None:
            self.options = {"prefill": options, "decode": options}
        self.start = [program, "-m", model, "-r", "1", "-o", "json"]
        self.about = {}

    def command(self, kind, tokens, depths, threads):
        out = [*self.start, "-t", str(threads), *self.options[kind]]
        if kind == "prefill":
            return [*out, "-p", joined(tokens), "-n", "0"]
        if self.takes_depths:
            return [*out, "-p", "0", "-n", joined(tokens), "-d", joined(depths)]
        out += ["-p", "0", "-n", joined(tokens) if 0 in depths else "0"]
        for depth in filter(None, depths):
            for count in tokens:
                out += ["-gp", f"{depth},{count}"]
        return out

    def results(self, output, threads):
        out = {}
        for row in output:
            self.about = {key: row.get(key) for key in ("build_commit", "model_type", "model_size", "type_k", "type_v")}
            prompt, written = row["n_prompt"], row["n_gen"]
            if written == 0:
                test = ("prefill", prompt, row.get("n_depth", 0), row["n_threads"])
            else:  # of a pair, the prompt is the depth
                test = ("decode", written, row.get("n_depth", prompt), row["n_threads"])
            out[test] = (row["samples_ts"][0], None, None)
        return out


def joined(values):
    return ",".join(map(str, values))


def make_qgens(given):
    if not Path(given.qgen).is_file():
        stop(given.qgen, "no such program", "make all builds it: build/qgen")
    sources = [["--model", model] for model in given.qgen_model] + [["--dummy", folder] for folder in given.qgen_dummy]
    sources = sources or [["--model", given.model]]
    variants = [split(options) for options in given.qgen_options or [""]]
    out = []
    for source in sources:
        for options in variants:
            words = ["qgen", *([Path(source[1]).name] if len(sources) > 1 or source[1] != given.model else []), *options]
            out.append(Qgen(" ".join(words), str(Path(given.qgen).absolute()), source, options))
    return out


def make_peer(text, model):
    words = split(text) or [""]
    name, named, folder = words[0].rpartition("=")
    folder = Path(folder)
    program = folder if folder.is_file() else folder / "bin" / "llama-bench"
    if not program.is_file():
        stop(folder, "no bin/llama-bench there", "cmake --build BUILD_DIR --target llama-bench makes it")
    done = finished(text, [str(program), "--help"])
    usage = done.stdout + done.stderr
    if "--n-prompt" not in usage:
        last = "".join(f"\n  {line}" for line in usage.splitlines()[-LAST_LINES:])
        stop(program, f"--help does not say what llama-bench takes{last}", "was it built for this machine?")
    options = words[1:] if len(words) > 1 else None
    label = name if named else " ".join([folder.resolve().name, *words[1:]])
    return Peer(label, str(program.absolute()), model, options, usage)


# ---- the rounds ----


def segments(given):
    """What one process of each program does in a round: the tests that belong together."""
    out = []
    for threads in given.threads:
        for kind, tokens, depths in (("prefill", given.prefill, [0]), ("decode", given.decode_tokens, given.depth)):
            if tokens := [count for count in tokens if count > 0]:
                out.append((kind, tokens, depths, threads))
    return out


def rotated(programs, round_number):
    first = round_number % len(programs)
    return programs[first:] + programs[:first]


def measure(programs, parts, rounds, samples):
    """Fills samples: label -> test -> what was found in each round."""
    for number in range(rounds):
        found = {program.label: {} for program in programs}
        for part in parts:
            kind, tokens, depths, threads = part
            wanted = [(kind, count, depth, threads) for depth in depths for count in tokens]
            for program in rotated(programs, number):
                argv = program.command(*part)
                try:
                    results = program.results(run(program.label, argv), threads)
                    rows = {test: results[test] for test in wanted}
                except (KeyError, IndexError, TypeError) as error:
                    stop(program.label, f"its JSON has not what is needed ({error})", f"run it alone: {shlex.join(argv)}")
                speeds = ", ".join(f"{test_name(test)} {speed(row[0])}" for test, row in rows.items())
                say(f"round {number + 1} of {rounds}, {threads} thread{'s' * (threads > 1)}, {program.label}: {speeds} tok/s")
                found[program.label] |= rows
        # A round counts when it is whole.
        for label, rows in found.items():
            for test, row in rows.items():
                samples[label].setdefault(test, []).append(row)


def warm(paths):
    """Reads what will be mapped once, so that no program pays for the disk."""
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.glob("*")):
            if file.is_file():
                with open(file, "rb", buffering=0) as data:
                    while data.read(1 << 24):
                        pass


# ---- the report ----


def summary(values):
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values), "rounds": values}


def speed(value):
    """Three digits or more, never an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(row, shown):
    return f"{shown(row['median'])} ({shown(row['lowest'])}-{shown(row['highest'])})"


def compare(qgens, peers, samples):
    """A row for each test, qgen and peer."""
    out = []
    for test in samples[qgens[0].label]:
        for ours in qgens:
            rows = samples[ours.label][test]
            shares = [row[1] for row in rows if row[1] is not None]
            for peer in peers:
                speeds, theirs = [row[0] for row in rows], [row[0] for row in samples[peer.label][test]]
                kind, tokens, depth, threads = test
                row = {"name": test_name(test), "kind": kind, "tokens": tokens, "depth": depth, "threads": threads}
                row |= {"qgen": ours.label, "peer": peer.label}
                row |= {"qgen_tokens_per_second": summary(speeds), "peer_tokens_per_second": summary(theirs)}
                row |= {"ratio": summary([a / b for a, b in zip(speeds, theirs)])}
                row |= {"share": summary(shares) if shares else None, "share_of": rows[0][2]}
                out.append(row)
    return out


def table(rows, several_qgens):
    """Cells of text, titles first."""
    titles = ["test", "threads", "peer", "qgen tok/s", "peer tok/s", "qgen / peer", "qgen, of the machine"]
    cells = []
    for row in rows:
        share = row["share"]
        shown = [row["name"], str(row["threads"]), row["peer"]]
        shown += [spread(row[side], speed) for side in ("qgen_tokens_per_second", "peer_tokens_per_second")]
        shown += [spread(row["ratio"], "{:.2f}".format), f"{share['median']:.0%} {row['share_of']}" if share else "-"]
        cells.append(shown)
    if several_qgens:
        titles.insert(2, "qgen")
        for shown, row in zip(cells, rows):
            shown.insert(2, row["qgen"])
    return [titles, *cells]


def plain(cells):
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def markdown(cells):
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|---" * len(cells[0]) + "|", *lines[1:]])


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


def report(given, qgens, peers, samples, start):
    done = len(next(iter(samples[qgens[0].label].values()), []))
    if done == 0:
        return
    rows = compare(qgens, peers, samples)
    cells = table(rows, len(qgens) > 1)
    if given.json:
        programs = {
            program.label: {"command": program.start, "options": program.options} | program.about for program in qgens + peers
        }
        result = {"schema": 1, "rounds": done, "start": start, "programs": programs, "tests": rows}
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    rounds = f"{done} round{'s' * (done > 1)}"
    print(f"{Path(given.model).name} on {start['processor']}, {start['processors']} processors, {rounds}")
    print("median (lowest-highest); read: of the memory's speed; int8, float: of the peak of such products\n")
    print(markdown(cells) if given.md else plain(cells))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", required=True, metavar="BINARY")
    parser.add_argument("--peer", required=True, action="append", metavar="[NAME=]BUILD_DIR[ OPTIONS]")
    parser.add_argument("--model", required=True, metavar="FILE.gguf", help="for all, unless qgen is given another")
    parser.add_argument("--qgen-model", action="append", default=[], metavar="MODEL", help="what qgen runs instead")
    parser.add_argument("--qgen-dummy", action="append", default=[], metavar="CONFIG_DIR", help="the same with random weights")
    parser.add_argument("--qgen-options", action="append", metavar="OPTIONS", help='"--device cpu:avx2", say')
    counts = {"type": numbers(0), "metavar": "LIST"}
    parser.add_argument("-p", "--prefill", default=[128, 512, 2048], help="0: none [128,512,2048]", **counts)
    parser.add_argument("-n", "--decode-tokens", default=[64], help="0: none [64]", **counts)
    parser.add_argument("-d", "--depth", default=[0, 1024, 4096], help="of decoding [0,1024,4096]", **counts)
    parser.add_argument("-t", "--threads", type=numbers(1), default=[1, 2], metavar="LIST", help="[1,2]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[5]")
    parser.add_argument("--json", type=Path, metavar="OUT", help="everything that was found, too")
    parser.add_argument("--md", action="store_true", help="a table in Markdown")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    if not segments(given):
        parser.error("nothing to run: -p and -n are both 0")
    return given


def main():
    given = options()
    if not Path(given.model).is_file():
        stop(given.model, "no such file", "bench/make_gguf.py writes one of random weights")
    qgens, peers = make_qgens(given), [make_peer(text, given.model) for text in given.peer]
    labels = [program.label for program in qgens + peers]
    if twice := {label for label in labels if labels.count(label) > 1}:
        stop(", ".join(sorted(twice)), "named twice", "give each its name: --peer NAME=BUILD_DIR")
    for peer in peers:
        if any(given.depth) and any(given.decode_tokens) and not (peer.takes_depths or peer.takes_pairs):
            stop(peer.label, "its llama-bench knows no depths", "take a newer one, or -d 0")
    # Programs whose threads wait for each other lose most where others run too, and not all lose the same.
    load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5:
        say(f"warning: this machine is busy (load {load:.1f}, {processors} processors): what follows says little")
    start = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": load}
    start |= {"processor": processor(), "processors": processors}
    warm([Path(given.model), *map(Path, given.qgen_model)])
    samples = {label: {} for label in labels}
    try:
        measure(qgens + peers, segments(given), given.rounds, samples)
    except KeyboardInterrupt:
        say("interrupted; the rounds that were whole:")
        report(given, qgens, peers, samples, start)
        return 130
    report(given, qgens, peers, samples, start)
    return 0


if __name__ == "__main__":
    sys.exit(main())
