"""What bench/gpu_time.py computes with: GPUs by their datasheets, constants of time, and measurements that others published.

Units: microseconds, bytes, TB/s (10^12 bytes a second), GHz. A constant is "published" (with its source), "set by" a row of the
check (so that row tests nothing), "computed" or "estimated" (from experience with such machines, no source).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU. Datasheet: sms to tensor_int8. The rest is published, set by a row of the check or estimated; see GPUS."""

    name: str
    arch: str  # as the compiler names it
    sms: int
    clock: float  # GHz, boost or what it holds under load
    memory: float  # TB/s of the datasheet
    l2_mb: float
    shared_kb: int  # of an SM
    threads: int  # of an SM at most
    tensor_f16: float  # TFLOP/s, dense, sums in F32
    tensor_fp8: float  # 0: none
    tensor_int8: float
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
REGISTERS = 65536  # of an SM; CUDA programming guide, all of compute capability 8.0 to 12.0
SCHEDULERS = 4  # of an SM, each issues one instruction a clock; likewise
LINE = 128  # bytes that L1 serves in a clock (a "wavefront"); likewise

# efficiency: H100 3089/3350, A100 1383/1555 measured copies (RightNow-AI/AutoMegaKernel DATACENTER_RESULTS.md); 4090 955/1008
#   (zeux/calm README); 5090 1674/1792 (AlpinDale/qwen_megakernel README). H200 as H100; 3090, 4060 Ti and 5060 Ti estimated.
# l2_bytes_clock: H200, 4090 and 5060 Ti set by one row each of the check; H100 as H200, 4060 Ti and 3090 as 4090, 5090 as 5060 Ti,
#   A100 estimated.
# latency: 0.6 to 0.8 us under load on H200 by Little's law (estimated); the others estimated.
# node: H200 0.68 (onnxruntime, matmul_block_scaled_fp8_experiments.md, 5.1), 3090 0.83 (Infatoshi/MegaQwen); the others estimated.
# tensor_*: dense, of the vendor's datasheets; of GeForce GPUs with sums in F32, computed from cores and clocks.
GPUS = {
    "h200": Gpu("H200", "sm_90", 132, 1.755, 4.8, 50, 228, 2048, 989, 1979, 1979, True, 0.922, 21.3, 0.70, 0.68),
    "h100": Gpu("H100 SXM", "sm_90", 132, 1.755, 3.35, 50, 228, 2048, 989, 1979, 1979, True, 0.922, 21.3, 0.70, 0.68),
    "a100": Gpu("A100 80 GB", "sm_80", 108, 1.41, 2.039, 40, 164, 2048, 312, 0, 624, False, 0.889, 20.0, 0.65, 0.80),
    "4090": Gpu("RTX 4090", "sm_89", 128, 2.52, 1.008, 72, 100, 1536, 165, 330, 661, False, 0.947, 12.3, 0.50, 0.70),
    "4060ti": Gpu("RTX 4060 Ti", "sm_89", 34, 2.535, 0.288, 32, 100, 1536, 44, 88, 177, False, 0.92, 12.3, 0.50, 0.70),
    "5060ti": Gpu("RTX 5060 Ti", "sm_120", 36, 2.57, 0.448, 32, 100, 1536, 47, 95, 190, True, 0.92, 14.7, 0.50, 0.70),
    "3090": Gpu("RTX 3090", "sm_86", 82, 1.70, 0.936, 6, 100, 1536, 71, 0, 284, False, 0.92, 12.3, 0.55, 0.83),
    "5090": Gpu("RTX 5090", "sm_120", 170, 2.41, 1.792, 96, 100, 1536, 210, 419, 838, True, 0.934, 14.7, 0.55, 0.70),
}
PREDICTED = ["h200", "h100", "a100", "4090", "4060ti", "5060ti"]

