#!/usr/bin/env python3
"""Speed of PyTorch with transformers on the shape that a config.json declares, with random weights in bf16: what a user of
those would get from one stream, beside `qgen bench --dummy` on the same machine.

    python3 bench/torch_speed.py CONFIG_DIR [--device cuda] [--prompt 4096] [--tokens 64] [--compile] [--threads N]

Prints one line: the prompt's tokens a second, the answer's, both as medians of --rounds, and the bytes of the weights.
--compile decodes through torch.compile(mode="reduce-overhead") and a cache of fixed size, as transformers recommends.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of the answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="of the processor; 0: PyTorch's choice")
    return parser.parse_args()


def build(folder, device):
    path = folder / "config.json"
    try:
        declared = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"torch_speed: {path}: cannot be read ({error})\nhint: CONFIG_DIR is a folder with the config.json of a model")
    declared.pop("quantization_config", None)  # bf16, whatever the checkpoint has
    config = AutoConfig.for_model(declared.pop("model_type"), **declared)
    with torch.device(device):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        finally:
            torch.set_default_dtype(previous)
    return model.eval()


def wait(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@torch.inference_mode()
def measure(model, args, static):
    """One round: seconds of the prompt, seconds of the answer's tokens after its first."""
    # A compiled model is bound to one static cache.
    cache = static if static is not None else DynamicCache(config=model.config)
    if static is not None:
        static.reset()
    ids = torch.randint(0, model.config.vocab_size, (1, args.prompt), device=args.device)
    wait(args.device)
    start = time.perf_counter()
    out = model(ids, past_key_values=cache, cache_position=torch.arange(args.prompt, device=args.device), logits_to_keep=1)
    token = out.logits[:, -1:].argmax(-1)
    wait(args.device)
    prompt_seconds = time.perf_counter() - start
    step = model.decode_step if args.compile else model
    start = time.perf_counter()
    for i in range(args.tokens):
        position = torch.tensor([args.prompt + i], device=args.device)
        token = step(token.clone(), past_key_values=cache, cache_position=position).logits[:, -1:].argmax(-1)
    wait(args.device)
    return prompt_seconds, time.perf_counter() - start


def main():
    args = parse()
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    model = build(args.config, args.device)
    if args.compile:
        model.decode_step = torch.compile(model.forward, mode="reduce-overhead")
    static = StaticCache(config=model.config, max_cache_len=args.prompt + args.tokens + 1) if args.compile else None
    measure(model, args, static)  # compiles, and brings everything into memory
    rounds = [measure(model, args, static) for _ in range(args.rounds)]
    prompt = args.prompt / statistics.median(r[0] for r in rounds)
    answer = args.tokens / statistics.median(r[1] for r in rounds)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    name = "torch.compile" if args.compile else "eager"
    print(f"{args.config.name} bf16 {name}: pp{args.prompt} {prompt:.1f} tok/s, tg{args.tokens} {answer:.2f} tok/s, {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
