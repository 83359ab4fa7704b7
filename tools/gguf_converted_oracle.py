#!/usr/bin/env python3
"""GGUF files by llama.cpp's own converter, of tiny random models, and the logits that transformers gives for these.

    pip install -r tools/requirements-oracle.txt
    python tools/gguf_converted_oracle.py LLAMA_CPP [OUT [NAME ...]]        (default: tests/golden-gguf, all)

LLAMA_CPP is a checkout of llama.cpp, whose conversion package and gguf-py are used. Each model has the config.json of a
golden of its family, but for traits that GGUF files have no key for. Weights are rounded to F16, as the converter stores
them, before transformers runs; the files have no tokenizer. OUT/NAME.gguf, and OUT/expected.safetensors with
NAME.ids I32 [T] and NAME.logits F32 [T, V].
"""

import json
import logging
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

from quantize_demo import write_safetensors

IDS = [5, 9, 1, 7, 3, 11, 2, 8, 30, 12, 17, 4, 6, 22, 19, 33, 21, 40, 10, 15]
ALL_SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": []}
PLAIN = {"quantization_config": None}
# The converter multiplies them into the weights before these are rounded.
EXACT_FACTORS = {
    "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.5, "attention_in_multiplier": 2.0,
    "attention_out_multiplier": 0.5, "ssm_in_multiplier": 2.0, "ssm_out_multiplier": 0.5,
    "mlp_multipliers": [2.0, 0.5], "ssm_multipliers": [0.5, 2.0, 0.25, 4.0, 0.5], "mamba_rms_norm": True,
    "mamba_norm_before_gate": False,
}
DELTA = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "linear_num_key_heads": 2,
    "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}
