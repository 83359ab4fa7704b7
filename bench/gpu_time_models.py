"""What a model is made of, for bench/gpu_time.py: launches of a layer, from bench/configs or from qgen's plan."""

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import gpu_time_data as data
from gpu_time_data import Straight

CONFIGS = Path(__file__).resolve().parent / "configs"


@dataclass(frozen=True)
class Product:
    """A launch of gemv(): matrices of `rows` each by `cols`."""

    name: str
    rows: tuple
    cols: int
    codes: str  # "fp8" with a scale for 128 x 128, "int8" with one a row, "bf16"
    gated: bool = False
    norm: bool = False
    chosen: int = 0  # experts, each with these matrices: a launch of multiply_chosen()
    beside: bool = False  # runs beside the launch before it, with the same inputs

    @property
    def bytes(self):
        """Of codes and scales."""
        return max(1, self.chosen) * self._bytes_of_one

    @property
    def _bytes_of_one(self):
        size, total = 2 if self.codes == "bf16" else 1, 0
        for rows in self.rows:
            scales = {"bf16": 0, "int8": rows, "fp8": math.ceil(rows / 128) * math.ceil(self.cols / 128)}[self.codes]
            total += rows * self.cols * size + 4 * scales
        return total


@dataclass(frozen=True)
class Attention:
    """A launch of attend()."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    cache: str  # "f16" or "fp8"
    gated: bool = False

    def bytes(self, context):
        element = 2 if self.cache == "f16" else 1
        factors = 0 if self.cache == "f16" else 8
        return (context + 1) * self.kv_heads * (2 * self.head_dim * element + factors)


def queries_of(a, matrix_dim=256):
    """Queries of a key-value head to a block at most, where heads of up to `matrix_dim` elements go through matrix products (F16)."""
    most = 8 if a.head_dim <= 128 or (a.cache == "f16" and a.head_dim <= matrix_dim) else 4 if a.head_dim <= 256 else 2
    return min(most, 1 << max(0, math.ceil(math.log2(a.heads / a.kv_heads))))


@dataclass(frozen=True)
class Small:
    """A launch that hardly reads: see Straight."""

    name: str
    code: Straight
    bytes: float = 0.0
    blocks: int = 1


@dataclass(frozen=True)
class Recurrence(Small):
    """A launch of recur() with the convolution before it and the gate behind it; of prompts they are launches of their own."""

    heads: int = 0
    key_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0


@dataclass(frozen=True)
class Layer:
    """Layers that are alike."""

    count: int
    steps: list


@dataclass(frozen=True)
class Model:
    name: str
    vocab: int
    hidden: int
    kinds: list  # of layers
    head: Product

    @property
    def layers(self):
        return sum(kind.count for kind in self.kinds)

    def all_of(self, what):
        """(times, step) of all steps that are a Product, an Attention or a Small."""
        return [(kind.count, step) for kind in self.kinds for step in kind.steps if isinstance(step, what)]

    @property
    def weight_bytes(self):
        """That a token reads."""
        return sum(times * step.bytes for times, step in self.all_of(Product)) + self.head.bytes

    @property
    def code_bytes(self):
        """Of all kernels of a layer, which come back layer after layer."""
        names = {self.code_of(step) for kind in self.kinds for step in kind.steps}
        return 16 * sum(data.CODE[name] for name in names)

    @staticmethod
    def code_of(step):
        """The name of a step's kernel in gpu_time_data.py."""
        if isinstance(step, Product):
            return "experts" if step.chosen else step.codes
        return f"attend {queries_of(step)}" if isinstance(step, Attention) else step.name

    @property
    def is_cold(self):
        """Whether a kernel's instructions have left the multiprocessor when its turn comes again."""
        return self.code_bytes > data.INSTRUCTION_CACHE


def codes_of(method):
    known = {"bf16": "bf16", "int8 channel": "int8", "fp8 block 128x128": "fp8"}
    if method not in known:
        sys.exit(f"gpu_time: weights of '{method}' are not modelled (expected {', '.join(known)})")
    return known[method]


def config_of(name):
    """The config.json of qwen3-NAME or of another version, qwen3.5-NAME; None where there is not exactly one."""
    found = [path for path in CONFIGS.glob("qwen3*/config.json") if path.parent.name.split("-", 1)[1] == name]
    return found[0] if len(found) == 1 else None


