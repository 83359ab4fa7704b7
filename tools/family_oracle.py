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
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.integrations import mxfp4

from family_cases import VOCAB, cases
from family_mixture_cases import mixture_cases
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

SMALLEST_ROUTER_MARGIN = 0.01
LARGEST_BF16_ERROR = 0.03  # of mixtures: beyond it some token goes to another expert


# transformers has no ForCausalLM class for these.
TEXT_CLASSES = {
    "qwen3_vl_text": ("Qwen3VLTextConfig", "Qwen3VLTextModel"),
    "qwen3_vl_moe_text": ("Qwen3VLMoeTextConfig", "Qwen3VLMoeTextModel"),
    "qwen2_vl_text": ("Qwen2VLTextConfig", "Qwen2VLTextModel"),
    "qwen2_5_vl_text": ("Qwen2_5_VLTextConfig", "Qwen2_5_VLTextModel"),
    "glm4v_text": ("Glm4vTextConfig", "Glm4vTextModel"),
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


def choose_by_softmax(model):
    """Routers as published with Ling 1.5 (modeling_bailing_moe.py, BailingMoeGate)."""

    def forward(router, hidden):
        logits = torch.nn.functional.linear(hidden.reshape(-1, hidden.shape[-1]), router.weight)
        weights, chosen = logits.softmax(-1).topk(router.top_k, -1)
        return logits, weights / weights.sum(-1, keepdim=True), chosen

    for router in model.modules():
        if type(router).__name__.endswith("TopkRouter"):
            router.__class__ = type("SoftmaxRouter", (type(router),), {"forward": forward})
    return model


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
PLAIN = ("mlp.gate.", "indexer.weights_proj", "mlp.router.", "moe.router.", "feed_forward.router.", "feed_forward.gate.", "mixer.gate.", "router.proj.", "shared_expert_gate", "in_proj_a", "in_proj_b", "proj_bias")


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
        around = [m for m in model.modules() if any(part is module for part in m.modules())]
        biases = (getattr(m, n, None) for m in around for n in ("e_score_correction_bias", "expert_bias"))
        bias = next((b for b in biases if b is not None), None)
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
        if hasattr(module, "weight") and name.endswith(("mlp.gate", "mlp.router", "moe.router", "feed_forward.router", "feed_forward.gate", "mixer.gate", "router.proj", "router.gate", "mlp.gate.wg")):
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
    config |= {"model_type": case.published_type or case.family, "dtype": dtype}
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
            model = choose_by_softmax(make_model(case)) if case.softmax else make_model(case)
            fresh = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
            router_margins = []
            if case.experts:
                watch_routers(model, router_margins)
        drawn = draw(fresh, case, rng)
        tensors, plain, quantized = encode(published_stacks(fuse(drawn) if case.fused else drawn, case), method, rng)
        ids = rng.integers(0, VOCAB, PROMPT_TOKENS).tolist()
        whole = stacked(plain, model, case)
        fill(model, split(whole, model) if case.fused else whole)
        for key, buffer in model.named_buffers():
            if case.biases and key.endswith(case.biases):
                center, spread = {"layer_scalar": (1, 0.25), "act_fn.beta": (0.5, 0.1)}.get(case.biases, (0, 0.1))
                buffer.copy_(torch.tensor(center + spread * rng.standard_normal(buffer.shape)).float())
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
        pairs = bool(case.old_names) and isinstance(case.old_names[0], tuple)
        for ours, theirs in case.old_names if pairs else ():
            tensor = tensor.replace(ours, theirs)
        before, after = ("", "") if pairs or not case.old_names else case.old_names
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
