#!/usr/bin/env python3
"""Make tiny random checkpoints of many families, and the answers of transformers on them.

    pip install -r tools/requirements-oracle.txt
    python tools/family_oracle.py [FOLDER [NAME ...]]          (default: tests/golden, all)

What tools/oracle.py does for Llama's relatives, for families with blocks of their own: each with the
optional keys of its published config.json files switched on and with texts longer than its windows, once
in BF16 and once in FP8 with blocks that do not divide the matrices. The parameters and their names come
from the transformers class itself; matrices inside the layers are quantized. There is no second forward.
"""

import copy
import json
import shutil
import sys
import zlib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.integrations import mxfp4

from oracle import (
    BY_NAME,
    GREEDY_TOKENS,
    PROMPT_TOKENS,
    SMALLEST_MARGIN,
    Method,
    dump,
    margin,
    model_logits,
    quantize,
    store,
    write_checkpoint,
)
from quantize_demo import write_safetensors

VOCAB = 48
WINDOW = 6
SMALLEST_ROUTER_MARGIN = 0.01
LARGEST_BF16_ERROR = 0.03  # of mixtures: beyond it some token goes to another expert
ONE_BY_ONE = ("gate_proj", "up_proj", "down_proj")
SPARSE = (("mlp.", "block_sparse_moe."),)
GRANITE = (
    ("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"),
    ("block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"),
    ("block_sparse_moe.router.", "block_sparse_moe.router.layer."),
)
LLAMA4 = (("model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))
NEMOTRON = (("model.", "backbone."),)


@dataclass
class Case:
    name: str
    family: str  # model_type
    config: dict
    note: str
    tied: bool = False
    old_names: tuple = ()  # (in memory, as published): the beginnings of names
    nested: str = ""  # model_type of the multimodal checkpoint around it
    convert: str = ""  # "chatglm": the form of that program's checkpoints
    drop: tuple = ()  # keys that published files leave out
    extra: dict = field(default_factory=dict)  # tensors beyond the parameters: name -> shape
    experts: tuple = ()  # how published files call gate, up and down of an expert, or "fused": as in memory; "stacks"
    transposed: bool = False  # published stacks, or the matrices of one expert, are those in memory transposed
    biases: str = ""  # the end of the name of buffers that rank experts: drawn, and stored in F32
    embedding: float = 0.6  # standard deviation; less where the embedding is scaled up, or answers only repeat the text
    gain: float = 0.0  # beyond 1, of the final norm
    methods: tuple = ("bf16", "fp8-block-bf16")


def rope(**more):
    return {"rope_theta": 10000.0, "rope_type": "default"} | more


def yarn(**more):
    return rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16) | more


def layer_types(*kinds):
    return ["sliding_attention" if kind == "L" else "full_attention" for kind in kinds]


def long_rope(pairs, original):
    short = [1.0 + 0.05 * i for i in range(pairs)]
    long = [1.5 + 0.7 * i for i in range(pairs)]
    return rope(rope_type="longrope", short_factor=short, long_factor=long, original_max_position_embeddings=original)


def cases():
    yield Case(
        "gpt2",
        "gpt2",
        {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 40, "n_inner": None, "scale_attn_by_inverse_layer_idx": True},
        "Conv1D matrices [in, out], learned positions, mask buffers, scores by layer",
        tied=True,
        extra={"transformer.h.#.attn.bias": (1, 1, 40, 40), "transformer.h.#.attn.masked_bias": ()},
        methods=("bf16", "f32"),
    )
    yield Case("gemma", "gemma", {"head_dim": 12, "num_key_value_heads": 1, "hidden_act": "gelu"}, "legacy hidden_act", tied=True, embedding=0.25)
    yield Case(
        "gemma2",
        "gemma2",
        {
            "head_dim": 12,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
        "soft caps that bite, a window on even layers",
        tied=True,
        embedding=0.1,
        gain=3.0,
    )
    yield Case("glm", "glm", {"head_dim": 12, "attention_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)}, "half of each head rotated, adjacent pairs")
    yield Case(
        "chatglm",
        "glm",
        {"head_dim": 12, "attention_bias": True, "rms_norm_eps": 1e-5, "rope_parameters": rope(rope_theta=20000.0, partial_rotary_factor=0.5)},
        "GLM as the checkpoints of ChatGLM2 and GLM-4-9B hold it: other names and keys, q, k and v as one matrix",
        convert="chatglm",
    )
    yield Case(
        "glm4",
        "glm4",
        {"head_dim": 12, "attention_bias": True, "partial_rotary_factor": 0.5},
        "norms behind the branches, half of each head rotated, adjacent pairs",
    )
    yield Case(
        "phi3",
        "phi3",
        {"max_position_embeddings": 64, "original_max_position_embeddings": 16, "sliding_window": 10, "rope_parameters": long_rope(4, 16)},
        "fused matrices, a window, longrope beyond the original context",
    )
    yield Case(
        "phi3-partial",
        "phi3",
        {
            "max_position_embeddings": 64,
            "original_max_position_embeddings": 48,
            "partial_rotary_factor": 0.75,
            "rope_parameters": long_rope(3, 48) | {"partial_rotary_factor": 0.75},
        },
        "longrope within the original context, three quarters of each head rotated, as Phi-4-mini",
        tied=True,
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "phi",
        "phi",
        {"partial_rotary_factor": 0.5},
        "parallel branches, LayerNorm, biases, a bias of the head",
        methods=("bf16",),
    )
    yield Case(
        "phi-qk",
        "phi",
        {"partial_rotary_factor": 0.5, "qk_layernorm": True},
        "as phi, with norms of q and k",
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "granite",
        "granite",
        {
            "embedding_multiplier": 3.0,
            "logits_scaling": 0.5,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "attention_bias": True,
            "mlp_bias": True,
        },
        "all four multipliers, biases",
        tied=True,
        embedding=0.3,
    )
    yield Case("olmo2", "olmo2", {"attention_bias": True}, "norms behind the branches only, norms of q and k over all heads")
    yield Case(
        "olmo3",
        "olmo3",
        {
            "num_hidden_layers": 3,
            "sliding_window": WINDOW,
            "layer_types": layer_types(*"LGL"),
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "attention_factor": 1.2,
                "beta_fast": 1.0,
                "beta_slow": 0.1,
            },
            "rope_theta": 500000.0,
            "max_position_embeddings": 64,
        },
        "windows, YaRN on the layers without one",
        drop=("rope_parameters",),
    )
    yield Case(
        "smollm3",
        "smollm3",
        {"num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "sliding_window": WINDOW, "use_sliding_window": True},
        "a layer without rotation, with a window",
        tied=True,
        drop=("layer_types",),
    )
    yield Case("starcoder2", "starcoder2", {"sliding_window": WINDOW, "use_bias": True}, "LayerNorm, biases, no gate, window", tied=True)
    yield Case(
        "stablelm",
        "stablelm",
        {"partial_rotary_factor": 0.25, "use_qkv_bias": True, "use_parallel_residual": True},
        "parallel branches, LayerNorm, a quarter of each head rotated",
        methods=("fp8-block-bf16",),
    )
    yield Case("stablelm-serial", "stablelm", {"partial_rotary_factor": 0.5}, "one branch after the other", methods=("bf16",))
    yield Case(
        "cohere",
        "cohere",
        {"use_qk_norm": True, "attention_bias": True, "logit_scale": 0.5},
        "parallel branches, norms of q and k with weights for each head, scaled logits",
        tied=True,
    )
    yield Case(
        "cohere2",
        "cohere2",
        {"num_hidden_layers": 3, "sliding_window": WINDOW, "sliding_window_pattern": 3, "logit_scale": 0.5},
        "windows with rotation, a layer without both",
        tied=True,
        drop=("layer_types", "head_dim"),
    )
    yield Case(
        "ministral3",
        "ministral3",
        {
            "head_dim": 12,
            "max_position_embeddings": 64,
            "rope_parameters": yarn(
                beta_fast=1.0, beta_slow=0.1, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.8, original_max_position_embeddings=8
            ),
        },
        "YaRN without attention factor, queries that grow with their position; multimodal packaging",
        nested="mistral3",
        old_names=("model.", "language_model.model."),
    )
    yield Case(
        "mistral-nested",
        "mistral",
        {"head_dim": 12, "sliding_window": None},
        "multimodal packaging of Mistral Small 3.1",
        nested="mistral3",
        old_names=("model.", "language_model.model."),
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "qwen3vl",
        "qwen3_vl_text",
        {"head_dim": 12, "rope_parameters": rope(mrope_section=[2, 2, 2], mrope_interleaved=True)},
        "the text part in multimodal packaging",
        nested="qwen3_vl",
        old_names=("model.", "model.language_model."),
        methods=("bf16",),
    )
    yield Case(
        "exaone4",
        "exaone4",
        {
            "num_hidden_layers": 3,
            "sliding_window": WINDOW,
            "layer_types": layer_types(*"LGL"),
            "max_position_embeddings": 64,
            "rope_parameters": rope(
                rope_type="llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0, high_freq_factor=4.0
            ),
        },
        "norms behind the branches only, no rotation on the layer without a window",
    )
    yield Case(
        "exaone4-full",
        "exaone4",
        {"sliding_window": None, "layer_types": layer_types(*"GG")},
        "no windows, so rotation everywhere",
        tied=True,
        methods=("bf16",),
    )
    yield Case("seed_oss", "seed_oss", {"head_dim": 12, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False}, "biases on q, k and v")
    yield Case("ernie4_5", "ernie4_5", {"head_dim": 12, "use_bias": True}, "adjacent pairs, biases", tied=True)
    yield Case(
        "hunyuan",
        "hunyuan_v1_dense",
        {
            "head_dim": 12,
            "attention_bias": True,
            "rope_parameters": rope(rope_type="dynamic", alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0),
        },
        "norms of q and k behind the rotation, whose base a fixed factor raises",
        tied=True,
    )


# transformers has no ForCausalLM class for these.
TEXT_CLASSES = {
    "qwen3_vl_text": ("Qwen3VLTextConfig", "Qwen3VLTextModel"),
    "qwen3_vl_moe_text": ("Qwen3VLMoeTextConfig", "Qwen3VLMoeTextModel"),
}


class TextModel(torch.nn.Module):
    """A bare text model with a head, with the names that ForCausalLM classes have."""

    def __init__(self, config, model_class):
        super().__init__()
        self.config = config
        self.model = model_class(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids, use_cache=False):
        hidden = self.model(ids, use_cache=use_cache).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutput(logits=self.lm_head(hidden))


def mixture_cases():
    few = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
    local = {"num_local_experts": 5, "num_experts_per_tok": 2}
    shared = few | {"shared_expert_intermediate_size": 20}
    yield Case("qwen3_moe", "qwen3_moe", few | {"head_dim": 12, "decoder_sparse_step": 2}, "a dense layer, then a mixture", experts=ONE_BY_ONE)
    yield Case("qwen2_moe", "qwen2_moe", shared | {"norm_topk_prob": False}, "a shared expert times a sigmoid, weights as they are", experts=ONE_BY_ONE)
    yield Case("mixtral", "mixtral", local, "other names of the experts", experts=("w1", "w3", "w2"), old_names=SPARSE)
    yield Case("olmoe", "olmoe", few | {"norm_topk_prob": False}, "norms of all heads together", experts=ONE_BY_ONE)
    yield Case(
        "minimax_m2",
        "minimax_m2",
        local | {"head_dim": 12, "rotary_dim": 6, "rope_parameters": rope(partial_rotary_factor=0.5)},
        "sigmoids with a bias for the choice, half of each head rotated",
        experts=("w1", "w3", "w2"),
        old_names=SPARSE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "glm4_moe",
        "glm4_moe",
        {"head_dim": 12, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1}
        | {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "first_k_dense_replace": 1}
        | {"attention_bias": True, "use_qk_norm": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
        "groups of experts, a bias for the choice, a shared expert, a dense layer",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    latent = {"kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14, "num_key_value_heads": 4}
    latent |= {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 2}
    groups = {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "first_k_dense_replace": 1}
    scaled = yarn(beta_fast=1.0, beta_slow=0.1)
    yield Case(
        "deepseek_v2",
        "deepseek_v2",
        latent | {"q_lora_rank": None, "topk_method": "greedy", "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "n_group": 1}
        | {"topk_group": 1, "rope_parameters": scaled | {"mscale": 0.707, "mscale_all_dim": 0.707}},
        "latent attention without a latent of queries as in V2-Lite, YaRN that scales the scores, two shared experts",
        experts=ONE_BY_ONE,
    )
    yield Case(
        "deepseek_v2-groups",
        "deepseek_v2",
        latent | groups | {"q_lora_rank": 12, "topk_method": "group_limited_greedy", "norm_topk_prob": False, "first_k_dense_replace": 0},
        "a latent of queries, groups of experts by their best one",
        experts=ONE_BY_ONE,
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "deepseek_v3",
        "deepseek_v3",
        latent | groups | {"q_lora_rank": 12, "rms_norm_eps": 1e-4, "rope_parameters": scaled | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        "latents of queries, keys and values, YaRN that scales the scores, groups of experts, a bias for the choice",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "deepseek_v3-bias",
        "deepseek_v3",
        latent | groups | {"q_lora_rank": 12, "attention_bias": True, "rope_interleave": False, "n_group": 1, "topk_group": 1},
        "biases of the latents, half-split rotation",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        methods=("bf16",),
    )
    yield Case(
        "glm4_moe_lite",
        "glm4_moe_lite",
        latent | {"q_lora_rank": 12, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.8}
        | {"norm_topk_prob": True, "rms_norm_eps": 1e-5, "mlp_layer_types": ["dense", "sparse"]},
        "values wider than the unrotated keys, dense and sparse layers by a list",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    indexed = latent | {"q_lora_rank": 12, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True}
    indexed |= {"first_k_dense_replace": 1, "index_topk": 512, "index_head_dim": 10, "index_n_heads": 3}
    yield Case(
        "deepseek_v32",
        "deepseek_v32",
        indexed | {"n_group": 3, "topk_group": 2, "rope_parameters": scaled | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        "an indexer that chooses all keys of so short a text",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "glm_moe_dsa",
        "glm_moe_dsa",
        indexed | {"n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5, "attention_bias": True},
        "an indexer that chooses all keys of so short a text, biases of the latents",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "hunyuan_moe",
        "hunyuan_v1_moe",
        {"head_dim": 12, "num_experts": 4, "moe_topk": [2, 2], "num_shared_expert": [1, 1], "moe_intermediate_size": [40, 40]}
        | {"rope_parameters": rope(rope_type="dynamic", alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)},
        "sizes as lists, a shared expert, norms of q and k behind the rotation, whose base a fixed factor raises",
        experts=ONE_BY_ONE,
        tied=True,
    )
    yield Case(
        "mistral4",
        "mistral4",
        latent | {"q_lora_rank": 12, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "first_k_dense_replace": 0}
        | {"max_position_embeddings": 64}
        | {"rope_parameters": scaled | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4, "original_max_position_embeddings": 8}},
        "softmax routing, queries that grow with their position",
        experts=("fused",),
    )
    yield Case(
        "gpt_oss",
        "gpt_oss",
        local | {"head_dim": 12, "sliding_window": WINDOW, "layer_types": layer_types(*"LG"), "swiglu_limit": 1.5}
        | {"rope_parameters": yarn(beta_fast=1.0, beta_slow=0.1, truncate=False)},
        "sinks, biases, a window, gates and ups in turn with a limit that bites, YaRN without rounding",
        experts=("fused",),
        methods=("bf16", "fp8-block-bf16"),
    )
    yield Case(
        "gpt_oss-published",
        "gpt_oss",
        local | {"head_dim": 12, "hidden_size": 64, "intermediate_size": 64, "sliding_window": WINDOW, "layer_types": layer_types(*"LG"), "rope_parameters": yarn()},
        "experts as they are published: MXFP4, not transposed, the rows of gates and ups in turn",
        experts=("fused",),
        methods=("mxfp4",),
    )
    mamba = {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 6}
    mamba |= {"shared_intermediate_size": 36, "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.6}
    mamba |= {"attention_multiplier": 0.2}
    yield Case(
        "granite_hybrid",
        "granitemoehybrid",
        mamba | local | {"intermediate_size": 24, "position_embedding_type": "nope"},
        "Mamba-2 with groups, attention without rotation, a mixture beside a feed-forward network",
        tied=True,
        embedding=0.3,
        experts=("fused",),
        old_names=GRANITE,
    )
    yield Case(
        "granite_hybrid-dense",
        "granitemoehybrid",
        mamba | {"num_local_experts": 0, "position_embedding_type": "rope", "mamba_proj_bias": True},
        "Mamba-2 and attention with rotation, no mixture",
        tied=True,
        embedding=0.3,
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "lfm2",
        "lfm2",
        {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "block_ff_dim": 60, "block_multiple_of": 8}
        | {"conv_bias": True, "norm_eps": 1e-5},
        "gated convolutions with biases, norms of q and k, a width that is adjusted",
        tied=True,
        drop=("intermediate_size",),
    )
    yield Case(
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        few | {"head_dim": 12, "rope_parameters": rope(mrope_section=[2, 2, 2]), "mlp_only_layers": [0]},
        "the text part of a multimodal checkpoint, stacks of experts that are stored transposed",
        nested="qwen3_vl_moe",
        experts=("stacks",),
        transposed=True,
        old_names=(("model.", "model.language_model."),),
    )
    llama3 = rope(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=16)
    llama4 = {"num_local_experts": 5, "num_experts_per_tok": 1, "intermediate_size": 24, "intermediate_size_mlp": 40, "head_dim": 12}
    llama4 |= {"num_hidden_layers": 4, "attention_chunk_size": WINDOW, "rope_parameters": llama3}
    yield Case(
        "llama4",
        "llama4_text",
        llama4 | {"interleave_moe_layer_step": 2, "use_qk_norm": True, "attn_temperature_tuning": True, "floor_scale": 4, "attn_scale": 0.5},
        "chunks, norms without weights behind the rotation, a layer without rotation whose queries grow, inputs of experts that are weighted",
        nested="llama4",
        experts=("fused",),
        old_names=LLAMA4,
        methods=("bf16",),
    )
    yield Case(
        "llama4-separate",
        "llama4_text",
        llama4 | {"interleave_moe_layer_step": 1, "use_qk_norm": False, "attn_temperature_tuning": False, "no_rope_layers": [0, 1, 1, 0]},
        "experts one by one, layers without rotation by a list",
        nested="llama4",
        experts=ONE_BY_ONE,
        transposed=True,
        old_names=LLAMA4,
        methods=("fp8-block-bf16",),
    )
    nemotron = {"mamba_num_heads": 8, "mamba_head_dim": 6, "n_groups": 2, "ssm_state_size": 6, "head_dim": 12, "layer_norm_epsilon": 1e-4}
    nemotron |= {"time_step_min": 1e-9, "time_step_floor": 1e-9}
    yield Case(
        "nemotron_h",
        "nemotron_h",
        nemotron | {"hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "n_routed_experts": 6, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 28, "n_shared_experts": 1, "norm_topk_prob": True}
        | {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5},
        "Mamba-2 with groups, attention without rotation, mixtures of networks with a squared ReLU",
        experts=("up_proj", "down_proj"),
        old_names=NEMOTRON,
        biases="e_score_correction_bias",
    )
    yield Case(
        "nemotron_h-dense",
        "nemotron_h",
        nemotron | {"hybrid_override_pattern": "M-*-", "num_hidden_layers": 4, "mlp_bias": True, "use_bias": True, "use_conv_bias": False},
        "feed-forward networks with biases, no mixture",
        experts=("fused",),
        old_names=NEMOTRON,
        methods=("fp8-block-bf16",),
    )
    yield Case(
        "ernie4_5_moe",
        "ernie4_5_moe",
        {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 2, "moe_layer_start_index": 1}
        | {"num_hidden_layers": 3, "moe_layer_end_index": 1},
        "a bias for the choice by softmax, shared experts, dense layers before and behind",
        tied=True,
        experts=ONE_BY_ONE,
        old_names=(("mlp.gate.moe_statics.", "mlp.moe_statics."),),
    )
    gemma4 = {"head_dim": 12, "global_head_dim": 16, "sliding_window": WINDOW, "final_logit_softcapping": 8.0}
    gemma4 |= {"rope_parameters": {"full_attention": rope(rope_type="proportional", partial_rotary_factor=0.25), "sliding_attention": rope()}}
    large = gemma4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    yield Case(
        "gemma4",
        "gemma4_text",
        large | {"layer_types": layer_types(*"LG")},
        "two sizes of heads, values that are keys, proportional rotation, numbers behind layers; multimodal packaging",
        tied=True,
        nested="gemma4",
        old_names=("model.", "model.language_model."),
        biases="layer_scalar",
        embedding=0.1,
        gain=3.0,
    )
    yield Case(
        "gemma4-moe",
        "gemma4_text",
        large | {"layer_types": layer_types(*"LG"), "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 24},
        "a mixture beside each network, whose router reads the residual",
        tied=True,
        experts=ONE_BY_ONE,
        biases="layer_scalar",
        embedding=0.1,
        gain=3.0,
    )
    yield Case(
        "gemma4-small",
        "gemma4_text",
        gemma4 | {"layer_types": layer_types(*"LGLG"), "num_hidden_layers": 4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
        | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB, "attention_k_eq_v": False},
        "inputs of each layer, layers that read the keys and values of others",
        tied=True,
        experts=("fused",),
        biases="layer_scalar",
        embedding=0.1,
        gain=3.0,
    )
    falcon = {"head_dim": 12, "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 6}
    falcon |= {"embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.7, "attention_in_multiplier": 1.3}
    falcon |= {"attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6, "mlp_multipliers": [0.9, 0.7]}
    falcon |= {"ssm_multipliers": [0.8, 1.1, 0.9, 1.3, 0.7], "rope_parameters": rope(rope_theta=1e5)}
    yield Case("falcon_h1", "falcon_h1", falcon | {"mamba_rms_norm": False}, "Mamba-2 beside attention, all factors")
    yield Case(
        "falcon_h1-norm",
        "falcon_h1",
        falcon | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
        "Mamba-2 with a norm behind the gate",
        methods=("fp8-block-bf16",),
    )
    delta = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6}
    delta |= {"head_dim": 16, "layer_types": ["linear_attention", "full_attention"]}
    delta |= {"rope_parameters": rope(partial_rotary_factor=0.25)}
    yield Case("qwen3_next", "qwen3_next", shared | delta, "projections of a delta net key head by key head", experts=ONE_BY_ONE)


def settings_of(case):
    settings = {"vocab_size": VOCAB, "tie_word_embeddings": case.tied, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if case.family != "gpt2":
        settings |= {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
        settings |= {"num_key_value_heads": 2, "max_position_embeddings": 64}
        if "rope_parameters" not in case.config and "rope_theta" not in case.config:
            settings["rope_theta"] = 10000.0
    return settings | json.loads(json.dumps(case.config))


def make_model(case):
    settings = settings_of(case)
    if case.family in TEXT_CLASSES:
        config_class, model_class = (getattr(transformers, name) for name in TEXT_CLASSES[case.family])
        config = config_class(**settings)
        config._attn_implementation = config._experts_implementation = "eager"
        return TextModel(config, model_class)
    config = transformers.AutoConfig.for_model(case.family, **settings)
    if case.family == "mistral4":  # the class that transformers does not list
        config._attn_implementation = config._experts_implementation = "eager"
        return transformers.Mistral4ForCausalLM(config).float()
    if case.experts:
        config._experts_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)


def draw(fresh_parameters, case, rng):
    """{name: float64 array}; norms around what a fresh model has, which is 0 where 1 is added to them."""
    out = {}
    for name, parameter in fresh_parameters.items():
        shape = tuple(parameter.shape)
        if name.endswith("bias"):
            out[name] = 0.3 * rng.standard_normal(shape)
        elif "norm" in name or ".ln_" in name or name.endswith((".scale", "per_expert_scale")):
            fresh = float(parameter.flatten()[0])
            assert fresh in (0, 1), name
            out[name] = fresh + 0.25 * rng.standard_normal(shape) + (case.gain if name == "model.norm.weight" else 0)
        elif "embed" in name or "wte" in name or "wpe" in name:
            out[name] = case.embedding * rng.standard_normal(shape)
        else:
            out[name] = (rng.standard_normal(shape) * 1.7 + 0.25) / np.sqrt(shape[-1])
    return out


# What releases do not quantize.
PLAIN = ("mlp.gate.", "indexer.weights_proj", "mlp.router.", "moe.router.", "feed_forward.router.", "mixer.gate.", "router.proj.", "shared_expert_gate", "in_proj_a", "in_proj_b", "proj_bias")


STACKS = ("experts.gate_up_proj", "experts.up_proj", "experts.down_proj")


def published_stacks(weights, case):
    """The experts' stacked matrices as files have them."""
    if not case.experts or case.experts == ("fused",):
        return weights
    out = {}
    for name, w in weights.items():
        if not name.endswith(STACKS):
            out[name] = w
            continue
        if case.transposed:
            w = w.transpose(0, 2, 1)
        if case.experts == ("stacks",):
            out[name] = w
            continue
        *gate, up, down = case.experts
        stem = name[: name.rindex("experts.") + len("experts.")]
        for e, matrix in enumerate(w):
            if name.endswith("down_proj"):
                out[f"{stem}{e}.{down}.weight"] = matrix
            elif gate:
                out[f"{stem}{e}.{gate[0]}.weight"], out[f"{stem}{e}.{up}.weight"] = np.split(matrix, 2)
            else:
                out[f"{stem}{e}.{up}.weight"] = matrix
    return out


def stacked(plain, model, case):
    """What published_stacks() took apart."""
    if not case.experts or case.experts == ("fused",):
        return plain
    out = dict(plain)
    for name, parameter in model.named_parameters():
        if not name.endswith(STACKS):
            continue
        if case.experts != ("stacks",):
            *gate, up, down = case.experts
            stem = name[: name.rindex("experts.") + len("experts.")]
            take = lambda e, part: out.pop(f"{stem}{e}.{part}.weight")
            parts = [down] if name.endswith("down_proj") else [*gate, up]
            out[name] = np.stack([np.concatenate([take(e, part) for part in parts]) for e in range(parameter.shape[0])])
        if case.transposed:
            out[name] = out[name].transpose(0, 2, 1)
    return out


def watch_routers(model, margins):
    """The gaps between the last expert that is chosen and the first that is not, of each call."""
    def see(module, inputs, _output):
        x = inputs[0].reshape(-1, inputs[0].shape[-1])
        ranks = x.double() @ module.weight.double().T
        if getattr(module, "bias", None) is not None:
            ranks = ranks + module.bias.double()
        parent = next((m for m in model.modules() if getattr(m, "gate", None) is module), module)
        bias = getattr(module, "e_score_correction_bias", getattr(parent, "e_score_correction_bias", None))
        if bias is not None:
            ranks = ranks.sigmoid() + bias
        groups, kept = getattr(model.config, "n_group", 1), getattr(model.config, "topk_group", 1)
        if kept < groups and getattr(model.config, "topk_method", "") != "greedy":
            members = ranks.reshape(len(ranks), groups, -1)
            best = members.topk(1 if model.config.model_type == "deepseek_v2" else 2).values.sum(-1).sort(descending=True)
            margins.append(float((best.values[:, kept - 1] - best.values[:, kept]).min()))
            hidden = torch.ones_like(members, dtype=torch.bool).scatter(1, best.indices[:, :kept, None].expand(-1, -1, members.shape[-1]), False)
            ranks = ranks.masked_fill(hidden.reshape(ranks.shape), -1e9)
        chosen = next(getattr(model.config, key) for key in ("num_experts_per_tok", "top_k_experts", "moe_k") if getattr(model.config, key, None))
        chosen = chosen[0] if isinstance(chosen, list) else chosen
        best = ranks.sort(descending=True).values
        margins.append(float((best[:, chosen - 1] - best[:, chosen]).min()))

    for name, module in model.named_modules():
        if hasattr(module, "weight") and name.endswith(("mlp.gate", "mlp.router", "moe.router", "feed_forward.router", "mixer.gate", "router.proj", "mlp.gate.wg")):
            module.register_forward_hook(see)


@contextmanager
def no_float32():
    """The casts to F32 inside of transformers' routers and recurrences, whose rounding these models magnify, stay F64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept


# As gpt-oss' config.json has it.
MXFP4 = Method(
    "mxfp4",
    codes="mxfp4",
    config={
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
        "quant_method": "mxfp4",
    },
)


def mxfp4_stack(name, stack):
    """Tensors of a stack (experts, inputs, outputs), and the matrices that transformers makes of them in F32."""
    groups = stack.transpose(0, 2, 1).reshape(stack.shape[0], stack.shape[2], -1, 32)
    # OCP Microscaling Formats 1.0, section 6.3: the largest power of two that the maximum has, over that of E2M1.
    exponents = np.floor(np.log2(np.abs(groups).max(-1))) - 2
    values = np.array(mxfp4.FP4_VALUES)
    codes = np.abs(np.exp2(-exponents)[..., None, None] * groups[..., None] - values).argmin(-1).astype(np.uint8)
    blocks, scales = codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8)
    plain = mxfp4.convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    return {name + "_blocks": ("U8", blocks), name + "_scales": ("U8", scales)}, plain.numpy()


def encode(weights, method, rng):
    tensors, plain, quantized = {}, {}, []
    for name, w in weights.items():
        if method is MXFP4 and name.endswith(STACKS):
            more, plain[name] = mxfp4_stack(name, w)
            tensors |= more
            continue
        in_layer = ".layers." in name or ".h." in name
        if method.codes and method is not MXFP4 and in_layer and w.ndim == 2 and "norm" not in name and not any(part in name for part in PLAIN):
            more, plain[name] = quantize(name.removesuffix(".weight"), w, method, rng)
            tensors |= more
            quantized.append(name)
        else:
            array, values = store(method.rest, w)
            tensors[name] = (method.rest, array)
            plain[name] = values.astype(np.float32)
    return tensors, plain, quantized


QKV = ("q_proj", "k_proj", "v_proj")
CHATGLM_NAMES = (
    ("self_attn.query_key_value", "self_attention.query_key_value"),
    ("self_attn.o_proj", "self_attention.dense"),
    ("mlp.gate_up_proj", "mlp.dense_h_to_4h"),
    ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ("model.layers.", "transformer.encoder.layers."),
    ("model.norm.", "transformer.encoder.final_layernorm."),
    ("model.embed_tokens.", "transformer.embedding.word_embeddings."),
    ("lm_head.", "transformer.output_layer."),
)


def fuse(weights):
    """q, k and v of each layer as one matrix, and as one bias."""
    out = {}
    for name, w in weights.items():
        if "k_proj" in name or "v_proj" in name:
            continue
        if "q_proj" in name:
            w = np.concatenate([weights[name.replace("q_proj", part)] for part in QKV])
            name = name.replace("q_proj", "query_key_value")
        out[name] = w
    return out


def split(plain, model):
    out = {}
    rows = {name: parameter.shape[0] for name, parameter in model.named_parameters()}
    for name, w in plain.items():
        if "query_key_value" not in name:
            out[name] = w
            continue
        names = [name.replace("query_key_value", part) for part in QKV]
        parts = np.split(w, np.cumsum([rows[part] for part in names])[:-1])
        out |= dict(zip(names, parts))
    return out


def chatglm_config(config, quantization):
    """What configuration_chatglm.py calls these things."""
    rope = config["rope_parameters"]
    return {
        "model_type": "chatglm",
        "architectures": ["ChatGLMModel"],
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "apply_query_key_layer_scaling": True,
        "apply_residual_connection_post_layernorm": False,
        "eos_token_id": config["eos_token_id"],
        "ffn_hidden_size": config["intermediate_size"],
        "hidden_size": config["hidden_size"],
        "kv_channels": config["head_dim"],
        "layernorm_epsilon": config["rms_norm_eps"],
        "multi_query_attention": True,
        "multi_query_group_num": config["num_key_value_heads"],
        "num_attention_heads": config["num_attention_heads"],
        "num_layers": config["num_hidden_layers"],
        "original_rope": True,
        "padded_vocab_size": config["vocab_size"],
        "post_layer_norm": True,
        "rmsnorm": True,
        "rope_ratio": rope["rope_theta"] / 10000,
        "seq_length": config["max_position_embeddings"],
        "tie_word_embeddings": False,
        "torch_dtype": config["dtype"],
    } | quantization


def fill(model, plain):
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(plain[name].astype(np.float64))
    return model.double().eval()


def bf16_logits(model, ids):
    """With weights and activations in BF16."""
    rounded = copy.deepcopy(model).bfloat16()
    for module in rounded.modules():
        module._forward_hooks.clear()
    with torch.no_grad():
        return rounded(torch.tensor([list(ids)]), use_cache=False).logits[0].double().numpy()


def clear_greedy(model, ids):
    """The greedy continuation, as far as its margins are clear; recomputes the whole sequence each step."""
    ids, margins = list(ids), []
    while len(margins) < GREEDY_TOKENS:
        row = model_logits(model, ids)[-1]
        if margin(row) <= SMALLEST_MARGIN:
            break
        margins.append(margin(row))
        ids.append(int(row.argmax()))
    return ids[PROMPT_TOKENS:], margins


def published_config(case, method):
    config = settings_of(case)
    for key in case.drop:
        config.pop(key, None)
    dtype = {"F32": "float32", "BF16": "bfloat16"}[method.rest]
    config |= {"model_type": case.family, "dtype": dtype}
    if case.convert == "chatglm":
        return chatglm_config(config, {"quantization_config": method.config} if method.config else {})
    if case.nested:
        tied = config.pop("tie_word_embeddings")
        config = {"model_type": case.nested, "tie_word_embeddings": tied, "dtype": dtype, "text_config": config}
        config["vision_config"] = {"hidden_size": 8}
    if method.config:
        config["quantization_config"] = method.config
    return config


def make(case, method_name, out):
    method, name = (BY_NAME | {"mxfp4": MXFP4})[method_name], f"{case.name}-{method_name.removesuffix('-block-bf16')}"
    model = None
    for attempt in range(200):
        rng = np.random.default_rng([zlib.crc32(name.encode()), attempt])
        if model is None:
            model = make_model(case)
            fresh = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
            router_margins = []
            if case.experts:
                watch_routers(model, router_margins)
        drawn = draw(fresh, case, rng)
        tensors, plain, quantized = encode(fuse(drawn) if case.convert else published_stacks(drawn, case), method, rng)
        ids = rng.integers(0, VOCAB, PROMPT_TOKENS).tolist()
        fill(model, split(plain, model) if case.convert else stacked(plain, model, case))
        for key, buffer in model.named_buffers():
            if case.biases and key.endswith(case.biases):
                center, spread = (1, 0.25) if case.biases == "layer_scalar" else (0, 0.1)
                buffer.copy_(torch.from_numpy(center + spread * rng.standard_normal(buffer.shape)).float())
                tensors[key] = ("F32", buffer.numpy().astype(np.float32))
        router_margins.clear()
        with no_float32() if case.experts else nullcontext():
            logits = model_logits(model, ids)
            continuation, margins = clear_greedy(model, ids)
        if min(router_margins, default=1) < SMALLEST_ROUTER_MARGIN:
            continue
        rounded = bf16_logits(model, ids)
        bf16_error = float(np.linalg.norm(rounded - logits) / np.linalg.norm(logits))
        if case.experts and bf16_error > LARGEST_BF16_ERROR:
            continue
        if len(margins) == GREEDY_TOKENS and len(set(continuation)) >= 4:
            break
    else:
        print(f"{name}: no draw with clear greedy answers", flush=True)
        return

    def published(tensor):
        for ours, theirs in CHATGLM_NAMES if case.convert == "chatglm" else ():
            tensor = tensor.replace(ours, theirs)
        for ours, theirs in case.old_names if case.experts else ():
            tensor = tensor.replace(ours, theirs)
        before, after = ("", "") if case.experts or not case.old_names else case.old_names
        if not tensor.startswith(before):
            return "language_model." + tensor if case.nested == "mistral3" else tensor
        return after + tensor.removeprefix(before)

    tensors = {published(tensor): value for tensor, value in tensors.items()}
    if case.tied:
        tensors.pop("lm_head.weight", None)
    if case.convert == "chatglm":
        tensors["transformer.rotary_pos_emb.inv_freq"] = ("F32", np.ones((3,), np.float32))
    for tensor, shape in case.extra.items():
        for layer in range(2):
            tensors[tensor.replace("#", str(layer))] = ("F32", np.ones(shape, np.float32))
    if case.nested:
        tensors["vision_tower.patch.weight"] = ("F32", np.ones((2,), np.float32))
    expected = {
        "family": case.family,
        "method": method.name,
        "note": case.note,
        "producer": "tools/family_oracle.py",
        "versions": {p.__name__: p.__version__.split("+")[0] for p in (torch, transformers, np)},
        "vocab": VOCAB,
        "ids": ids,
        "greedy": continuation,
        "greedy_margins": [float(f"{m:.4g}") for m in margins],
        "smallest_top2_margin": float(f"{min(map(margin, logits)):.4g}"),
        "tolerance": {"weights": "bit-exact in F32", "logits_normwise_reference": 1e-5, "logits_normwise_cpu": 5e-3}
        | {"logits_normwise_bfloat16_activations": float(f"{2.5 * bf16_error:.2g}")},
    }
    folder = out / name
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "expected").mkdir(parents=True)
    write_checkpoint(folder, published_config(case, method), tensors, "one")
    logit_tensors = {"ids": ("I32", np.array(ids, np.int32)), "logits": ("F32", logits.astype(np.float32))}
    write_safetensors(folder / "expected" / "logits.safetensors", logit_tensors)
    stored = [tensor for tensor in quantized if ".layers.1." in tensor and any(part in tensor for part in ("qkv", "query_key", "down", "fc2"))]
    if stored:
        names = [published(tensor) for tensor in stored]
        expected["weights_stored"] = names
        arrays = {published(tensor): ("F32", plain[tensor]) for tensor in stored}
        write_safetensors(folder / "expected" / "weights.safetensors", arrays)
    dump(folder / "expected" / "expected.json", expected)
    print(f"{name:32} draw {attempt}", flush=True)


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for case in (*cases(), *mixture_cases()):
        for method in case.methods:
            if len(sys.argv) <= 2 or case.name in sys.argv[2:]:
                make(case, method, out)


if __name__ == "__main__":
    main()
