"""What bench/gpu_time.py computes with: GPUs by their datasheets, constants of time, what an H200 measured of the engine, and
measurements that others published.

Units: microseconds, bytes, TB/s (10^12 bytes a second), GHz. A constant is "published" (with its source), "measured" (H200,
2026-11-27, bench/README.md), "set by" a row of `measured` or `check` (so that row tests nothing), "counted" (in machine code for 9.0),
or "estimated" (from experience with such machines, no source).
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Gpu:
    """A GPU. Datasheet: sms to tensor_f16. The rest is published, set by a row of the check or estimated; see GPUS."""

    name: str
    arch: str  # as the compiler names it
    sms: int
    clock: float  # GHz, boost or what it holds under load
    memory: float  # TB/s of the datasheet
    l2_mb: float
    shared_kb: int  # of an SM
    tensor_f16: float  # TFLOP/s, dense, sums in F32
    early: bool  # programmatic dependent launch (compute capability 9.0 and later)
    efficiency: float  # the share of the datasheet's memory speed that a long read reaches
    l2_bytes_clock: float  # bytes of L2 that an SM reads in a clock, in a product's kernel
    latency: float  # us of a load from memory that is busy
    node: float  # us of an empty kernel as a node of a CUDA graph

    @property
    def rate(self):
        """Bytes of memory a microsecond, in a long read."""
        return self.memory * self.efficiency * 1e6

    @property
    def l2_rate(self):
        """Bytes of L2 a microsecond."""
        return self.l2_bytes_clock * self.sms * self.clock * 1e3

    @property
    def l2_latency(self):
        """us of a load that L2 has."""
        return L2_CYCLES / self.clock / 1e3


L2_CYCLES = 280  # published: 279 on average, 222 to 339 (arXiv 2606.22588, L40); taken for all GPUs

# clock: those of H200 and H100 may be up to 1.98 GHz under a load that waits for memory; clocks that rows set are of this one.
# efficiency: H200 4.45/4.8 measured (4.37 to 4.53 beside the engine); H100 3089/3350, A100 1383/1555 measured copies
#   (RightNow-AI/AutoMegaKernel DATACENTER_RESULTS.md); 4090 955/1008 (zeux/calm README); 5090 1674/1792 (AlpinDale/qwen_megakernel
#   README); 3090, 4060 Ti and 5060 Ti estimated.
# l2_bytes_clock: H200, 4090 and 5060 Ti set by one row each of the check; H100 as H200, 4060 Ti and 3090 as 4090, 5090 as 5060 Ti,
#   A100 estimated.
# latency: 0.6 to 0.8 us under load on H200 by Little's law (estimated); the others estimated.
# node: H200 0.68 (onnxruntime, matmul_block_scaled_fp8_experiments.md, 5.1), 3090 0.83 (Infatoshi/MegaQwen); the others estimated.
# tensor_f16: dense, of the vendor's datasheets; of GeForce GPUs with sums in F32, computed from cores and clocks.
GPUS = {
    "h200": Gpu("H200", "sm_90", 132, 1.755, 4.8, 50, 228, 989, True, 0.927, 21.3, 0.70, 0.68),
    "h100": Gpu("H100 SXM", "sm_90", 132, 1.755, 3.35, 50, 228, 989, True, 0.922, 21.3, 0.70, 0.68),
    "a100": Gpu("A100 80 GB", "sm_80", 108, 1.41, 2.039, 40, 164, 312, False, 0.889, 20.0, 0.65, 0.80),
    "4090": Gpu("RTX 4090", "sm_89", 128, 2.52, 1.008, 72, 100, 165, False, 0.947, 12.3, 0.50, 0.70),
    "4060ti": Gpu("RTX 4060 Ti", "sm_89", 34, 2.535, 0.288, 32, 100, 44, False, 0.92, 12.3, 0.50, 0.70),
    "5060ti": Gpu("RTX 5060 Ti", "sm_120", 36, 2.57, 0.448, 32, 100, 47, True, 0.92, 14.7, 0.50, 0.70),
    "3090": Gpu("RTX 3090", "sm_86", 82, 1.70, 0.936, 6, 100, 71, False, 0.92, 12.3, 0.55, 0.83),
    "5090": Gpu("RTX 5090", "sm_120", 170, 2.41, 1.792, 96, 100, 210, True, 0.934, 14.7, 0.55, 0.70),
}
PREDICTED = ["h200", "h100", "a100", "4090", "4060ti", "5060ti"]

# Times of a launch, us, the same for all GPUs and programs.
EARLY_GAP = 0.6  # measured: from the end of a kernel until the next one, on the device already, has its inputs
PROLOGUE = 0.5  # estimated: a kernel's first instructions and arguments, where it was not on the device before
DRAIN = 0.5  # estimated: from the last product to the end of the grid that the next kernel may see
BARRIER = 0.73  # published: a grid-wide barrier, RTX 3090 (Infatoshi/MegaQwen)
STREAM_LAUNCH = 1.79  # published: an empty kernel, launched to a stream, H200 (onnxruntime, as above)
# What the launches and the gaps of 8B FP8 at 0, as measured, leave of its 2654 us a token: copies of inputs, score and report, and the
# host, which sees the end, chooses a token, fills in the next call and starts a graph of 183 kernels. Set by that row.
HOST = 68.0
# The next graph has been launched before this one ends, and takes its token from the device's memory.
AHEAD = 4.0  # estimated: the end of a graph and the begin of the next, whose first kernel brings the inputs
AHEAD_COPIES = 10.0  # estimated: the same with copies of report and inputs, some hundred bytes each, as on the third day

# Instructions that are executed once each wait for one another. A warp that has a scheduler nearly to itself executes one in
# DEPENDENT_CLOCKS, one of w warps that run the same ones in w * SHARED_CLOCKS; in loops warps fill each other's waits.
DEPENDENT_CLOCKS = 4.5  # estimated: latency of arithmetic on 9.0 is 4 clocks, that of shared memory and shuffles above 20
SHARED_CLOCKS = 1.75  # set by the time until o and down have staged their inputs
ISSUE = 0.56  # set by gate and up: of the issue slots, in a loop of several warps whose matrix products wait for each other
# Where the kernels of a layer have more code than a multiprocessor keeps, each jump over code that is not needed waits for L2.
INSTRUCTION_CACHE = 128 << 10  # published: of Volta, with constants (Jia et al. 2018, arXiv 1804.06826); taken for all GPUs


@dataclass(frozen=True)
class Straight:
    """What a kernel that hardly reads does after its inputs are there: loads from L2 that wait for each other, instructions of a
    warp, jumps over code that it does not need."""

    hops: int
    instructions: int
    jumps: int


# Products of one token, instructions of a warp: read off the machine code for FP8 with scales of blocks by its branches, so within
# perhaps a fifth; taken for all codes.
STRAIGHT = {
    "prologue": 300,  # up to the wait for the kernel before, the loads of the first weights among the last
    "choice": 60,  # of an expert, before that
    "staging": 120,
    "piece": 45,  # of four inputs: loaded, multiplied, split, measured
    "norm": 14,
    "result": 40,  # what becomes of the sums of some tiles: looked up before they are there
    "sums": 122,  # and put together
}
# As it ran on the H200: inputs were kept until all had been measured, then read back and split, 35 of the 61 of a piece.
STRAIGHT_THEN = STRAIGHT | {"prologue": 340, "staging": 160, "piece": 61, "norm": 30, "result": 100, "sums": 140}


@dataclass(frozen=True)
class Loop:
    """Instructions of the loop of products, counted in machine code for 9.0: for a window, 32 bytes of a lane, for finding the rows of
    the next tile, and for a tile's sums to shared memory."""

    window: dict
    next_rows: dict
    of_tile: int


