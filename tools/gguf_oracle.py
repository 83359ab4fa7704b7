#!/usr/bin/env python3
"""Make tiny GGUF files in all quantized types that qgen reads, and the answers a correct program gives on them.

    pip install -r tools/requirements-oracle.txt
    python tools/gguf_oracle.py [FOLDER]          (default: tests)

FOLDER/golden-gguf-types has a matrix of each type and what the gguf package makes of it; FOLDER/golden/*-gguf are
checkpoints like those of tools/oracle.py, whose matrices are of different types each, as in published files. Where the
package quantizes a type, it does so here; of the others (K-quants, IQ4) whole blocks are random, and their super-scales
such that weights have the size that they should have. Weights are the package's own dequantization in F32, which a
transformers model uses in float64, as in tools/oracle.py.
"""

import shutil
import sys
import zlib
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as T

import oracle
from quantize_demo import write_safetensors

TYPES = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS]
# Where the F16 scales of a block lie, that of the codes first; and the minimum's in units of the other.
SCALES = {T.IQ4_NL: ([0], 0), T.Q2_K: ([80, 82], 1.5), T.Q3_K: ([108], 0), T.Q4_K: ([0, 2], 7.5)}
SCALES |= {T.Q5_K: ([0, 2], 15.5), T.Q6_K: ([208], 0), T.IQ4_XS: ([0], 0)}


def random_blocks(kind, n, k, deviation, rng):
    """Blocks whose codes and scales take all values; F16 scales differ by a factor of up to 3."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (n * k // elements, size), dtype=np.uint8)
    places, ratio = SCALES[kind]

    def set_scales(values):
        for place, factor in zip(places, (1, ratio)):
            blocks[:, place : place + 2] = (values * factor).astype(np.float16).view(np.uint8).reshape(-1, 2)

    set_scales(np.ones(len(blocks)))
    values = gguf.quants.dequantize(blocks, kind)
    set_scales(deviation / values.std() * rng.uniform(0.5, 1.5, len(blocks)))
    return blocks.reshape(n, -1)


def encode(kind, w, rng):
    """Bytes of a matrix (N, bytes of a row) and its values as the package reads them."""
    if kind in SCALES:
        data = random_blocks(kind, *w.shape, w.std(), rng)
    else:
        data = gguf.quants.quantize(w.astype(np.float32), kind)
    values = gguf.quants.dequantize(data, kind)
    assert values.dtype == np.float32 and values.shape == w.shape and np.isfinite(values).all()
    return data, values


def make_types(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / "types.gguf", "types")
    rng = np.random.default_rng(1)
    values = {}
    for kind in TYPES:
        name = kind.name.lower() + ".weight"
        data, values[name] = encode(kind, rng.standard_normal((3, 512)), rng)
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)
    write_safetensors(folder / "values.safetensors", {name: ("F32", x) for name, x in values.items()})


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- models ----

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm"}
NAMES |= {"self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output"}
NAMES |= {f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(module):
    if module in OUTSIDE:
        return OUTSIDE[module] + ".weight"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def adjacent_pairs(w, heads):
    """Rows of each head so that those that rotate together are neighbours: what llama.cpp's converter does for Llama."""
    return w.reshape(heads, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def half_pairs(w, heads):
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


# Types of a layer's matrices; o and down have 32 columns, no super-blocks.
MIXTURES = {
    "llama": {
        "model.embed_tokens": T.Q6_K,
        0: {"q": T.Q4_K, "k": T.Q4_K, "v": T.Q6_K, "o": T.Q5_0, "gate": T.Q4_K, "up": T.Q5_K, "down": T.Q5_1},
        1: {"q": T.Q3_K, "k": T.Q2_K, "v": T.Q5_K, "o": T.Q4_1, "gate": T.IQ4_XS, "up": T.Q2_K, "down": T.Q8_0},
    },
    "qwen3": {
        "model.embed_tokens": T.Q4_K,
        "lm_head": T.Q6_K,
        0: {"q": T.Q4_0, "k": T.Q3_K, "v": T.Q5_1, "o": T.IQ4_NL, "gate": T.Q6_K, "up": T.Q3_K, "down": T.MXFP4},
        1: {"q": T.IQ4_NL, "k": T.MXFP4, "v": T.Q4_1, "o": T.Q4_0, "gate": T.Q5_0, "up": T.IQ4_XS, "down": T.F16},
    },
}


def type_of(family, module):
    if module in MIXTURES[family]:
        return MIXTURES[family][module]
    _, _, layer, _, name = module.split(".")
    return MIXTURES[family][int(layer)][name.removesuffix("_proj")]


def encode_model(family, config, weights, rng):
    tensors, plain = {}, {}
    for name, w in weights.items():
        module = name.removesuffix(".weight")
        if w.ndim == 1:
            plain[name] = w.astype(np.float32)
            tensors[gguf_name(module)] = (plain[name], T.F32)
            continue
        kind = type_of(family, module)
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(module.split(".")[-1])
        permuted = heads if family == "llama" else None
        w = adjacent_pairs(w, permuted) if permuted else w
        if kind == T.F16:
            data = w.astype(np.float16)
            values = data.astype(np.float32)
        else:
            data, values = encode(kind, w, rng)
        tensors[gguf_name(module)] = (data, kind)
        plain[name] = np.ascontiguousarray(half_pairs(values, permuted) if permuted else values)
    return tensors, plain


def write_model(path, family, config, tensors):
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)