TWO_BASES = {
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 50000.0, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    }
}
# For each model the golden whose config.json is taken (or a whole config.json), and the keys that are changed in it.
MODELS = {
    "deepseek_v2": ("deepseek_v2-bf16", {}),
    "deepseek_v2_old": ("deepseek_v2-bf16", {}),
    "deepseek_v3": ("deepseek_v3-bf16", {"scoring_func": "sigmoid"}),
    "deepseek_v32": ("deepseek_v32-bf16", {"scoring_func": "sigmoid"}),
    "ernie4_5_moe": ("ernie4_5_moe-bf16", {"moe_layer_end_index": -1}),
    "falcon_h1": ("falcon_h1-bf16", EXACT_FACTORS),
    "gemma4": ("gemma4-bf16", TWO_BASES),
    "gemma4_fused": ("gemma4-small-bf16", TWO_BASES),
    "gemma4_moe": ("gemma4-moe-bf16", TWO_BASES),
    "gemma4_small": ("gemma4-small-bf16", TWO_BASES),
    "gemma3_full": ("gemma3-bf16", {
        "layer_types": ["full_attention"] * 2, "sliding_window_pattern": 1, "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 12, "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 1.0,
                               "beta_slow": 0.1, "original_max_position_embeddings": 8},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, **PLAIN}),
    "arcee": ("arcee-bf16", {"mlp_bias": False}),
    "granite_moe": ("granitemoe-bf16", {}),
    "granite_moe_shared": ("granitemoeshared-bf16", {"attention_bias": False}),
    "lfm2_moe": ("lfm2_moe-bf16", {"conv_bias": False, "routed_scaling_factor": 1.0}),
    "exaone4_full": ("exaone4-full-bf16", {}),
    "olmo3": ("olmo3-bf16", {}),
    "mistral_small": ("mistral-bf16", {}),
    "dots1": ("dots1-bf16", {"max_window_layers": 2}),
    "exaone_moe": ("exaone_moe-bf16", {}),
    "exaone": ("exaone-bf16", {}),
    "jais2": ("jais2-bf16", {}),
    "afmoe": ("afmoe-bf16", {"num_hidden_layers": 5, "global_attn_every_n_layers": 4, "score_func": "sigmoid"}),
    "bailing_moe": ("bailing_moe-bf16", {"score_function": "sigmoid"}),
    "mellum": ("mellum-bf16", {}),
    "laguna": ("laguna-bf16", {"mlp_layer_types": ["dense", "sparse", "sparse"], "gating": True}),
    "laguna_elements": ("laguna-elements-bf16", {"moe_router_logit_softcapping": 0.0, "attention_bias": False}),
    "hy_v3": ("hy_v3-bf16", {}),
    "internlm3": ("internlm3-bf16", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "solar_open": ("solar_open-bf16", {"partial_rotary_factor": 1.0}),
    "nemotron": ("nemotron-bf16", {"head_dim": 8}),
    "glm4_plain": ("glm4-bf16", {"attention_bias": False}),
    "glm4_sections": ("glm4-bf16", {"rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}}),
    "glm4_moe": ("glm4_moe-bf16", {}),
    "glm4_moe_lite": ("glm4_moe_lite-bf16", {"first_k_dense_replace": 1}),
    "glm_moe_dsa": ("glm_moe_dsa-bf16", {"scoring_func": "sigmoid", "attention_bias": False}),
    "gpt_oss": ("gpt_oss-bf16", {"swiglu_limit": 7.0}),
    "granite_hybrid": ("granite_hybrid-bf16", {}),
    "granite_hybrid_dense": ("granite_hybrid-dense-fp8", {"position_embedding_type": "nope", **PLAIN}),
    "hunyuan_moe": ("hunyuan_moe-bf16", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "lfm2": ("lfm2-bf16", {"conv_bias": False}),
    "llama4": ("llama4-bf16", {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1,
                               "no_rope_layers": [1, 1, 1, 0], "use_qk_norm": True, "layer_types": None,
                               "attn_temperature_tuning": True}),
    "minimax_m2": ("minimax_m2-bf16", {}),
    "mixtral_old": ("mixtral-bf16", {}),
    "mistral4": ("mistral4-bf16", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 1.0,
        "beta_slow": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.0}}),
    "nemotron_h": ("nemotron_h-bf16", {"mamba_head_dim": 8}),
    "nemotron_h_dense": ("nemotron_h-dense-fp8", {"mamba_head_dim": 8, **PLAIN}),
    "olmoe": ("olmoe-bf16", {}),
    "qwen2_moe": ("qwen2_moe-bf16", {}),
    "qwen3_moe": ("qwen3_moe-bf16", ALL_SPARSE),
    "qwen3_next": ("qwen3_next-bf16", ALL_SPARSE),
    "qwen3_next_old": ("qwen3_next-bf16", ALL_SPARSE),
    "qwen3_5": ({"model_type": "qwen3_5_text", **DELTA}, {}),
    "qwen3_5_moe": ({"model_type": "qwen3_5_moe_text", "num_experts": 5, "num_experts_per_tok": 2,
                     "moe_intermediate_size": 24, "shared_expert_intermediate_size": 28, **DELTA}, {}),
    "seed_oss": ("seed_oss-bf16", {}),
    "smollm3": ("smollm3-bf16", {"use_sliding_window": False, "no_rope_layers": [1, 1, 1, 0], "num_hidden_layers": 4,
                                 "layer_types": None}),
}  # fmt: skip
CONVERTED_AS = dict.fromkeys(("mistral", "mistral4"), "Mistral3ForConditionalGeneration")  # what the converter knows the class as
KNOWN_AS = {"bailing_moe": "sarvam_moe"}  # what transformers knows the family as
OWN_KEYS = ("exaone", "bailing_moe")  # see convert()
# Keys that transformers does not save, or in words that the converter does not know.
IN_CONFIG_ONLY = ("scoring_func", "first_k_dense_replace", "hybrid_override_pattern", "layer_types",
                  "sliding_window_pattern", "score_func")  # fmt: skip


def architectures():
    table = Path("src/model/families/table.cpp").read_text()
    return dict(re.findall(r'\{"([a-z0-9_]+)", "([A-Za-z0-9_]+)"', table))


def randomize(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(torch.randn_like(p) * 0.2)
            elif name.endswith("A_log"):
                p.copy_(torch.randn_like(p) * 0.5)
            elif p.ndim > 1:
                p.copy_(torch.randn_like(p) * (1.2 / p.shape[-1] ** 0.5))
            else:
                p.add_(torch.randn_like(p) * 0.2)
        for name, buffer in model.named_buffers():
            if "correction_bias" in name:
                buffer.copy_(torch.randn_like(buffer) * 0.1)
            elif name.endswith("layer_scalar"):
                buffer.copy_(1 + torch.randn_like(buffer) * 0.2)
    # As the converter stores them: vectors stay F32.
    for p in model.parameters():
        p.data = p.data.half().float()


def whole_heads(keys, tensors):
    """DeepSeek-V2 before latents were absorbed: keys and values of each head in one matrix of a whole head's sizes."""
    rotated = keys["deepseek2.rope.dimension_count"]
    keys["deepseek2.attention.key_length"] = keys.pop("deepseek2.attention.key_length_mla")
    keys["deepseek2.attention.value_length"] = keys.pop("deepseek2.attention.value_length_mla")
    keys["deepseek2.attention.head_count_kv"] = heads = keys["deepseek2.attention.head_count"]
    for name in [n for n in tensors if n.endswith("attn_k_b.weight")]:
        k, v = tensors.pop(name), tensors.pop(name.replace("k_b", "v_b"))
        assert k.shape[0] == heads and k.shape[2] + rotated == keys["deepseek2.attention.key_length"]
        both = np.concatenate([k.transpose(0, 2, 1), v], axis=1)
        tensors[name.replace("k_b", "kv_b")] = both.reshape(-1, both.shape[2])


def split_experts(keys, tensors):
    """Mixtral when each expert had tensors of its own."""
    for name in [n for n in tensors if "_exps." in n]:
        for expert, matrix in enumerate(tensors.pop(name)):
            tensors[name.replace("_exps", f".{expert}")] = matrix


def key_heads(keys, tensors):
    """Qwen3-Next with q, k, v and z of one key head after the other."""
    heads, dim = keys["qwen3next.ssm.group_count"], keys["qwen3next.ssm.state_size"]
    for name in [n for n in tensors if n.endswith("attn_gate.weight")]:
        z, qkv = tensors.pop(name), tensors.pop(name.replace("attn_gate", "attn_qkv"))
        parts = [*np.split(qkv, [heads * dim, 2 * heads * dim]), z]
        rows = [part.reshape(heads, -1, part.shape[1]) for part in parts]
        tensors[name.replace("attn_gate", "ssm_in")] = np.concatenate(rows, axis=1).reshape(-1, z.shape[1])


# What files of former versions have otherwise.
OLD = {"deepseek_v2_old": whole_heads, "mixtral_old": split_experts, "qwen3_next_old": key_heads}


def rewrite(path, change, gguf):
    reader = gguf.GGUFReader(path)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    keys = {name: field.contents() for name, field in fields.items()}
    tensors = {t.name: np.array(t.data) for t in reader.tensors}
    change(keys, tensors)
    path.unlink()
    writer = gguf.GGUFWriter(path, keys.pop("general.architecture"))
    for name, value in keys.items():
        kinds = fields[name].types if name in fields else [gguf.GGUFValueType.UINT32]
        if kinds[0] == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, value, kinds[0], sub_type=kinds[-1])
        else:
            writer.add_key_value(name, value, kinds[0])
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(folder, out, conversion, gguf, own_keys):
    """own_keys: of config.json, which transformers reads under other names than the converter."""
    hparams = conversion.ModelBase.load_hparams(folder, False)
    kind = conversion.get_model_class(conversion.get_model_architecture(hparams, conversion.ModelType.TEXT))
    for one in [kind, *(inner for inner in vars(kind).values() if isinstance(inner, type))]:
        for base in one.__mro__:
            if "set_vocab" in base.__dict__:
                base.set_vocab = lambda self: self._set_vocab_none()
    kind.no_mtp = True
    given = {"fuse_qkv": True} if out.stem.endswith("_fused") else {}
    if own_keys:
        given["hparams"] = hparams | own_keys
    pattern = json.loads(Path(folder, "config.json").read_text()).get("hybrid_override_pattern", "E")
    if "E" not in pattern:
        # Without keys that transformers adds, and by which the converter knows mixtures.
        hparams = {k: v for k, v in hparams.items() if k not in ("num_experts_per_tok", "n_routed_experts")}
        given["hparams"] = hparams | {"hybrid_override_pattern": pattern}
    with torch.inference_mode():
        kind(folder, gguf.LlamaFileType.MOSTLY_F16, out, eager=True, **given).write()


def main():
    llama_cpp = Path(sys.argv[1])
    out = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/golden-gguf")
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import conversion
    import gguf

    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    out.mkdir(parents=True, exist_ok=True)
    classes = architectures()
    expected = {}
    if sys.argv[3:]:
        kinds = {np.dtype(np.int32): "I32", np.dtype(np.float32): "F32"}
        expected = {k: (kinds[v.dtype], v) for k, v in load_file(out / "expected.safetensors").items()}
    for name, (base, changes) in MODELS.items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        config = base if isinstance(base, dict) else json.loads(Path("tests/golden", base, "config.json").read_text())
        config = {**config.get("text_config", config), **changes}
        for key in [k for k in config if k in ("dtype", "torch_dtype") or (k in changes and changes[k] is None)]:
            del config[key]
        kind = config.pop("model_type")
        settings = transformers.AutoConfig.for_model(KNOWN_AS.get(kind, kind), **config)
        settings._attn_implementation = settings._experts_implementation = "eager"
        torch.manual_seed(sum(map(ord, name)))
        if kind == "mistral4":  # the class that transformers does not list
            model = transformers.models.mistral4.Mistral4ForCausalLM(settings).float().eval()
        else:
            model = transformers.AutoModelForCausalLM.from_config(settings).float().eval()
        randomize(model)
        with torch.no_grad():
            logits = model(torch.tensor([IDS])).logits[0].float().numpy()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = Path(folder, "config.json")
            saved = json.loads(path.read_text())
            saved["architectures"] = [CONVERTED_AS.get(kind) or classes.get(kind, saved["architectures"][0])]
            saved |= {k: config[k] for k in IN_CONFIG_ONLY if k in config}
            path.write_text(json.dumps(saved))
            if kind.startswith("gemma"):  # the converter counts the pieces in it, and cuts the embedding
                pieces = {str(i): i for i in range(config["vocab_size"])}
                Path(folder, "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}, "added_tokens": []}))
            convert(Path(folder), out / f"{name}.gguf", conversion, gguf, config if kind in OWN_KEYS else {})
            if name in OLD:
                rewrite(out / f"{name}.gguf", OLD[name], gguf)
        expected[f"{name}.ids"] = ("I32", np.array(IDS, dtype=np.int32))
        expected[f"{name}.logits"] = ("F32", logits.astype(np.float32))
        print(name)
    write_safetensors(out / "expected.safetensors", expected)


main()
