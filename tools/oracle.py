#!/usr/bin/env python3
"""Make tiny random checkpoints and the answers a correct program gives on them.

    pip install -r tools/requirements-oracle.txt
    python tools/oracle.py [FOLDER [NAME...]]          (default: tests/golden, all)

Llama has every storage method, the other families a few, and some folders hold one special trait each
(rotary scalings, windows, biases, shards, ...). A folder is a checkpoint plus expected/:

    expected.json         prompt ids, the greedy continuation, margins, tolerances
    logits.safetensors    ids I32 [T], logits F32 [T, V]; row t scores the token after position t
    weights.safetensors   a few dequantized matrices, F32 [N, K]

Answers are weight-only arithmetic. Each matrix is (code - zero point) * scale, exact in float64 and
rounded once to F32; those F32 numbers go into a plain transformers model that runs in float64 with
eager attention, the whole prompt at once. The libraries' own readers of quantized checkpoints are not
used: they round to the type of the scale, and some scale names they do not know. A second forward,
written here in numpy from the formulas, must agree. With the same package versions and the same kind
of processor a second run gives the same bytes (checked).
"""

import json
import math
import os
import shutil
import sys
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers

import packed_weights
from quantize_demo import E4M3, E4M3_MAX, bf16_bits, bf16_values, e4m3_encode, spread, write_safetensors

HIDDEN, INTERMEDIATE, LAYERS, VOCAB = 32, 40, 2, 64
PROMPT_TOKENS, GREEDY_TOKENS = 20, 16
SMALLEST_MARGIN = 0.05  # of a greedy step; a draw of weights below it is thrown away
LARGEST_GAP = 2e-6  # between the two forwards, normwise

# ---- what there is to make ----


@dataclass
class Method:
    """How the linear layers are stored, and the quantization_config that says so."""

    name: str
    rest: str = "BF16"  # type of everything unquantized
    codes: str = ""  # "", "fp8" or "int8"
    strategy: str = ""  # tensor, channel, group or block
    block: tuple = (16, 16)
    groups: dict = field(default_factory=lambda: {"": 8})  # columns of a group, by suffix of the module name
    scale: str = "BF16"
    scale_name: str = "weight_scale"
    rank: int = 2  # of the scale tensor: a scale per tensor may be [] or [1], one per row [N] or [N, 1]
    asymmetric: bool = False
    input_scale: str = ""  # name of a static activation scale; present, and not used here
    order: bool = False  # columns belong to groups through weight_g_idx
    also: tuple = ()  # modules quantized beyond the block linears
    write: object = None  # (module, w, rng) to tensors and the dequantized matrix, for layouts of packed_weights.py
    config: dict | None = None


@dataclass
class Case:
    family: str
    method: Method
    heads: tuple = (4, 2, 12)  # heads, key/value heads, head_dim; None = leave the key out
    trait: str = ""
    note: str = ""
    config: dict = field(default_factory=dict)  # changes to config.json
    rope: dict | None = None  # rope_parameters (the new spelling)
    new_spelling: bool = False
    tied: bool = True
    files: str = "one"  # one, index (2 shards), bare (3 shards, no index)

    @property
    def name(self):
        return f"{self.family}-{self.trait or self.method.name}"


def fp8(name, **more):
    config = {"activation_scheme": "dynamic", "quant_method": "fp8"} | more.pop("config", {})
    return Method(name, codes="fp8", config=config, **more)


def fp8_block(scale, block, rest="BF16", **config):
    config = {"fmt": "e4m3", "weight_block_size": list(block)} | config
    name = f"fp8-block-{scale.removeprefix('F8_').lower()}"
    return fp8(name, strategy="block", block=block, scale=scale, rest=rest, scale_name="weight_scale_inv", config=config)


