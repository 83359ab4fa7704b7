#!/usr/bin/env python3
"""Checks that an 8-bit checkpoint folder has what servers want of it, from its files alone (names, types, config.json).

  tools/check_published.py [--tp N] [--engine vLLM|SGLang|transformers] FOLDER
  tools/check_published.py --rules

Prints what is wrong, one line each, as "engine: RULE: what (where that engine says so)", and exits with 1; else "good"
with counts. --tp asks for N ranks. Without --engine the question is whether the files are right for their format;
with it, also whether that engine takes the format at all (the rules marked "limit"). --rules lists them all.

Read were the releases in VERSIONS. Block FP8 ("fp8") and compressed-tensors (8-bit int, float and MXFP8) are known,
GGUF files are not.
"""
import argparse
import json
import math
import re
import struct
import sys
from pathlib import Path
from typing import Callable, NamedTuple

VERSIONS = {"vLLM": "0.33.0", "SGLang": "0.5.23", "transformers": "5.23.0", "compressed-tensors": "0.20.0",
            "huggingface_hub": "2.4.0", "safetensors": "0.8.0"}
ENGINES = ("vLLM", "SGLang", "transformers")

# Where the sources are.
V, S, T = "vllm/model_executor/layers/quantization/", "sglang/srt/layers/quantization/", "transformers/"
V_CT, S_CT = V + "compressed_tensors/", S + "compressed_tensors/"
V_SCHEMES, S_SCHEMES, V_MOE = V_CT + "schemes/", S_CT + "schemes/", V_CT + "compressed_tensors_moe/"
V_CONFIG = V_CT + "compressed_tensors.py, CompressedTensorsConfig."
S_CONFIG = S_CT + "compressed_tensors.py, CompressedTensorsConfig."
CT_ARGS = "compressed_tensors/quantization/quant_args.py, QuantizationArgs"
T_FP8 = T + "integrations/finegrained_fp8.py, "
T_LISTED = T + "quantizers/quantizers_utils.py, should_convert_module"
T_MATCH = "compressed_tensors/utils/match.py, is_match"

# Layers that engines make one of: packed_modules_mapping in vllm/model_executor/models/*.py and sglang/srt/models/*.py;
# the last in deepseek_v2.py of both.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("in_proj_qkv", "in_proj_z"),
         ("in_proj_b", "in_proj_a"), ("w1", "w3"), ("q_a_proj", "kv_a_proj_with_mqa"))
# What SGLang takes a fused layer apart into when the model does not say: quantization/utils.py, _FALLBACK_FUSED_SHARDS.
SGLANG_SHARDS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
# Layers whose columns, and whose rows, are dealt out to the ranks: RowParallelLinear and ColumnParallelLinear.
ROW_PARALLEL = ("o_proj", "down_proj", "out_proj", "w2")
COLUMN_PARALLEL = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "q_b_proj", "kv_b_proj")
FLOATS = ("F32", "F16", "BF16")
EIGHT_BITS = ("F8_E4M3", "I8")
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.([^.]+)$")
NO_LINEAR = re.compile(r"embed|norm|conv|wte$|wpe$|lm_head$|embd")  # of two dimensions all the same
STACK = re.compile(r"(.*\.experts)\.(gate_up_proj|gate_proj|up_proj|down_proj)$|(.*)\.(input_linear|output_linear)$")


class Rule(NamedTuple):
    name: str
    method: str  # quant_method that it is for, or "any"
    says: str
    sources: dict  # engine: where it says so
    check: Callable  # (checker, engine) to problems
    limit: bool


RULES = []


def rule(name, method, says, limit=False, **sources):
    def add(check):
        RULES.append(Rule(name, method, says, sources, check, limit))
        return check
    return add


def at_each(where):
    """One place that all engines reach."""
    return dict.fromkeys(ENGINES, where)


# Files


def read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return header.pop("__metadata__", None), header, path.stat().st_size - 8 - length


@rule("FILES", "any", "a folder has *.safetensors; one that stands alone is model.safetensors",
      vLLM="vllm/model_executor/model_loader/default_loader.py, _prepare_weights",
      SGLang="sglang/srt/model_loader/loader.py, _prepare_weights",
      transformers=T + "modeling_utils.py, _get_resolved_checkpoint_files")
def files(c, engine):
    if not c.files:
        yield "no *.safetensors"
    elif engine == "transformers" and len(c.files) == 1 and c.index is None and "model.safetensors" not in c.files:
        yield f"{next(iter(c.files))}: has to be model.safetensors"


@rule("INDEX", "any", "several files have an index, which names every tensor in its file; others are not read",
      vLLM="vllm/model_executor/model_loader/weight_utils.py, filter_duplicate_safetensors_files",
      SGLang="sglang/srt/model_loader/weight_utils.py, filter_duplicate_safetensors_files",
      transformers=T + "utils/hub.py, get_checkpoint_shard_files")
def index(c, _):
    if c.index is None:
        if len(c.files) > 1:
            yield "several files, and no model.safetensors.index.json"
        return
    named = c.index.get("weight_map") or {}
    for name, file in named.items():
        if file not in c.files:
            yield f"{file}: named, and not there"
            break
        if name not in c.tensors:
            yield f"{name}: named, and in no file"
    for name, file in c.file_of.items():
        if named.get(name) != file:
            yield f"{name}: in {file}, which is not what the index says"