def model_of_config(name, cache):
    """From bench/configs."""
    config = json.loads(config_of(name).read_text())
    method = config.get("quantization_config", {}).get("quant_method", "bf16")
    codes = {"fp8": "fp8", "compressed-tensors": "int8", "bf16": "bf16"}.get(method)
    if codes is None:
        sys.exit(f"gpu_time: weights of '{method}' are not modelled (expected fp8, compressed-tensors or none)")
    config = config.get("text_config", config)
    hidden, ffn, vocab = config["hidden_size"], config.get("intermediate_size"), config["vocab_size"]
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    gates = heads * dim if config.get("attn_output_gate") else 0
    attention = [
        Product("qkv", (heads * dim + gates, kv_heads * dim, kv_heads * dim), hidden, codes, norm=True),
        Attention("attend", heads, kv_heads, dim, cache, gates > 0),
        Product("o", (hidden,), heads * dim, codes),
    ]
    if experts := config.get("num_experts"):
        chosen, ffn = config["num_experts_per_tok"], config["moe_intermediate_size"]
        shared = config.get("shared_expert_intermediate_size", 0)
        network = [
            Small("norm", data.SMALL["norm"]),
            Product("router", (experts + (1 if shared else 0),), hidden, "bf16"),
            *([Product("shared in", (shared, shared), hidden, codes, gated=True, beside=True)] if shared else []),
            Small("route", data.SMALL["route"]),
            Product("experts in", (ffn, ffn), hidden, codes, gated=True, chosen=chosen),
            Product("experts out", (hidden,), ffn, codes, chosen=chosen),
            Small("add choices", data.SMALL["add choices"], 4.0 * chosen * hidden, math.ceil(hidden / 256)),
        ]
        if shared:
            network += [Product("shared out", (hidden,), shared, codes), Small("sum", data.SMALL["sum"])]
    else:
        network = [
            Product("gate, up", (ffn, ffn), hidden, codes, gated=True, norm=True),
            Product("down", (hidden,), ffn, codes),
        ]
    layers, every = config["num_hidden_layers"], config.get("full_attention_interval", 1)
    kinds = [Layer(layers // every, attention + network)]
    if every > 1:
        key_heads, key_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
        value_heads, value_dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
        keys, values = key_heads * key_dim, value_heads * value_dim
        states = 2 * 4.0 * values * key_dim  # read and written
        delta = [
            Product("delta in", (2 * keys + values, values), hidden, codes, norm=True),
            Product("rates", (2 * value_heads,), hidden, "bf16", norm=True, beside=True),
            Small("convolve", data.SMALL["convolve"]),
            Recurrence("recur", data.SMALL["recur"], states, value_heads, value_heads, key_heads, key_dim, value_dim),
            Small("gate", data.SMALL["gate"]),
            Product("o", (hidden,), values, codes),
        ]
        kinds.insert(0, Layer(layers - layers // every, delta + network))
    head = Product("head", (vocab,), hidden, "bf16", norm=True)
    return Model(name, vocab, hidden, kinds, head)


def model_of_plan(path, cache):
    """From `qgen inspect MODEL --steps --json`: dense models whose layers are alike."""
    plan = json.loads(Path(path).read_text())
    shape = plan["shape"]

    def product(step):
        weights = step["weights"]
        last = weights[-1]["name"].split(".")[-1].removesuffix("_proj")
        gated = any(kind in step["step"] for kind in ("silu", "gelu")) and len(weights) == 2
        name = "qkv" if len(weights) == 3 else "gate, up" if gated else last
        return Product(name, tuple(w["shape"][0] for w in weights), weights[0]["shape"][1], codes_of(weights[0]["method"]),
                       gated, step["step"].startswith("norm"))

    kinds = {}  # of each layer's steps
    for step in plan["steps"]:
        kinds.setdefault(step["layer"], []).append((step["step"], [w["shape"] for w in step.get("weights", [])]))
    if any(kind != kinds[0] for layer, kind in kinds.items() if layer is not None):
        sys.exit(f"gpu_time: {path}: layers of several kinds are not modelled")
    steps, head = [], None
    for step in plan["steps"]:
        if step["layer"] == 0:
            if "attend" in step["step"]:
                steps.append(Attention("attend", shape["heads"], shape["kv_heads"], shape["head_dim"], cache))
            elif "linear" in step["step"]:
                steps.append(product(step))
            else:
                sys.exit(f"gpu_time: {path}: step '{step['step']}' is not modelled (expected norm, linear and attend)")
        elif step["layer"] is None and "linear" in step["step"]:
            head = replace(product(step), name="head")
    return Model(plan["model"], shape["vocabulary"], shape["hidden"], [Layer(shape["layers"], steps)], head)