LOOP = Loop({"fp8": 57.5, "int8": 71.0, "bf16": 35.0}, {"fp8": 75, "int8": 47, "bf16": 47}, 52)
LOOP_THEN = Loop({"fp8": 61.0, "int8": 74.5, "bf16": 37.0}, {"fp8": 130, "int8": 75, "bf16": 75}, 70)  # as it ran on the H200
SECOND_PRODUCT = 22  # estimated: more for a window where the parts of inputs are two products: four more, their inputs, their scales
E4M3_EXTRA = 34  # estimated: more for 16 bytes of a lane on 8.0 and 8.6, without an instruction for E4M3 (560 for 286, why.md)
PRODUCT_JUMPS = 2  # estimated: products run straight on

# Attention of one token, F16, heads of 128. For the tile of a warp: instructions for a key, by queries.
TILE_KEY_INSTRUCTIONS = {1: 25, 2: 36, 4: 59, 8: 105}  # why.md for 4 (940 for 16 keys); the others estimated
ATTEND_PROLOGUE = 150  # counted
# What comes before the loop: a query, a key or a value for each warp, in two rounds where there are more than eight. The instructions
# are set by the launch of 8B; the jumps by the same kernel's 9.5 us that morning, when products had 84 KB of code (5272 instructions)
# and it did not stay in the cache.
ATTEND_CODE = Straight(1, 550, 32)
ATTEND_FINISH = (150, 60)  # estimated: the sums of warps put together, and for each query
ATTEND_MERGE = 150  # estimated: the block that ends last puts parts together, each time it has read some
# A shortlist of the best scores (kernels/device/shortlist.cuh), all estimated: instructions that a thread executes of its bounds, of which
# the code has 1800; those before a block knows its list; and the share of rows that are on it: of random weights, where one score is
# wanted, one in 1500 is, and of SmolLM2 and Qwen3-0.6B fewer.
BOUND_INSTRUCTIONS = 800
LIST_INSTRUCTIONS = 150
LISTED_SHARE = 1 / 1500
# For 16 keys in matrix products, of up to eight queries, by the elements of a head; of these, for the copies of the next keys and values.
# Those of 128 are counted, the others estimated from them.
MATRIX_TILE_INSTRUCTIONS = {128: 526, 256: 880}
MATRIX_COPY_INSTRUCTIONS = {128: 300, 256: 540}
MATRIX_WARPS = {128: 8, 256: 4}  # of a block
ATTEND_SHARED_KB = 81  # of a block at most, with what the system takes