def make_model(family, out):
    tied = "lm_head" not in MIXTURES[family]
    case = oracle.Case(family, oracle.Method("gguf", rest="F32"), heads=(4, 2, 8), tied=tied)
    config = oracle.model_config(case) | {"head_dim": 8}
    for attempt in range(1000):
        rng = np.random.default_rng([zlib.crc32(case.name.encode()), attempt])
        tensors, plain = encode_model(family, config, oracle.draw_weights(config, rng), rng)
        ids = rng.integers(0, oracle.VOCAB, oracle.PROMPT_TOKENS).tolist()
        model = oracle.build_model(config, plain)
        logits = oracle.model_logits(model, ids)
        continuation, margins = oracle.greedy(model, ids)
        if min(margins) > oracle.SMALLEST_MARGIN and len(set(continuation)) >= 5:
            break
    else:
        sys.exit(f"{case.name}: no draw with clear greedy answers")
    second = oracle.second_logits(config, plain, ids)
    gap = np.linalg.norm(second - logits) / np.linalg.norm(logits)
    assert gap < oracle.LARGEST_GAP, gap
    stored = [f"model.layers.{i}.self_attn.k_proj.weight" for i in range(oracle.LAYERS)]
    expected = {
        "family": family,
        "method": "gguf",
        "note": "a mixture of types in one file, " + ("tied embedding" if tied else "embedding and head") + " among them",
        "producer": "tools/gguf_oracle.py",
        "versions": {p.__name__: p.__version__.split("+")[0] for p in (torch, transformers, np)},
        "vocab": oracle.VOCAB,
        "ids": ids,
        "greedy": continuation,
        "greedy_margins": [float(f"{m:.4g}") for m in margins],
        "smallest_top2_margin": float(f"{min(map(oracle.margin, logits)):.4g}"),
        "gap_to_second_float64_forward": float(f"{gap:.1e}"),
        "tolerance": {"weights": "bit-exact in F32", "logits_normwise_reference": 1e-5, "logits_normwise_cpu": 5e-3},
        "weights_stored": stored,
    }
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "expected").mkdir(parents=True)
    write_model(folder / "model.gguf", family, config, tensors)
    logit_tensors = {"ids": ("I32", np.array(ids, np.int32)), "logits": ("F32", logits.astype(np.float32))}
    write_safetensors(folder / "expected" / "logits.safetensors", logit_tensors)
    write_safetensors(folder / "expected" / "weights.safetensors", {name: ("F32", plain[name]) for name in stored})
    oracle.dump(folder / "expected" / "expected.json", expected)
    print(f"{case.name:32} gap {gap:.1e}  draw {attempt}", flush=True)


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    oracle.HIDDEN, oracle.INTERMEDIATE = 256, 32  # a super-block
    make_types(out / "golden-gguf-types")
    for family in MIXTURES:
        make_model(family, out / "golden")


if __name__ == "__main__":
    main()
