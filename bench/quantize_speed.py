#!/usr/bin/env python3
"""Speed of `qgen quantize` beside a copy of the same file and beside PyTorch doing the same arithmetic, in turns.

    bench/quantize_speed.py --qgen build/qgen --config bench/configs/qwen3-0.6b-bf16 [--out /dev/shm] [--rounds 3] [--tool quantize_fp8.py]

A BF16 model of random weights in the shape of the config.json is written, read into the page cache, and in each round copied, and
quantized to block FP8 by qgen and, where torch is installed, by the formulas of QuixiAI's quantize_fp8.py (blocks of 128 x 128,
vectorized over all blocks of a matrix; mse tries 50 scales one after the other), or with --tool by that file itself, its
process_shard(). Reading and writing files is part of all three, but not the start of Python and its imports; --vocab makes the part
that is only copied small. --out should be a tmpfs, so that no time is spent on a disk. Prints Markdown: medians of the rounds, and of their ratios.
"""

import argparse
import importlib.util
import json
import math
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

LARGEST = 448.0
BLOCK = 128


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/qgen-quantize-speed"), help="where the model is written")
    parser.add_argument("--out", type=Path, default=Path("/dev/shm"), help="where copies and results go")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default="max,rms,mse")
    parser.add_argument("--tool", type=Path, help="quantize_fp8.py")
    parser.add_argument("--vocab", type=int, default=0, help="rows of the embedding; 0: as the shape has it")
    parser.add_argument("--layers", type=int, default=0, help="so many layers of the shape; 0: all")
    return parser.parse_args()


