#!/usr/bin/env python3
"""Does `qgen plan` say what a run takes?  tests/cli/memory_check.py PATH-TO-QGEN

For every model in models/: the planned total against the largest resident size of a run that fills its context, which
must be within 5 % (and of a tiny model within 1.5 MiB). Skips nothing: the models in the repository are always there, others count where they are.
"""
import json
import os
import subprocess
import sys

TOLERANCE = 0.05
LEAST_BYTES = 3 << 19  # of a tiny model: what the C library and the loader take differs by more than 5 % of it
CONTEXT = 512


def prompt_filling(qgen, model, tokens):
    """Running text of at most so many tokens, nearly as many."""
    sentences = ["Once upon a time, there was a little girl named Lily. She loved to play with her toys."] * 40
    while True:
        text = " ".join(sentences)
        ids = subprocess.run([qgen, "tokens", "-m", model], input=text, capture_output=True, text=True, check=True)
        if len(ids.stdout.split()) <= tokens:
            return text
        sentences.pop()


def peak_bytes(qgen, model):
    """The largest resident size of a run that fills its context."""
    # The context ends it, which is exit code 6. Not getrusage(): its maximum begins with that of the process that started the program.
    run = subprocess.run([qgen, "-m", model, "-c", str(CONTEXT), "-p", prompt_filling(qgen, model, CONTEXT - 8), "--raw",
                          "--no-stdin", "--temp", "0", "--stats=json"], capture_output=True, text=True)
    return json.loads(run.stderr)["memory"]["peak"]


def main():
    qgen, failed = sys.argv[1], 0
    for name in sorted(os.listdir("models")):
        model = os.path.join("models", name)
        if not os.path.isdir(model):
            continue
        plan = subprocess.run([qgen, "plan", "-m", model, "-c", str(CONTEXT), "--json"], capture_output=True, text=True)
        if plan.returncode != 0:
            print(f"memory_check: {name}: {plan.stderr.strip()}")
            failed += 1
            continue
        planned = json.loads(plan.stdout)["memory"]["total"]
        found = peak_bytes(qgen, model)
        difference = found / planned - 1
        verdict = "good" if abs(found - planned) <= max(TOLERANCE * planned, LEAST_BYTES) else "FAILED"
        failed += verdict != "good"
        print(f"memory_check: {name}: planned {planned / 2**20:.2f} MiB, found {found / 2**20:.2f} MiB, {difference:+.1%} {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