def compressed(codes, strategy, groups=None, order=False, also=(), asymmetric=False, static=False, **more):
    """A compressed-tensors method, with the config keys that version 0.20 writes."""
    kind = "int" if codes == "int8" else "float"
    form = f"{kind}-quantized"
    method = Method(
        f"ct-{codes}-{'asym-' if asymmetric else ''}{strategy}",
        codes=codes,
        strategy=strategy,
        rank=1 if strategy == "tensor" else 2,
        asymmetric=asymmetric,
        input_scale="input_scale" if static else "",
        order=order,
        also=also,
        **more,
    )
    if groups:
        method.groups = groups
    args = {"dynamic": False, "group_size": None, "num_bits": 8, "symmetric": True, "type": kind}
    if static:
        activations = args | {"observer": "static_minmax", "strategy": "tensor"}
    elif strategy == "block":
        activations = args | {"dynamic": True, "group_size": 128, "strategy": "group"}
    else:
        activations = args | {"dynamic": True, "strategy": "token"}
    weights = args | {"observer": "memoryless_minmax", "strategy": strategy, "symmetric": not asymmetric}
    if strategy == "block":
        weights["block_structure"] = list(method.block)
    if order:
        weights["actorder"] = "group"
    config_groups = {}
    for i, (suffix, columns) in enumerate(method.groups.items()):
        targets = [f"re:.*{suffix}$"] if suffix else ["Linear", "Embedding"] if also else ["Linear"]
        config_groups[f"group_{i}"] = {
            "format": form,
            "input_activations": activations,
            "output_activations": None,
            "targets": targets,
            "weights": weights | ({"group_size": columns} if strategy == "group" else {}),
        }
    method.config = {
        "config_groups": config_groups,
        "format": form,
        "global_compression_ratio": None,
        "ignore": [] if also else ["lm_head"],
        "kv_cache_scheme": None,
        "moe_sparsity_config": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.11.0" if order else "0.20.0",  # the last that wrote weight_g_idx
    }
    return method


def packed(name, write, config, **more):
    """A method of packed_weights.py."""
    return Method(name, codes="packed", strategy="group", rest="F32", write=write, config=config, **more)


def packed_cases():
    def gptq(bits, version, order):
        config = {"bits": bits, "group_size": 8, "desc_act": order, "sym": False, "lm_head": False, "quant_method": "gptq"}
        config["checkpoint_format"] = "gptq" if version == 1 else "gptq_v2"
        return packed(f"gptq{bits}-v{version}", lambda m, w, rng: packed_weights.gptq(m, w, rng, bits, 8, version, order), config)

    def hqq(axis):
        params = {"axis": axis, "channel_wise": True, "group_size": 8, "nbits": 8, "optimize": True, "round_zero": False}
        config = {"quant_config": {"weight_quant_params": params}, "quant_method": "hqq", "skip_modules": ["lm_head"]}
        return packed(f"hqq-axis{axis}", lambda m, w, rng: packed_weights.hqq(m, w, rng, 8, axis), config)

    def torchao(name, kind, write, **data):
        config = {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 1, "_data": data}}}
        config |= {"modules_to_not_convert": None, "include_input_output_embeddings": False}
        return packed(f"torchao-{name}", write, config)

    def pack(bits):
        config = compressed("int8", "group", asymmetric=True).config
        for part in (config, config["config_groups"]["group_0"]):
            part["format"] = "pack-quantized"
        config["config_groups"]["group_0"]["weights"]["num_bits"] = bits
        config["config_groups"]["group_0"]["input_activations"] = None
        return packed(f"ct-pack{bits}", lambda m, w, rng: packed_weights.pack_quantized(m, w, rng, bits, 8), config)

    def mlx(bits):
        config = {"group_size": 8, "bits": bits, "mode": "affine"}
        write = lambda m, w, rng: packed_weights.mlx(m, w, rng, bits, 8)  # noqa: E731
        return packed(f"mlx{bits}", write, config, also=("lm_head", "model.embed_tokens"))

    yield Case("llama", gptq(8, 1, True), note="version 1, activation order, zero points of 0 that borrow")
    yield Case("qwen2", gptq(8, 2, False), note="version 2 without g_idx")
    yield Case("llama", gptq(4, 1, False), (4, 2, 16), note="4 bits")
    awq = {"bits": 4, "group_size": 8, "quant_method": "awq", "version": "gemm", "zero_point": True}
    awq = packed("awq", lambda m, w, rng: packed_weights.awq(m, w, rng, 8), awq)
    yield Case("qwen2", awq, (4, 2, 8), note="AWQ, version gemm")
    yield Case("llama", pack(8), note="packed zero points")
    yield Case("qwen3", pack(4), note="4 bits, packed zero points")
    for bits, family in ((8, "qwen3"), (4, "llama")):
        method = mlx(bits)
        yield Case(family, method, (4, 2, 16), tied=False, config={"quantization": method.config}, note="embedding and head, too")
    yield Case("mistral", hqq(1), (3, 1, 8), note="groups of neighbours")
    yield Case("llama", hqq(0), (4, 1, 8), note="groups down the columns of (size, groups)")
    wide = {"intermediate_size": 160}  # groups of 32, and scales in two tiles
    yield Case("qwen3", torchao("mxfp8", "MXDynamicActivationMXWeightConfig", packed_weights.torchao_mxfp8), (4, 2, 8), config=wide)
    yield Case("llama", torchao("nvfp4", "NVFP4WeightOnlyConfig", packed_weights.torchao_nvfp4), (4, 2, 8), config=wide)
    int4 = torchao("int4", "Int4WeightOnlyConfig", partial(packed_weights.torchao_int4, group=8), group_size=8)
    yield Case("qwen2", int4, (4, 2, 8), note="the plain layout")
    int8 = {"load_in_8bit": True, "llm_int8_skip_modules": None, "llm_int8_threshold": 6.0, "quant_method": "bitsandbytes"}
    yield Case("llama", packed("bnb-int8", packed_weights.llm_int8, int8), note="LLM.int8")