@dataclass(frozen=True)
class TileAttention:
    """Attention of prompts: two blocks of four warps on a multiprocessor, each warp with `queries` of a head."""

    queries: int
    shared: bool  # by heads of a group: a block's warps have the same queries of several, where there are several
    clocks: dict  # of a scheduler for a product of 16 x 8 x 16, by the elements of a head: bench/sass_clocks.py, on 9.0
    around: int  # instructions of a warp before and behind its loop: norm and rotation of its queries, results
    wait: float  # clocks of a product beyond these


# Around the loop: eight rounds of four queries with 730 instructions each and 600 more, read off; before, 16 queries of 280 one after the
# other, estimated.
TILE_ATTENTION_WAIT = 5.2  # set by 681 us of a layer's 4096 tokens, 32 heads of 128, in 17 % of which processors had no block
TILE_ATTENTION_THIRD_DAY = TileAttention(32, False, {64: 11.5, 128: 11.4, 256: 14.0}, 6400, TILE_ATTENTION_WAIT)
TILE_ATTENTION = replace(TILE_ATTENTION_THIRD_DAY, shared=True)
TILE_ATTENTION_THEN = TileAttention(16, False, {128: 15.3}, 4900, 15.0)  # clocks without barriers; the wait: of 334 us of 2048 tokens
MMA_FLOPS = 4096

@dataclass(frozen=True)
class SplitTiles:
    """Next tokens of 9 to 64 texts (split gemm): a block of eight warps goes through steps of 64 columns. By codes: rows and tokens of a
    block, and clocks of a step by the columns that a warp multiplies, two a token (bench/sass_clocks.py, on 9.0)."""

    rows: dict
    tokens: dict
    clocks: dict
    shares_rest: bool  # tiles that make no whole round are shared by blocks; else few tiles by 16 blocks each, and others by none
    times: float = 1  # as long as these clocks
    wait: float = 0  # us of a step beyond them


# Both set by gate and up of 64 texts, with SPLIT_BORDERS. In the kernel of the second day first words of codes met in banks, and pieces of
# 64 bytes came from memory one by one, asked for two steps ahead, behind scales and sums of slices; its clocks are those of a loop without
# barriers. What a step waits for beyond its loop is not known.
SPLIT_TIMES, SPLIT_WAIT_THEN = 1.33, 0.92
SPLIT_TILES = SplitTiles(
    {"fp8": 256, "int8": 256, "bf16": 128}, {"fp8": 32, "int8": 32, "bf16": 64},
    {"fp8": {32: 1003, 64: 1610}, "int8": {32: 1101, 64: 1704}, "bf16": {16: 1170, 32: 1418, 48: 1582, 64: 1804}}, True, SPLIT_TIMES)
SPLIT_TILES_THIRD_DAY = SplitTiles(
    SPLIT_TILES.rows, SPLIT_TILES.tokens,
    {"fp8": {32: 1437, 64: 1940}, "int8": {32: 1539, 64: 1967}, "bf16": {16: 1427, 32: 1569, 48: 1861, 64: 1979}}, True, SPLIT_TIMES)
SPLIT_TILES_THEN = SplitTiles(
    dict.fromkeys(("fp8", "int8", "bf16"), 128), dict.fromkeys(("fp8", "int8", "bf16"), 64),
    {"fp8": {16: 1068, 32: 1258, 48: 1474, 64: 1722}, "bf16": {16: 1041, 32: 1278, 48: 1562, 64: 1822}}, False, wait=SPLIT_WAIT_THEN)
SPLIT_BORDERS = 6  # steps that a block's beginning and end take: estimated, as in kernels/device/gemm_split.cu

# Executed after the wait: estimated from the machine code and the source.
SMALL = {"norm": Straight(1, 260, 3), "route": Straight(1, 650, 8), "add choices": Straight(3, 150, 4),
         "convolve": Straight(2, 200, 3), "recur": Straight(2, 750, 8), "gate": Straight(1, 250, 4), "sum": Straight(2, 100, 3)}
FUSED = {"convolve", "gate", "sum"}  # done by the recurrence and by the shared expert's last product