# Times of a launch, us, the same for all GPUs and programs.
PROLOGUE = 0.5  # estimated: a kernel's first instructions and arguments, from a cold instruction cache
DRAIN = 0.5  # estimated: from the last product to the end of the grid that the next kernel may see
EARLY_GAP = 0.3  # estimated: what is left of a node with programmatic dependent launch
BLOCK_START = 0.1  # estimated: a block that takes the place of one that ended
BARRIER = 0.73  # published: a grid-wide barrier, RTX 3090 (Infatoshi/MegaQwen)
COPY = 2.0  # estimated: a small copy between host and device as a node
HOST = 10.0  # estimated: the host sees the end, chooses a token, fills in the next call, starts the graph
MAPPED = 1.0  # estimated: reading a few bytes of the host's memory, in place of a copy
HOST_MAPPED = 4.0  # estimated: the host only starts the next graph
STREAM_LAUNCH = 1.79  # published: an empty kernel, launched to a stream, H200 (onnxruntime, as above)

# Shares and lengths.
ISSUE = 0.8  # estimated: of the issue slots, in a loop that several warps share
WAVE_OVERLAP = 0.5  # estimated: how much of a block's start the other blocks of its SM hide, behind the first wave
PREFETCH_GAIN = 0.8  # estimated: of idle memory time, what fetching ahead into L2 fills
# Attention, executed instructions of machine code for 9.0 (F16 cache, 4 queries): for a key and its value to be loaded and
# converted, and for one of these and a query; and the clocks that a warp takes for a step's pairs where it has no other work.
# Without change d the shuffles of a pair are a loop, which a warp does for one pair at a time (estimated); with it those of all
# pairs of a step go together.
KEY_INSTRUCTIONS = {False: 64, True: 45}
PAIR_INSTRUCTIONS = {False: 80, True: 47}
PAIR_CYCLES = 220  # estimated, without change d
STEP_CYCLES = 250  # estimated, with it: beyond the instructions, for shuffles and exponentials that wait for each other
MMA_SHARE = 0.1  # estimated: of the instructions for pairs, where products of keys and queries are matrix products

# Prefill, shares of the tensor cores' peak. cuBLASLt: 620 to 716 of 989 TFLOP/s (vllm #23280, H100); attention: estimated, of
# mma.m16n8k16 in FlashAttention-2's form on GPUs that want wgmma.
LIBRARY_SHARE = 0.65
TILE_ATTENTION_SHARE = 0.30
TILE_EXPERTS_SHARE = 0.20  # estimated: the same instruction, codes converted in registers, tiles that are half full
COPY_SHARE = 0.8  # estimated: of the memory's speed, for kernels that convert

# Registers, of ptxas for 9.0 (CUDA 13.0, 2026-11-24, with changes b and d). Products: by type of codes and MMA tiles of a block; attention: by type of
# the cache and queries of a block. --resources replaces them.
GEMV_REGISTERS = {("fp8", 1): 112, ("fp8", 2): 128, ("int8", 1): 104, ("int8", 2): 116, ("bf16", 1): 100, ("bf16", 2): 112}
ATTEND_REGISTERS = {("f16", 1): 160, ("f16", 2): 145, ("f16", 4): 212, ("f16", 8): 255,
                    ("fp8", 1): 112, ("fp8", 2): 123, ("fp8", 4): 194, ("fp8", 8): 242}
# Instructions of a warp for 1 KiB of weights in the loop, of machine code for 9.0, without and with change b.
GEMV_INSTRUCTIONS = {
    False: {("fp8", 1): 86, ("fp8", 2): 82, ("int8", 1): 83, ("int8", 2): 71, ("bf16", 1): 38, ("bf16", 2): 35},
    True: {("fp8", 1): 70.8, ("fp8", 2): 68.5, ("int8", 1): 72.8, ("int8", 2): 65.0, ("bf16", 1): 34.8, ("bf16", 2): 29.0},
}
# A warp's for 32 codes of an expert before change g: an index, a load of a byte, a division by the columns of a group, its scale.
NAIVE_INSTRUCTIONS = 40  # estimated
# Those for a column of x that a block prepares, both passes, likewise; by whether there is a norm.
STAGE_INSTRUCTIONS = {False: {True: 18.4, False: 15.3}, True: {True: 19.4, False: 17.4}}


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