@rule("ONE_FILE", "any", "a tensor is in one file: an index can name one only",
      transformers=T + "utils/hub.py, get_checkpoint_shard_files")
def one_file(c, _):
    return [f"{name}: in two files" for name in c.twice]


@rule("INDEX_METADATA", "any", "an index has a member metadata",
      transformers=T + "utils/hub.py, get_checkpoint_shard_files")
def index_metadata(c, _):
    if c.index is not None and not isinstance(c.index.get("metadata"), dict):
        yield "the index has no metadata"


@rule("TOTAL_SIZE", "any", "metadata.total_size is the size of all tensors (no engine reads it)",
      huggingface_hub="huggingface_hub/serialization/_base.py, split_state_dict_into_shards_factory")
def total_size(c, _):
    said = (c.index or {}).get("metadata", {}).get("total_size")
    if c.index is not None and said != c.total:
        yield f"total_size is {said} (expected {c.total})"


@rule("FORMAT_PT", "any", "__metadata__ has the format \"pt\" (releases before 5 refuse a file without it)",
      transformers=T + "modeling_utils.py, load_state_dict, release 4")
def format_pt(c, _):
    for name, (metadata, *_) in c.files.items():
        if (metadata or {}).get("format") != "pt":
            yield f"{name}: __metadata__ has no format \"pt\""


@rule("ALIGNED", "any", "a tensor lies at a multiple of its element's size: the library writes it so",
      safetensors="safetensors/src/tensor.rs, prepare")
def aligned(c, _):
    bits = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16}
    for name, entry in c.tensors.items():
        size = bits.get(entry["dtype"], 8) // 8
        if entry["data_offsets"][0] % size != 0:
            yield f"{name}: its data is not aligned to {size} bytes"


@rule("LEFT_OVER", "any", "what marks an unfinished run is gone", qgen="src/quantize/output_folder.cpp")
def left_over(c, _):
    return [f"{path.name}: left over" for path in [*c.folder.glob("*.partial"), *c.folder.glob("INCOMPLETE*")]]


# config.json


@rule("CONFIG_KEY", "any", "config.json says how: quantization_config (vLLM, SGLang: or compression_config)",
      vLLM="vllm/model_executor/model_loader/weight_utils.py, get_quant_config",
      SGLang="sglang/srt/configs/model_config.py, _parse_quant_hf_config",
      transformers=T + "quantizers/auto.py, AutoQuantizationConfig.from_pretrained")
def config_key(c, engine):
    taken = {"transformers": ("quantization_config",)}.get(engine, ("quantization_config", "compression_config"))
    inner = engine == "vLLM" and "quantization_config" in (c.config.get("text_config") or {})
    if not inner and not any(isinstance(c.config.get(key), dict) for key in taken):
        yield f"config.json has no {' or '.join(taken)}"


@rule("METHOD", "any", "quant_method is one that the engine knows",
      vLLM=V + "__init__.py, QUANTIZATION_METHODS", SGLang=S + "__init__.py, QUANTIZATION_METHODS",
      transformers=T + "quantizers/auto.py, AUTO_QUANTIZER_MAPPING")
def method(c, _):
    if c.method not in ("fp8", "compressed-tensors"):
        yield f"quant_method {c.method!r} is none that is known here"


@rule("QUANTIZED", "any", "there is something to be read by that", qgen="src/quantize/preparation.cpp")
def quantized(c, _):
    if not c.quantized:
        yield "no 8-bit weight"


# What is quantized, and what is said of it. A list is matched in another way by each engine:
#   fp8                 vLLM: whole names; experts where the name of all of them is in an entry
#                       SGLang: names or runs of whole parts of names, "model." at the front or not
#                       transformers: patterns up to a dot or the end, or what a name ends with
#   compressed-tensors  vLLM: whole names, or patterns after "re:"; of experts, those of number 0
#                       SGLang: the same, and what a name ends with, after a dot
#                       transformers: the same as vLLM, and class names