# Prefill, shares of the tensor cores' peak.
LIBRARY_SHARE = 0.75  # measured: the products of 4096 tokens of 8B, one by one, and 8192 x 8192
# Set by the prompt of 30B: mma.m16n8k16, codes converted in registers, tiles half full. Today by the clocks of the loop, 14.5 then, 10.5
# now.
TILE_EXPERTS_SHARE_THEN = 0.13
TILE_EXPERTS_SHARE = TILE_EXPERTS_SHARE_THEN * 14.5 / 10.5
COPY_SHARE = 0.55  # of the memory's speed: set by the layers of 8B that are written out (237 us), for all kernels that convert
DEQUANTIZE_SHARE = 0.75  # estimated: whole lines, all loads of a thread at once, instructions for about 100 us of these layers


@dataclass(frozen=True)
class RecurChunks:
    """Recurrences of prompts: a block goes through the chunks of a sequence."""

    tokens: int  # of a chunk
    columns: int  # of a block, which has 92 KB of shared memory
    clocks: dict  # of a chunk, by the blocks that a multiprocessor has at once
    prepare: int  # instructions of all warps that make ready what a chunk of a key head needs
    times: float = 1  # as long as these clocks


# By bench/sass_clocks.py with the way of a warp of keys, 1 and 2 blocks (3454, 2 x 3067); instructions read off. An H200 took 1.4 times
# what it says of tiles, taken here as well.
RECUR_CHUNKS = RecurChunks(32, 32, {1: 3454, 2: 6134}, 4 * 3200, 1.4)
# Set by the second day's prompt of 2048 tokens of 27B: 13 % of four layers and the head, taken for as much of all 244 ms. The kernels that
# prepared its chunks were not measured and are left out.
RECUR_CHUNKS_THEN = RecurChunks(8, 64, {1: 4550, 2: 9100}, 0)

# What ran on the H200, where the kernel has changed since: a norm that jumped over the gate and the sum of each value, a route that
# wrote weights and read them back, attention that asked for what comes in its second round after the first and multiplied by lanes,
# experts that left no registers to the next kernel, a norm of its own before router and experts, tokens that were begun once the
# host had seen the one before, recurrences in two kernels with a convolution before and a gate behind them, products of one input one
# after the other, experts whose second product looked up the choices again when the first had ended, and splits of attention that stood
# idle.
KERNELS_THEN = {"norm": Straight(1, 620, 22), "route": Straight(3, 1100, 10), "attend 4": Straight(3, 550, 32),
                "attend 8": Straight(5, 550, 32), "loop": LOOP_THEN, "straight": STRAIGHT_THEN, "room": False,
                "matrix dim": 0, "split unit": 32, "ahead": False, "passed norms": False, "fused": False, "early route": False, "shared queries": False,
                "split": SPLIT_TILES_THEN, "scores at once": False, "inputs at once": False, "gates at once": False,
                "tile attention": TILE_ATTENTION_THEN, "recur": Straight(114, 500, 12), "recur chunks": RECUR_CHUNKS_THEN,
                "experts share": TILE_EXPERTS_SHARE_THEN, "dequantize share": COPY_SHARE, "library adds": False,
                "attention rounds": False, "shortlist texts": 0}
# What ran on the third day and has changed since, but for products of up to two tokens.
KERNELS_THIRD_DAY = {"ahead us": AHEAD_COPIES, "split": SPLIT_TILES_THIRD_DAY, "experts share": TILE_EXPERTS_SHARE_THEN,
                     "dequantize share": COPY_SHARE, "library adds": False, "attention rounds": False,
                     "recur chunks": RECUR_CHUNKS_THEN, "matrix dim": 128, "split unit": 32, "shortlist texts": 0,
                     "tile attention": TILE_ATTENTION_THIRD_DAY}
# Instructions of whole kernels, counted (9.0, F16 cache).
CODE = {"fp8": 2112, "int8": 2232, "bf16": 1720, "experts": 2368, **{f"attend {queries}": 4280 for queries in (1, 2, 4, 8)},
        "norm": 584, "route": 2128, "add choices": 480, "recur": 2272, "convolve": 0, "gate": 0, "sum": 0}


@dataclass(frozen=True)
class MeasuredRow:
    """What an H200 measured of the engine (bench/README.md, GPUs): on 2026-11-27, or, on the `third_day`, 2026-11-28, newer ones."""

    what: str
    model: str
    value: float  # us of a launch after its inputs are there, us of a layer, or tokens a second
    launches: tuple = ()  # whose mean it is
    staged: bool = False  # not the whole launch: from the end of the kernel before it until its inputs are staged
    layer: bool = False  # all launches of a layer with the gaps between them
    context: int = 0
    prompt: int = 0  # tokens
    texts: int = 1  # whose next tokens run together
    third_day: bool = False  # against KERNELS_THIRD_DAY; else against KERNELS_THEN
    sets: str = ""
    why: str = ""


