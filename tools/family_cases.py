"""The tiny models of tools/family_oracle.py: what is special about each family, as settings of transformers.

Those with mixtures of experts or recurrent layers are in tools/family_mixture_cases.py.
"""

from dataclasses import dataclass, field

VOCAB = 48
WINDOW = 6


@dataclass
class Case:
    name: str
    family: str  # model_type
    config: dict
    note: str
    tied: bool = False
    old_names: tuple = ()  # (in memory, as published): the beginnings of names; or pairs of parts of names
    nested: str = ""  # model_type of the multimodal checkpoint around it
    convert: str = ""  # "chatglm": the form of that program's checkpoints
    drop: tuple = ()  # keys that published files leave out
    extra: dict = field(default_factory=dict)  # tensors beyond the parameters: name -> shape
    experts: tuple = ()  # how published files call gate, up and down of an expert, or "fused": as in memory; "stacks"
    fused: bool = False  # published q, k and v are one matrix
    transposed: bool = False  # published stacks, or the matrices of one expert, are those in memory transposed
    biases: str = ""  # the end of the name of buffers that rank experts: drawn, and stored in F32
    embedding: float = 0.6  # standard deviation; less where the embedding is scaled up, or answers only repeat the text
    gain: float = 0.0  # beyond 1, of the final norm
    softmax: bool = False  # the routers choose by softmax and not by sigmoids, which no class of transformers has
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
        fused=True,
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
    yield Case(
        "apertus",
        "apertus",
        {"num_key_value_heads": 2, "rope_parameters": rope()},
        "an activation with numbers of its own, without a gate, norms of q and k",
        biases="act_fn.beta",
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
    yield Case(
        "exaone",
        "exaone",
        {
            "num_layers": 2,
            "head_dim": 8,
            "activation_function": "silu",
            "layer_norm_epsilon": 1e-5,
            "rope_parameters": rope(
                rope_type="llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0, high_freq_factor=4.0
            ),
        },
        "Llama under other names",
        drop=("num_hidden_layers",),
        old_names=(
            ("self_attn.o_proj.", "self_attn.out_proj."),
            ("model.layers.", "transformer.h."),
            ("model.embed_tokens.", "transformer.wte."),
            ("model.norm.", "transformer.ln_f."),
            (".self_attn.", ".attn.attention."),
            (".input_layernorm.", ".ln_1."),
            (".post_attention_layernorm.", ".ln_2."),
            (".mlp.gate_proj.", ".mlp.c_fc_0."),
            (".mlp.up_proj.", ".mlp.c_fc_1."),
            (".mlp.down_proj.", ".mlp.c_proj."),
        ),
    )
    yield Case(
        "cwm",
        "cwm",
        {"num_hidden_layers": 3, "head_dim": 12, "sliding_window": WINDOW},
        "a layer that sees everything, then windows",
        drop=("layer_types",),
    )
    yield Case("iquestcoder", "iquestcoder", {"head_dim": 12, "attention_bias": True, "mlp_bias": True}, "biases")
    yield Case("jais2", "jais2", {"layer_norm_eps": 1e-5}, "LayerNorm, biases, squared ReLU without a gate")
    yield Case(
        "hyperclovax",
        "hyperclovax",
        {"head_dim": 12, "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.4, "attention_multiplier": 0.2},
        "all four multipliers, norms behind the branches too",
    )
