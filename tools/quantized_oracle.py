#!/usr/bin/env python3
"""Checks that what `qgen quantize` writes loads unchanged in other programs, and computes the same there.

    pip install -r tools/requirements-oracle.txt
    python tools/quantized_oracle.py [--qgen build/qgen] [--model FOLDER ...] [--only TEXT] [--keep DIR]

Makes tiny random models with transformers and takes unquantized models by --model as well, quantizes each with qgen to
every format, loads the result elsewhere, and compares logits with those of qgen's reference for the same files. Prints
a Markdown table; exit code 1 where something fails. The loaders:

    transformers          fp8, by its own integration; without a GPU that dequantizes while loading. The layers that
                          it would make with one are only compared with the files, by name and shape
    compressed-tensors    the folder as it is: transformers leaves the matrices to this package, which unpacks them
                          before the first forward pass. It would also round the inputs of layers to 8 bits, as
                          config.json declares; quantization_enabled = False, set at each layer, leaves that out
    ... dequantize        with dequantize=True: plain layers, whose inputs nothing rounds. Here the package rounds
                          matrices to the type of their scales
    ... dequantizer       of experts as int8 or mxfp8, which transformers cannot stack: the package's
                          CompressedTensorsDequantizer, with scales widened to F32 first
    gguf                  q8_0: transformers reads keys and tensors of the file, and the package gguf dequantizes these
    gguf, config.json     the same tensors in a model by the original's config.json: the keys say the same
    llama.cpp             q8_0: the file as it is; llama.cpp rounds inputs of layers to 8 bits, 32 columns at a time
    llama.cpp, F32        the same keys, and tensors that the package gguf dequantized: what llama.cpp does in floats

llama.cpp is that of the package xllamacpp; where it is not installed, these rows are left out. It gives
log-probabilities, of up to 1000 tokens at each position, which take the place of logits.

Of a transformers model every parameter is compared too: bit by bit with code times scale, or the copied tensor, as read
here from the files; and with the original's, normwise (the column "weights": the largest difference). Random matrices
have rows, columns and blocks of many sizes, so that a scale that is left out, or in a wrong place, shows. Matrices that
are stored (inputs, outputs), GPT-2's, are not here: as int8-tensor qgen alone reads them.
"""

import argparse
import contextlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Before torch and transformers are imported.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import gguf
import numpy as np
import torch
import transformers
from compressed_tensors.entrypoints.convert.converters import CompressedTensorsDequantizer
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.quantizers import AutoHfQuantizer

try:
    import xllamacpp
except ImportError:
    xllamacpp = None

VOCAB, TOKENS = 320, 24
FORMATS = ("fp8", "fp8-channel", "fp8-tensor", "int8", "int8-tensor", "mxfp8", "q8_0")

# Of logits, the largest difference divided by the largest logit. Exact weights, F32 activations on one side and double
# precision on the other: roundings of 6e-8 that add up to some 1e-6, and to more in deep models.
EXACT = 5e-5
# Each weight is off by up to 2^-9 of itself, as if at random: some 1e-3 in the output of each layer.
BF16_WEIGHTS = 3e-2
# Inputs with 8 bits for 32 columns: each is off by up to 1/254 of the largest of them, which adds up to some 5e-2.
INPUTS_IN_8_BITS = 0.1
# llama.cpp looks the GELU of a CPU up in a table of F16, 2^-11 of each, which adds up to some 1e-3.
GELU_TABLE = 5e-3
# More where routers may choose another expert, and where recurrences keep what was rounded.
STATES_IN_8_BITS = 0.5
# qgen's CPU engine with floats everywhere, beside its reference.
CPU = 1e-4
MOST_PROBABILITIES = 1000
# What quantizing may do to a matrix, normwise: roundings to 4 bits or to 1/127 of the largest in a group.
MOST_FORMATS = 0.05
WEIGHTS = {"int8-tensor": 0.5}

SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": None, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}  # fmt: skip
# A head of its own, and several files; a tied head; biases, and a width that is no whole blocks; experts; scales in
# F32. What transformers does not read in GGUF files (head_dim of Qwen3, the width of experts) is its default.
INPUTS = {
    "llama": ("llama", {"tie_word_embeddings": False}, torch.bfloat16, "400KB"),
    "qwen3": ("qwen3", {"tie_word_embeddings": True, "head_dim": 128}, torch.bfloat16, "1GB"),
    "qwen2": ("qwen2", {"tie_word_embeddings": True, "intermediate_size": 448}, torch.bfloat16, "1GB"),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 768,
                                "norm_topk_prob": True, "tie_word_embeddings": False}, torch.bfloat16, "1GB"),
    "llama-f32": ("llama", {"tie_word_embeddings": False}, torch.float32, "1GB"),
}  # fmt: skip
# Those of which only the GGUF file is looked at, in llama.cpp alone: transformers reads no such file.
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
         "num_hidden_layers": 4, "tie_word_embeddings": False,
         "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25,
                             "mrope_section": [3, 3, 2]}}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "norm_topk_prob": True,
           "shared_expert_intermediate_size": 160, "tie_word_embeddings": False}  # fmt: skip
GROUPED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_shared_experts": 2,
           "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "tie_word_embeddings": False,
           "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}}  # fmt: skip
LATENT = {"q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
          "head_dim": 32, "num_key_value_heads": 4, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
          "rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                              "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0}}  # fmt: skip
# So that YaRN's ramp of heads of 64 for 32 positions ends at pair 6: llama.cpp rounds its ends, and
# gpt-oss, of transformers, does not.
WHOLE_RAMP = 1.0000001 * math.exp(64 * math.log(32 / (2 * math.pi)) / 12)
GEMMA4 = {"head_dim": 32, "global_head_dim": 64, "sliding_window": 8, "num_hidden_layers": 4, "final_logit_softcapping": 8.0,
          "layer_types": ["sliding_attention", "full_attention"] * 2, "tie_word_embeddings": True,
          "rope_parameters": {
              "full_attention": {"rope_type": "proportional", "rope_theta": 8000.0, "partial_rotary_factor": 0.25},
              "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}}  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 2, "mamba_d_state": 32, "mamba_expand": 2, "mamba_d_conv": 4,
         "layer_types": ["mamba", "attention", "mamba"], "num_hidden_layers": 3, "embedding_multiplier": 3.0,
         "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1, "shared_intermediate_size": 192,
         "tie_word_embeddings": True}  # fmt: skip
NEMOTRON = {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 32, "num_hidden_layers": 4,
            "layer_norm_epsilon": 1e-5, "time_step_min": 1e-9, "time_step_floor": 1e-9, "tie_word_embeddings": False}  # fmt: skip
GGUF_INPUTS = {
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention", "conv", "full_attention"], "num_hidden_layers": 4,
                      "block_auto_adjust_ff_dim": False, "norm_eps": 1e-5, "tie_word_embeddings": True}, torch.bfloat16, "1GB"),
    "granite_hybrid": ("granitemoehybrid", MAMBA | {"num_local_experts": 0}, torch.bfloat16, "1GB"),
    "granite_hybrid-moe": ("granitemoehybrid", MAMBA | {"num_local_experts": 4, "num_experts_per_tok": 2,
                                                        "intermediate_size": 96}, torch.bfloat16, "1GB"),
    "granite-4-dense": ("granitemoehybrid", MAMBA | {"num_local_experts": 0, "layer_types": ["attention"] * 3,
                                                     "position_embedding_type": "rope"}, torch.bfloat16, "1GB"),
    "nemotron_h": ("nemotron_h", NEMOTRON | {"hybrid_override_pattern": "M-*-"}, torch.bfloat16, "1GB"),
    "nemotron_h-moe": ("nemotron_h", NEMOTRON | {
        "hybrid_override_pattern": "ME*E", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "moe_shared_expert_intermediate_size": 160, "n_shared_experts": 1, "norm_topk_prob": True, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 2.5}, torch.bfloat16, "1GB"),
    "hunyuan_moe": ("hunyuan_v1_moe", {"head_dim": 64, "num_experts": 4, "moe_topk": [2, 2], "num_shared_expert": [1, 1],
                                       "intermediate_size": 96, "moe_intermediate_size": [96, 96],
                                       "tie_word_embeddings": False}, torch.bfloat16, "1GB"),
    "deepseek_v3": ("deepseek_v3", GROUPED | LATENT, torch.bfloat16, "1GB"),
    "glm4_moe_lite": ("glm4_moe_lite", GROUPED | LATENT | {
        "n_group": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}, torch.bfloat16, "1GB"),
    "qwen3_5": ("qwen3_5_text", DELTA, torch.bfloat16, "1GB"),
    "qwen3_5_moe": ("qwen3_5_moe_text", DELTA | EXPERTS, torch.bfloat16, "1GB"),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"norm_topk_prob": False}, torch.bfloat16, "1GB"),
    "glm4_moe": ("glm4_moe", GROUPED, torch.bfloat16, "1GB"),
    "qwen3_next": ("qwen3_next", DELTA | EXPERTS, torch.bfloat16, "1GB"),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 96, "sliding_window": 8,
                            "num_hidden_layers": 3, "tie_word_embeddings": False,
                            "rope_parameters": {"rope_type": "yarn", "rope_theta": WHOLE_RAMP, "factor": 4.0, "beta_fast": 32.0,
                                                "beta_slow": 1.0, "truncate": False,
                                                "original_max_position_embeddings": 32}}, torch.bfloat16, "1GB"),
    "llama4": ("llama4_text", {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size": 96,
                               "intermediate_size_mlp": 160, "num_hidden_layers": 4, "interleave_moe_layer_step": 2,
                               "tie_word_embeddings": False,
                               "rope_parameters": {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0,
                                                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                   "original_max_position_embeddings": 32}}, torch.bfloat16, "1GB"),
    "ernie4_5_moe": ("ernie4_5_moe", {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 96, "num_hidden_layers": 3,
                                      "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
                                      "tie_word_embeddings": False}, torch.bfloat16, "1GB"),
    "gemma4": ("gemma4_text", GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0,
                                        "hidden_size_per_layer_input": 0}, torch.bfloat16, "1GB"),
    "gemma4-moe": ("gemma4_text", GEMMA4 | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                            "moe_intermediate_size": 96, "num_kv_shared_layers": 0,
                                            "hidden_size_per_layer_input": 0}, torch.bfloat16, "1GB"),
    "gemma4-small": ("gemma4_text", GEMMA4 | {"num_kv_shared_layers": 2, "use_double_wide_mlp": True,
                                              "hidden_size_per_layer_input": 32,
                                              "vocab_size_per_layer_input": VOCAB}, torch.bfloat16, "1GB"),
    "minimax_m2": ("minimax_m2", {"num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 32,
                                  "tie_word_embeddings": False}, torch.bfloat16, "1GB"),
}  # fmt: skip


