#!/usr/bin/env python3
"""A model of the time of the CUDA engine, for GPUs that are not at hand: what it says is predicted, not measured.

    bench/gpu_time.py measured                               what an H200 took beside the model, line by line
    bench/gpu_time.py check                                  published times of other programs beside the model's
    bench/gpu_time.py predict --model 8b-fp8 --gpu h200      each launch of a token: bytes, blocks, us
    bench/gpu_time.py what-if --model 8b-fp8 --gpu h200      what changes that could still come would gain
    bench/gpu_time.py table --model 8b-fp8                   tokens a second on every GPU

A model is a name (0.6b, 4b, 8b or 32b, -fp8, -int8 or -bf16, or 30b-a3b-fp8, 27b-fp8, 35b-a3b-fp8, from bench/configs) or --plan FILE,
what `qgen inspect MODEL --steps --json` prints. gpu_time_data.py has all constants with their sources.

A launch takes the time from the end of the kernel before it to its own end. Its latency is what it takes beyond reading its bytes
from memory at the speed of a long read. Grids, blocks, shared memory and loads under way are those of kernels/device on 2026-11-28,
for one token or with --texts for the next tokens of up to 64 texts.
"""

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass, field, replace

import gpu_time_data as data
from gpu_time_data import GPUS, Gpu, Straight
from gpu_time_models import Attention, Model, Product, Recurrence, Small, config_of, model_of_config, model_of_plan, queries_of

WITHIN = 0.15

CHANGES = {
    "ring": "products have twice as many codes under way (128 KB a multiprocessor), where there is room",
    "room": "attention leaves registers for the next kernel's blocks as well",
}


# ------------------------------------------------------------------------------------------------ what a launch takes


@dataclass
class Launch:
    """us of one launch; `memory` is the part that its bytes take at full speed."""

    name: str
    times: int
    bytes: float
    blocks: int
    memory: float
    latency: float
    staged: float = 0.0  # us from the end of the kernel before it until its inputs are there as its loop takes them
    parts: dict = field(default_factory=dict)  # of the latency, us

    @property
    def total(self):
        return self.memory + self.latency


def straight(gpu, instructions, warps):
    """us of instructions that each of the warps on a scheduler executes once, one waiting for the other."""
    return instructions * max(data.DEPENDENT_CLOCKS, warps * data.SHARED_CLOCKS) / gpu.clock / 1e3


def issued(gpu, instructions, warps):
    """us of instructions of a loop, in which the warps of a scheduler fill each other's waits."""
    return instructions * warps / data.ISSUE / gpu.clock / 1e3


def gap(gpu):
    """us from the end of a kernel until the next one has its inputs, if that was on the device already."""
    return data.EARLY_GAP if gpu.early else data.DRAIN + gpu.node


