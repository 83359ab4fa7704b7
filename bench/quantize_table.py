#!/usr/bin/env python3
"""What each mode and target of `qgen quantize` loses: cosine and mean error of all matrices, and on a text perplexity and divergence.

    bench/quantize_table.py --qgen build/qgen --text FILE MODEL... [--outliers] [--targets int8,...] [--modes max,...]

Each MODEL is an unquantized checkpoint. --outliers adds one of random matrices whose elements have heavy tails (Student's t with 4
degrees of freedom) and of which one column in a hundred is twenty times as large, as large models have them; it has no text. Prints
Markdown, one table for each model. The text should have some thousand tokens: about as many digits of the divergence mean something.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from quantize_speed import bf16

TARGETS = "fp8,fp8-channel,fp8-tensor,int8,int8-tensor,mxfp8,q8_0"
MODES = "max,rms,percentile,mse"


def outlier_model(folder):
    hidden, inner, vocab, layers = 512, 1280, 256, 2
    config = {
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": vocab, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for part in ("q", "k", "v", "o"):
            shapes[f"{at}self_attn.{part}_proj.weight"] = (hidden, hidden)
        shapes |= {f"{at}mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"{at}{part}_layernorm.weight": (hidden,) for part in ("input", "post_attention")}
    random, header, data = np.random.default_rng(7), {}, b""
    for name, shape in shapes.items():
        values = np.ones(shape)
        if len(shape) == 2:
            values = random.standard_t(4, shape) * 0.02
            values[:, random.choice(shape[1], max(1, shape[1] // 100), replace=False)] *= 20
        raw = bf16(values).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def row(qgen, model, target, mode, text, work):
    out = work / ("out.gguf" if target == "q8_0" else "out")
    command = [qgen, "quantize", "-m", model, "--to", target, "--mode", mode, "--out", out, "--force", "--verify", "all"]
    command += ["--report", "json", "-q"] + (["--eval", text] if text else [])
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if not result.stdout:
        return None
    report = json.loads(result.stdout)
    compared = [c for file in report["files"] for c in file["comparisons"]]
    cells = [target, mode, f"{min(c['cosine'] for c in compared):.6f}", f"{statistics.fmean(c['cosine'] for c in compared):.6f}"]
    cells.append(f"{statistics.fmean(c['mean_error'] for c in compared):.3g}")
    evaluation = report.get("evaluation")
    if text and evaluation:
        cells += [f"{evaluation['perplexity'] / evaluation['original_perplexity'] - 1:+.3%}", f"{evaluation['mean_kl']:.2e}"]
        cells.append(f"{evaluation['same_choice']:.2%}")
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", required=True)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--outliers", action="store_true")
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("models", type=Path, nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        models = [(model, options.text) for model in options.models]
        if options.outliers:
            models.append((outlier_model(work / "outliers"), None))
        for model, text in models:
            heads = ["target", "mode", "least cosine", "mean cosine", "mean error"]
            heads += ["perplexity", "divergence, mean", "same choice"] if text else []
            print(f"\n{model.name}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
            for target in options.targets.split(","):
                for mode in options.modes.split(","):
                    cells = row(options.qgen, model, target, mode, text, work)
                    if cells is None:  # no matrix of it can have this format
                        break
                    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