# ---- what is quantized ----


def randomize(model, generator):
    """Matrices whose rows, columns and blocks of 128 x 128 differ in size; norms and biases too have their values."""

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data = (1 + draw(*parameter.shape) * 0.2).to(parameter.dtype)
        elif parameter.ndim == 1:
            parameter.data = (draw(*parameter.shape) * 0.2).to(parameter.dtype)
        else:
            *stack, rows, cols = parameter.shape
            sizes = draw(*stack, rows, 1) * 0.3 + draw(*stack, 1, cols) * 0.3
            blocks = draw(*stack, -(-rows // 128), -(-cols // 128)) * 0.5
            sizes = sizes + blocks.repeat_interleave(128, -2).repeat_interleave(128, -1)[..., :rows, :cols]
            parameter.data = (draw(*parameter.shape) * sizes.exp() / cols**0.5).to(parameter.dtype)


def write_tokenizer(folder, over_words=True):
    """BPE, since llama.cpp wants a tokenizer of a known kind in each file: byte-level over words, or over whole texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [letter for letter in alphabet if letter.isascii() and letter.islower()]
    merges = [(a, b) for a in letters for b in letters][: VOCAB - len(alphabet) - 2]
    texts = [*alphabet, *(a + b for a, b in merges)]
    if not over_words:  # bytes that are no letters, and letters, a space among them
        single = ["\u2581", *letters]
        rest = VOCAB - 3 - 256 - len(single)
        merges = merges[:rest]
        texts = [*(f"<0x{byte:02X}>" for byte in range(256)), *single, *(a + b for a, b in merges)]
    vocab = {text: i for i, text in enumerate(["<begin>", "<end>", *([] if over_words else ["<unk>"]), *texts])}
    if over_words:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_special_tokens(["<begin>", "<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<begin>", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def make_input(name, folder):
    kind, changes, dtype, shard_size = (INPUTS | GGUF_INPUTS)[name]
    config = transformers.AutoConfig.for_model(kind, **SHAPE | changes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    randomize(model, torch.Generator().manual_seed(sum(map(ord, name))))
    model.save_pretrained(folder, max_shard_size=shard_size)
    write_tokenizer(folder, over_words=not kind.startswith("gemma4"))


# ---- qgen ----


def run_qgen(qgen, *arguments):
    result = subprocess.run([qgen, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"qgen {arguments[0]}, exit code {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def qgen_logits(qgen, model, ids, *device):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "logits.f32")
        run_qgen(qgen, "score", "-m", model, "--tokens", ",".join(map(str, ids)), "--logits", path, *device)
        return np.fromfile(path, np.float32).reshape(len(ids), -1).astype(np.float64)


# ---- transformers ----


class Files:
    """A folder's tensors as they must arrive."""

    def __init__(self, folder):
        self.stored = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                self.stored |= {name: file.get_tensor(name) for name in file.keys()}
        self.scales = {name.removesuffix("_inv").removesuffix("_scale"): tensor for name, tensor in self.stored.items()
                       if name.endswith((".weight_scale", ".weight_scale_inv"))}  # fmt: skip
        self.bf16_scales = any(scale.dtype == torch.bfloat16 for scale in self.scales.values())
        self.tensors = {name: self.dequantized(name) for name in self.stored if ".weight_scale" not in name}

    def dequantized(self, name):
        """A tensor as F32."""
        out = self.stored[name].float()
        if name in self.scales:
            scale = self.scales[name]
            scale = torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()
            if scale.numel() > 1:
                for axis in (0, 1):
                    scale = scale.repeat_interleave(out.shape[axis] // scale.shape[axis], axis)
            out *= scale
        return out

    def experts(self, name):
        """Of a stack in transformers the names of each expert's matrices in the files."""
        stem, _, stack = name.rpartition(".")
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[stack]
        out = []
        while f"{stem}.{len(out)}.{parts[0]}.weight" in self.tensors:
            out.append([f"{stem}.{len(out)}.{part}.weight" for part in parts])
        return out

    def parameter(self, name):
        if name in self.tensors:
            return self.tensors[name]
        return torch.stack([torch.cat([self.tensors[part] for part in parts]) for parts in self.experts(name)])

    def beside(self, model):
        for name, parameter in model.named_parameters():
            if not name.endswith((".weight_scale", ".weight_zero_point")):  # left behind by compressed-tensors
                yield name, parameter, self.parameter(name)

    def check(self, model, rounded=False):
        """Every parameter of a model, where `rounded` also those that are rounded to BF16."""
        wrong = []
        for name, parameter, want in self.beside(model):
            if not torch.equal(parameter, want) and not (rounded and torch.equal(parameter, want.bfloat16().float())):
                differ = int((parameter != want).sum()) if parameter.shape == want.shape else "all"
                wrong.append(f"{name} ({differ} of {want.numel()})")
        if wrong:
            raise RuntimeError("other parameters than in the files: " + ", ".join(wrong))

    def largest_error(self, model):
        """Of a model's parameters, each normwise."""
        return max(float((parameter - want).norm() / want.norm()) for _, parameter, want in self.beside(model))


def load(folder, **more):
    with contextlib.redirect_stderr(io.StringIO()):  # progress bars
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
            output_loading_info=True, **more)  # fmt: skip
    problems = {key: sorted(map(str, names)) for key, names in info.items() if names}
    if problems:
        raise RuntimeError(f"loaded with {problems}")
    return model.eval()


def check_fp8_layers(folder):
    """With a GPU transformers makes layers of its own by config.json: they must be those with scales in the files."""
    files = Files(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    AutoHfQuantizer.from_config(config.quantization_config)._process_model_before_weight_loading(model)
    wrong, seen = [], set()
    for name, parameter in model.named_parameters():
        if not name.endswith("_scale_inv"):
            continue
        name = name.removesuffix("_scale_inv")
        for parts in files.experts(name) if ".experts." in name else [[name]]:
            grids = [files.scales[part].shape for part in parts if part in files.scales]
            rows = sum(grid[0] for grid in grids)
            if len(grids) < len(parts) or parameter.shape[-2:] != (rows, grids[0][1]):
                wrong.append(f"{name} has no such scales")
            seen |= set(parts)
    wrong += [f"{name} has no quantized layer" for name in files.scales if name not in seen]
    if wrong:
        raise RuntimeError("layers by config.json: " + ", ".join(wrong))


def by_transformers(folder, source):
    check_fp8_layers(folder)
    return as_declared(folder, source)


def as_declared(folder, _source):
    model = load(folder)
    for module in model.modules():
        if hasattr(module, "quantization_scheme"):
            module.quantization_enabled = False
    if hasattr(model, "ct_decompress_hook"):  # what would come before the first forward pass
        with contextlib.redirect_stderr(io.StringIO()):
            model.hf_quantizer.compressor.decompress_model(model)
    return model


def while_loading(folder, _source):
    model = load(folder, quantization_config=transformers.CompressedTensorsConfig(dequantize=True))
    if any(hasattr(module, "quantization_scheme") for module in model.modules()):
        raise RuntimeError("layers that are still quantized")
    return model


def dequantized_before(folder, _source):
    files = Files(folder)
    stored = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in files.stored.items()}
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    # It takes every matrix for a linear layer's, embeddings as well.
    others = [name.removesuffix(".weight") for name in files.tensors if name not in files.scales]
    tensors = CompressedTensorsDequantizer(folder, others, torch.float32).validate(stored)
    with tempfile.TemporaryDirectory() as plain:
        Path(plain, "config.json").write_text(json.dumps(config))
        save_file(tensors, Path(plain, "model.safetensors"), {"format": "pt"})
        return load(plain)


def from_gguf(path, _source):
    return load(path.parent, gguf_file=path.name)


def from_gguf_tensors(path, source):
    return load(path.parent, gguf_file=path.name, config=transformers.AutoConfig.from_pretrained(source))


def forward(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


# ---- llama.cpp ----


def write_f32(path, out):
    """The same GGUF file with dequantized tensors."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            part = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], part)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LogProbabilities:
    """After each token; NaN for those that are not asked for."""

    def __init__(self, values):
        self.values = values


def llama_cpp(path, ids):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers, parameters.cpuparams.n_threads = 64, 1, 0, 2
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.warmup, parameters.fit_params, parameters.verbosity = False, False, -1
    server = xllamacpp.Server(parameters)
    vocab = gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens").contents()
    count = min(len(vocab), MOST_PROBABILITIES)
    # A token that is text by itself, or no probabilities are told; what is told comes from before this is added.
    always = [[vocab.index("a"), 1000.0]]
    out = np.full((len(ids), len(vocab)), np.nan)
    for i in range(len(ids)):
        answer = server.handle_completions({"prompt": ids[: i + 1], "n_predict": 1, "n_probs": count, "temperature": 0,
                                            "cache_prompt": False, "post_sampling_probs": False,
                                            "logit_bias": always})  # fmt: skip
        if answer["usage"]["prompt_tokens"] != i + 1:
            raise RuntimeError(f"llama.cpp read {answer['usage']['prompt_tokens']} tokens, not {i + 1}")
        likeliest = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        out[i, [token["id"] for token in likeliest]] = [token["logprob"] for token in likeliest]
        if np.isfinite(out[i]).sum() != count:
            raise RuntimeError(f"llama.cpp gave {np.isfinite(out[i]).sum()} log-probabilities, not {count}")
    return LogProbabilities(out)


def llama_cpp_f32(path, ids):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, path.name)
        write_f32(path, out)
        return llama_cpp(out, ids)


# ---- the comparison ----


def loaders(form, files):
    """What makes a transformers model of a format: its name, the function, and whether it rounds weights to BF16."""
    if form == "q8_0":
        yield "gguf", from_gguf, False
        yield "gguf, config.json", from_gguf_tensors, False
    elif form == "fp8":
        yield "transformers", by_transformers, False
    elif form in ("int8", "int8-tensor", "mxfp8") and any(".experts." in name for name in files.scales):
        yield "compressed-tensors, dequantizer", dequantized_before, False
    else:
        yield "compressed-tensors", as_declared, False
        yield "compressed-tensors, dequantize", while_loading, files.bf16_scales


def log_probabilities(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def differences(found, expected):
    """The largest of logits, as a part of the largest logit, and the largest of log-probabilities."""
    largest = np.abs(expected).max()
    if isinstance(found, LogProbabilities):
        probabilities = np.nanmax(np.abs(found.values - log_probabilities(expected)))
        return probabilities / largest, probabilities
    probabilities = np.abs(log_probabilities(found) - log_probabilities(expected)).max()
    return np.abs(found - expected).max() / largest, probabilities


class Table:
    def __init__(self):
        self.failures = []
        print("| input | format | quantized | loader | weights | logits | limit | log-probabilities | |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)

    def add(self, *cells):
        print(f"| {' | '.join(map(str, cells))} |", flush=True)

    def row(self, place, loader, found, expected, limit, error=None):
        logits, probabilities = differences(found, expected)
        good = logits <= limit  # not where they are NaN
        if not good:
            self.failures.append(f"{', '.join(place)}, {loader}: logits differ by {logits:.2g} (at most {limit:.0e})")
        weights = "" if error is None else f"{error:.3f}"
        numbers = f"{logits:.1e}", f"{limit:.0e}", f"{probabilities:.1e}"
        self.add(*place, loader, weights, *numbers, "" if good else "FAIL")

    def failed(self, place, loader, error):
        self.failures.append(f"{', '.join(place)}, {loader}: {type(error).__name__}: {error}")
        self.add(*place, loader, "", "", "", "", "FAIL")

    @contextlib.contextmanager
    def attempt(self, place, loader):
        try:
            yield
        except Exception as error:  # whatever a library says
            self.failed(place, loader, error)


def compare(table, name, source, form, options, scratch):
    out = scratch / f"{name}-{form}{'.gguf' if form == 'q8_0' else ''}"
    config = json.loads((source / "config.json").read_text())
    ids = [(7 + 37 * i * i) % config["vocab_size"] for i in range(TOKENS)]
    place = (name, form, "0")
    try:
        report = run_qgen(options.qgen, "quantize", "-m", source, "--to", form, "--out", out, "--force",
                          "--verify", 0, "--report", "json")  # fmt: skip
        place = (name, form, str(sum(file["quantized"] for file in json.loads(report)["files"])))
        expected = qgen_logits(options.qgen, out, ids, "--device", "reference")
        on_cpu = qgen_logits(options.qgen, out, ids, "--device", "cpu", "--activations", "f32", "--kv", "f32")
    except RuntimeError as error:
        if "no matrix can be quantized" in str(error):
            return table.add(*place, "none: no matrix can be quantized", "", "", "", "", "")
        return table.failed(place, "qgen", error)
    table.row(place, "qgen, CPU", on_cpu, expected, CPU)
    original, files = Files(source), None
    if form != "q8_0":
        files = Files(out)
        if len(files.scales) != int(place[2]):
            table.failed(place, "files", ValueError(f"{len(files.scales)} quantized matrices"))
        written = json.loads((out / "config.json").read_text())
        if {key: value for key, value in written.items() if key != "quantization_config"} != config:
            table.failed(place, "config.json", ValueError("other values than the original's"))
    for loader, model_of, rounded in loaders(form, files) if name not in GGUF_INPUTS else []:
        with table.attempt(place, loader):
            # Of a quantized model transformers leaves other tensors in their types, and refuses its own float().
            model = torch.nn.Module.float(model_of(out, source))
            if files:
                files.check(model, rounded)
            error = original.largest_error(model)
            if not error <= WEIGHTS.get(form, MOST_FORMATS):
                raise RuntimeError(f"weights differ by {error:.3f} from the original's")
            table.row(place, loader, forward(model, ids), expected, BF16_WEIGHTS if rounded else EXACT, error)
    if form == "q8_0" and xllamacpp:
        with table.attempt(place, "llama.cpp"):
            limit = STATES_IN_8_BITS if name in GGUF_INPUTS else INPUTS_IN_8_BITS
            table.row(place, "llama.cpp", llama_cpp(out, ids), expected, limit)
        with table.attempt(place, "llama.cpp, F32"):
            limit = GELU_TABLE if name.startswith("gemma") else EXACT
            table.row(place, "llama.cpp, F32", llama_cpp_f32(out, ids), expected, limit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", default="build/qgen")
    parser.add_argument("--model", type=Path, action="append", default=[], help="an unquantized model's folder")
    parser.add_argument("--only", default="", help="only inputs and formats with this in INPUT-FORMAT")
    parser.add_argument("--keep", type=Path, help="leave the models in this folder")
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    table = Table()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = options.keep or Path(scratch)
        for source in [*INPUTS, *GGUF_INPUTS, *options.model]:
            name = source if isinstance(source, str) else source.name
            forms = [form for form in (["q8_0"] if source in GGUF_INPUTS else FORMATS) if options.only in f"{name}-{form}"]
            if forms and isinstance(source, str):
                make_input(name, scratch / name)
                source = scratch / name
            for form in forms:
                compare(table, name, source, form, options, scratch)
    for failure in table.failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(table.failures))


if __name__ == "__main__":
    main()
