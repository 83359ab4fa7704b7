#!/usr/bin/env python3
"""Write a safetensors model of random weights in the shape of a config.json with block FP8 or GPTQ, to time how it is loaded.

    bench/make_safetensors.py bench/configs/qwen3-8b-fp8 /tmp/qwen3-8b-fp8
    time build/qgen score -m /tmp/qwen3-8b-fp8 --tokens 1,2 > /dev/null

Shards and names are those of the published Qwen3 models: matrices of layers as F8_E4M3 with weight_scale_inv, or as GPTQ has 8
bits (qweight, qzeros, scales, g_idx), the rest in BF16. There is no tokenizer, so `qgen score --tokens` and `qgen bench` are
what can use it. Nothing but Python is needed; the same arguments give the same bytes.
"""

import argparse
import json
import math
import random
import shutil
import struct
from pathlib import Path

from versus import stop

E4M3_RMS = 107.0  # of finite codes that are all equally likely
INT8_RMS = 127 / math.sqrt(3)
NO_NAN = bytes(code - 1 if code & 0x7F == 0x7F else code for code in range(256))  # E4M3 has two NaN codes
PIECE = 1 << 22  # bytes of random weights that are repeated
SHARD = 4 << 30


def read_config(folder):
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        declared = config["quantization_config"]
        if config["model_type"] != "qwen3":
            raise ValueError("expected qwen3")
        if declared["quant_method"] == "gptq" and declared["bits"] == 8:
            return config, Gptq(declared["group_size"])
        if declared["quant_method"] == "fp8":
            return config, BlockFp8(declared["weight_block_size"])
        raise ValueError("expected block FP8 or GPTQ with 8 bits")
    except (OSError, ValueError, KeyError, TypeError) as error:
        stop(path, f"not what is needed ({error})", "bench/configs/qwen3-8b-fp8 is one")


class BlockFp8:
    def __init__(self, block):
        self.block = block

    def tensors(self, name, shape):
        yield name + ".weight", "F8_E4M3", shape
        yield name + ".weight_scale_inv", "F32", tuple(math.ceil(n / b) for n, b in zip(shape, self.block))

    def content(self, name, shape):
        """Bytes that, repeated, fill a tensor; nothing: random ones."""
        if name.endswith("_scale_inv"):  # of about 1 / sqrt(columns), so that a layer's output stays as large as its input
            return struct.pack("<f", 1 / (E4M3_RMS * math.sqrt(shape[1] * self.block[1])))
        return None


class Gptq:
    """8 bits, symmetric: four codes of a column in a word, of which 128 is zero; v1 stores one less."""

    def __init__(self, group):
        self.group = group

    def tensors(self, name, shape):
        rows, cols = shape
        groups = math.ceil(cols / self.group)
        yield name + ".qweight", "I32", (cols // 4, rows)
        yield name + ".qzeros", "I32", (groups, rows // 4)
        yield name + ".scales", "F16", (groups, rows)
        yield name + ".g_idx", "I32", (cols,)

    def content(self, name, shape):
        if name.endswith(".qzeros"):
            return b"\x7f"
        if name.endswith(".scales"):
            return struct.pack("<e", 1 / (INT8_RMS * math.sqrt(shape[0] * self.group)))
        if name.endswith(".g_idx"):
            return b"".join(struct.pack("<i", k // self.group) for k in range(shape[0]))
        return None


def tensors(config, method):
    """(name, type, shape), in the order of the files."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", "BF16", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        matrices = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden)}
        matrices |= {"self_attn.o_proj": (hidden, q), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden)}
        matrices |= {"mlp.down_proj": (hidden, inner)}
        for name, shape in matrices.items():
            yield from method.tensors(at + name, shape)
        for name, size in (("self_attn.q_norm", head), ("self_attn.k_norm", head)):
            yield at + name + ".weight", "BF16", (size,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield at + name + ".weight", "BF16", (hidden,)
    yield "model.norm.weight", "BF16", (hidden,)
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", "BF16", (config["vocab_size"], hidden)


ITEM = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4}


def size(kind, shape):
    return math.prod(shape) * ITEM[kind]


def bf16(value):
    return struct.pack("<f", value)[2:]


class Pieces:
    """Random weights, made once for each kind and repeated."""

    def __init__(self, hidden):
        source = random.Random(1)
        self.codes = source.randbytes(PIECE).translate(NO_NAN)
        spread = math.sqrt(3 / hidden)
        self.matrix = b"".join(bf16(source.uniform(-spread, spread)) for _ in range(1 << 16)) * (PIECE >> 17)

    def of(self, name, kind, shape, method):
        """Pieces that, repeated, fill the tensor."""
        if content := method.content(name, shape):
            return content
        if kind in ("F8_E4M3", "I32"):
            return self.codes
        return bf16(1.0) if len(shape) == 1 else self.matrix


def write_shard(path, part, pieces, method):
    header, at = {}, 0
    for name, kind, shape in part:
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size(kind, shape)]}
        at += size(kind, shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, kind, shape in part:
            piece, left = pieces.of(name, kind, shape, method), size(kind, shape)
            while left > 0:
                piece = piece * math.ceil(min(left, PIECE) / len(piece))
                out.write(piece[:left])
                left -= len(piece)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG_DIR", type=Path)
    parser.add_argument("out", metavar="OUT_DIR", type=Path)
    options = parser.parse_args()
    config, method = read_config(options.config)
    shards, used = [[]], 0
    for tensor in tensors(config, method):
        if used + size(*tensor[1:]) > SHARD and shards[-1]:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used += size(*tensor[1:])
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        pieces = Pieces(config["hidden_size"])
        for name, part in zip(names, shards):
            write_shard(options.out / name, part, pieces, method)
        index = {tensor[0]: name for name, part in zip(names, shards) for tensor in part}
        (options.out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
        shutil.copyfile(options.config / "config.json", options.out / "config.json")
    except OSError as error:
        stop(options.out, f"cannot be written ({error.strerror or error})", "is there enough space?")
    total = sum(size(*tensor[1:]) for part in shards for tensor in part)
    print(f"{options.out} written, {total / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