MEASURED = [
    MeasuredRow("8B FP8: q, k and v", "8b-fp8", 9.8, ("qkv",)),
    MeasuredRow("8B FP8: attention", "8b-fp8", 4.4, ("attend",), sets="instructions of ATTEND_CODE"),
    MeasuredRow("8B FP8: o and down, until inputs are staged", "8b-fp8", 3.3, ("o", "down"), staged=True, sets="SHARED_CLOCKS"),
    MeasuredRow("8B FP8: o and down", "8b-fp8", 9.7, ("o", "down")),
    MeasuredRow("8B FP8: gate and up", "8b-fp8", 27.4, ("gate, up",), sets="ISSUE"),
    MeasuredRow("8B FP8: head, of the mean of 17.0 with q, k and v", "8b-fp8", 276.2, ("head",)),
    MeasuredRow("8B FP8, decoding at 0", "8b-fp8", 376.8, sets="HOST"),
    MeasuredRow("8B FP8, decoding at 4096", "8b-fp8", 335.0, context=4096),
    MeasuredRow("8B FP8, decoding at 32768", "8b-fp8", 248.5, context=32768),
    MeasuredRow("8B FP8, the next tokens of two texts", "8b-fp8", 714, texts=2),
    MeasuredRow("8B FP8, of four", "8b-fp8", 826, texts=4, why="inputs that are prepared again were near by then"),
    MeasuredRow("8B FP8, of eight", "8b-fp8", 1005, texts=8),
    MeasuredRow("8B FP8, 64 texts: gate and up", "8b-fp8", 268, ("gate, up",), texts=64, sets="SPLIT_WAIT_THEN"),
    MeasuredRow("8B FP8, of 64", "8b-fp8", 2297, texts=64),
    MeasuredRow("8B INT8, decoding at 0", "8b-int8", 378.3),
    MeasuredRow("30B-A3B FP8: attention, until inputs are staged", "30b-a3b-fp8", 6.0, ("attend",), staged=True),
    MeasuredRow("30B-A3B FP8: attention", "30b-a3b-fp8", 10.0, ("attend",),
                why="jumps of cold code as the kernel of four queries was found to have them"),
    MeasuredRow("30B-A3B FP8: o", "30b-a3b-fp8", 4.3, ("o",)),
    MeasuredRow("30B-A3B FP8: norm", "30b-a3b-fp8", 6.6, ("norm",), why="22 jumps of one block; what else it waits for is not known"),
    MeasuredRow("30B-A3B FP8: router", "30b-a3b-fp8", 3.0, ("router",)),
    MeasuredRow("30B-A3B FP8: route", "30b-a3b-fp8", 4.7, ("route",)),
    MeasuredRow("30B-A3B FP8: experts, mean of two", "30b-a3b-fp8", 11.5, ("experts in", "experts out")),
    MeasuredRow("30B-A3B FP8: add choices", "30b-a3b-fp8", 2.0, ("add choices",),
                why="a kernel of 150 instructions: its beginning and end"),
    MeasuredRow("30B-A3B FP8: a layer", "30b-a3b-fp8", 66.0, layer=True),
    MeasuredRow("30B-A3B FP8, decoding at 0", "30b-a3b-fp8", 312.6),
    MeasuredRow("27B FP8, decoding at 0", "27b-fp8", 104.3),
    MeasuredRow("35B-A3B FP8, decoding at 0", "35b-a3b-fp8", 259.9, sets="loads of recurrences, which were not timed alone"),
    MeasuredRow("8B FP8, a prompt of 512", "8b-fp8", 20907, prompt=512, why="what the library takes for 512 tokens was not measured"),
    MeasuredRow("8B FP8, a prompt of 4096", "8b-fp8", 27563, prompt=4096),
    MeasuredRow("30B-A3B FP8, a prompt of 2048", "30b-a3b-fp8", 22123, prompt=2048, sets="TILE_EXPERTS_SHARE_THEN"),
    MeasuredRow("27B FP8, a prompt of 2048", "27b-fp8", 8376, prompt=2048, sets="RECUR_CHUNKS_THEN, by a share"),
    MeasuredRow("35B-A3B FP8, a prompt of 2048", "35b-a3b-fp8", 19465, prompt=2048,
                why="products of 2048 tokens or less were not measured alone"),
    MeasuredRow("28th: 8B FP8, 64 texts: gate and up", "8b-fp8", 161, ("gate, up",), texts=64, third_day=True, sets="SPLIT_TIMES"),
    MeasuredRow("28th: 8B FP8, the next tokens of two texts", "8b-fp8", 721, texts=2, third_day=True),
    MeasuredRow("28th: of three", "8b-fp8", 1004, texts=3, third_day=True, why="what 3 to 8 tokens cost beyond the model is not known"),
    MeasuredRow("28th: of four", "8b-fp8", 1206, texts=4, third_day=True, why="what 3 to 8 tokens cost beyond the model is not known"),
    MeasuredRow("28th: of five", "8b-fp8", 1107, texts=5, third_day=True, why="what 3 to 8 tokens cost beyond the model is not known"),
    MeasuredRow("28th: of eight", "8b-fp8", 1748, texts=8, third_day=True, why="what 3 to 8 tokens cost beyond the model is not known"),
    MeasuredRow("28th: 30B-A3B FP8, decoding at 0", "30b-a3b-fp8", 373.5, third_day=True, why="products of one token have changed since"),
    MeasuredRow("28th: at 4096", "30b-a3b-fp8", 332.4, context=4096, third_day=True, why="products of one token have changed since"),
    MeasuredRow("28th: at 32768", "30b-a3b-fp8", 266.9, context=32768, third_day=True, why="products of one token have changed since"),
    MeasuredRow("28th: 35B-A3B FP8, decoding at 0", "35b-a3b-fp8", 355.1, third_day=True, why="products of one token have changed since"),
    MeasuredRow("28th: at 4096", "35b-a3b-fp8", 359.3, context=4096, third_day=True, why="products of one token have changed since"),
    MeasuredRow("28th: 8B FP8, the next tokens of 16 texts", "8b-fp8", 2020, texts=16, third_day=True, why="as of 64"),
    MeasuredRow("28th: of 32", "8b-fp8", 2908, texts=32, third_day=True, why="as of 64"),
    MeasuredRow("28th: of 64", "8b-fp8", 3589, texts=64, third_day=True, why="products explain a third, what else it waits for is not known"),
    MeasuredRow("28th: 8B FP8, a prompt of 512", "8b-fp8", 18685, prompt=512, third_day=True,
                why="what the library takes for 512 tokens was not measured"),
    MeasuredRow("28th: 8B FP8, a prompt of 4096", "8b-fp8", 28757, prompt=4096, third_day=True),
    MeasuredRow("28th: 30B-A3B FP8, a prompt of 2048", "30b-a3b-fp8", 24018, prompt=2048, third_day=True),
    MeasuredRow("28th: 30B-A3B FP8, a prompt of 4096", "30b-a3b-fp8", 24257, prompt=4096, third_day=True),
    MeasuredRow("28th: 27B FP8, a prompt of 2048", "27b-fp8", 7936, prompt=2048, third_day=True),
    MeasuredRow("28th: 35B-A3B FP8, a prompt of 2048", "35b-a3b-fp8", 21301, prompt=2048, third_day=True,
                why="products of 2048 tokens or less were not measured alone"),
    MeasuredRow("28th: 35B-A3B FP8, a prompt of 4096", "35b-a3b-fp8", 22994, prompt=4096, third_day=True),
]


