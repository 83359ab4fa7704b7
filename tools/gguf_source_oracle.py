#!/usr/bin/env python3
"""Checkpoints that `qgen quantize` makes from GGUF files, beside transformers.

    tools/gguf_source_oracle.py --qgen build/qgen [--to fp8-channel] MODEL...

Each MODEL is a GGUF file, or a folder that is made into one first (`--to q8_0`). It is quantized to --to, loaded in transformers with
compressed-tensors, and its logits on fixed ids are compared with those of `qgen score --device reference`. What says how the model computes
(config.json) comes from the keys of the GGUF file alone, so that a key with another meaning shows. Inputs are not quantized. Models that
cannot be converted are named. Of models with a tokenizer the ids of a text are compared as well, and that generation has an end token.
Prints one row for each, exits with 1 where ids differ, or logits by more than 1e-4 of the largest.

Needs what tools/requirements-oracle.txt lists.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from quantized_oracle import as_declared, forward, qgen_logits, run_qgen

IDS = [1, 5, 9, 2, 7, 11, 3, 4, 8]
TOLERANCE = 1e-4
TEXT = "Once upon a time, in 1234 there\n\nwas a café: it's  ÜBER <|x|> nice"


def tokenizer_problem(qgen, folder):
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model")):
        return None
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXT).input_ids
    result = subprocess.run([qgen, "tokens", "-m", folder], input=TEXT, capture_output=True, text=True, check=True)
    found = [int(word) for word in result.stdout.split()]
    if ids != found:
        return f"other ids: {ids[:12]} there, {found[:12]} here"
    end = transformers.GenerationConfig.from_pretrained(folder).eos_token_id
    return None if end else "no end token in generation_config.json"


def check(qgen, model, target, work):
    gguf, out = model, work / "out"
    try:
        if model.is_dir():
            gguf = work / "model.gguf"
            run_qgen(qgen, "quantize", "-m", model, "--to", "q8_0", "--out", gguf, "-q", "--verify", "0")
        run_qgen(qgen, "quantize", "-m", gguf, "--to", target, "--out", out, "-q", "--verify", "0")
    except RuntimeError as error:
        return None, str(error).splitlines()[0]
    try:
        loaded = torch.nn.Module.float(as_declared(out, None))  # what is F16 in the files as well
        expected = forward(loaded, IDS)
    except Exception as error:  # whatever transformers makes of it
        return False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    # Longrope's divisors follow the context there, and the text in transformers.
    found = qgen_logits(qgen, out, IDS, "--context", len(IDS), "--device", "reference")
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    problem = tokenizer_problem(qgen, out)
    return difference <= TOLERANCE and not problem, f"{difference:.1e}" + (f", {problem}" if problem else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", type=Path, default=Path("build/qgen"))
    parser.add_argument("--to", default="fp8-channel")
    parser.add_argument("models", type=Path, nargs="+")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = False
    print("| model | logits differ by |\n|---|---|")
    for model in options.models:
        with tempfile.TemporaryDirectory() as work:
            good, text = check(options.qgen, model, options.to, Path(work))
        failed |= good is False
        print(f"| {model.name} | {text}{' FAIL' if good is False else ''} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