def is_listed(c, engine, module):
    names = c.listed
    if c.method == "fp8":
        if engine == "vLLM":
            if "experts" in module and not c.is_part(module):
                return any("experts" in name and module in name for name in names)
            return module in names
        if engine == "transformers":
            return any(re.match(rf"(?:{name})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(name) for name in names)
        for name in {"model." * keep + name.removeprefix("model.") for name in names for keep in (0, 1)}:
            if f".{name.rstrip('.')}." in f".{module}.":
                return True
            if "experts" in module and "experts" in name and module in name:
                return True
        return False
    for name in names:
        if re.match(name[3:], module) if name.startswith("re:") else name == module:
            return True
        if engine == "SGLang" and module.endswith("." + name):
            return True
        if engine == "transformers" and name == "Linear":
            return True
    return False


def parts_of_fused(c, engine, module):
    """The names by which a list is asked about a layer that the files have as one."""
    parent, _, part = module.rpartition(".")
    if c.method == "fp8" and engine == "SGLang" and part in SGLANG_SHARDS:
        return [f"{parent}.{shard}" for shard in SGLANG_SHARDS[part]]
    return [module]


def parts_of_experts(c, engine, experts):
    """The names by which a list is asked about all experts of a layer."""
    if c.method == "fp8" or engine == "transformers":
        return [experts]
    parts = ("gate_proj", "up_proj", "down_proj")
    if engine == "vLLM":  # ckpt_names in vllm/model_executor/models/*.py
        there = {EXPERT.match(module)[3] for module in c.linears if module.startswith(f"{experts}.0.")}
        parts = sorted(there) or parts
    return [f"{experts}.0.{part}" for part in parts]


LISTED = {
    "fp8": {"vLLM": V + "utils/quant_utils.py, is_layer_skipped", "SGLang": S + "utils.py, is_layer_skipped",
            "transformers": T_LISTED},
    "compressed-tensors": {"vLLM": V_CT + "utils.py, should_ignore_layer",
                           "SGLang": S_CT + "utils.py, should_ignore_layer", "transformers": T_MATCH}}
LISTED_EXPERTS = {
    "fp8": LISTED["fp8"],
    "compressed-tensors": {"vLLM": V_MOE + "compressed_tensors_moe.py, get_moe_method",
                           "SGLang": S_CONFIG + "get_moe_scheme"}}


def for_both(name, says, sources):
    def add(check):
        for kind in ("fp8", "compressed-tensors"):
            rule(name, kind, says, **sources[kind])(check)
        return check
    return add


@for_both("QUANTIZED_LISTED", "no quantized layer is in the list of those that are not", LISTED)
def quantized_listed(c, engine):
    for module in c.quantized:
        if not EXPERT.match(module) and any(is_listed(c, engine, name) for name in parts_of_fused(c, engine, module)):
            yield f"{module}: quantized, and declared not to be"


@for_both("UNQUANTIZED_LISTED", "every linear layer that is not quantized is in the list", LISTED)
def unquantized_listed(c, engine):
    for module in c.linears:
        if module in c.quantized or EXPERT.match(module):
            continue
        missing = [name for name in parts_of_fused(c, engine, module) if not is_listed(c, engine, name)]
        if missing:
            yield f"{module}: not quantized, and {' and '.join(missing)} not declared so"


@for_both("QUANTIZED_EXPERTS_LISTED", "no quantized experts are in the list, not one of a layer", LISTED_EXPERTS)
def quantized_experts_listed(c, engine):
    for experts in c.quantized_experts():
        for name in parts_of_experts(c, engine, experts):
            if is_listed(c, engine, name):
                yield f"{experts}: quantized, and {name} is declared not to be"


@for_both("UNQUANTIZED_EXPERTS_LISTED", "experts that are not quantized are in the list, by the names asked for",
          LISTED_EXPERTS)
def unquantized_experts_listed(c, engine):
    for experts in c.unquantized_experts():
        missing = [name for name in parts_of_experts(c, engine, experts) if not is_listed(c, engine, name)]
        if missing:
            yield f"{experts}: not quantized, and {' and '.join(missing)} not declared so"


@for_both("FUSED", "the parts of a layer that is made one are quantized together or not at all",
          {kind: {engine: LISTED[kind][engine] for engine in ("vLLM", "SGLang")} for kind in LISTED})
def fused(c, _):
    for module in c.quantized:
        for sibling in c.siblings(module):
            if sibling in c.linears and sibling not in c.quantized:
                yield f"{module}: fused with {sibling}, which is not quantized"


@for_both("EXPERTS", "all experts of a layer are quantized, or none",
          {"fp8": {**LISTED["fp8"], "transformers": T_FP8 + "replace_with_fp8_linear"},
           "compressed-tensors": LISTED_EXPERTS["compressed-tensors"]})
def experts_alike(c, _):
    for experts in c.quantized_experts():
        for module in c.linears:
            if module.startswith(f"{experts}.") and module not in c.quantized:
                yield f"{experts}: quantized, and {module} is not"


@rule("EXPERT_NAMES", "any", "quantized experts are a matrix each, named experts.N.PART.weight from 0 on, without gaps",
      vLLM="vllm/model_executor/layers/fused_moe/routed_experts.py, make_expert_params_mapping",
      SGLang="sglang/srt/layers/moe/fused_moe_triton/layer.py, make_expert_params_mapping")
def expert_names(c, _):
    for name, entry in c.tensors.items():
        if entry["dtype"] in EIGHT_BITS and len(entry["shape"]) > 2:
            yield f"{name}: a stack of 8-bit matrices"
    for experts, found in c.quantized_experts().items():
        every = set(range(max(number for number, _ in found) + 1))
        for part in sorted({part for _, part in found}):
            for number in sorted(every - {number for number, of in found if of == part}):
                yield f"{experts}.{number}.{part}: is not there"


def head_or_embedding(c, _):
    for module in c.quantized:
        if module.endswith("lm_head") or "embed" in module:
            yield f"{module}: quantized"


rule("HEAD", "fp8", "the head and embeddings are not quantized: linear layers and experts are",
     vLLM=V + "fp8.py, Fp8Config.get_quant_method", SGLang=S + "fp8.py, Fp8Config.get_quant_method")(head_or_embedding)


@rule("HEAD", "compressed-tensors", "a head is quantized where a target has its name only, an embedding never so",
      vLLM=V_CONFIG + "get_quant_method", SGLang=S_CONFIG + "get_lm_head_scheme")
def named_head(c, engine):
    targets = c.group.get("targets") or []
    for problem in head_or_embedding(c, engine):
        module = problem.partition(":")[0]
        by_name = any(re.match(target[3:], module) if target.startswith("re:") else module == target
                      for target in targets)
        if "embed" in module or not by_name:
            yield f"{problem}, and no target has its name"


HEAD_LISTED = {"fp8": {"transformers": T + "quantizers/base.py, get_modules_to_not_convert"},
               "compressed-tensors": {"transformers": T_MATCH}}


@for_both("HEAD_LISTED", "lm_head is a linear layer, tied or not: it is in the list, or quantized", HEAD_LISTED)
def head_listed(c, engine):
    quantizes = any(module.endswith("lm_head") for module in c.quantized)
    if not quantizes and not (c.method == "fp8" and c.list_of() is None) and not is_listed(c, engine, "lm_head"):
        yield "lm_head: not quantized, and not declared so"


@rule("NO_OTHERS", "any", "no scale, zero point or packed weight is there that no quantized layer has",
      vLLM="vllm/model_executor/models/utils.py, AutoWeightsLoader._load_module")
def no_others(c, _):
    own = "weight_scale_inv" if c.method == "fp8" else "weight_scale"
    inputs = (c.group.get("input_activations") or {}) if c.method != "fp8" else {}
    static = inputs and not inputs.get("dynamic") or c.declared.get("activation_scheme") == "static"
    for name in c.tensors:
        module, _, last = name.rpartition(".")
        if last == own and module in c.quantized or last == "input_scale" and static:
            continue
        if last in ("weight_scale", "weight_scale_inv", "weight_scale_2", "scale", "input_scale", "activation_scale",
                    "weight_zero_point", "weight_shape", "weight_packed", "weight_g_idx"):
            if module in c.linears or module in c.quantized or last.startswith("weight_"):
                yield f"{name}: not asked for"


# quant_method "fp8"


@rule("ACTIVATION_SCHEME", "fp8", "activation_scheme is there, and dynamic with blocks",
      vLLM=V + "fp8.py, Fp8Config.from_config", SGLang=S + "fp8.py, Fp8Config.from_config",
      transformers=T + "utils/quantization_config.py, FineGrainedFP8Config.post_init")
def activation_scheme(c, engine):
    scheme = c.declared.get("activation_scheme", "dynamic" if engine == "transformers" else None)
    if scheme != "dynamic":
        yield f"activation_scheme is {scheme!r}"


@rule("BLOCK_SIZE", "fp8", "weight_block_size is two sizes above zero",
      vLLM=V + "fp8.py, Fp8Config.__init__", SGLang=S + "fp8.py, Fp8Config.__init__",
      transformers=T + "utils/quantization_config.py, FineGrainedFP8Config.post_init")
def block_size(c, _):
    if c.block is None:
        yield f"weight_block_size is {c.declared.get('weight_block_size')!r}"


@rule("LIST_TYPE", "fp8", "modules_to_not_convert, or ignored_layers, is a list of names",
      vLLM=V + "fp8.py, Fp8Config.from_config", SGLang=S + "fp8.py, Fp8Config.from_config",
      transformers=T + "utils/quantization_config.py, FineGrainedFP8Config")
def list_type(c, _):
    found = c.list_of()
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        yield "the list of layers that are not quantized is none of names"


def check_dtype(c, suffix, dtypes):
    for module in c.quantized:
        entry = c.tensors.get(f"{module}.{suffix}")
        if entry and entry["dtype"] not in dtypes:
            yield f"{module}.{suffix}: {entry['dtype']} (expected {' or '.join(dtypes)})"


def check_shape(c, suffix, shapes):
    for module, (rows, cols) in c.quantized.items():
        entry = c.tensors.get(f"{module}.{suffix}")
        expected = shapes(rows, cols)
        if entry and tuple(entry["shape"]) not in expected:
            yield f"{module}.{suffix}: shape {entry['shape']} (expected {list(expected[0])})"


@rule("WEIGHT_DTYPE", "fp8", "codes are F8_E4M3: they are copied into that type, another would be converted",
      vLLM=V + "utils/fp8_utils.py, create_fp8_weight_parameter", SGLang=S + "fp8.py, create_fp8_weight_",
      transformers=T_FP8 + "FP8Linear")
def fp8_weight_dtype(c, _):
    return check_dtype(c, "weight", ("F8_E4M3",))


@rule("SCALE", "fp8", "every quantized layer has a weight_scale_inv",
      vLLM=V + "fp8.py, Fp8LinearMethod.create_weights", SGLang=S + "fp8.py, create_fp8_weight_",
      transformers=T_FP8 + "Fp8Dequantize")
def fp8_scale(c, _):
    return [f"{module}: no weight_scale_inv" for module in c.quantized if f"{module}.weight_scale_inv" not in c.tensors]


@rule("SCALE_SHAPE", "fp8", "scales are one for each block, the last ones of a row or column may be cut off",
      vLLM=V + "utils/fp8_utils.py, create_fp8_scale_parameter", SGLang=S + "fp8.py, create_fp8_weight_",
      transformers=T_FP8 + "FP8Linear")
def fp8_scale_shape(c, _):
    if c.block:
        yield from check_shape(c, "weight_scale_inv", lambda rows, cols: [c.grid(rows, cols)])


@rule("SCALE_DTYPE", "fp8", "scales are floats: they are copied into F32",
      vLLM=V + "utils/fp8_utils.py, create_fp8_scale_parameter", SGLang=S + "fp8.py, create_fp8_weight_",
      transformers=T_FP8 + "FP8Linear")
def fp8_scale_dtype(c, _):
    return check_dtype(c, "weight_scale_inv", FLOATS)


@rule("WHOLE_BLOCKS", "fp8", "no block is cut off", transformers=T_FP8 + "Fp8Dequantize._dequantize_one")
def whole_blocks(c, _):
    for module, (rows, cols) in c.quantized.items():
        grid = c.grid(rows, cols) if c.block else (1, 1)
        if rows % grid[0] != 0 or cols % grid[1] != 0:
            yield f"{module}: no whole blocks"


def rows_in_blocks(c, engine):
    """Of a layer that is made one: its parts begin with a block (vLLM), or are whole blocks (SGLang)."""
    for module, (rows, _) in c.quantized.items() if c.block else ():
        parts = c.fused_parts(module)
        if EXPERT.match(module) or not parts or "kv_a_proj_with_mqa" in parts and engine == "SGLang":
            continue
        last = engine == "vLLM" and module.endswith(f".{parts[-1]}")
        if rows % c.block[0] != 0 and not last:
            yield f"{module}: a part of a fused layer with {rows} rows, not a multiple of {c.block[0]}"


rule("MERGED_ROWS", "fp8", "the parts of a fused layer have rows in whole blocks, in vLLM all but the last",
     vLLM=V + "utils/fp8_utils.py, validate_fp8_block_shape",
     SGLang=S + "fp8.py, Fp8LinearMethod.validate_block_quant_shapes")(rows_in_blocks)


def is_refined(c, engine, rows, cols):
    """Whether blocks of experts are made smaller ones, of 32 or more, so that ranks begin with one."""
    return engine == "vLLM" and math.gcd(*c.block, rows, cols) >= 32


@rule("EXPERT_ROWS", "fp8", "the rows of an expert's gate and up are whole blocks on each rank (vLLM: of 32 or more)",
      vLLM="vllm/model_executor/layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape; then " + V +
      "utils/fp8_utils.py, validate_fp8_block_shape_moe", SGLang=S + "fp8.py, create_fp8_moe_weight_")
def expert_rows(c, engine):
    for module, (rows, cols) in c.quantized.items() if c.block else ():
        found = EXPERT.match(module)
        if not found or found[3] not in ("gate_proj", "up_proj", "w1", "w3") or rows % (c.ranks * c.block[0]) == 0:
            continue
        if rows % c.ranks != 0 or not is_refined(c, engine, rows // c.ranks, cols):
            yield f"{module}: {rows} rows are no whole blocks of {c.block[0]} on {c.ranks} ranks"


@rule("RANKS", "fp8", "each rank's columns or rows are whole blocks",
      vLLM=V + "utils/fp8_utils.py, validate_fp8_block_shape",
      SGLang=S + "fp8.py, Fp8LinearMethod.validate_block_quant_shapes")
def fp8_ranks(c, _):
    if not c.block or c.ranks < 2:
        return
    heads = c.config.get("text_config", c.config).get("num_key_value_heads") or c.ranks
    for module, (rows, cols) in c.quantized.items():
        part = module.rpartition(".")[2]
        if EXPERT.match(module):
            continue
        # Keys and values are repeated where there are more ranks than heads of them.
        ranks = min(c.ranks, heads) if part in ("k_proj", "v_proj") else c.ranks
        if part in ROW_PARALLEL and cols % (c.ranks * c.block[1]) != 0:
            yield f"{module}: {cols} columns are no whole blocks on {c.ranks} ranks"
        if part in COLUMN_PARALLEL and rows % (ranks * c.block[0]) != 0:
            yield f"{module}: {rows} rows are no whole blocks on {ranks} ranks"


# quant_method "compressed-tensors"


@rule("GROUP", "compressed-tensors", "config_groups has one group, for linear layers", **{
    "vLLM": V_CT + "utils.py, find_matched_target", "SGLang": S_CT + "utils.py, find_matched_target",
    "transformers": T_MATCH})
def ct_group(c, _):
    groups = c.declared.get("config_groups") or {}
    if len(groups) != 1:
        yield f"{len(groups)} groups in config_groups (more than one are not known here)"
    elif "Linear" not in (c.group.get("targets") or []):
        yield "targets have no \"Linear\""
    elif not isinstance(c.group.get("weights"), dict):
        yield "the group says nothing of weights"


@rule("ARGUMENTS", "compressed-tensors", "weights and inputs have known keys and values that go together",
      **at_each(CT_ARGS))
def ct_arguments(c, _):
    known = {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic", "actorder",
             "scale_dtype", "zp_dtype", "observer", "observer_kwargs"}
    for key in ("weights", "input_activations"):
        args = c.group.get(key) or {}
        for other in sorted(set(args) - known):
            yield f"{key}: {other} is no known key"
        strategy, size = args.get("strategy"), args.get("group_size")
        if (strategy == "group") != (size is not None and size > 0):
            yield f"{key}: strategy {strategy}, group_size {size}"
        if (strategy == "block") != (args.get("block_structure") is not None):
            yield f"{key}: strategy {strategy}, block_structure {args.get('block_structure')}"
        if strategy == "token" and not args.get("dynamic"):
            yield f"{key}: strategy token without dynamic"
        if args.get("dynamic") and strategy not in ("token", "tensor", "group"):
            yield f"{key}: dynamic with strategy {strategy}"
        if args.get("actorder") in (True, "group", "dynamic"):
            yield f"{key}: actorder {args['actorder']} is taken no more"


def is_mxfp8(c):
    return c.weights.get("type") == "float" and c.weights.get("strategy") == "group"


def format_of(c):
    return c.group.get("format") or c.declared.get("format")


@rule("SCHEME", "compressed-tensors", "8-bit symmetric weights with a scale a tensor, row or block, int8 with 8-bit "
      "inputs (dynamic a token, or static); MXFP8 with group_size 32 and scale_dtype uint8",
      vLLM=V_CONFIG + "_get_scheme_from_parts", SGLang=S_CONFIG + "_get_scheme_from_parts",
      transformers="compressed_tensors/compressors/format.py, infer_module_format")
def ct_scheme(c, engine):
    weights, inputs = c.weights, c.group.get("input_activations")
    if not weights:
        return
    if weights.get("num_bits") != 8 or not weights.get("symmetric", True) or weights.get("dynamic"):
        yield "weights are not 8 bits, symmetric and static"
    if is_mxfp8(c):
        if weights.get("group_size") != 32 or weights.get("scale_dtype") not in ("torch.uint8", "uint8"):
            yield f"no MXFP8: group_size {weights.get('group_size')}, scale_dtype {weights.get('scale_dtype')}"
        return
    strategies = ("tensor", "channel", "block") if weights.get("type") == "float" else ("tensor", "channel")
    if weights.get("strategy") not in strategies:
        yield f"{weights.get('type')} weights with strategy {weights.get('strategy')}"
    if engine == "transformers":
        return  # runs with inputs as they are
    if weights.get("type") != "int" and inputs is None:
        return  # runs with inputs as they are
    inputs = inputs or {}
    token = inputs.get("strategy") == "token" and inputs.get("dynamic")
    static = inputs.get("strategy") == "tensor" and not inputs.get("dynamic") and inputs.get("symmetric", True)
    fits = inputs.get("num_bits") == 8 and inputs.get("type") == weights.get("type")
    any_dynamic = weights.get("type") == "float" and inputs.get("dynamic")
    if not (fits and (token or static or any_dynamic)):
        yield f"inputs: {inputs.get('num_bits')} bits, {inputs.get('type')}, strategy {inputs.get('strategy')}"


@rule("FORMAT", "compressed-tensors", "format is that of the weights: by it inputs are quantized, and weights unpacked",
      vLLM=V_CT + "utils.py, is_activation_quantization_format",
      SGLang=S_CT + "utils.py, is_activation_quantization_format",
      transformers="compressed_tensors/compressors/base.py, BaseCompressor")
def ct_format(c, _):
    if not c.weights:
        return
    wanted = "mxfp8-quantized" if is_mxfp8(c) else f"{c.weights.get('type')}-quantized"
    if format_of(c) not in (wanted, None if is_mxfp8(c) else "naive-quantized"):
        yield f"format is {format_of(c)} (expected {wanted})"


@rule("STATUS", "compressed-tensors", "quantization_status is compressed, or weights are taken for what they were",
      transformers=T + "utils/quantization_config.py, is_quantization_compressed")
def ct_status(c, _):
    if c.declared.get("quantization_status") != "compressed":
        yield f"quantization_status is {c.declared.get('quantization_status')!r}"


@rule("LIST_TYPE", "compressed-tensors", "ignore is a list of names where it is there, not null",
      vLLM=V_CONFIG + "from_config", SGLang=S_CONFIG + "from_config")
def ct_list_type(c, _):
    found = c.declared.get("ignore", [])
    if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        yield "ignore is no list of names"


@rule("KV_CACHE", "compressed-tensors", "kv_cache_scheme is null, or static 8-bit floats by tensor (vLLM: or head)",
      vLLM=V_CT + "compressed_tensors.py, validate_kv_cache_scheme",
      SGLang=S_CT + "compressed_tensors.py, is_supported_scheme")
def ct_kv_cache(c, engine):
    scheme = c.declared.get("kv_cache_scheme")
    if scheme is None:
        return
    strategies = ("tensor", "attn_head") if engine == "vLLM" else ("tensor",)
    dynamic = engine == "SGLang" and scheme.get("dynamic", False)
    if (scheme.get("type"), scheme.get("num_bits")) != ("float", 8) or not scheme.get("symmetric", engine == "SGLang") \
            or scheme.get("strategy") not in strategies or dynamic:
        yield "kv_cache_scheme is another"


@rule("SPARSITY", "compressed-tensors", "sparsity_config has no targets",
      vLLM=V_CONFIG + "_parse_sparsity_config", SGLang=S_CONFIG + "get_linear_scheme")
def ct_sparsity(c, _):
    if (c.declared.get("sparsity_config") or {}).get("targets"):
        yield "sparsity_config has targets"


@rule("TRANSFORM", "compressed-tensors", "transform_config is empty: what the files have is all that is computed",
      SGLang=S_CONFIG + "from_config, which reads none")
def ct_transform(c, _):
    if c.declared.get("transform_config"):
        yield "transform_config is there"


@rule("WEIGHT_DTYPE", "compressed-tensors", "codes are F8_E4M3 or I8, as type says: they are copied into that type",
      vLLM=V + "utils/fp8_utils.py, create_fp8_weight_parameter; " + V_SCHEMES.removeprefix(V) +
      "compressed_tensors_w8a8_int8.py, create_weights",
      SGLang=S_SCHEMES + "compressed_tensors_w8a8_fp8.py and ..._int8.py, create_weights",
      transformers=CT_ARGS + ".pytorch_dtype")
def ct_weight_dtype(c, _):
    return check_dtype(c, "weight", ("F8_E4M3",) if c.weights.get("type") == "float" else ("I8",))


@rule("SCALE", "compressed-tensors", "every quantized layer has a weight_scale",
      vLLM=V_SCHEMES + "compressed_tensors_w8a8_fp8.py, create_weights",
      SGLang=S_SCHEMES + "compressed_tensors_w8a8_fp8.py, create_weights",
      transformers="compressed_tensors/compressors/naive_quantized/base.py, compression_param_names")
def ct_scale(c, _):
    return [f"{module}: no weight_scale" for module in c.quantized if f"{module}.weight_scale" not in c.tensors]


@rule("SCALE_SHAPE", "compressed-tensors", "scales are [1], [rows, 1], [rows, columns / 32], or a grid of blocks",
      vLLM="vllm/model_executor/parameter.py, ChannelQuantScaleParameter and PerTensorScaleParameter",
      SGLang="sglang/srt/layers/parameter.py, ChannelQuantScaleParameter and PerTensorScaleParameter",
      transformers="compressed_tensors/quantization/lifecycle/initialize.py, initialize_qparams")
def ct_scale_shape(c, engine):
    def expected(rows, cols):
        if c.weights.get("strategy") == "tensor":
            return [(1,)] if engine == "transformers" else [(1,), ()]
        if c.weights.get("strategy") == "group":
            return [(rows, cols // (c.weights.get("group_size") or 32))]
        return [c.grid(rows, cols) if c.block else (rows, 1)]
    return check_shape(c, "weight_scale", expected)


@rule("SCALE_DTYPE", "compressed-tensors", "scales are floats, copied into F32; those of MXFP8 are U8, as they are",
      vLLM=V + "utils/fp8_utils.py, create_fp8_scale_parameter; utils/mxfp8_utils.py, MXFP8_SCALE_DTYPE",
      SGLang=S_SCHEMES + "compressed_tensors_w8a8_fp8.py, create_weights",
      transformers="compressed_tensors/compressors/mx_utils.py, decompress_mx_scale")
def ct_scale_dtype(c, _):
    return check_dtype(c, "weight_scale", ("U8",) if is_mxfp8(c) else FLOATS)


@rule("INPUT_SCALE", "compressed-tensors", "static inputs have an input_scale",
      vLLM=V_SCHEMES + "compressed_tensors_w8a8_fp8.py, create_weights",
      SGLang=S_SCHEMES + "compressed_tensors_w8a8_fp8.py, create_weights")
def ct_input_scale(c, _):
    inputs = c.group.get("input_activations") or {}
    for module in c.quantized if inputs and not inputs.get("dynamic") else ():
        if f"{module}.input_scale" not in c.tensors:
            yield f"{module}: no input_scale"


@rule("WHOLE_GROUPS", "compressed-tensors", "columns are whole groups, in vLLM on each rank",
      vLLM=V_SCHEMES + "compressed_tensors_w8a8_mxfp8.py, create_weights",
      transformers="compressed_tensors/quantization/lifecycle/initialize.py, initialize_qparams")
def ct_whole_groups(c, engine):
    size = c.weights.get("group_size") or 0
    for module, (_, cols) in c.quantized.items() if is_mxfp8(c) and size > 0 else ():
        split = engine == "vLLM" and module.rpartition(".")[2] in ROW_PARALLEL
        if cols % (size * (c.ranks if split else 1)) != 0:
            yield f"{module}: {cols} columns are no whole groups of {size}"


rule("MERGED_ROWS", "compressed-tensors", "the parts of a fused layer, all but the last, have rows in whole blocks",
     vLLM=V + "utils/fp8_utils.py, validate_fp8_block_shape",
     SGLang=S + "fp8_utils.py, validate_fp8_block_shape")(lambda c, _: rows_in_blocks(c, "vLLM"))


# Formats that an engine does not take


@rule("EXPERT_SCHEME", "compressed-tensors", "experts have a scale a row with inputs a token, or are floats in blocks "
      "or with a scale a tensor, inputs as well; int8 and MXFP8 run in vLLM only (SGLang: int8 on NPU)", limit=True,
      vLLM=V_MOE + "compressed_tensors_moe_w8a8_fp8.py and ..._int8.py, __init__",
      SGLang=S_SCHEMES + "compressed_tensors_w8a8_fp8_moe.py, __init__; " + S_CONFIG.removeprefix(S) + "get_moe_scheme",
      transformers=T + "integrations/compressed_tensors.py, CompressedTensorsDequantize.convert")
def expert_scheme(c, engine):
    if not c.quantized_experts() or not c.weights:
        return
    of = (c.weights.get("strategy"), (c.group.get("input_activations") or {}).get("strategy"))
    if is_mxfp8(c):
        if engine != "vLLM":
            yield "MXFP8 experts"
    elif c.weights.get("type") == "int":
        if engine != "vLLM" or of != ("channel", "token"):
            yield f"int8 experts with strategies {of[0]} and {of[1]}"
    elif engine != "transformers" and of[0] != "block" and of not in (("tensor", "tensor"), ("channel", "token")):
        yield f"FP8 experts with strategies {of[0]} and {of[1]}"


@rule("MXFP8", "compressed-tensors", "MXFP8 is taken as quant_method mxfp8 only, not as compressed-tensors", limit=True,
      SGLang=S_CONFIG + "_get_scheme_from_parts")
def no_mxfp8(c, _):
    if c.weights and is_mxfp8(c):
        yield "mxfp8-quantized"


class Checker:
    def __init__(self, folder, ranks=1):
        self.folder, self.ranks = Path(folder), ranks
        self.config = json.loads((self.folder / "config.json").read_text())
        inner = (self.config.get("text_config") or {}).get("quantization_config")
        self.declared = self.config.get("quantization_config") or inner or self.config.get("compression_config") or {}
        self.method = self.declared.get("quant_method")
        self.group = next(iter((self.declared.get("config_groups") or {}).values()), {})
        self.weights = self.group.get("weights") or {}
        block = self.declared.get("weight_block_size") if self.method == "fp8" else self.weights.get("block_structure")
        pair = isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)
        self.block = block if pair else None
        found = self.list_of()
        self.listed = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        self.read_files()
        self.quantized = {name[: -len(".weight")]: tuple(entry["shape"]) for name, entry in self.tensors.items()
                          if name.endswith(".weight") and entry["dtype"] in EIGHT_BITS and len(entry["shape"]) == 2}
        # Matrices that engines make a linear layer of, quantized or not.
        self.linears = {name[: -len(".weight")] for name, entry in self.tensors.items()
                        if name.endswith(".weight") and len(entry["shape"]) == 2
                        and entry["dtype"] in FLOATS + EIGHT_BITS and not NO_LINEAR.search(name[: -len(".weight")])}

    def list_of(self):
        if self.method != "fp8":
            return self.declared.get("ignore")
        return self.declared.get("ignored_layers") or self.declared.get("modules_to_not_convert")

    def read_files(self):
        self.files = {path.name: read_header(path) for path in sorted(self.folder.glob("*.safetensors"))}
        self.tensors, self.file_of, self.twice, self.total = {}, {}, [], 0
        for file, (_, header, size) in self.files.items():
            self.twice += [name for name in header if name in self.tensors]
            self.tensors.update(header)
            self.file_of.update(dict.fromkeys(header, file))
            self.total += size
        path = self.folder / "model.safetensors.index.json"
        self.index = json.loads(path.read_text()) if path.exists() else None

    def grid(self, rows, cols):
        return (-(-rows // self.block[0]), -(-cols // self.block[1]))

    def fused_parts(self, module):
        """The parts of the fused layer that this is one of, if there are more here."""
        parent, _, part = module.rpartition(".")
        for parts in FUSED:
            if part in parts and all(f"{parent}.{other}" in self.linears for other in parts):
                return parts
        return ()

    def siblings(self, module):
        parent, _, part = module.rpartition(".")
        return [f"{parent}.{other}" for parts in FUSED if part in parts for other in parts if other != part]

    def is_part(self, module):
        return any(module.rpartition(".")[2] in parts for parts in FUSED)

    def quantized_experts(self):
        """By the module of all experts: the numbers and parts of the quantized ones."""
        out = {}
        for module in self.quantized:
            if found := EXPERT.match(module):
                out.setdefault(found[1], set()).add((int(found[2]), found[3]))
        return out

    def unquantized_experts(self):
        there = {found[1] for module in self.linears if (found := EXPERT.match(module))}
        for name, entry in self.tensors.items():
            found = STACK.match(name.removesuffix(".weight"))
            if found and len(entry["shape"]) == 3 and entry["dtype"] in FLOATS:
                there.add(found[1] or f"{found[3]}.experts")
        return sorted(there - set(self.quantized_experts()))

    def run(self, only=None):
        """Problems as lines; only: of one engine, with its limits."""
        out = []
        for one in RULES:
            if one.method not in ("any", self.method) or one.limit and not only:
                continue
            for engine, source in one.sources.items():
                if only and engine in ENGINES and engine != only:
                    continue
                out += [f"{engine}: {one.name}: {problem} ({source})" for problem in one.check(self, engine)]
        return out


def list_rules():
    for one in RULES:
        kind = "" if one.method == "any" else f" [{one.method}]"
        print(f"{one.name}{kind}{' (limit)' if one.limit else ''}: {one.says}")
        for engine, source in one.sources.items():
            print(f"  {engine} {VERSIONS.get(engine, '')}: {source}".replace(" :", ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel ranks")
    parser.add_argument("--engine", choices=ENGINES, help="the rules of one, and what it does not take at all")
    parser.add_argument("--rules", action="store_true", help="list the rules and where they come from")
    options = parser.parse_args()
    if options.rules:
        list_rules()
        return 0
    if options.folder is None:
        parser.error("a folder is needed")
    checker = Checker(options.folder, options.tp)
    problems = checker.run(options.engine)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"good: {len(checker.quantized)} quantized of {len(checker.tensors)} tensors")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