def tensors(config):
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, shape in (
            ("self_attn.q_proj", (q, hidden)),
            ("self_attn.k_proj", (kv, hidden)),
            ("self_attn.v_proj", (kv, hidden)),
            ("self_attn.o_proj", (hidden, q)),
            ("mlp.gate_proj", (inner, hidden)),
            ("mlp.up_proj", (inner, hidden)),
            ("mlp.down_proj", (hidden, inner)),
        ):
            yield at + name + ".weight", shape
        for name, size in (("self_attn.q_norm", head), ("self_attn.k_norm", head), ("input_layernorm", hidden), ("post_attention_layernorm", hidden)):
            yield at + name + ".weight", (size,)
    yield "model.norm.weight", (hidden,)


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def write_model(folder, config):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    piece = bf16(np.random.default_rng(1).standard_normal(1 << 22) * 0.02)
    header, at = {}, 0
    for name, shape in tensors(config):
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i, (_, shape) in enumerate(tensors(config)):
            count = math.prod(shape)
            start = 7919 * i % (len(piece) // 2)
            while count > 0:
                part = piece[start : start + count]
                file.write(part.tobytes())
                count, start = count - len(part), 0
    return at


class Clock:
    """Wall-clock and processor seconds of this process and its children."""

    def __enter__(self):
        self.wall, self.used = time.perf_counter(), self.processor()
        return self

    def __exit__(self, *_):
        self.wall, self.used = time.perf_counter() - self.wall, self.processor() - self.used

    @staticmethod
    def processor():
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(use.ru_utime + use.ru_stime for use in uses)


def quantize_with_torch(torch, weight, mode):
    """Codes and scales of a matrix whose sides are whole blocks."""
    rows, cols = weight.shape
    blocks = weight.float().reshape(rows // BLOCK, BLOCK, cols // BLOCK, BLOCK).permute(0, 2, 1, 3).contiguous()
    largest = blocks.abs().amax(dim=(2, 3)).clamp_min(1e-12)
    to_codes = lambda scale: (blocks / scale[:, :, None, None]).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    if mode == "max":
        scale = largest / LARGEST
    elif mode == "rms":
        scale = torch.maximum(3 * blocks.square().mean(dim=(2, 3)).sqrt().clamp_min(1e-12), largest) / LARGEST
    else:
        scale, least = largest / LARGEST, torch.full_like(largest, math.inf)
        for alpha in torch.linspace(0.5, 1.0, 50):
            tried = largest * alpha / LARGEST
            error = (to_codes(tried).float() * tried[:, :, None, None] - blocks).square().mean(dim=(2, 3))
            better = error < least
            least, scale = torch.where(better, error, least), torch.where(better, tried, scale)
    codes = to_codes(scale).permute(0, 2, 1, 3).reshape(rows, cols).contiguous()
    return codes, scale.bfloat16()


def load_tool(path):
    spec = importlib.util.spec_from_file_location("quantize_fp8", path)
    tool = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def run_tool(torch, tool, source, target, mode):
    tool.process_shard(source, target, None, source.name, mode, 99.9, 50, 3.0, {}, torch.device("cpu"))


def run_torch(torch, source, target, mode):
    from safetensors import safe_open
    from safetensors.torch import save_file

    out = {}
    with safe_open(source, "pt") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            if tensor.ndim == 2 and min(tensor.shape) >= BLOCK and "embed" not in name and "lm_head" not in name:
                out[name], out[name + "_scale_inv"] = quantize_with_torch(torch, tensor, mode)
            else:
                out[name] = tensor
    save_file(out, target)


def main():
    options = parse()
    config = json.loads((options.config / "config.json").read_text())
    if config.get("model_type") != "qwen3" or "quantization_config" in config:
        sys.exit(f"quantize_speed: {options.config}: not an unquantized qwen3 model\nhint: bench/configs/qwen3-0.6b-bf16 is one")
    if options.layers:
        config["num_hidden_layers"] = options.layers
    if options.vocab:
        config["vocab_size"] = options.vocab
    model, out = options.work / "model", options.out / "qgen-quantize-speed"
    total = write_model(model, config)
    weights = model / "model.safetensors"
    try:
        import torch

        torch.set_num_threads(os.cpu_count())
    except ImportError:
        torch = None
    tool = load_tool(options.tool) if options.tool else None
    runs = {}

    def timed(name, action):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        with Clock() as clock:
            action()
        runs.setdefault(name, []).append((clock.wall, clock.used))

    def qgen(mode, *more):
        command = [options.qgen, "quantize", "-m", model, "--to", "fp8", "--out", out / "fp8", "--mode", mode, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    modes = options.modes.split(",")
    for _ in range(options.rounds):
        weights.read_bytes()  # into the page cache
        timed("copy", lambda: shutil.copyfile(weights, out / "copy"))
        for mode in modes:
            timed(mode, lambda: qgen(mode, "--verify", "0"))
        timed(modes[0] + " with verification", lambda: qgen(modes[0]))
        if torch is not None:
            for mode in modes:
                target = out / "torch.safetensors"
                if tool is not None:
                    timed("torch " + mode, lambda: run_tool(torch, tool, weights, target, mode))
                else:
                    timed("torch " + mode, lambda: run_torch(torch, str(weights), str(target), mode))
    shutil.rmtree(out)
    shutil.rmtree(options.work)

    print(f"{total / 1e9:.2f} GB of BF16, {os.cpu_count()} threads, {options.rounds} rounds\n")
    print("| | wall s | processor s | GB/s | of a copy | faster than PyTorch, wall (processor) |")
    print("|---|---|---|---|---|---|")
    for name, rounds in runs.items():
        wall, used = (statistics.median(values) for values in zip(*rounds))
        share = statistics.median(copy[0] / own[0] for copy, own in zip(runs["copy"], rounds))
        against = runs.get("torch " + name, [])
        ratio = "" if not against else "{:.1f} ({:.1f})".format(*(statistics.median(a[i] / b[i] for a, b in zip(against, rounds)) for i in (0, 1)))
        print(f"| {name} | {wall:.2f} | {used:.2f} | {total / wall / 1e9:.2f} | {100 * share:.0f} % | {ratio} |")


if __name__ == "__main__":
    main()
