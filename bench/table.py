#!/usr/bin/env python3
"""The table of bench/README.md: speed and share of the machine's limit, a row for each model and number of threads.

    bench/table.py --qgen build/qgen -t 1,2 "0.6B Q8_0=MODEL.gguf" "0.6B FP8=bench/configs/qwen3-0.6b-fp8" [...]

A model is NAME=PATH; a folder without weights is measured as `qgen bench --dummy`, with random ones. Rows are printed
as they are measured, from two runs of `qgen bench`, prefill and decoding, which measures the limits beside each test: a
cell is the median of the rounds, tokens a second (share of the limit, in percent).
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

# The environment twins of qgen's options would change what is measured.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("QGEN_")}


def bench(args, path, threads, *tests):
    weights = path.is_file() or any(path.glob("*.safetensors")) or any(path.glob("*.gguf"))
    command = [args.qgen, "bench", "--model" if weights else "--dummy", path, "--threads", threads, *tests,
               "--rounds", args.rounds, "--output", "json", *args.options.split()]
    try:
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=CLEAN)
    except OSError as error:
        sys.exit(f"table: {args.qgen}: {error.strerror}\nhint: --qgen PROGRAM")
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"table: {path}: qgen bench ended with {done.returncode}")
    return json.loads(done.stdout)["tests"]


def numbers(least):
    """A parser of lists of integers, as qgen bench lists its tests: each once, from the smallest on."""

    def parse(text):
        try:
            out = sorted({int(part) for part in text.split(",")})
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is no list of integers") from None
        if out[0] < least:
            raise argparse.ArgumentTypeError(f"'{text}': expected numbers from {least}")
        return out

    return parse


def model(text):
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}': expected NAME=PATH")
    return name, Path(path)


def listed(values):
    return ",".join(map(str, values))


def cell(test):
    share = test.get("peak_share", test.get("read_share"))
    speed = test["tokens_per_second"]["median"]
    speed = f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"
    return speed if share is None else f"{speed} ({100 * share:.0f} %)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", default="build/qgen")
    parser.add_argument("-p", dest="prefill", type=numbers(1), default="128,512,2048", help="prompts, tokens")
    parser.add_argument("-n", dest="generate", type=int, default=32, help="tokens to decode")
    parser.add_argument("-d", dest="depths", type=numbers(0), default="0,1024,4096", help="contexts to decode at")
    parser.add_argument("-t", dest="threads", type=numbers(1), default="1,2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--options", default="", help="more for qgen bench")
    parser.add_argument("models", nargs="+", type=model, metavar="NAME=PATH")
    args = parser.parse_args()

    columns = [f"prefill {p}" for p in args.prefill] + [f"decode at {d}" for d in args.depths]
    print("| model | threads |", " | ".join(columns), "|")
    print("|---|---|" + "---|" * len(columns))
    for name, path in args.models:
        for threads in args.threads:
            prefill = bench(args, path, threads, "-p", listed(args.prefill), "-n", 0, "-d", 0)
            decode = bench(args, path, threads, "-p", 0, "-n", args.generate, "-d", listed(args.depths))
            print(f"| {name} | {threads} |", " | ".join(map(cell, prefill + decode)), "|", flush=True)


if __name__ == "__main__":
    main()
