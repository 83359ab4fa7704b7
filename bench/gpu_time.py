#!/usr/bin/env python3
"""A model of the time of the CUDA engine, for GPUs that are not at hand: what it says is predicted, not measured.

    bench/gpu_time.py check                                  published times of other programs beside the model's
    bench/gpu_time.py predict --model 8b-fp8 --gpu h200      each launch of a token: bytes, blocks, waves, us
    bench/gpu_time.py what-if --model 8b-fp8 --gpu h200      what changes of the kernels would gain
    bench/gpu_time.py table --model 8b-fp8                   tokens a second on every GPU

A model is a name (0.6b, 4b, 8b or 32b, -fp8, -int8 or -bf16, from bench/configs) or --plan FILE, what `qgen inspect MODEL --steps
--json` prints. --resources FILE, of `cuobjdump --dump-resource-usage` or `nvcc -Xptxas -v`, replaces the registers in
gpu_time_data.py, which has all constants with their sources.

A launch takes the time from the last product of the launch before it to its own. Its latency is what it takes beyond reading its
bytes from memory at full speed, and below zero where L2 has some of them already. Grids, blocks, shared memory and the loads that
are under way are those of kernels/device on 2026-11-25, for one token; that more than 16384 columns of x were staged in two slabs is not counted.
"""

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import gpu_time_data as data
from gpu_time_data import GPUS, Gpu

CONFIGS = Path(__file__).resolve().parent / "configs"
WITHIN = 0.15

CHANGES = {
    "a": "the end of each product fetches the first 18 MB of the next weights into L2",
    "b": "x is read once, by loads of 16 bytes, its norm's weights before; addresses of weights take fewer instructions",
    "c": "gate and up, and the head: one block for each place on an SM, which goes on to its next rows",
    "d": "attention has the next keys under way while it computes, shuffles all pairs together, and weighs each part once",
    "e": "position, token and score in mapped memory, the choice of a token inside the graph",
    "f": "attention multiplies keys and queries in matrix products",
    "g": "experts are multiplied on tensor cores, a choice at a time, not code by code",
}
DONE = "abdg"  # of these: they were in the kernels when these first ran on a GPU (bench/README.md); since then c is, a no longer
FETCHED_AHEAD = 18e6  # bytes, of change a


# ------------------------------------------------------------------------------------------------ what a model is made of


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

    def bytes(self, context):
        element = 2 if self.cache == "f16" else 1
        factors = 0 if self.cache == "f16" else 8
        return (context + 1) * self.kv_heads * (2 * self.head_dim * element + factors)


@dataclass(frozen=True)
class Small:
    """A launch that only waits: `hops` to L2 and `us` of its own."""

    name: str
    hops: float
    us: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Model:
    name: str
    layers: int
    vocab: int
    hidden: int
    steps: list  # of a layer
    head: Product

    @property
    def weight_bytes(self):
        """That a token reads."""
        return self.layers * sum(s.bytes for s in self.steps if isinstance(s, Product)) + self.head.bytes


def changes_of(model, letters=DONE):
    """Those of `letters` that a model has a step for."""
    mixture = any(isinstance(s, Product) and s.chosen for s in model.steps)
    return "".join(letter for letter in letters if letter != "g" or mixture)


def codes_of(method):
    known = {"bf16": "bf16", "int8 channel": "int8", "fp8 block 128x128": "fp8"}
    if method not in known:
        sys.exit(f"gpu_time: weights of '{method}' are not modelled (expected {', '.join(known)})")
    return known[method]


