"""The tiny models of tools/family_oracle.py with mixtures of experts or recurrent layers."""

from family_cases import VOCAB, WINDOW, Case, layer_types, rope, yarn

ONE_BY_ONE = ("gate_proj", "up_proj", "down_proj")
SPARSE = (("mlp.", "block_sparse_moe."),)
GRANITE = (
    ("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"),
    ("block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"),
    ("block_sparse_moe.router.", "block_sparse_moe.router.layer."),
)
LLAMA4 = (("model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))
NEMOTRON = (("model.", "backbone."),)


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
    sigmoids = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1, "n_group": 3}
    sigmoids |= {"topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True}
    yield Case(
        "solar_open",
        "solar_open",
        sigmoids | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "head_dim": 12, "attention_bias": True},
        "mixtures of glm4_moe on all layers, biases on q, k and v",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        drop=("intermediate_size",),
    )
    yield Case(
        "dots1",
        "dots1",
        sigmoids | {"head_dim": 12, "first_k_dense_replace": 1, "sliding_window": WINDOW, "max_window_layers": 1},
        "norms of q and k, a window on the last layer, a dense layer, then a mixture",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    exaone = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_shared_experts": 2, "n_group": 3, "topk_group": 2}
    yield Case(
        "exaone_moe",
        "exaone_moe",
        exaone | {"head_dim": 12, "sliding_window": WINDOW, "sliding_window_pattern": 2, "first_k_dense_replace": 1},
        "a window with rotation, then none without, a dense layer, then a mixture",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        old_names=(("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"),),
    )
    yield Case(
        "hy_v3",
        "hy_v3",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_shared_experts": 2, "head_dim": 12}
        | {"router_scaling_factor": 1.5},
        "norms of q and k, a dense layer, then a mixture with other names",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        old_names=(
            ("mlp.gate.", "mlp.router.gate."),
            ("mlp.e_score_correction_bias", "mlp.expert_bias"),
            ("mlp.shared_experts.", "mlp.shared_mlp."),
        ),
    )
    yield Case(
        "afmoe",
        "afmoe",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_shared_experts": 2, "head_dim": 12}
        | {"num_hidden_layers": 3, "sliding_window": WINDOW, "global_attn_every_n_layers": 2, "route_scale": 1.5, "mup_enabled": True}
        | {"num_dense_layers": 1},
        "a gate of attention as a matrix of its own, windows with rotation, a layer without both, norms before and behind",
        experts=ONE_BY_ONE,
        drop=("layer_types",),
        embedding=0.1,
    )
    laguna = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20}
    laguna |= {"head_dim": 12, "num_hidden_layers": 3, "num_attention_heads_per_layer": [4, 6, 6], "num_key_value_heads": 2}
    laguna |= {"layer_types": layer_types(*"GLL"), "sliding_window": WINDOW, "moe_routed_scaling_factor": 2.5}
    laguna |= {"moe_router_logit_softcapping": 0.0, "gating": True, "moe_apply_router_weight_on_input": False}
    laguna |= {
        "rope_parameters": {
            "full_attention": yarn(rope_theta=5000.0, partial_rotary_factor=0.5),
            "sliding_attention": rope(partial_rotary_factor=1.0),
        }
    }
    laguna_names = (
        ("mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias"),
        ("mlp.shared_experts.", "mlp.shared_expert."),
    )
    yield Case(
        "laguna",
        "laguna",
        laguna,
        "a softplus for each head of attention's results, layers with other numbers of heads and another rotation, windows",
        experts=ONE_BY_ONE,
        old_names=laguna_names,
        biases="e_score_correction_bias",
    )
    yield Case(
        "laguna-elements",
        "laguna",
        laguna
        | {"gating": "per-element", "mlp_layer_types": ["dense", "dense", "sparse"], "moe_router_logit_softcapping": 0.7}
        | {"num_attention_heads_per_layer": None, "attention_bias": True},
        "a softplus for each element, a soft cap of the router's logits that bites, biases",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        methods=("bf16",),
    )
    ling = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_shared_experts": 1, "head_dim": 12}
    ling |= {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "first_k_dense_replace": 1}
    ling_names = (
        ("model.embed_tokens.", "model.word_embeddings."),
        (".self_attn.o_proj.", ".attention.dense."),
        (".self_attn.q_norm.", ".attention.query_layernorm."),
        (".self_attn.k_norm.", ".attention.key_layernorm."),
        (".self_attn.", ".attention."),
        (".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias"),
    )
    ling_form = {"experts": ONE_BY_ONE, "fused": True, "old_names": ling_names}
    yield Case(
        "sarvam_moe",
        "sarvam_moe",
        ling | {"n_group": 1, "topk_group": 1, "use_qkv_bias": True},
        "Ling's block with whole heads rotated, biases on q, k and v",
        biases="e_score_correction_bias",
        **ling_form,
    )
    yield Case(
        "bailing_moe",
        "sarvam_moe",
        ling | {"architectures": ["BailingMoeV2ForCausalLM"], "partial_rotary_factor": 0.5},
        "Ling 2.0: q, k and v as one matrix, norms of them, half of each head rotated, groups of experts",
        biases="e_score_correction_bias",
        **ling_form,
        published_type="bailing_moe",
    )
    yield Case(
        "bailing_moe-first",
        "sarvam_moe",
        ling | {"architectures": ["BailingMoeForCausalLM"], "use_qk_norm": False, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}
        | {"num_shared_experts": 2},
        "Ling 1.5: experts chosen by softmax, two shared ones, no norms of q and k",
        softmax=True,
        **ling_form,
        published_type="bailing_moe",
        methods=("bf16",),
    )
    yield Case(
        "mellum",
        "mellum",
        few | {"head_dim": 12, "layer_types": layer_types(*"LG"), "sliding_window": WINDOW}
        | {"rope_parameters": {"full_attention": yarn(), "sliding_attention": rope(rope_theta=100.0)}},
        "norms of q and k, a window with a rotation of its own, mixtures",
        experts=ONE_BY_ONE,
    )
    yield Case(
        "bamba",
        "bamba",
        {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 6}
        | {"attention_bias": True, "mlp_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
        "Mamba-2 and attention with half of each head rotated",
        experts=("fused",),
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
        "sarvam_mla",
        "sarvam_mla",
        latent | {"q_lora_rank": None, "num_shared_experts": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "max_position_embeddings": 64}
        | {"rope_parameters": scaled | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        "latent attention without a latent of queries, one group of experts",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "youtu",
        "youtu",
        {"kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14, "num_key_value_heads": 4, "q_lora_rank": 12},
        "latent attention, no mixture",
        tied=True,
    )
    yield Case(
        "deepseek_v3-bias",
        "deepseek_v3",
        latent | groups | {"q_lora_rank": 12, "attention_bias": True, "rope_interleave": False, "n_group": 1, "topk_group": 1},
        "biases of the latents, half-split rotation",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
    )
    yield Case(
        "kimi_k2",
        "deepseek_v3",
        latent | groups | {"q_lora_rank": 12, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "rope_parameters": scaled | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        "DeepSeek-V3 by another name, with one group of experts",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        published_type="kimi_k2",
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
    yield Case(
        "glm4_moe_lite-wide",
        "glm4_moe_lite",
        latent | {"q_lora_rank": 12, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32, "qk_head_dim": 38, "n_shared_experts": 1}
        | {"n_group": 1, "topk_group": 1, "norm_topk_prob": True, "mlp_layer_types": ["dense", "sparse"]},
        "latents, keys and values in whole groups of 32",
        experts=ONE_BY_ONE,
        biases="e_score_correction_bias",
        methods=("bf16",),
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
        "granite_hybrid-wide",
        "granitemoehybrid",
        mamba | {"hidden_size": 32, "shared_intermediate_size": 64, "num_local_experts": 0, "position_embedding_type": "nope"},
        "Mamba-2 and attention without biases, as llama.cpp has them, and in whole groups of 32",
        tied=True,
        embedding=0.3,
        experts=("fused",),
        old_names=GRANITE,
        methods=("bf16",),
    )
    granite_moe = {"intermediate_size": 24, "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.4}
    granite_moe |= {"attention_multiplier": 0.2}
    yield Case(
        "granitemoe",
        "granitemoe",
        granite_moe | local,
        "all four multipliers and a mixture",
        tied=True,
        embedding=0.3,
        experts=("fused",),
        old_names=GRANITE,
    )
    yield Case(
        "granitemoeshared",
        "granitemoeshared",
        granite_moe | local | {"shared_intermediate_size": 36, "attention_bias": True},
        "a mixture beside a feed-forward network, biases",
        tied=True,
        embedding=0.3,
        experts=("fused",),
        old_names=GRANITE,
    )
    windows = {"layer_types": layer_types(*"GLLG"), "num_hidden_layers": 4, "sliding_window": WINDOW}
    windows |= {"layer_rope_theta": [0, 10000.0, 5000.0, 10000.0]}
    yield Case(
        "granitemoe_swa",
        "granitemoe_swa",
        granite_moe | local | windows | {"shared_intermediate_size": 36},
        "sinks, windows, rotations by layer and one without, a mixture beside a network",
        tied=True,
        embedding=0.3,
        experts=("fused",),
    )
    yield Case(
        "granite_swa",
        "granite_swa",
        {"embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.4, "attention_multiplier": 0.2}
        | windows
        | {"num_attention_heads": 6, "head_dim": 12},
        "sinks, windows, rotations by layer and one without",
        tied=True,
        embedding=0.3,
    )
    yield Case(
        "lfm3",
        "lfm3",
        {"layer_types": ["conv", "sliding_attention", "full_attention"], "num_hidden_layers": 3, "head_dim": 16}
        | {"sliding_window": WINDOW, "norm_eps": 1e-5},
        "convolutions over seven tokens, a sigmoid for each head of attention's results, two rotations, a window",
        tied=True,
        old_names=((".self_attn.g_proj.", ".self_attn.gate_proj."),),
    )
    yield Case(
        "lfm2_moe",
        "lfm2_moe",
        few | {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "num_dense_layers": 1, "conv_bias": True}
        | {"routed_scaling_factor": 2.5, "norm_eps": 1e-5},
        "gated convolutions with biases, a dense layer, then mixtures ranked by a bias",
        tied=True,
        experts=("w1", "w3", "w2"),
        biases="expert_bias",
    )
    yield Case(
        "lfm2-wide",
        "lfm2",
        {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 64}
        | {"block_auto_adjust_ff_dim": False, "norm_eps": 1e-5},
        "gated convolutions without biases, as llama.cpp has them, and in whole groups of 32",
        tied=True,
        methods=("bf16",),
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
        "nemotron_h-latent",
        "nemotron_h",
        nemotron | {"hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "n_routed_experts": 6, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 28, "n_shared_experts": 1, "norm_topk_prob": True}
        | {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "moe_latent_size": 20},
        "experts between two projections",
        experts=("up_proj", "down_proj"),
        old_names=NEMOTRON,
        biases="e_score_correction_bias",
        methods=("bf16",),
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
        "nemotron_h-wide",
        "nemotron_h",
        nemotron | {"hybrid_override_pattern": "M-*-", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 64},
        "feed-forward networks without biases, in whole groups of 32",
        experts=("fused",),
        old_names=NEMOTRON,
        methods=("bf16",),
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
    yield Case(
        "ernie4_5_moe-wide",
        "ernie4_5_moe",
        {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 1, "num_hidden_layers": 3},
        "experts in all layers but the first, as llama.cpp has them, and in whole groups of 32",
        experts=ONE_BY_ONE,
        old_names=(("mlp.gate.moe_statics.", "mlp.moe_statics."),),
        methods=("bf16",),
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
    yield Case(
        "qwen3_next-wide",
        "qwen3_next",
        shared | delta | {"linear_key_head_dim": 32, "linear_value_head_dim": 32},
        "keys and values of one size, as llama.cpp wants them, and in whole groups of 32",
        experts=ONE_BY_ONE,
        methods=("bf16",),
    )
    nested = {"old_names": (("model.", "model.language_model."),)}
    yield Case(
        "qwen3_5",
        "qwen3_5_text",
        delta | {"rope_parameters": rope(partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)},
        "projections of a delta net one by one, an output gate; multimodal packaging",
        nested="qwen3_5",
        experts=("fused",),
        **nested,
    )
    yield Case(
        "qwen3_5-wide",
        "qwen3_5_text",
        delta | {"linear_key_head_dim": 32, "linear_value_head_dim": 32, "rope_parameters": rope(partial_rotary_factor=0.25)},
        "keys and values of one size, as llama.cpp wants them, and in whole groups of 32",
        experts=("fused",),
        methods=("bf16",),
    )
    yield Case(
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        shared | delta | {"rope_parameters": rope(partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)},
        "the same with stacks of experts",
        nested="qwen3_5_moe",
        experts=("stacks",),
        methods=("bf16",),
        **nested,
    )
    yield Case(
        "qwen3_5_moe-separate",
        "qwen3_5_moe_text",
        shared | delta | {"rope_parameters": rope(partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)},
        "the same with experts one by one",
        nested="qwen3_5_moe",
        experts=ONE_BY_ONE,
        methods=("fp8-block-bf16",),
        **nested,
    )