OPENQUANT = {"is_checkpoint_fp8_serialized": True, "weight_block_size": None, "ignored_layers": ["lm_head"]}
MISTRAL = {"activation_scheme": "static", "weight_block_size": None, "modules_to_not_convert": ["lm_head"]}

# 32 and 40 divide by neither side of most of these blocks, and 12 x 20 tells rows from columns.
METHODS = [
    Method("f32", rest="F32"),
    Method("f16", rest="F16"),
    Method("bf16", rest="BF16"),
    fp8_block("F32", (16, 16)),
    fp8_block("BF16", (12, 20)),
    fp8_block("F16", (24, 24), rest="F16"),
    fp8_block("F8_E8M0", (16, 12), scale_fmt="ue8m0"),
    fp8("fp8-tensor", strategy="tensor", rank=0, scale="F32", input_scale="input_scale", config={"activation_scheme": "static"}),
    fp8("fp8-tensor-inv", strategy="tensor", rank=0, scale_name="weight_scale_inv", input_scale="activation_scale", config=MISTRAL),
    fp8("fp8-channel-1d", strategy="channel", rank=1, scale="F32", config=OPENQUANT),
    fp8("fp8-channel-2d", strategy="channel", config=OPENQUANT),
    compressed("int8", "tensor", static=True),
    compressed("int8", "channel"),
    compressed("int8", "group", scale="F16", rest="F16"),
    compressed("int8", "block", scale="F32"),
    compressed("int8", "tensor", asymmetric=True, scale="F32"),
    compressed("int8", "channel", asymmetric=True, scale="F16", rest="F16"),
    compressed("int8", "group", asymmetric=True),
    compressed("fp8", "tensor", static=True, scale="F16", rest="F16"),
    compressed("fp8", "channel"),
    compressed("fp8", "group"),
    compressed("fp8", "block", block=(12, 20)),
]
BY_NAME = {m.name: m for m in METHODS}
METHOD_NOTES = {"block": "partial last blocks", "group": "groups of 8 columns"}

# llama wants heads that divide the hidden size; without head_dim it is 32 / 4.
HEADS = {
    "llama": [(4, 2, 12), (4, 1, 12), (4, 2, None), (4, 1, 8)],
    "mistral": [(3, 1, 8), (4, 2, 12), (4, 1, 12), (4, 2, None)],
    "qwen2": [(4, 2, None), (3, 1, 8), (4, 2, 12), (4, 1, None)],
    "qwen3": [(4, 2, 12), (3, 1, 8), (4, 1, 12), (3, 1, 12)],
}


# What the other families have: their own files need no more, a method is the same for all of them.
IN_EVERY_FAMILY = ("bf16", "fp8-block-bf16", "ct-int8-channel")
IN_ONE_MORE = ("mistral-fp8-tensor",)  # as Mistral's own files have it


