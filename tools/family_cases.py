"""The tiny models of tools/family_oracle.py: what is special about each family, as settings of transformers."""

from dataclasses import dataclass, field

VOCAB = 48
WINDOW = 6
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
    published_type: str = ""  # model_type in config.json, where transformers knows it by another
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
    yield Case(
        "gemma3",
        "gemma3_text",
        {"head_dim": 12, "sliding_window": WINDOW, "query_pre_attn_scalar": 20, "layer_types": layer_types(*"LG")}
        | {"rope_parameters": {"full_attention": rope(rope_type="linear", factor=8.0), "sliding_attention": rope(rope_theta=100.0)}},
        "norms around the branches and of q and k, windows with a rotation of their own",
        tied=True,
        embedding=0.1,
        gain=3.0,
        methods=("bf16",),
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
        "glm4v",
        "glm4v_text",
        {"rope_parameters": rope(partial_rotary_factor=0.5, mrope_section=[1, 1, 0])},
        "the text part in multimodal packaging, as glm4",
        nested="glm4v",
        old_names=("model.", "model.language_model."),
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
    yield Case(
        "internlm3",
        "internlm3",
        {"head_dim": 12, "attention_bias": True, "mlp_bias": True, "rope_parameters": rope(rope_type="dynamic", factor=6.0)},
        "biases by keys of its own",
    )
    yield Case("arcee", "arcee", {"head_dim": 12, "mlp_bias": True}, "squared ReLU without a gate, biases of it")
    yield Case(
        "nemotron",
        "nemotron",
        {"head_dim": 12, "partial_rotary_factor": 0.5, "norm_eps": 1e-5},
        "LayerNorm stored less one, squared ReLU without a gate, half of each head rotated",
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
    yield Case(
        "stablelm-norms",
        "stablelm",
        {"partial_rotary_factor": 0.25, "use_parallel_residual": True, "qk_layernorm": True},
        "norms of q and k, a tensor for each head",
        methods=("bf16",),
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
    ministral = {"num_hidden_layers": 3, "head_dim": 12, "sliding_window": WINDOW, "layer_types": layer_types(*"GLG")}
    ministral |= {"rope_parameters": rope()}
    yield Case("ministral", "ministral", ministral, "a window on some layers")
    yield Case(
        "mistral-layers",
        "ministral",
        ministral,
        "the same by the name that transformers takes for it where layer_types are there",
        published_type="mistral",
        methods=("fp8-block-bf16",),
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
    )
    yield Case(
        "qwen2vl",
        "qwen2_vl_text",
        {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}, "rope_theta": 10000.0},
        "the text part, its keys beside those of the picture part as in the first files",
        published_type="qwen2_vl",
    )
    yield Case(
        "qwen2_5vl",
        "qwen2_5_vl_text",
        {"rope_parameters": rope(mrope_section=[2, 1, 1]), "sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1},
        "the text part in multimodal packaging, a window on some layers",
        nested="qwen2_5_vl",
        old_names=("model.", "model.language_model."),
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