@dataclass(frozen=True)
class KernelRow:
    """A published time of one kernel."""

    source: str
    gpu: str
    what: str
    bytes: float
    us: float
    timed: str  # "graph": a node of a graph; "stream": launches one after the other; "kernel": by a profiler, without gaps
    warm: bool = False  # the same matrix again and again, and L2 holds it
    flushed: bool = False  # L2 is full of written zeros before each run, and they have to leave
    l1_bytes_clock: float = 0  # of weights, that L1 lets through in a clock; 0: it is not the limit
    kernels: int = 1
    sets: str = ""  # the constant that this row set; it tests nothing
    why: str = ""  # where the model misses


ORT = "onnxruntime matmul_block_scaled_fp8_experiments.md"
TILE = "tile-ai/TileOPs #244"
ATTEND = "tile-ai/TileOPs #2132"
# TileOPs' times are computed from the TB/s that it states. Its benchmark fills L2 with zeros before each run (tile-ai/TileOPs
# #1725, #2110; assumed of #244 too). That these zeros have to be written to memory while the kernel reads is our assumption:
# without it the model says 0.81 to 0.97 of TileOPs' own GEMV.
# atlas: 16 loads of a table for 16 bytes of a lane, 3.3 of which meet in a bank: 512 bytes in 53 clocks, 9.7 a clock.
KERNEL_ROWS = [
    KernelRow(TILE, "h200", "fp16 GEMV 57344x7168", 822.1e6, 193.0, "kernel", flushed=True),
    KernelRow(TILE, "h200", "fp16 GEMV 28672x8192", 469.8e6, 116.9, "kernel", flushed=True),
    KernelRow(TILE, "h200", "fp16 GEMV 18432x7168", 264.2e6, 69.5, "kernel", flushed=True),
    KernelRow(TILE, "h200", "fp16 GEMV 7168x16384", 234.9e6, 67.7, "kernel", flushed=True),
    KernelRow(TILE, "h200", "cuBLAS fp16 57344x7168", 822.1e6, 209.7, "kernel", flushed=True),
    KernelRow(TILE, "h200", "cuBLAS fp16 18432x7168", 264.2e6, 79.1, "kernel", flushed=True),
    KernelRow(ORT + " 5.4", "h200", "fp8 FMA GEMV 8192x2048", 16.8e6, 5.4, "graph", warm=True, sets="l2_bytes_clock of H200"),
    KernelRow(ORT + " 5.4", "h200", "fp8 FMA GEMV 4096x4096", 16.8e6, 6.0, "graph", warm=True),
    KernelRow(ORT + " 5.4", "h200", "fp8 FMA GEMV 4096x2048", 8.4e6, 4.0, "graph", warm=True),
    KernelRow(ORT + " 5.4", "h200", "fp8 FMA GEMV 2048x4096", 8.4e6, 4.6, "graph", warm=True,
              why="2048 warps with one load each under way: bound by latency, as its authors say"),
    KernelRow(ORT + " 5.4", "h200", "fp8 FMA GEMV 512x2048", 1.05e6, 2.7, "graph", warm=True,
              why="one load after the other in a warp; the model has two"),
    KernelRow(ORT + " 6.3", "h200", "fp8 mma GEMV 8192x2048", 16.8e6, 5.1, "graph", warm=True),
    KernelRow(ORT + " 6.3", "h200", "fp8 mma GEMV 2048x4096", 8.4e6, 4.2, "graph", warm=True),
    KernelRow(ORT + " 6.3", "h200", "fp8 mma GEMV 512x2048", 1.05e6, 3.1, "graph", warm=True,
              why="how it was timed is not published (section 6.3 says stand-alone); latency alone"),
    KernelRow(ORT + " 6.5", "4090", "fp8 mma GEMV 7168x6144, streaming", 44.04e6, 49.7, "graph"),
    KernelRow(ORT + " 6.5", "4090", "fp8 mma GEMV 7168x1024, streaming", 7.34e6, 9.585, "graph"),
    KernelRow(ORT + " 6.5", "4090", "fp8 mma GEMV 7168x2560, 8 rows, streaming", 18.35e6, 21.65, "graph"),
    KernelRow(ORT + " 6.5", "4090", "fp8 mma GEMV 7168x6144, again", 44.04e6, 13.05, "graph", warm=True,
              sets="l2_bytes_clock of 4090"),
    KernelRow(ORT + " 6.5", "4090", "fp8 mma GEMV 7168x1024, again", 7.34e6, 3.448, "graph", warm=True),
    KernelRow(ORT + " 6.6", "5060ti", "fp8 mma GEMV 5120x6144, 4 rows", 31.46e6, 26.05, "graph", warm=True,
              sets="l2_bytes_clock of 5060 Ti"),
    KernelRow(ORT + " 6.6", "5060ti", "fp8 mma GEMV 1168x5120", 5.98e6, 6.624, "graph", warm=True),
    KernelRow(ORT + " 6.6", "5060ti", "fp8 mma GEMV 1168x2560", 2.99e6, 3.904, "graph", warm=True),
    KernelRow("vllm #49363", "h100", "fp8 GEMM M=1 12288x5376, per tensor", 66.06e6, 25.6, "kernel"),
    KernelRow("vllm #49363", "h100", "bf16 GEMM M=1 12288x5376", 132.1e6, 46.0, "kernel"),
    KernelRow("atlas w8a16_gemv_hopper.cuh", "h100", "W8A16 GEMV 17408x5120, table in shared memory", 89.1e6, 45.0, "kernel",
              l1_bytes_clock=9.7),
    KernelRow("atlas w8a16_gemv_hopper.cuh", "h100", "W8A16 GEMV 1024x5120, table in shared memory", 5.24e6, 6.09, "kernel",
              l1_bytes_clock=9.7, why="a small grid: its blocks end at different times"),
    KernelRow("pegainfer #569", "h100", "rms_norm + fp8 GEMV 6144x16384", 100.7e6, 50.8, "graph", kernels=2,
              why="an FMA kernel at 59 % of the datasheet; what holds it is not published"),
    KernelRow("pegainfer #569", "h100", "rms_norm + fp8 GEMV 16384x2048", 33.55e6, 13.2, "graph", kernels=2, warm=True,
              why="whether L2 holds the matrix is not published; from memory the model says 1.15 times as long"),
    KernelRow(ATTEND, "h200", "fp8 decode attention, 65536 keys, 4 heads of 128", 67.1e6, 36.5, "kernel", flushed=True, kernels=2,
              why="its fixed part, about 10 us at 1500 MHz, is the kernel's own"),
    KernelRow(ATTEND, "h200", "fp8 decode attention, 16384 keys", 16.8e6, 17.0, "kernel", flushed=True, kernels=2,
              why="the same"),
    KernelRow(ATTEND, "h200", "fp8 decode attention, 262144 keys", 268.4e6, 116.8, "kernel", flushed=True, kernels=2,
              why="arithmetic at 1500 MHz, not memory"),
]


