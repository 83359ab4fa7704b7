#!/usr/bin/env python3
"""Whole runs of QuixiAI's quantize_fp8.py beside `qgen quantize --compat`: every tensor, and what config.json declares.

    tests/quantize/tool_runs_test.py QGEN

Of the shared fixtures (QGEN_SHARED): quantizer/run-qwen3_5 over arch/qwen3_5-bf16.
"""

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

OPTIONS = {"--calib_mode": "--mode", "--calib_percentile": "--percentile", "--activation_stats": "--input-stats"}
DTYPES = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "F8_E4M3": "float8_e4m3fn"}


def tensors(folder):
    """By name: dtype in torch's words, shape, and SHA-256 of the bytes."""
    out = {}
    for file in folder.glob("*.safetensors"):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in tensor["data_offsets"])
                digest = hashlib.sha256(data[begin:end]).hexdigest()
                out[name] = {"dtype": DTYPES[tensor["dtype"]], "shape": tensor["shape"], "sha256": digest}
    return out


def arguments(run, fixtures):
    values = [OPTIONS.get(value, value) for value in run["arguments"]]
    return [str(fixtures / value) if value.endswith(".json") else value for value in values]


def check(qgen, run, source, fixtures):
    given = arguments(run, fixtures)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        command = [qgen, "quantize", "-m", source, "--to", "fp8", "--compat", "--out", out, "--verify", "0", *given]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            return [f"exit code {result.returncode}: {result.stderr.strip()}"]
        found = tensors(out)
        problems = [f"{name}: expected {run['tensors'].get(name)}, found {found.get(name)}"
                    for name in sorted(found.keys() | run["tensors"].keys())
                    if found.get(name) != run["tensors"].get(name)]  # fmt: skip
        declared = json.loads((out / "config.json").read_text())["quantization_config"]
        for key in ("quant_method", "activation_scheme", "weight_block_size"):
            if declared.get(key) != run["quantization_config"][key]:
                problems.append(f"config.json: {key}: {declared.get(key)}")
        if not set(found) == set(json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]):
            problems.append("the index has other tensors than the files")
        return problems


def main():
    qgen, shared = sys.argv[1], Path(os.environ.get("QGEN_SHARED") or "/nonexistent")
    fixtures = shared / "fixtures/quantizer/run-qwen3_5"
    if not fixtures.is_dir():
        if skipped := os.environ.get("QGEN_SKIPPED"):
            Path(skipped).write_text("runs of quantize_fp8.py: quantizer/run-qwen3_5 (not in QGEN_SHARED)\n")
        sys.exit(77)
    report = json.loads((fixtures / "report.json").read_text())
    bad = 0
    for run in report["runs"]:
        problems = check(qgen, run, shared / "fixtures" / report["source"], fixtures)
        print(f"{' '.join(run['arguments'])}: {len(run['tensors'])} tensors, {len(problems)} problems")
        for problem in problems[:10]:
            print(f"  {problem}")
        bad += bool(problems)
    sys.exit(bool(bad) or not report["runs"])


if __name__ == "__main__":
    main()