def plain_cases():
    for f, family in enumerate(HEADS):
        for m, method in enumerate(METHODS):
            wanted = family == "llama" or method.name in IN_EVERY_FAMILY or f"{family}-{method.name}" in IN_ONE_MORE
            if not wanted:
                continue
            heads = HEADS[family][(f + m) % 4]
            tied = (f + m) % 3 != 0
            if not method.codes:
                heads, tied = (4, 1, 8), True  # small: these have two to four times the bytes
            if method.strategy == "group" and heads == (3, 1, 12):
                heads = (4, 2, 12)  # o_proj has 36 columns otherwise, which groups of 8 do not divide
            note = METHOD_NOTES.get(method.strategy, "")
            yield Case(family, method, heads, note=note, new_spelling=(f + m) % 2 == 1, tied=tied)


def special_cases():
    def yarn(**more):
        return {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16} | more

    bf16, block, int8 = BY_NAME["bf16"], BY_NAME["fp8-block-bf16"], BY_NAME["ct-int8-channel"]
    llama3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "original_max_position_embeddings": 16}
    llama3 |= {"low_freq_factor": 1.0, "high_freq_factor": 2.0}
    yield Case("llama", bf16, trait="rope-llama3", rope=llama3, note="prompt beyond the original length 16")
    yield Case("llama", block, trait="rope-yarn", rope=yarn(), note="attention_factor absent: cos and sin carry 0.1 ln(factor) + 1")
    yield Case(
        "qwen3", block, trait="rope-yarn-betas", rope=yarn(beta_fast=1.0, beta_slow=0.1), note="beta_fast and beta_slow given"
    )
    yield Case(
        "qwen2",
        int8,
        (4, 2, None),
        trait="rope-yarn-mscale",
        rope=yarn(beta_fast=2.0, beta_slow=0.05, mscale=1.0, mscale_all_dim=0.5, truncate=False),
        note="mscale and mscale_all_dim make the attention factor; the ramp's ends are not rounded",
    )
    yield Case(
        "llama", int8, trait="rope-linear", rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, note="rope_type linear"
    )
    yield Case(
        "llama",
        block,
        trait="rope-dynamic",
        rope={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        config={"max_position_embeddings": 12},
        note="prompt 20 past max_position_embeddings 12: every position uses the base of the whole length. `greedy` recomputes "
        "the whole sequence each step; `greedy_with_kv_cache` keeps old keys as they were rotated",
    )
    yield Case(
        "llama",
        BY_NAME["fp8-channel-2d"],
        trait="bias",
        config={"attention_bias": True, "mlp_bias": True},
        note="biases on all seven linear layers of a block",
    )
    wide = fp8_block("BF16", (128, 128))
    yield Case(
        "mistral",
        wide,
        trait="window",
        config={"sliding_window": 4},
        note="sliding_window 4: a query sees itself and the 3 tokens before it; one partial 128 x 128 block a matrix",
    )
    yield Case(
        "qwen2",
        int8,
        (4, 2, None),
        trait="window",
        config={"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4},
        note="the window of 4 is on layer 1 only: layers from max_window_layers on have it",
    )
    yield Case("qwen3", wide, trait="tied", note="tied head, no lm_head tensor; one partial 128 x 128 block a matrix")
    both = compressed("fp8", "channel", also=("lm_head", "model.embed_tokens"))
    yield Case("llama", both, trait="fp8-head-embed", tied=False, note="embedding and head are FP8 per row as well")
    yield Case(
        "llama", int8, (4, 1, 12), trait="shards-index", files="index", tied=False, note="2 shards; a matrix and its scale may be apart"
    )
    yield Case("qwen3", int8, (4, 1, 12), trait="shards-bare", files="bare", tied=False, note="3 shards without an index: the union")
    yield Case("llama", block, (4, 1, 20), trait="wide-heads", note="head_dim 20, larger than hidden / heads; 1 key/value head")
    order = compressed("int8", "group", order=True, scale="F32")
    yield Case("llama", order, trait="ct-int8-gidx", note="weight_g_idx: column k uses scale[n, g_idx[k]], not monotone")
    tens = compressed("int8", "group", groups={"": 8, "down_proj": 10})
    yield Case("mistral", tens, trait="ct-int8-group-10", note="two config groups: 10 columns a group in down_proj, 8 elsewhere")


# ---- config.json ----


def model_config(case):
    heads, kv_heads, head_dim = case.heads
    family = case.family
    new_spelling = case.new_spelling or case.rope is not None
    config = {
        "architectures": [{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "model_type": family,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": 64,
        "num_attention_heads": heads,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5 if family in ("llama", "mistral") else 1e-6,
        "tie_word_embeddings": case.tied,
        "use_cache": True,
        "vocab_size": VOCAB,
    }
    if head_dim:
        config["head_dim"] = head_dim
    if family == "llama":
        config |= {"attention_bias": False, "mlp_bias": False}
    elif family == "mistral":
        config |= {"sliding_window": None}
    elif family == "qwen2":
        config |= {"max_window_layers": LAYERS, "sliding_window": 8, "use_sliding_window": False}
    else:
        config |= {"attention_bias": False, "max_window_layers": LAYERS, "sliding_window": None, "use_sliding_window": False}
    theta = 10000.0 if family in ("llama", "mistral") else 1000000.0
    dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[case.method.rest]
    if new_spelling:
        config |= {"dtype": dtype, "rope_parameters": case.rope or {"rope_theta": theta, "rope_type": "default"}}
    else:
        config |= {"torch_dtype": dtype, "rope_theta": theta, "rope_scaling": None}
    config |= case.config
    if case.method.config:
        config["quantization_config"] = case.method.config
    return config


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


# ---- drawing and storing the weights ----


def draw_weights(config, rng):
    """{plain name: float64 array} of a model whose logits are far from flat."""
    heads, kv_heads, d = config["num_attention_heads"], config["num_key_value_heads"], head_dim_of(config)
    family = config["model_type"]
    attention_bias = config.get("attention_bias", False)
    weights = {}

    def linear(name, n, k, bias):
        # Off-centre, so that a lost zero point shows.
        weights[name + ".weight"] = (rng.standard_normal((n, k)) * 1.7 + 0.25) / math.sqrt(k)
        if bias:
            weights[name + ".bias"] = 0.5 * rng.standard_normal(n)

    def norm(name, n):
        weights[name + ".weight"] = 1 + 0.25 * rng.standard_normal(n)

    weights["model.embed_tokens.weight"] = 0.6 * rng.standard_normal((VOCAB, HIDDEN))
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        norm(layer + "input_layernorm", HIDDEN)
        for x, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            linear(f"{layer}self_attn.{x}_proj", n * d, HIDDEN, attention_bias or family == "qwen2")
        linear(layer + "self_attn.o_proj", HIDDEN, heads * d, attention_bias)
        if family == "qwen3":
            norm(layer + "self_attn.q_norm", d)
            norm(layer + "self_attn.k_norm", d)
        norm(layer + "post_attention_layernorm", HIDDEN)
        mlp_bias = config.get("mlp_bias", False)
        inner = config["intermediate_size"]
        linear(layer + "mlp.gate_proj", inner, HIDDEN, mlp_bias)
        linear(layer + "mlp.up_proj", inner, HIDDEN, mlp_bias)
        linear(layer + "mlp.down_proj", HIDDEN, inner, mlp_bias)
    norm("model.norm", HIDDEN)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = 0.5 * rng.standard_normal((VOCAB, HIDDEN))
    return weights


def store(dtype, x):
    """Round to dtype: the array to write, and its exact values in float64."""
    x = np.asarray(x, np.float64)
    if dtype == "F32":
        return x.astype(np.float32), x.astype(np.float32).astype(np.float64)
    if dtype == "F16":
        return x.astype(np.float16), x.astype(np.float16).astype(np.float64)
    if dtype == "BF16":
        bits = bf16_bits(x.astype(np.float32))
        return bits, bf16_values(bits).astype(np.float64)
    assert dtype == "F8_E8M0"
    exponent = np.ceil(np.log2(x))  # up, so that no code saturates
    return (exponent + 127).astype(np.uint8), np.exp2(exponent)


def tile_max(x, rows, columns):
    """The largest element of each rows x columns tile; last tiles may be partial."""
    x = np.maximum.reduceat(x, np.arange(0, x.shape[0], rows), axis=0)
    return np.maximum.reduceat(x, np.arange(0, x.shape[1], columns), axis=1)


def quantize(module, w, method, rng):
    """Tensors of one quantized linear layer, and its dequantized matrix in F32."""
    n, k = w.shape
    group = next(g for suffix, g in reversed(method.groups.items()) if module.endswith(suffix))
    rows, columns = {"tensor": (n, k), "channel": (1, k), "group": (1, group), "block": method.block}[method.strategy]
    g_idx = rng.permutation(np.repeat(np.arange(k // group), group)) if method.order else None

    # Tiles are cut from columns sorted by group, and the scale goes back to where the columns are.
    by_tile = w[:, np.argsort(g_idx, kind="stable")] if method.order else w
    high, low = tile_max(by_tile, rows, columns), -tile_max(-by_tile, rows, columns)
    if method.codes == "fp8":
        scale = np.maximum(high, -low) / E4M3_MAX
    elif method.asymmetric:
        scale = (np.maximum(high, 0) - np.minimum(low, 0)) / 255
    else:
        scale = np.maximum(high, -low) / 127.5
    stored_scale, scale = store(method.scale, scale)

    def full(grid):
        return grid[:, g_idx] if method.order else spread(grid, rows, columns, w.shape)

    zero = np.zeros_like(scale)
    if method.codes == "fp8":
        codes = e4m3_encode(w / full(scale))
        codes.flat[:4] = 0x80, 0x01, 0x87, 0x7E  # minus zero, both ends of the subnormals, the largest
        values = E4M3[codes]
    else:
        if method.asymmetric:
            zero = np.clip(np.rint(-128 - np.minimum(low, 0) / scale), -128, 127)
        codes = np.clip(np.rint(w / full(scale)) + full(zero), -128, 127).astype(np.int8)
        codes.flat[np.argmin(codes)] = -128  # scales rounded up would leave it out
        values = codes - full(zero)
    dequantized = (values * full(scale)).astype(np.float32)

    shape = {0: (), 1: (-1,), 2: stored_scale.shape}[method.rank]
    tensors = {
        module + ".weight": ("F8_E4M3" if method.codes == "fp8" else "I8", codes),
        f"{module}.{method.scale_name}": (method.scale, stored_scale.reshape(shape)),
    }
    if method.asymmetric:
        tensors[module + ".weight_zero_point"] = ("I8", zero.astype(np.int8).reshape(shape))
    if method.order:
        tensors[module + ".weight_g_idx"] = ("I32", g_idx.astype(np.int32))
    if method.input_scale:
        value = store(method.scale, 0.01 + 0.01 * rng.random())[0]
        tensors[f"{module}.{method.input_scale}"] = (method.scale, value.reshape(shape))
    return tensors, dequantized


def encode_model(weights, method, rng):
    """(tensors to write, F32 matrices the forward uses, names of the quantized ones)."""
    tensors, plain, quantized = {}, {}, []
    for name, w in weights.items():
        module, _, leaf = name.rpartition(".")
        if method.codes and leaf == "weight" and (module.endswith("_proj") or module in method.also):
            more, plain[name] = (method.write or partial(quantize, method=method))(module, w, rng=rng)
            tensors |= more
            quantized.append(name)
        else:
            array, values = store(method.rest, w)
            tensors[name] = (method.rest, array)
            plain[name] = values.astype(np.float32)
    return tensors, plain, quantized


# ---- first forward: transformers ----


def build_model(config, plain):
    settings = {k: v for k, v in config.items() if k not in ("quantization_config", "quantization", "dtype", "torch_dtype", "architectures")}
    settings = json.loads(json.dumps(settings))  # the library edits the dictionaries it is given
    hf_config = transformers.AutoConfig.for_model(**settings)
    model = transformers.AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager", dtype=torch.float32)
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(plain), set(parameters) ^ set(plain)
    for name, parameter in parameters.items():
        assert parameter.shape == plain[name].shape, name
        parameter.data = torch.from_numpy(plain[name].astype(np.float64))
    return model.double().eval()


def model_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0].numpy()


def margin(row):
    second, first = np.sort(row)[-2:]
    return first - second


def greedy(model, ids):
    """Recomputes the whole sequence each step; an end-of-sequence id does not stop it."""
    ids, margins = list(ids), []
    for _ in range(GREEDY_TOKENS):
        row = model_logits(model, ids)[-1]
        margins.append(margin(row))
        ids.append(int(row.argmax()))
    return ids[-GREEDY_TOKENS:], margins


def greedy_cached(model, ids):
    out, cache, new = [], None, list(ids)
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            step = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
            cache, new = step.past_key_values, [int(step.logits[0, -1].argmax())]
            out += new
    return out


# ---- second forward: numpy, float64 throughout, from the formulas ----


def rope_angles(config, lengths):
    """Angles [T, head_dim / 2] and the factor on cos and sin. lengths[t] is the sequence length that
    counts for position t; only `dynamic` looks at it."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    base, kind = rope.get("rope_theta", config.get("rope_theta")), rope.get("rope_type", "default")
    d, positions = head_dim_of(config), np.arange(len(lengths))[:, None]
    exponent = np.arange(0, d, 2) / d
    inv, factor = base**-exponent, rope.get("factor", 1.0)
    original = rope.get("original_max_position_embeddings")
    if kind == "linear":
        return positions * inv / factor, 1.0
    if kind == "dynamic":
        trained = config["max_position_embeddings"]
        growth = factor * np.maximum(lengths, trained) / trained - (factor - 1)
        return positions * (base * growth[:, None] ** (d / (d - 2))) ** -exponent, 1.0
    if kind == "llama3":
        turns = original * inv / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        keep = np.clip((turns - low) / (high - low), 0, 1)
        return positions * (keep * inv + (1 - keep) * inv / factor), 1.0
    if kind == "yarn":

        def dimension(rotations):
            return d * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = dimension(rope.get("beta_fast", 32)), dimension(rope.get("beta_slow", 1))
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        ramp = np.clip((np.arange(d // 2) - low) / (high - low), 0, 1)

        def mscale(m):
            return 0.1 * m * math.log(factor) + 1

        attention = mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"]) if "mscale" in rope else mscale(1)
        return positions * (ramp * inv / factor + (1 - ramp) * inv), attention
    assert kind == "default"
    return positions * inv, 1.0


def window_of(config, layer):
    if config["model_type"] == "mistral":
        return config["sliding_window"]
    if config.get("use_sliding_window") and layer >= config["max_window_layers"]:
        return config["sliding_window"]
    return None


def second_logits(config, plain, ids, lengths=None):
    w = {name: x.astype(np.float64) for name, x in plain.items()}
    heads, kv_heads, d = config["num_attention_heads"], config["num_key_value_heads"], head_dim_of(config)
    t = len(ids)
    angles, factor = rope_angles(config, np.full(t, t) if lengths is None else lengths)
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def rotate(x):  # [heads, T, d]
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    h = w["model.embed_tokens.weight"][list(ids)]
    query, key = np.arange(t)[:, None], np.arange(t)[None, :]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        x = norm(h, layer + "input_layernorm")
        q, k, v = (
            linear(x, f"{layer}self_attn.{p}_proj").reshape(t, n, d).transpose(1, 0, 2)
            for p, n in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        if config["model_type"] == "qwen3":
            q, k = norm(q, layer + "self_attn.q_norm"), norm(k, layer + "self_attn.k_norm")
        q, k = rotate(q), rotate(k)
        k, v = np.repeat(k, heads // kv_heads, 0), np.repeat(v, heads // kv_heads, 0)
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(d)
        seen = key <= query
        if window_of(config, i):
            seen &= key > query - window_of(config, i)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        h = h + linear((p @ v).transpose(1, 0, 2).reshape(t, heads * d), layer + "self_attn.o_proj")
        x = norm(h, layer + "post_attention_layernorm")
        gate, up = linear(x, layer + "mlp.gate_proj"), linear(x, layer + "mlp.up_proj")
        h = h + linear(gate / (1 + np.exp(-gate)) * up, layer + "mlp.down_proj")
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return norm(h, "model.norm") @ w[head + ".weight"].T


# ---- folders ----


def dump(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def write_checkpoint(folder, config, tensors, files):
    dump(folder / "config.json", config)
    names = sorted(tensors)
    count = {"one": 1, "index": 2, "bare": 3}[files]
    weight_map = {}
    for i in range(count):
        file = "model.safetensors" if count == 1 else f"model-{i + 1:05}-of-{count:05}.safetensors"
        # Dealt out one by one: neighbours, such as a matrix and its scale, land in different files.
        shard = {name: tensors[name] for name in names[i::count]}
        write_safetensors(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    if files == "index":
        total = sum(np.asarray(array).nbytes for _, array in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        dump(folder / "model.safetensors.index.json", index)


def shown(quantized, method):
    """The few matrices whose dequantized form is stored: the small k_proj, or down_proj where 40 columns
    make the tiling interesting."""
    tiled = method.strategy in ("group", "block")
    wanted = [f"model.layers.{LAYERS - 1}.mlp.down_proj.weight" if tiled else "model.layers.0.self_attn.k_proj.weight"]
    wanted += [module + ".weight" for module in method.also if "embed" in module]
    return [name for name in quantized if name in wanted]


def make(case, out):
    config = model_config(case)
    for attempt in range(1000):
        rng = np.random.default_rng([zlib.crc32(case.name.encode()), attempt])
        weights = draw_weights(config, rng)
        tensors, plain, quantized = encode_model(weights, case.method, rng)
        ids = rng.integers(0, VOCAB, PROMPT_TOKENS).tolist()
        model = build_model(config, plain)
        logits = model_logits(model, ids)
        continuation, margins = greedy(model, ids)
        if min(margins) > SMALLEST_MARGIN and len(set(continuation)) >= 5:
            break
    else:
        sys.exit(f"{case.name}: no draw with clear greedy answers")
    second = second_logits(config, plain, ids)
    gap = np.linalg.norm(second - logits) / np.linalg.norm(logits)
    assert gap < LARGEST_GAP, (case.name, gap)

    expected = {
        "family": case.family,
        "method": case.method.name,
        "note": case.note,
        "producer": "tools/oracle.py",
        "versions": {p.__name__: p.__version__.split("+")[0] for p in (torch, transformers, np)},
        "vocab": VOCAB,
        "ids": ids,
        "greedy": continuation,
        "greedy_margins": [float(f"{m:.4g}") for m in margins],
        "smallest_top2_margin": float(f"{min(map(margin, logits)):.4g}"),
        "gap_to_second_float64_forward": float(f"{gap:.1e}"),
        "tolerance": {"weights": "bit-exact in F32", "logits_normwise_reference": 1e-5, "logits_normwise_cpu": 5e-3},
    }
    if config.get("rope_parameters", {}).get("rope_type") == "dynamic":
        # A fresh model: the library keeps the rotary base of the longest sequence a model has seen.
        cached = greedy_cached(build_model(config, plain), ids)
        sequence = ids + cached[:-1]
        lengths = np.maximum(PROMPT_TOKENS, np.arange(len(sequence)) + 1)
        again = second_logits(config, plain, sequence, lengths)[PROMPT_TOKENS - 1 :]
        assert again.argmax(-1).tolist() == cached
        expected["greedy_with_kv_cache"] = cached
        expected["greedy_with_kv_cache_margins"] = [float(f"{margin(row):.4g}") for row in again]

    folder = out / case.name
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "expected").mkdir(parents=True)
    write_checkpoint(folder, config, tensors, case.files)
    logit_tensors = {"ids": ("I32", np.array(ids, np.int32)), "logits": ("F32", logits.astype(np.float32))}
    write_safetensors(folder / "expected" / "logits.safetensors", logit_tensors)
    stored = shown(quantized, case.method)
    if stored:
        expected["weights_stored"] = stored
        write_safetensors(folder / "expected" / "weights.safetensors", {name: ("F32", plain[name]) for name in stored})
    dump(folder / "expected" / "expected.json", expected)
    return gap, attempt


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    gaps = {}
    for case in [*plain_cases(), *special_cases(), *packed_cases()]:
        if len(sys.argv) > 2 and case.name not in sys.argv[2:]:
            continue
        assert case.name not in gaps, case.name
        gaps[case.name], attempt = make(case, out)
        print(f"{case.name:32} gap {gaps[case.name]:.1e}  draw {attempt}", flush=True)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{len(gaps)} checkpoints, {size / 1e6:.2f} MB, largest gap {max(gaps.values()):.1e}")


if __name__ == "__main__":
    main()
