#!/usr/bin/env python3
"""Encoding speed against the `tokenizers` package, in pairs: ours, theirs, ours, theirs, ... on the same chunks of the
same files, one thread each.

  tokenizer_bench.py BENCH_PROGRAM FOLDER FILE... [--pairs N] [--chunk BYTES]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def chunks_of(files, size):
    """As bench/tokenizer_bench.cpp cuts them: at the first line end after `size` bytes."""
    for name in files:
        with open(name, "rb") as file:
            text = file.read()
        at = 0
        while at < len(text):
            line = text.find(b"\n", at + size) if at + size < len(text) else -1
            end = len(text) if line < 0 else line + 1
            yield text[at:end]
            at = end


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=16384)
    options = parser.parse_args()

    raw = list(chunks_of(options.files, options.chunk))
    megabytes = sum(map(len, raw)) / 1e6
    texts = [chunk.decode("utf-8") for chunk in raw]
    start = time.perf_counter()
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.folder, "tokenizer.json"))
    their_load = (time.perf_counter() - start) * 1e3
    tokenizer.no_truncation()
    tokenizer.no_padding()
    theirs, ours, load = [], [], []
    sum(len(tokenizer.encode(text).ids) for text in texts)  # both sides warm up once
    for _ in range(options.pairs):
        run = subprocess.run([options.program, options.folder, "--rounds", "2", "--chunk", str(options.chunk), *options.files],
                             check=True, capture_output=True, text=True)
        result = json.loads(run.stdout)
        ours.append(result["mb_per_s"][-1])
        load.append(result["load_ms"])
        start = time.perf_counter()
        tokens = sum(len(tokenizer.encode(text)) for text in texts)
        theirs.append(megabytes / (time.perf_counter() - start))
        if tokens != result["tokens"]:
            sys.exit(f"different tokens: {result['tokens']} here, {tokens} there")
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"tokenizers {tokenizers.__version__}, {len(texts)} chunks, {megabytes:.2f} MB, {tokens} tokens")
    for name, values, unit in [("ours", ours, "MB/s"), ("theirs", theirs, "MB/s"), ("ratio", ratios, "x"), ("load ours", load, "ms")]:
        print(f"{name}: median {statistics.median(values):.2f} {unit}  ({' '.join(f'{v:.2f}' for v in values)})")
    print(f"load theirs: {their_load:.0f} ms")


if __name__ == "__main__":
    main()