def model_of_config(name, cache):
    """From bench/configs."""
    config = json.loads((CONFIGS / f"qwen3-{name}" / "config.json").read_text())
    method = config.get("quantization_config", {}).get("quant_method", "bf16")
    codes = {"fp8": "fp8", "compressed-tensors": "int8", "bf16": "bf16"}[method]
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    steps = [
        Product("qkv", (heads * dim, kv_heads * dim, kv_heads * dim), hidden, codes, norm=True),
        Attention("attend", heads, kv_heads, dim, cache),
        Product("o", (hidden,), heads * dim, codes),
    ]
    if experts := config.get("num_experts"):
        chosen, ffn = config["num_experts_per_tok"], config["moe_intermediate_size"]
        steps += [
            Small("norm", 3),
            Product("router", (experts,), hidden, "bf16"),
            # For each choice the best of all ranks: shared memory, five shuffles of two numbers, three barriers of a warp.
            Small("route", 3, 0.5 + 0.3 * chosen),
            Product("experts in", (ffn, ffn), hidden, codes, gated=True, chosen=chosen),
            Product("experts out", (hidden,), ffn, codes, chosen=chosen),
            Small("add choices", 2, 0.2, 4.0 * chosen * hidden),
        ]
    else:
        steps += [
            Product("gate, up", (ffn, ffn), hidden, codes, gated=True, norm=True),
            Product("down", (hidden,), ffn, codes),
        ]
    head = Product("head", (vocab,), hidden, "bf16", norm=True)
    return Model(name, config["num_hidden_layers"], vocab, hidden, steps, head)


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
    return Model(plan["model"], shape["layers"], shape["vocabulary"], shape["hidden"], steps, head)


def registers_of(path, arch):
    """(name of a kernel, registers) of a report of ptxas or cuobjdump, for one architecture."""
    name, here = "", arch
    for line in Path(path).read_text().splitlines():
        if match := re.search(r"entry function '(\S+)' for '(\w+)'", line):
            name, here = match.groups()
        elif match := re.search(r"arch = (\w+)", line):
            here = match[1]
        elif match := re.search(r"Function (\S+):", line):
            name = match[1]
        elif here == arch and (match := re.search(r"Used (\d+) registers|REG:(\d+)", line)):
            yield name, int(match[1] or match[2])


def read_resources(path, arch):
    """Puts the registers of a report in the place of those in gpu_time_data.py; how many were found."""
    codes, caches, found = {"2": "bf16", "3": "int8", "4": "fp8"}, {"0": "f16", "3": "fp8"}, 0
    lanes = {"2": ("8", "0"), "3": ("16", "0"), "4": ("16", "1")}  # codes of a lane, groups of columns: as Product has them
    for name, registers in registers_of(path, arch):
        if match := re.search(r"gemv_kernel.*CodesE(\d)ELi(\d+)ELi(\d)EL[^L]*ScaleFormE0ELb0EEELi(\d)ELb0E", name):
            if lanes.get(match[1]) == (match[2], match[3]):
                data.GEMV_REGISTERS[codes[match[1]], int(match[4])] = registers
                found += 1
        elif match := re.search(r"attend_kernel.*CacheKindE(\d)ELi(\d)ELi1E", name):
            if match[1] in caches:
                data.ATTEND_REGISTERS[caches[match[1]], int(match[2])] = registers
                found += 1
    return found


# ------------------------------------------------------------------------------------------------ what a launch takes


@dataclass
class Launch:
    """us of one launch; `memory` is the part that its bytes take at full speed."""

    name: str
    times: int
    bytes: float
    blocks: int
    waves: float
    memory: float
    latency: float
    parts: dict = field(default_factory=dict)  # of the latency, us

    @property
    def total(self):
        return self.memory + self.latency


