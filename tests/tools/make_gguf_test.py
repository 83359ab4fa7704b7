#!/usr/bin/env python3
"""Does qgen open and run what bench/make_gguf.py writes?  tests/tools/make_gguf_test.py PATH-TO-QGEN

The exit code is 77, which ctest takes for skipped, where no Python with numpy and gguf is found: neither this one nor the one
that `make smollm2` sets up.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAKE_GGUF = Path(__file__).resolve().parents[2] / "bench" / "make_gguf.py"
SKIPPED = 77
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}
LLAMA |= {"num_key_value_heads": 2, "vocab_size": 300, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 5000}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True}

# Config, type, and what inspect must say of the method and the parameters.
EMBEDDING, ATTENTION, FFN = 300 * 64, 64 * 16, 3 * 64 * 96  # of a projection with one head of 16
LLAMA_SIZE = 2 * EMBEDDING + 2 * (12 * ATTENTION + FFN + 2 * 64) + 64
QWEN3_SIZE = EMBEDDING + 2 * (24 * ATTENTION + FFN + 2 * 64 + 2 * 32) + 64
CASES = [
    (LLAMA, "q8_0", "int8 group 32", LLAMA_SIZE),
    (LLAMA, "bf16", "bf16", LLAMA_SIZE),
    (QWEN3, "q8_0", "int8 group 32", QWEN3_SIZE),
    (QWEN3, "bf16", "bf16", QWEN3_SIZE),
    # Rows of 80 are no whole blocks: those become F16.
    (QWEN3 | {"intermediate_size": 80}, "q8_0", "int8 group 32", QWEN3_SIZE - 2 * 3 * 64 * 16),
]
WRONG = [
    (LLAMA | {"model_type": "gpt2"}, "model_type 'gpt2' is not supported here"),
    (LLAMA | {"attention_bias": True}, "attention_bias is not supported here"),
    (LLAMA | {"vocab_size": 200}, "vocab_size: 200 is too small"),
    ({"model_type": "llama"}, "num_hidden_layers"),
    (None, "cannot be read"),
]


def python_with_gguf(qgen):
    for python in (Path(sys.executable), Path(qgen).parent / "smollm2" / "venv" / "bin" / "python"):
        if python.is_file() and subprocess.run([python, "-c", "import gguf, numpy"], capture_output=True).returncode == 0:
            return python
    return None


def output(*argv, given=""):
    done = subprocess.run(list(map(str, argv)), input=given, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def main():
    qgen = sys.argv[1]
    python = python_with_gguf(qgen)
    if python is None:
        print("make_gguf_test: skipped: no Python with numpy and gguf (make smollm2 sets one up)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="qgen-make-gguf-") as folder:
        folder = Path(folder)
        for i, (config, kind, method, size) in enumerate(CASES):
            (folder / "config.json").write_text(json.dumps(config))
            model = folder / f"{i}.gguf"
            output(python, MAKE_GGUF, folder, model, "--type", kind)
            found = json.loads(output(qgen, "inspect", "-m", model, "--json"))
            shown = (found["family"], found["method"], found["parameters"])
            assert shown == (config["model_type"], method, size), f"case {i}: {shown}"
            bench = json.loads(output(qgen, "bench", "-m", model, "-p", 8, "-n", 4, "-d", 16, "-r", 1, "--output", "json"))
            assert [test["tokens"] for test in bench["tests"]] == [8, 4], bench
            # The tokenizer too: words are merged from bytes.
            ids = output(qgen, "tokens", "-m", model, given="the").split()
            assert ids == ["257"], ids
        first = (folder / "0.gguf").read_bytes()
        (folder / "config.json").write_text(json.dumps(CASES[0][0]))
        output(python, MAKE_GGUF, folder, folder / "again.gguf")
        assert (folder / "again.gguf").read_bytes() == first, "other bytes the second time"
        for config, expected in WRONG:
            (folder / "config.json").write_text(json.dumps(config) if config else "{")
            done = subprocess.run([python, MAKE_GGUF, folder, folder / "wrong.gguf"], capture_output=True, text=True)
            assert done.returncode == 1 and expected in done.stderr and "\nhint: " in done.stderr, done.stderr
        left = sorted(path.name for path in folder.iterdir() if "wrong" in path.name or path.suffix == ".part")
        assert not left, left
    return 0


if __name__ == "__main__":
    sys.exit(main())
