#!/usr/bin/env python3
"""The table of bench/README.md: speed and share of the machine's limit, a row for each model and number of threads.

    bench/table.py --qgen build/qgen -t 1,2 "0.6B Q8_0=MODEL.gguf" "0.6B FP8=bench/configs/qwen3-0.6b-fp8" [...]

A model is NAME=PATH; a folder without weights is measured as `qgen bench --dummy`, with random ones. Rows are printed
as they are measured, from two runs of `qgen bench`, prefill and decoding, which measures the limits beside each test: a
cell is the median of the rounds, tokens a second (share of the limit, in percent).
"""

import argparse
from pathlib import Path

from versus import joined, numbers, run, split, stop


def bench(args, name, path, threads, *tests):
    weights = path.is_file() or any(path.glob("*.safetensors")) or any(path.glob("*.gguf"))
    command = [Path(args.qgen).absolute(), "bench", "--model" if weights else "--dummy", path, "--threads", threads, *tests,
               "--rounds", args.rounds, "--output", "json", *args.options]
    return run(name, list(map(str, command)))["tests"]


def model(text):
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}': expected NAME=PATH")
    return name, Path(path)


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

    if min(args.generate, args.rounds) < 1:
        parser.error("-n, --rounds: expected 1 or more")
    if not Path(args.qgen).is_file():
        stop(args.qgen, "no such program", "--qgen build/qgen")
    args.options = split(args.options)
    prefill, depths = sorted(args.prefill), sorted(args.depths)  # as qgen bench has them
    columns = [f"prefill {p}" for p in prefill] + [f"decode at {d}" for d in depths]
    print("| model | threads |", " | ".join(columns), "|")
    print("|---|---|" + "---|" * len(columns))
    for name, path in args.models:
        for threads in args.threads:
            tests = bench(args, name, path, threads, "-p", joined(prefill), "-n", 0, "-d", 0)
            tests += bench(args, name, path, threads, "-p", 0, "-n", args.generate, "-d", joined(depths))
            print(f"| {name} | {threads} |", " | ".join(map(cell, tests)), "|", flush=True)


if __name__ == "__main__":
    main()