def resident_blocks(gpu, registers, threads, shared):
    """Blocks that an SM has at once."""
    of_registers = data.REGISTERS // (math.ceil(registers / 8) * 8 * threads)
    of_shared = gpu.shared_kb * 1024 // (shared + 1024)
    return max(1, min(of_registers, of_shared, gpu.threads // threads))


@dataclass(frozen=True)
class GemvShape:
    """The grid of gemv(), as kernels/device/gemv.cu and gemv.cuh have it for one token."""

    tiles: int  # MMA tiles of rows that a block has
    blocks: int
    shared: int  # bytes
    first_loads: int  # bytes that a block has under way

    @staticmethod
    def of(p):
        tiles = 2 if p.gated or p.chosen or sum(p.rows) > 4096 else 1
        block_rows = 16 if p.gated else 16 * tiles
        blocks = sum(math.ceil(rows / block_rows) for rows in (p.rows[:1] if p.gated else p.rows)) * max(1, p.chosen)
        window = 32 if p.codes == "bf16" else 64  # columns
        round_columns = 8 * (4 // tiles) * window
        rounds = max(1, min((64 << 10) // (2 * round_columns * 2), math.ceil(p.cols / round_columns)))
        floats = 2 * 8 * 8 + 2 * 8 + 8 * tiles * 16 * 8
        shared = 2 * (round_columns * rounds + 8) * 2 + 4 * floats
        return GemvShape(tiles, blocks, shared, 8 * 32 * 8 * 16)


def staging(gpu, p, resident, changes):
    """us from the inputs' arrival to the first product. Blocks that share an SM share its L1 and its issue slots. Without change
    b x and the norm's weights are read by every block, twice, by loads of 4 bytes whose lanes are 16 apart, which L1 serves at a
    quarter of its speed (LDG.E in the machine code of then, not LDG.E.128)."""
    once = "b" in changes
    lines = p.cols * 4 / data.LINE if once else p.cols * (2 if p.norm else 1) * 4 / data.LINE * 2 * 4
    per_column = data.STAGE_INSTRUCTIONS[once][p.norm]
    issue = p.cols / 32 * per_column / data.SCHEDULERS / data.ISSUE
    cycles = resident * max(lines, issue)
    batches = math.ceil(p.cols / 4 / 256 / 4)  # of loads that a thread waits for
    waits = (1 if once else 2) * batches * gpu.l2_latency
    return cycles / gpu.clock / 1e3 + waits + 0.1  # two barriers and a reduction: estimated


def ready(gpu, early):
    """us until a launch may read what the one before it wrote, and until it has asked for its first weights."""
    if early:
        return data.DRAIN + data.EARLY_GAP, data.BLOCK_START
    at = data.DRAIN + gpu.node + data.PROLOGUE
    return at, at


def product_launch(gpu, p, changes, times=1, fetched=0.0, early=None):
    """A launch of gemv(). `fetched`: bytes of its weights that are in L2 already."""
    early = gpu.early if early is None else early
    shape = GemvShape.of(p)
    registers = data.GEMV_REGISTERS[p.codes, shape.tiles]
    resident = resident_blocks(gpu, registers, 256, shape.shared)
    places = gpu.sms * resident
    waves = shape.blocks / places
    at_once = min(shape.blocks, places)
    size = p.bytes + max(1, p.chosen) * (4 * p.cols * (2 if p.norm else 1) + 4 * sum(p.rows))
    instructions = size / 1024 * data.GEMV_INSTRUCTIONS["b" in changes][p.codes, shape.tiles]
    issue = instructions / (gpu.sms * data.SCHEDULERS * data.ISSUE * gpu.clock * 1e3)
    little = at_once * shape.first_loads / gpu.latency  # bytes a us that the loads under way allow
    stream = max((size - fetched) / gpu.rate, size / min(gpu.l2_rate, little), issue)
    rate = size / stream

    inputs, asked = ready(gpu, early)
    if p.chosen:  # which expert, its matrix, a barrier: then the first weights are asked for
        asked = inputs = inputs + 2 * gpu.l2_latency + 0.1
    staged = staging(gpu, p, min(resident, math.ceil(shape.blocks / gpu.sms)), changes)
    first = min(size, at_once * shape.first_loads)  # bytes under way before the first product
    start = max(inputs + staged, asked + gpu.latency)
    end = max(asked + gpu.latency + size / rate, start + (gpu.latency + (size - first) / rate if size > first else 0.2))
    epilogue = 0.2 + gpu.l2_latency  # the warps' sums, a row that is added to: estimated

    # Behind the first wave each block starts anew while others of its SM go on.
    persistent = "c" in changes and waves > 1
    wave = max(0.0, staging(gpu, p, 1, changes) + epilogue + data.BLOCK_START + gpu.latency - first / rate)
    later = 0.0 if persistent else max(0, math.ceil(waves) - 1) * wave * (1 - data.WAVE_OVERLAP)
    total = end + later + epilogue
    memory = p.bytes / gpu.rate
    if "a" in changes and not p.chosen:
        idle = max(0.0, total - max(stream, memory - FETCHED_AHEAD / gpu.rate))
        sooner = total - data.PREFETCH_GAIN * min(idle, FETCHED_AHEAD / gpu.rate)
        total = min(total, max(sooner, start + size / gpu.l2_rate + epilogue))
    parts = {"inputs": inputs, "staging": staged, "waves": later}
    return Launch(p.name, times, p.bytes, shape.blocks, waves, memory, total - memory, parts)


def naive_experts(gpu, p, times):
    """A launch before change g: a warp a row, a code a lane."""
    inputs, _ = ready(gpu, gpu.early)
    issue = p.bytes / 32 * data.NAIVE_INSTRUCTIONS / (gpu.sms * data.SCHEDULERS * data.ISSUE * gpu.clock * 1e3)
    total = inputs + 3 * gpu.l2_latency + max(issue, p.bytes / gpu.rate)
    return Launch(p.name, times, p.bytes, 0, 0, p.bytes / gpu.rate, total - p.bytes / gpu.rate)


def queries_of(a):
    return min(8, 1 << max(0, math.ceil(math.log2(a.heads / a.kv_heads))))


def key_step(gpu, queries, at_once, warps, changes):
    """us that a block takes for its warps' next keys (2 * at_once a warp): loads, then arithmetic, one after the other."""
    pairs, together = at_once * queries, "d" in changes
    of_pairs = pairs * data.PAIR_INSTRUCTIONS[together] * (data.MMA_SHARE if "f" in changes else 1)
    instructions = at_once * data.KEY_INSTRUCTIONS[together] + of_pairs
    shared = warps * instructions / data.ISSUE / gpu.clock / 1e3
    if together:
        return max(gpu.latency, (instructions + data.STEP_CYCLES) / gpu.clock / 1e3, shared)
    return max(gpu.latency + max(pairs * data.PAIR_CYCLES, instructions) / gpu.clock / 1e3, shared)


def attention_launch(gpu, a, context, changes, times=1):
    """A launch of attend() for one token, as kernels/device/attend.cuh has it."""
    queries = queries_of(a)
    tiles = math.ceil(a.heads / a.kv_heads / queries)
    splits = max(1, min(64, 2 * gpu.sms // (a.kv_heads * tiles)))
    keys = context + 1
    of_block = math.ceil(math.ceil(keys / splits) / 32) * 32
    parts = math.ceil(keys / of_block)
    registers = data.ATTEND_REGISTERS[a.cache, queries]
    resident = resident_blocks(gpu, registers, 128, 16 << 10)
    blocks = a.kv_heads * tiles * parts
    waves = blocks / (gpu.sms * resident)
    at_once = 4 if queries <= 4 else 2
    lanes = max(1, min(32, a.head_dim // 8))
    steps = math.ceil(min(of_block, keys) / (4 * (32 // lanes) * at_once))
    warps = min(resident, math.ceil(blocks / gpu.sms))
    arithmetic = math.ceil(waves) * steps * key_step(gpu, queries, at_once, warps, changes)

    inputs, _ = ready(gpu, gpu.early)
    hop = gpu.l2_latency
    # Loads that wait for each other: position, page, head, norm, rotation; the same again for the key that is stored.
    prepare = 8 * hop + 0.3 + data.PROLOGUE  # 9700 instructions, 155 KB of code
    merge = 0.2
    if parts > 1:
        rounds = max(1, queries * a.head_dim // 128)
        serial = 3 if "d" in changes else math.ceil(parts / 16) + rounds * math.ceil(parts / 4)
        merge += (3 + serial) * hop  # the parts written, a fence, a counter; then all parts are read
    memory = a.bytes(context) / gpu.rate
    total = inputs + prepare + max(arithmetic, memory) + merge
    detail = {"inputs": inputs, "prepare": prepare, "arithmetic": arithmetic, "merge": merge}
    return Launch(a.name, times, a.bytes(context), blocks, waves, memory, total - memory, detail)


def small_launch(gpu, name, us, size=0.0, times=1):
    """Launches that only wait: us beyond what lies between launches."""
    inputs, _ = ready(gpu, gpu.early)
    return Launch(name, times, size, 0, 0, size / gpu.rate, inputs + us)


def token(gpu, model, context, changes=DONE):
    """The launches of a token, a layer's with the number of layers."""
    out = []
    if "e" in changes:
        out.append(Launch("inputs and token, mapped", 1, 0, 0, 0, 0, data.MAPPED + data.HOST_MAPPED))
    else:
        out.append(Launch("copies of inputs and score", 2, 0, 0, 0, 0, data.COPY))
        out.append(Launch("host between tokens", 1, 0, 0, 0, 0, data.HOST))
    out.append(small_launch(gpu, "look up", gpu.latency + 2 * gpu.l2_latency, 2.0 * model.hidden))
    fetched = 0.0
    for step in model.steps:
        if isinstance(step, Attention):
            launch = attention_launch(gpu, step, context, changes, model.layers)
            after = next(s for s in model.steps[model.steps.index(step):] if isinstance(s, Product))
            idle = (launch.total - launch.memory) * gpu.rate
            fetched = min(after.rows[0] * after.bytes / sum(after.rows), gpu.l2_mb * 1e6 / 2, idle)
        elif isinstance(step, Small):
            launch = small_launch(gpu, step.name, step.hops * gpu.l2_latency + step.us, step.bytes, model.layers)
        elif step.chosen and "g" not in changes:
            launch = naive_experts(gpu, step, model.layers)
        else:
            launch = product_launch(gpu, step, changes, model.layers, fetched)
            fetched = 0.0
        out.append(launch)
    out.append(product_launch(gpu, model.head, changes))
    # 64 blocks: each thread compares ten scores one after the other, then two trees of barriers and a counter.
    out.append(small_launch(gpu, "best score", math.ceil(model.vocab / 64 / 256) * gpu.l2_latency + 1.5, 4.0 * model.vocab))
    return out


def token_us(gpu, model, context, changes=DONE):
    return sum(launch.times * launch.total for launch in token(gpu, model, context, changes))


def prefill(gpu, model, tokens):
    """us of a prompt by groups of kernels, at 16-bit activations with cuBLASLt, in batches of 2048 tokens."""
    batches = math.ceil(tokens / 2048)
    products = [s for s in model.steps if isinstance(s, Product) and not s.chosen]
    experts = [s for s in model.steps if isinstance(s, Product) and s.chosen]
    attention = next(s for s in model.steps if isinstance(s, Attention))
    flops = 2.0 * tokens * model.layers * sum(sum(p.rows) * p.cols for p in products)
    copied = sum(sum(p.rows) * p.cols for p in products if p.codes != "bf16")
    inputs = tokens * sum(p.cols for p in products) * (4 + 2)  # F32 read, F16 written
    # A product and its gate, or the row it is added to, read; one row written.
    outputs = tokens * sum(p.rows[0] * 12 for p in products if p.gated or len(p.rows) == 1)
    scores = 4.0 * attention.heads * attention.head_dim * tokens * tokens / 2
    speed = gpu.rate * data.COPY_SHARE
    per_layer = 3 * sum(len(p.rows) for p in products) + 6  # launches
    mixture = {}
    if experts:
        of_experts = 2.0 * tokens * model.layers * sum(p.chosen * sum(p.rows) * p.cols for p in experts)
        # Inputs read and rounded; inner rows written, read, rounded and read; products written and read.
        between = tokens * sum(p.chosen * (p.rows[0] * 12 if p.gated else p.rows[0] * 8) for p in experts)
        mixture["experts in tiles"] = of_experts / (gpu.tensor_f16 * 1e6 * data.TILE_EXPERTS_SHARE)
        mixture["between the experts' products"] = model.layers * between / speed
        per_layer += 7
    return {
        "matrix products (cuBLASLt)": flops / (gpu.tensor_f16 * 1e6 * data.LIBRARY_SHARE),
        **mixture,
        "attention in tiles": model.layers * scores / (gpu.tensor_f16 * 1e6 * data.TILE_ATTENTION_SHARE),
        "weights written out as F16": batches * model.layers * copied * 3 / speed,
        "inputs rounded to F16": model.layers * inputs / speed,
        "epilogues": model.layers * outputs / speed,
        "between launches": batches * model.layers * per_layer * (data.DRAIN + gpu.node),
        "head, copies, host": product_launch(gpu, model.head, DONE).total + 2 * data.COPY + data.HOST,
    }


# ------------------------------------------------------------------------------------------------ other programs


def between(gpu, style):
    """us between two launches or phases of another program."""
    if style == "persistent":
        return data.BARRIER
    if style == "early":
        return data.EARLY_GAP + data.DRAIN + data.BLOCK_START
    return {"graph": gpu.node, "stream": data.STREAM_LAUNCH, "kernel": 0.0}[style] + data.PROLOGUE + data.DRAIN


def kernel_us(row):
    gpu = GPUS[row.gpu]
    rate = gpu.l2_rate if row.warm else gpu.rate
    if row.l1_bytes_clock:
        rate = min(rate, row.l1_bytes_clock * gpu.sms * gpu.clock * 1e3)
    latency = 2 * gpu.l2_latency if row.warm else gpu.latency
    leaves = min(row.bytes, gpu.l2_mb * 1e6) / gpu.rate if row.flushed else 0
    small = (row.kernels - 1) * (between(gpu, row.timed) + 2 * gpu.l2_latency)
    return between(gpu, row.timed) + latency + row.bytes / rate + leaves + small


def row_us(row):
    gpu = GPUS[row.gpu]
    gap = between(gpu, row.style)
    large = row.layers * row.large + 1  # and the head
    small = row.layers * row.small + 1
    attention = row.layers * row.attention_us
    return row.gb * 1e9 / gpu.rate + large * (gap + gpu.latency) + small * (gap + 2 * gpu.l2_latency) + attention


# ------------------------------------------------------------------------------------------------ what is printed


def print_rows(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def check():
    """Published times beside the model's."""
    lines, good_rows = [], {True: [], False: []}  # by whether launches are estimated
    rows = [(r, kernel_us(r), "sets " + r.sets if r.sets else "") for r in data.KERNEL_ROWS]
    rows += [(r, row_us(r), "" if r.counted else "launches estimated") for r in data.TOKEN_ROWS]
    for row, us, note in rows:
        ratio = us / row.us
        good = abs(ratio - 1) <= WITHIN
        if not note.startswith("sets"):
            good_rows[bool(note)].append(good)
        mark = "" if good else "beyond 15 %: " + (row.why or "not known why")
        remark = "; ".join(text for text in (note, mark) if text)
        lines.append([row.what, GPUS[row.gpu].name, number(row.us), number(us), f"{ratio:.2f}", remark, row.source])
    print_rows(["what", "GPU", "published us", "model us", "model / published", "", "source"], lines)
    sure, guessed = good_rows[False], good_rows[True]
    tested = len(sure) + len(guessed)
    print(f"{sum(sure) + sum(guessed)} of {tested} within 15 %: {sum(sure)} of {len(sure)} single kernels and programs whose "
          f"launches are published, {sum(guessed)} of {len(guessed)} whose launches are estimated. {len(rows) - tested} more rows set a "
          "constant each and test nothing.")


def print_prediction(gpu, model, context, changes):
    launches = token(gpu, model, context, changes)
    total = sum(launch.times * launch.total for launch in launches)
    print(f"{model.name}, {gpu.name}, context {context}: predicted, not measured\n")
    lines = []
    for launch in launches:
        detail = ", ".join(f"{name} {us:.1f}" for name, us in launch.parts.items() if us >= 0.05)
        blocks, waves = (str(launch.blocks), f"{launch.waves:.2f}") if launch.blocks else ("", "")
        us = launch.times * launch.total
        lines.append([launch.name, str(launch.times), f"{launch.bytes / 1e6:.2f}", blocks, waves, number(launch.memory),
                      number(launch.latency), number(launch.total), number(us), f"{100 * us / total:.1f}", detail])
    header = ["launch", "times", "MB", "blocks", "waves", "memory us", "latency us", "us", "us a token", "%"]
    print_rows(header + ["terms, us (they overlap)"], lines)
    read = sum(launch.times * launch.bytes for launch in launches)
    speed = read / total / 1e6
    share = 100 * speed / gpu.memory
    print(f"{number(total)} us, {1e6 / total:.1f} tok/s, {speed:.2f} TB/s, {share:.0f} % of the datasheet's memory\n")


def print_prefill(gpu, model, tokens):
    groups = prefill(gpu, model, tokens)
    total = sum(groups.values())
    print(f"prefill of {tokens} tokens, roughly: predicted, not measured\n")
    lines = [[name, f"{us / 1e3:.2f}", f"{100 * us / total:.0f}"] for name, us in groups.items()]
    print_rows(["kernels", "ms", "%"], lines)
    print(f"{total / 1e3:.1f} ms, {tokens / total * 1e6:.0f} tok/s\n")


def print_what_if(gpu, model, contexts):
    """What the changes that are done gained, together and each alone, and what each of the others would gain beyond them."""
    lines = []
    done, all_changes = changes_of(model), changes_of(model, CHANGES)
    rows = [(f"before {', '.join(done)}", "", "")]
    rows += [(f"{key} alone: {CHANGES[key]}", "", key) for key in done] + [("now", "", done)]
    rows += [(f"{key}: {CHANGES[key]}", done, done + key) for key in all_changes if key not in done]
    for name, before, changes in rows + [("all", done, all_changes)]:
        line = [name]
        for context in contexts:
            base, us = token_us(gpu, model, context, before), token_us(gpu, model, context, changes)
            gain = f" ({100 * (base / us - 1):+.1f} %)" if changes else ""
            line.append(f"{1e6 / us:.1f}{gain}")
        lines.append(line)
    print(f"{model.name}, {gpu.name}, tok/s: predicted, not measured\n")
    print_rows(["change"] + [f"context {c}" for c in contexts], lines)


def print_table(model, contexts):
    lines = []
    for key in data.PREDICTED:
        gpu = GPUS[key]
        line = [gpu.name]
        for context in contexts:
            us = token_us(gpu, model, context)
            cached = sum(step.bytes(context) for step in model.steps if isinstance(step, Attention))
            read = model.weight_bytes + model.layers * cached
            share = 100 * read / us / 1e6 / gpu.memory
            line.append(f"{1e6 / us:.1f} ({share:.0f} %), {1e6 / token_us(gpu, model, context, ''):.1f}")
        lines.append(line)
    print(f"{model.name}: tok/s (share of the datasheet's memory), and before {', '.join(changes_of(model))}: predicted, not measured\n")
    print_rows(["GPU"] + [f"context {c}" for c in contexts], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "predict", "what-if", "table"])
    parser.add_argument("--model", default="8b-fp8", help="0.6b-fp8, 4b-int8, 8b-fp8, 32b-fp8, ... [8b-fp8]")
    parser.add_argument("--plan", metavar="FILE", help="of qgen inspect MODEL --steps --json, in place of --model")
    parser.add_argument("--gpu", default="h200", choices=sorted(GPUS), help="[h200]")
    parser.add_argument("--context", default="0,4096,32768", help="tokens that the cache has [0,4096,32768]")
    parser.add_argument("--cache", default="f16", choices=["f16", "fp8"], help="the type of the key-value cache [f16]")
    parser.add_argument("--prefill", type=int, default=4096, metavar="N", help="tokens of a prompt [4096]")
    parser.add_argument("--change", default=DONE, metavar="LETTERS", help=f"predict with these of {', '.join(CHANGES)} [{DONE}]")
    parser.add_argument("--resources", metavar="FILE", help="registers, as cuobjdump --dump-resource-usage or ptxas -v print them")
    options = parser.parse_args()
    if options.command == "check":
        return check()
    arch = GPUS[options.gpu].arch
    if options.resources and read_resources(options.resources, arch) == 0:
        sys.exit(f"gpu_time: {options.resources}: no kernels for {arch} (expected a report of cuobjdump or ptxas)")
    if not options.plan and not (CONFIGS / f"qwen3-{options.model}").exists():
        sys.exit(f"gpu_time: --model {options.model}: not known (expected one of bench/configs without 'qwen3-')")
    if unknown := set(options.change) - set(CHANGES):
        sys.exit(f"gpu_time: --change {options.change}: no change '{sorted(unknown)[0]}' (expected letters of {''.join(CHANGES)})")
    model = model_of_plan(options.plan, options.cache) if options.plan else model_of_config(options.model, options.cache)
    contexts = [int(part) for part in options.context.split(",")]
    if options.command == "table":
        return print_table(model, contexts)
    gpu: Gpu = GPUS[options.gpu]
    if options.command == "what-if":
        return print_what_if(gpu, model, contexts)
    for context in contexts:
        print_prediction(gpu, model, context, options.change)
    print_prefill(gpu, model, options.prefill)


if __name__ == "__main__":
    main()