@dataclass(frozen=True)
class GemvShape:
    """The grid of gemv() and of multiply_chosen(), as kernels/device/gemv_shape.cuh has it."""

    blocks: int
    tiles: int  # that a block has, one after the other: 16 rows, of a gate and what it gates 8 each
    together: int  # tiles whose sums are put together behind one barrier
    products: int  # of matrices, for the two parts of inputs: two where more than four tokens may come
    staged: int  # times that each input is prepared: once, or for all tiles whose sums are put together
    windows: int  # of a tile, for a warp
    pieces: int  # four inputs, for a lane
    ring: int  # bytes of codes that a block has under way
    shared: int  # bytes of shared memory that the blocks of a multiprocessor take

    @staticmethod
    def of(gpu, p, changes, tokens=1, kernels=None):
        warps, at_once = (8, 2) if p.chosen else (16, 1)  # of a block; blocks that a multiprocessor has room for
        tile_rows = 8 if p.gated else 16
        all_tiles = sum(math.ceil(rows / tile_rows) for rows in (p.rows[:1] if p.gated else p.rows))
        if p.chosen:
            of_choice = max(1, at_once * gpu.sms // p.chosen)
            blocks, tiles = p.chosen * min(all_tiles, of_choice), math.ceil(all_tiles / of_choice)
        else:
            blocks, tiles = min(all_tiles, gpu.sms), math.ceil(all_tiles / gpu.sms)
        windows = math.ceil(p.cols / (32 if p.codes == "bf16" else 64) / warps)
        pieces = math.ceil(p.cols / (128 * warps))
        # Codes under way, inputs as two parts of 16 bits, sums of some tiles. Where they do not fit even beside the sums of one tile, the
        # kernel for up to eight tokens has half the ring, and if need be only a part of the inputs at once.
        def shared(ring, together):
            return at_once * (ring + 4 * tokens * (p.cols + 8 * warps + warps * (3 + 2 * together * 16) + 64) + 1024)

        ring, room = warps << 12, gpu.shared_kb * 1024
        if tokens > 2 and not (kernels or {}).get("inputs at once", True):  # 32 KB of them, for each tile anew where they are more
            staged = tiles if 4 * tokens * p.cols > 32 << 10 else 1
            return GemvShape(blocks, tiles, 1, 2, staged, windows, pieces, ring // 2, shared(ring // 2, 1))
        choices = [] if tokens > 4 else [(ring, 4, 1)] if p.chosen else [(ring, t, 1) for t in (4, 2, 1)]
        for under_way, together, products in [*choices, *((ring // 2, t, 2) for t in (4, 2, 1))]:
            if shared(under_way, together) <= room:
                shape = GemvShape(blocks, tiles, together, products, 1, windows, pieces, under_way, shared(under_way, together))
                more = (2 if fits_beside(gpu, p) else 1) * shared(2 * ring, together)
                if "ring" in changes and products == 1 and more <= room:
                    shape = replace(shape, ring=2 * ring, shared=shared(2 * ring, together))
                return shape
        together = 1
        while together < min(4, tiles):
            together *= 2
        return GemvShape(blocks, tiles, together, 2, math.ceil(tiles / together), windows, pieces, ring // 2, room)


def fits_beside(gpu, p):
    """Whether a product leaves room for the blocks of the next one: of experts on 9.0, which have 64 registers a thread (but for integers in
    groups)."""
    return gpu.arch == "sm_90" and p.chosen > 0


def tile_instructions(gpu, p, shape, loop):
    """Of a warp, for its part of a tile."""
    slower = data.E4M3_EXTRA if p.codes == "fp8" and gpu.arch in ("sm_80", "sm_86") else 0
    window = loop.window[p.codes] + 2 * slower + (data.SECOND_PRODUCT if shape.products == 2 else 0)
    return shape.windows * window + loop.next_rows[p.codes] + loop.of_tile


def of_tokens(p, tokens):
    """A product of so many tokens: experts are multiplied for each token alone."""
    return (replace(p, chosen=p.chosen * tokens), 1) if p.chosen else (p, tokens)


def product_launch(gpu, p, changes, times=1, left=0, cold=False, kernels=None, tokens=1):
    """A launch of gemv() or of multiply_chosen(), whose warps are four on a scheduler. `left`: bytes of shared memory beside a block of
    the kernel before it, none where its registers leave no room. Where a block of this one does not fit, its first weights are asked for
    when the ring would already hold them."""
    p, tokens = of_tokens(p, tokens)
    shape = GemvShape.of(gpu, p, changes, tokens, kernels)
    crowded = shape.shared > left
    full = shape.blocks >= gpu.sms
    size = p.bytes + max(1, p.chosen) * tokens * 4 * sum(p.rows)
    kernels = kernels or {}
    instructions = kernels.get("straight", data.STRAIGHT)
    fetching = data.PRODUCT_JUMPS * gpu.l2_latency if cold else 0.0
    prologue = straight(gpu, instructions["prologue"], 4) + fetching
    latency = gpu.latency if full else gpu.l2_latency  # of a load of inputs: behind those of the weights, or alone

    if p.chosen:  # inputs say which expert: its number, then where its matrices are, a barrier
        known = 2 * gpu.l2_latency + straight(gpu, instructions["choice"], 4) + prologue
        if gpu.early and not p.gated and kernels.get("early route", True):  # the choice is known while the first product runs
            asked, inputs = (known, max(gap(gpu), known)) if crowded else (-math.inf, gap(gpu))
        else:
            asked = inputs = gap(gpu) + known
    elif gpu.early:
        asked = prologue if crowded else -math.inf
        inputs = max(gap(gpu), prologue if crowded else 0.0)
    else:
        asked = inputs = gap(gpu) + prologue
    of_staging = instructions["staging"] + instructions["piece"] * shape.pieces * tokens + (instructions["norm"] if p.norm else 0)
    rounds = tokens if tokens <= 2 else math.ceil(tokens / 4)  # of tokens whose inputs are under way together
    staging = rounds * latency + straight(gpu, of_staging, 4)
    staged = inputs + staging
    begin = staged + straight(gpu, instructions["result"], 4)
    under_way = min(size, shape.blocks * shape.ring)
    rest = (size - under_way) / gpu.rate
    there = asked + gpu.latency + under_way / gpu.rate  # all that the ring holds at first
    groups = math.ceil(shape.tiles / shape.together)  # of tiles, each with a barrier behind it
    loop = issued(gpu, shape.tiles * tile_instructions(gpu, p, shape, kernels.get("loop", data.LOOP)), 4)
    loop += (groups - 1) * straight(gpu, instructions["result"] + instructions["sums"], 4) + (shape.staged - 1) * staging
    last = straight(gpu, instructions["sums"], 4)
    total = max(begin + loop, max(begin + (gpu.latency if rest else 0.0), there) + rest) + last
    memory = p.bytes / gpu.rate
    return Launch(p.name, times, p.bytes, shape.blocks, memory, total - memory, staged, {
        "inputs": inputs, "staging": staging, "loop": loop, "ring there": max(0.0, there), "last sums": last})


def split_launch(gpu, p, texts, times, kernels=None):
    """Launches of split_to_fp16() and split_gemm() for the next tokens of more than eight texts."""
    tiles = (kernels or {}).get("split", data.SPLIT_TILES)
    rows, tokens = tiles.rows[p.codes], tiles.tokens[p.codes]
    of_blocks = [min(tokens, texts - first) for first in range(0, texts, tokens)]
    blocks = len(of_blocks) * sum(math.ceil(r * (2 if p.gated else 1) / rows) for r in (p.rows[:1] if p.gated else p.rows))
    steps = 16 * math.ceil(p.cols / 1024)  # of a tile
    def rounds(blocks, shared):
        return math.ceil(blocks * shared / gpu.sms) * (steps / shared + data.SPLIT_BORDERS)

    if tiles.shares_rest:
        rest = blocks % gpu.sms
        all_steps = rounds(blocks - rest, 1) + min(rounds(rest, shared) for shared in ((1, 2, 4, 8, 16) if rest <= 64 else (1,)))
    else:
        all_steps = rounds(blocks, 16 if blocks <= 64 else 1)
    known = tiles.clocks[p.codes]
    def step_us(of_block):
        columns = 2 * of_block * rows / 256  # of a warp: those with the same rows share them
        clocks = known[min((c for c in known if c >= columns), default=max(known))]
        copied = 64 * (rows * (2 if p.codes == "bf16" else 1) + 4 * of_block)
        return max(tiles.times * clocks, copied / gpu.l2_bytes_clock) / gpu.clock / 1e3 + tiles.wait

    # Blocks with fewer tokens let others begin earlier.
    step = sum(step_us(of_block) for of_block in of_blocks) / len(of_blocks)
    memory = p.bytes / gpu.rate
    product = gap(gpu) + gpu.latency + max(all_steps * step, memory)
    inputs = small_launch(gpu, "", Straight(2, 300, 0), 8.0 * texts * p.cols).total
    size = p.bytes + 4 * texts * sum(p.rows)
    return Launch(p.name, times, size, blocks, memory, inputs + product - memory, 0.0, {"inputs split": inputs, "loop": all_steps * step})


def attention_launch(gpu, a, context, times=1, cold=False, code=data.ATTEND_CODE, matrix_dim=256, shared=True, texts=1, unit=128):
    """A launch of attend() for a token of each text, as kernels/device/attend.cuh has it. `matrix_dim`: heads of up to so many elements in
    F16 go through matrix products; `shared`: then splits without keys take queries of others; `unit`: splits of more than 64 keys are a
    multiple of it."""
    queries = queries_of(a, matrix_dim)
    tiles = math.ceil(a.heads / a.kv_heads / queries)
    splits = max(1, min(64, 2 * gpu.sms // (a.kv_heads * tiles)))  # by the shape alone
    keys = context + 1
    even = math.ceil(keys / splits)
    of_block = 64 if even <= 64 else math.ceil(even / unit) * unit
    parts = math.ceil(keys / of_block)
    blocks = a.kv_heads * tiles * parts * texts
    # A tile of a warp: 16 keys at most, as few as let all warps have some.
    matrices = a.cache == "f16" and a.head_dim <= matrix_dim
    width = 128 if a.head_dim <= 128 else 256
    block_warps = data.MATRIX_WARPS[width] if matrices else 8
    if matrices and shared:
        sharing = 1
        while sharing < 4 and 2 * sharing <= queries and 2 * sharing * parts <= splits:
            sharing *= 2
        queries, blocks = math.ceil(queries / sharing), blocks * sharing
    resident = 2 if gpu.shared_kb >= 2 * data.ATTEND_SHARED_KB else 1  # blocks on a multiprocessor
    warps = block_warps / 4 * min(resident, math.ceil(blocks / gpu.sms))  # on a scheduler
    tile_keys = min(16, max(2 if matrices or queries > 4 else 4, 1 << math.ceil(math.log2(max(1, min(of_block, keys) / block_warps)))))
    rounds = math.ceil(min(of_block, keys) / (block_warps * tile_keys))
    of_tile = data.MATRIX_TILE_INSTRUCTIONS[width] if matrices else data.TILE_KEY_INSTRUCTIONS[queries] * 16 * a.head_dim / 128
    # Without other rounds no next tile is copied; lanes share a key's elements where there are few keys.
    of_first = of_tile - data.MATRIX_COPY_INSTRUCTIONS[width] if matrices else of_tile * (1 + tile_keys / 16) / 2
    hop = gpu.l2_latency
    jumps = code.jumps * hop if cold else 0.0

    start = gap(gpu) if gpu.early else gap(gpu) + straight(gpu, data.ATTEND_PROLOGUE, warps)
    prepared = code.instructions * math.ceil((queries + 2) / block_warps)
    # The position, the page of the keys; in cold code half of what has to be fetched.
    staged = start + code.hops * hop + jumps / 2 + straight(gpu, prepared, warps)
    arithmetic = straight(gpu, of_first, warps) if rounds == 1 else issued(gpu, rounds * of_tile, warps)
    arithmetic *= max(1.0, blocks / (resident * gpu.sms))
    read = texts * a.bytes(context)
    memory = read / gpu.rate
    finish = straight(gpu, data.ATTEND_FINISH[0] + data.ATTEND_FINISH[1] * queries, warps) + jumps / 2
    # Written, counted, read: a warp has some queries, whose parts it shares with others, so many at once.
    together = min(block_warps, 1 << math.ceil(math.log2(queries)))
    reads = math.ceil(queries / together) * math.ceil(parts * together / (block_warps * (16 if matrices or queries <= 4 else 8)))
    merge = (2 + reads) * hop + straight(gpu, data.ATTEND_MERGE * reads, 2) if parts > 1 else 0.0
    total = staged + max(arithmetic, memory + gpu.latency - (staged - start)) + finish + merge
    return Launch(a.name, times, read, blocks, memory, total - memory, staged, {
        "staged": staged, "arithmetic": arithmetic, "finish": finish, "merge": merge, "cold code": jumps})


def small_launch(gpu, name, code, size=0.0, times=1, blocks=1, cold=False):
    prologue = 0.0 if gpu.early else data.PROLOGUE
    us = code.hops * gpu.l2_latency + straight(gpu, code.instructions, 2) + (code.jumps * gpu.l2_latency if cold else 0.0)
    return Launch(name, times, size, blocks, size / gpu.rate, gap(gpu) + prologue + us)


def has_shortlist(model, kernels, texts):
    """Whether the best score is found by a shortlist (kernels/engine_row.cpp)."""
    most = (kernels or {}).get("shortlist texts", 8)
    return texts <= most and model.head.codes == "bf16" and model.head.bytes >= 128 << 20


def shortlist_launches(gpu, head, changes, left, kernels, texts):
    """What kernels/device/shortlist.cuh has in place of the head's launch, where one score of each text is wanted: a copy of it in INT8,
    bounds of its scores, and the rows that may be the best, which are few. Texts have blocks of their own, of which a multiprocessor has
    room for four that bound scores (what their registers may take at most), and for one that multiplies rows; as if each had some."""
    vocab, groups = sum(head.rows), math.ceil(head.cols / 128)
    copy = product_launch(gpu, replace(head, name="head copy", codes="int8"), changes, left=left, kernels=kernels, tokens=texts)
    bounds = Straight(6 + math.ceil((groups + 1) / 8), data.BOUND_INSTRUCTIONS, 0)
    blocks = math.ceil(vocab / 512) * texts
    bound = small_launch(gpu, "bound scores", bounds, 2.0 * (groups + 1) * vocab, blocks=blocks)
    bound = replace(bound, latency=gap(gpu) + (bound.latency - gap(gpu)) * math.ceil(blocks / (4 * gpu.sms)))
    # A tile of one block, of which others have none: its limit and bounds, then its rows, two windows of a warp at once.
    tile = product_launch(gpu, replace(head, name="listed", rows=(16,)), changes, kernels=kernels)
    rounds = math.ceil(math.ceil(head.cols / (32 * 16)) / 2)
    size = 2.0 * data.LISTED_SHARE * vocab * head.cols * texts
    latency = tile.total + 2 * gpu.l2_latency + straight(gpu, data.LIST_INSTRUCTIONS, 4) + rounds * gpu.latency
    return [copy, bound, Launch("listed", 1, size, gpu.sms * texts, size / gpu.rate, latency * texts)]


def token(gpu, model, context, changes=(), kernels=None, texts=1):
    """The launches of a token of each text, a layer's with the number of layers. `kernels`: other counts than those of today
    (measured())."""
    kernels, cold, out = kernels or {}, model.is_cold, []
    ahead = kernels.get("ahead", True) and texts == 1
    between = data.HOST if not ahead else kernels.get("ahead us", data.AHEAD)
    out.append(Launch("between tokens", 1, 0, 0, 0, between))
    out.append(small_launch(gpu, "look up", Straight(2, 60, 0), 2.0 * model.hidden))

    def left_by(step, blocks):
        if blocks < gpu.sms or (isinstance(step, Attention) and "room" in changes):
            return math.inf
        if not isinstance(step, Product) or not kernels.get("room", True):
            return 0
        if not fits_beside(gpu, step):
            return 0
        product, tokens = of_tokens(step, texts)
        return gpu.shared_kb * 1024 - GemvShape.of(gpu, product, changes, tokens, kernels).shared

    fused, fused_norms = kernels.get("fused", True), kernels.get("passed norms", True)
    def is_launched(step):
        return not isinstance(step, Small) or not ((step.name == "norm" and fused_norms) or (step.name in data.FUSED and fused))

    for kind in model.kinds:
        steps = [step for step in kind.steps if is_launched(step)]
        last = steps[-1]  # of the layer before
        left = left_by(last, 0 if isinstance(last, Small) else gpu.sms)
        for step in steps:
            if isinstance(step, Attention):
                matrix_dim = kernels.get("matrix dim", 256)
                code = kernels.get(f"attend {queries_of(step, matrix_dim)}", data.ATTEND_CODE)
                launch = attention_launch(gpu, step, context, kind.count, cold, code, matrix_dim,
                                          kernels.get("shared queries", True), texts, kernels.get("split unit", 128))
            elif isinstance(step, Small):
                code = kernels.get(step.name, step.code)
                launch = small_launch(gpu, step.name, code, texts * step.bytes, kind.count, texts * step.blocks, cold)
            else:
                passes = fused_norms and step.name in ("router", "shared in", "experts in")
                normed = replace(step, norm=step.norm or passes)
                launch = (product_launch(gpu, normed, changes, kind.count, left, cold, kernels, texts) if texts <= 8 or step.chosen
                          else split_launch(gpu, normed, texts, kind.count, kernels))
                if step.beside and fused:
                    # As long as the longer of the two, and what is read of both.
                    before = out.pop()
                    more = max(0.0, launch.total - before.total - launch.memory)
                    out.append(replace(before, memory=before.memory + launch.memory, bytes=before.bytes + launch.bytes,
                                       latency=before.latency + more, name=f"{before.name}, {launch.name}"))
                    continue
            left = left_by(step, launch.blocks)
            out.append(launch)
    if has_shortlist(model, kernels, texts):
        out += shortlist_launches(gpu, model.head, changes, left, kernels, texts)
    elif texts <= 8:
        out.append(product_launch(gpu, model.head, changes, left=left, kernels=kernels, tokens=texts))
    else:  # once, or for 16 texts each
        together = texts if kernels.get("scores at once", True) else 16
        out.append(split_launch(gpu, model.head, together, math.ceil(texts / together), kernels))
    # 64 blocks: each thread compares ten scores one after the other, then two trees of barriers and a counter.
    scores = Straight(math.ceil(model.vocab / 64 / 256) + 4, 300, 0)
    out.append(small_launch(gpu, "best score", scores, 4.0 * model.vocab * texts, blocks=64 * texts))
    return out


def token_us(gpu, model, context, changes=(), kernels=None, texts=1):
    return sum(launch.times * launch.total for launch in token(gpu, model, context, changes, kernels, texts))


def tile_attention(gpu, a, tokens, kernels=None):
    """us of a layer's attention for a prompt."""
    tiles = (kernels or {}).get("tile attention", data.TILE_ATTENTION)
    warps = 4  # of a block, which goes through the keys that any of them sees
    group = a.heads // a.kv_heads if tiles.shared else 1
    queries = tiles.queries * (1 + (warps - math.gcd(group, warps)) / group)  # from a block's first to its last, on average
    products = 4.0 * a.heads * a.head_dim * tokens * (tokens + queries) / 2 / data.MMA_FLOPS
    peak = data.MMA_FLOPS * 4 * gpu.sms * gpu.clock * 1e9 / (gpu.tensor_f16 * 1e12)  # clocks of a product, of a scheduler
    of_loop = tiles.clocks[min((dim for dim in tiles.clocks if dim >= a.head_dim), default=max(tiles.clocks))]
    blocks = a.heads * tokens / (warps * tiles.queries)
    clocks = products / (4 * gpu.sms) * (max(of_loop, peak) + tiles.wait) + blocks / (2 * gpu.sms) * tiles.around * data.DEPENDENT_CLOCKS
    return clocks / gpu.clock / 1e3


def recurrence(gpu, r, tokens, kernels):
    """us of a layer's convolution, recurrence and gate for a prompt."""
    chunks = kernels.get("recur chunks", data.RECUR_CHUNKS)
    blocks = r.heads * math.ceil(r.value_dim / chunks.columns)
    most = math.ceil(blocks / gpu.sms)  # of a multiprocessor
    pairs, alone = divmod(most, 2) if gpu.shared_kb > 2 * 92 else (0, most)
    clocks = math.ceil(tokens / chunks.tokens) * (pairs * chunks.clocks[2] + alone * chunks.clocks[1]) * chunks.times
    prepared = tokens / chunks.tokens * r.key_heads * chunks.prepare / (4 * gpu.sms) / data.ISSUE
    # The convolution reads and writes keys, queries and values; the gate reads itself and results, and writes them.
    rows = 2 * (2 * r.key_heads * r.key_dim + r.heads * r.value_dim) + 3 * r.heads * r.value_dim
    return (clocks + prepared) / gpu.clock / 1e3 + 4.0 * tokens * rows / (gpu.rate * data.COPY_SHARE)


def prefill(gpu, model, tokens, kernels=None):
    """us of a prompt by groups of kernels, at 16-bit activations with cuBLASLt. `kernels`: as token() has it."""
    kernels = kernels or {}
    at_once = kernels.get("gates at once", True)
    # Tokens that go through the plan together: more where memory is plenty.
    batches = math.ceil(tokens / (4096 if at_once and gpu.shared_kb > 128 else 2048))
    speed = gpu.rate * data.COPY_SHARE
    dequantize_share = kernels.get("dequantize share", data.DEQUANTIZE_SHARE)
    us = Counter()
    for kind in model.kinds:
        products = [step for step in kind.steps if isinstance(step, Product) and not step.chosen]
        experts = [step for step in kind.steps if isinstance(step, Product) and step.chosen]
        flops = 2.0 * tokens * sum(sum(p.rows) * p.cols for p in products)
        copied = sum(sum(p.rows) * p.cols for p in products if p.codes != "bf16")
        # F32 read, F16 written, but for what attention has rounded.
        attention_rounds = kernels.get("attention rounds", True)
        rounded = [step for before, step in zip(kind.steps, kind.steps[1:])
                   if isinstance(before, Attention) and attention_rounds and before.cache == "f16" and not before.gated]
        inputs = tokens * sum(p.cols for p in products if p not in rounded) * (4 + 2)
        # The row that a product is added to is read by the library, or it and the product by an epilogue, which writes it. The same of a
        # gate, or it is read by the next inputs.
        added = [p for p in products if len(p.rows) == 1]
        outputs = tokens * sum(p.rows[0] for p in added) * (4 if kernels.get("library adds", True) else 12)
        gates = tokens * sum(p.rows[0] for p in products if p.gated)
        inputs, outputs = (inputs + 4 * gates, outputs) if at_once else (inputs, outputs + 12 * gates)
        launches = 3 * sum(len(p.rows) for p in products) + len(added) + 6
        groups = Counter({"matrix products (cuBLASLt)": flops / (gpu.tensor_f16 * 1e6 * data.LIBRARY_SHARE)})
        if experts:
            of_experts = 2.0 * tokens * sum(p.chosen * sum(p.rows) * p.cols for p in experts)
            # Inputs read and rounded; inner rows written, read, rounded and read; products written and read.
            between = tokens * sum(p.chosen * (p.rows[0] * 12 if p.gated else p.rows[0] * 8) for p in experts)
            share = kernels.get("experts share", data.TILE_EXPERTS_SHARE)
            groups["experts in tiles"] = of_experts / (gpu.tensor_f16 * 1e6 * share)
            groups["between the experts' products"] = between / speed
            launches += 7
        for step in kind.steps:
            if isinstance(step, Attention):
                groups["attention in tiles"] += tile_attention(gpu, step, tokens, kernels)
            if isinstance(step, Recurrence):
                groups["recurrences, convolutions"] += recurrence(gpu, step, tokens, kernels)
        groups["weights written out as F16"] = batches * copied * 3 / (gpu.rate * dequantize_share)
        groups["inputs rounded to F16"] = inputs / speed
        groups["epilogues"] = outputs / speed
        groups["between launches"] = batches * launches * (data.DRAIN + gpu.node)
        for name, of_layer in groups.items():
            us[name] += kind.count * of_layer
    us["head, inputs, host"] = product_launch(gpu, model.head, ()).total + data.HOST
    return us


# ------------------------------------------------------------------------------------------------ other programs


def between(gpu, style):
    """us between two launches or phases of another program."""
    if style == "persistent":
        return data.BARRIER
    if style == "early":
        return data.EARLY_GAP
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


def measured_rows():
    """(row, what the model says, its unit) of an H200, with the kernels that ran there."""
    gpu = GPUS["h200"]
    models = {row.model: model_of_config(row.model, "f16") for row in data.MEASURED}
    for row in data.MEASURED:
        model, kernels = models[row.model], data.KERNELS_THIRD_DAY if row.third_day else data.KERNELS_THEN
        if row.launches:
            launches = [launch for launch in token(gpu, model, 0, (), kernels, row.texts) if launch.name in row.launches]
            us = [launch.staged if row.staged else launch.total - gap(gpu) for launch in launches]
            value, unit = sum(us) / len(us), "us"
        elif row.layer:
            value, unit = sum(launch.total for launch in token(gpu, model, 0, (), kernels)
                              if launch.times == model.layers), "us"
        elif row.prompt:
            value, unit = row.prompt / sum(prefill(gpu, model, row.prompt, kernels).values()) * 1e6, "tok/s"
        else:
            value, unit = row.texts * 1e6 / token_us(gpu, model, row.context, (), kernels, row.texts), "tok/s"
        yield row, value, unit


def measured():
    """What an H200 took beside the model."""
    lines, good = [], []
    for row, value, unit in measured_rows():
        ratio = value / row.value
        if not row.sets:
            good.append(abs(ratio - 1) <= WITHIN)
        remark = "sets " + row.sets if row.sets else "" if good[-1] else "beyond 15 %: " + (row.why or "not known why")
        lines.append([row.what, unit, number(row.value), number(value), f"{ratio:.2f}", remark])
    print_rows(["H200", "", "measured", "model", "model / measured", ""], lines)
    print(f"{sum(good)} of {len(good)} within 15 %. {len(lines) - len(good)} more rows set a constant each and test nothing.")


def print_prediction(gpu, model, context, changes, texts):
    launches = token(gpu, model, context, changes, texts=texts)
    total = sum(launch.times * launch.total for launch in launches)
    of_texts = f", {texts} texts" if texts > 1 else ""
    print(f"{model.name}, {gpu.name}, context {context}{of_texts}: predicted, not measured\n")
    lines = []
    for launch in launches:
        detail = ", ".join(f"{name} {us:.1f}" for name, us in launch.parts.items() if us >= 0.05)
        us = launch.times * launch.total
        lines.append([launch.name, str(launch.times), f"{launch.bytes / 1e6:.2f}", str(launch.blocks or ""), number(launch.memory),
                      number(launch.latency), number(launch.total), number(us), f"{100 * us / total:.1f}", detail])
    header = ["launch", "times", "MB", "blocks", "memory us", "latency us", "us", "us a token", "%"]
    print_rows(header + ["terms, us (they overlap)"], lines)
    read = sum(launch.times * launch.bytes for launch in launches)
    speed = read / total / 1e6
    share = 100 * speed / gpu.memory
    print(f"{number(total)} us, {texts * 1e6 / total:.1f} tok/s, {speed:.2f} TB/s, {share:.0f} % of the datasheet's memory\n")


def print_prefill(gpu, model, tokens):
    groups = prefill(gpu, model, tokens)
    total = sum(groups.values())
    print(f"prefill of {tokens} tokens, roughly: predicted, not measured\n")
    lines = [[name, f"{us / 1e3:.2f}", f"{100 * us / total:.0f}"] for name, us in groups.items()]
    print_rows(["kernels", "ms", "%"], lines)
    print(f"{total / 1e3:.1f} ms, {tokens / total * 1e6:.0f} tok/s\n")


def print_what_if(gpu, model, contexts):
    """What each change would gain, alone and all together; those that change nothing here are left out."""
    now = [token_us(gpu, model, context) for context in contexts]
    lines = [["now", *(f"{1e6 / us:.1f}" for us in now)]]
    for name, changes in [*((text, (key,)) for key, text in CHANGES.items()), ("all", tuple(CHANGES))]:
        after = [token_us(gpu, model, context, changes) for context in contexts]
        if after != now:
            lines.append([name, *(f"{1e6 / us:.1f} ({100 * (base / us - 1):+.1f} %)" for base, us in zip(now, after))])
    print(f"{model.name}, {gpu.name}, tok/s: predicted, not measured\n")
    print_rows(["change"] + [f"context {c}" for c in contexts], lines)


def print_table(model, contexts):
    lines = []
    for key in data.PREDICTED:
        gpu = GPUS[key]
        line = [gpu.name]
        for context in contexts:
            us = [token_us(gpu, model, context, (), data.KERNELS_THEN), token_us(gpu, model, context),
                  token_us(gpu, model, context, tuple(CHANGES))]
            cached = sum(times * step.bytes(context) for times, step in model.all_of(Attention))
            read = sum(launch.times * launch.bytes for launch in token(gpu, model, context))
            share = 100 * read / us[1] / 1e6 / gpu.memory
            then, now, after = (f"{1e6 / t:.{0 if t < 1e4 else 1}f}" for t in us)
            line.append(f"{then}, {now} ({share:.0f} %), {after}")
        lines.append(line)
    print(f"{model.name}: tok/s with the kernels that ran on the H200, with those of today (share of the datasheet's memory), and with all "
          "changes of what-if: predicted, not measured\n")
    print_rows(["GPU"] + [f"context {c}" for c in contexts], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measured", "check", "predict", "what-if", "table"])
    parser.add_argument("--model", default="8b-fp8", help="0.6b-fp8, 4b-int8, 8b-fp8, 30b-a3b-fp8, 32b-fp8, ... [8b-fp8]")
    parser.add_argument("--plan", metavar="FILE", help="of qgen inspect MODEL --steps --json, in place of --model")
    parser.add_argument("--gpu", default="h200", choices=sorted(GPUS), help="[h200]")
    parser.add_argument("--context", default="0,4096,32768", help="tokens that the cache has [0,4096,32768]")
    parser.add_argument("--cache", default="f16", choices=["f16", "fp8"], help="the type of the key-value cache [f16]")
    parser.add_argument("--texts", type=int, default=1, metavar="N", choices=range(1, 65), help="predict their next tokens, 1 to 64 [1]")
    parser.add_argument("--prefill", type=int, default=4096, metavar="N", help="tokens of a prompt [4096]")
    parser.add_argument("--change", default="", metavar="NAMES", help=f"predict with these of {', '.join(CHANGES)} [none]")
    options = parser.parse_args()
    if options.command == "measured":
        return measured()
    if options.command == "check":
        return check()
    if not options.plan and config_of(options.model) is None:
        sys.exit(f"gpu_time: --model {options.model}: not known (expected one of bench/configs, what follows 'qwen3-' or 'qwen3.5-')")
    changes = tuple(name for name in options.change.split(",") if name)
    if unknown := set(changes) - set(CHANGES):
        sys.exit(f"gpu_time: --change {options.change}: no change '{sorted(unknown)[0]}' (expected some of {', '.join(CHANGES)})")
    model = model_of_plan(options.plan, options.cache) if options.plan else model_of_config(options.model, options.cache)
    contexts = [int(part) for part in options.context.split(",")]
    if options.command == "table":
        return print_table(model, contexts)
    gpu: Gpu = GPUS[options.gpu]
    if options.command == "what-if":
        return print_what_if(gpu, model, contexts)
    for context in contexts:
        print_prediction(gpu, model, context, changes, options.texts)
    print_prefill(gpu, model, options.prefill)


if __name__ == "__main__":
    main()