@dataclass(frozen=True)
class TokenRow:
    """A published time of a token, alone in its batch."""

    source: str
    gpu: str
    what: str
    gb: float  # read for a token, 10^9 bytes
    us: float
    style: str  # "graph", "early" (a graph with programmatic dependent launch), "stream", "persistent" (one kernel, barriers)
    layers: int
    large: int  # launches or phases of a layer that read weights or keys
    small: int = 0  # others
    counted: bool = False  # their number is published; else estimated from the program's design
    attention_us: float = 0  # of a layer, where published; else that of a launch
    why: str = ""


CALM = "zeux/calm README"
MSAROUFIM = "msaroufim/megakernels-vs-cuda-graphs RESULTS.md"
IMP = "kekzl/imp BENCHMARKS.md"
GPTFAST = "pytorch-labs/gpt-fast README"
TOKEN_ROWS = [
    TokenRow(CALM, "4090", "calm, Llama3-8B fp8", 7.525, 8333, "persistent", 32, 6, counted=True),
    TokenRow(CALM, "4090", "calm, Llama2-13B fp8", 13.0, 14286, "persistent", 40, 6, counted=True),
    TokenRow(CALM, "4090", "calm, Mistral-7B fp8", 7.102, 7874, "persistent", 32, 6, counted=True),
    TokenRow(CALM, "4090", "calm, Mistral-7B fp16", 14.23, 15385, "persistent", 32, 6, counted=True),
    TokenRow(MSAROUFIM, "h100", "graphs + PDL, Llama-3.2-1B bf16", 2.47, 979.5, "early", 16, 5, 1, counted=True),
    TokenRow(MSAROUFIM, "h200", "graphs + PDL, Llama-3.2-1B bf16", 2.47, 794.7, "early", 16, 5, 1, counted=True),
    TokenRow(MSAROUFIM, "h100", "Hazy megakernel, Llama-3.2-1B bf16", 2.47, 972.8, "persistent", 16, 6, counted=True),
    TokenRow(MSAROUFIM, "h200", "Hazy megakernel, Llama-3.2-1B bf16", 2.47, 759.8, "persistent", 16, 6, counted=True),
    TokenRow("Infatoshi/MegaQwen README", "3090", "MegaQwen, Qwen3-0.6B bf16, 225 barriers", 1.192, 1883, "persistent", 28, 8,
             counted=True),
    TokenRow("AlpinDale/qwen_megakernel README", "5090", "qwen_megakernel, Qwen3-0.6B bf16", 1.192, 965, "persistent", 28, 8),
    TokenRow("FlashRT #139", "4090", "FlashRT, Qwen3-VL-8B fp8 128x128", 7.57, 8715, "graph", 36, 6, 4),
    TokenRow("pegainfer #69", "4090", "pegainfer, Qwen3-4B bf16", 8.04, 10309, "graph", 36, 6, 4),
    TokenRow(IMP, "5090", "llama.cpp, Qwen3-8B Q8_0", 8.04, 6369, "graph", 36, 8, 9),
    TokenRow(IMP, "5090", "llama.cpp, Qwen3-4B Q8_0", 4.27, 4098, "graph", 36, 8, 9),
    TokenRow(IMP, "5090", "llama.cpp, Qwen3-1.7B Q8_0", 1.83, 2242, "graph", 28, 8, 9),
    TokenRow("gpustack qwen3-8b/h100", "h100", "vLLM, Qwen3-8B bf16 (attention of TileOPs #2132)", 15.14, 7250, "graph", 36, 4, 6,
             attention_us=46.4),
    TokenRow("gpustack qwen3-8b/h100", "h100", "SGLang, Qwen3-8B fp8, four lines (the same)", 8.19, 5390, "graph", 36, 4, 9,
             attention_us=46.4),
    TokenRow(GPTFAST, "a100", "gpt-fast, Llama-3.1-8B int8", 7.49, 7267, "graph", 32, 7, 3,
             why="generated int8 kernels at half of the memory's speed, 330 W"),
    TokenRow(GPTFAST, "a100", "gpt-fast, Llama-2-70B int8", 69.2, 52270, "graph", 80, 7, 3,
             why="the same kernels"),
    TokenRow("noonghunna/club-3090 #697", "4090", "vLLM, Qwen3-4B fp8", 4.41, 7220, "graph", 36, 5, 7,
             why="a server's host time is in it, and its kernels are not known"),
    TokenRow("InfiniTensor/InfiniLM #582", "4090", "InfiniLM, Qwen3-4B int8", 4.42, 10881, "stream", 36, 6, 10,
             why="host time between launches"),
    TokenRow("Infatoshi/MegaQwen README", "3090", "TensorRT-LLM, Qwen3-0.6B bf16, 200 tokens", 1.192, 2817, "graph", 28, 6, 6,
             why="its launches are not published"),
]
