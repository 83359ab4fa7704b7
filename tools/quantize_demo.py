#!/usr/bin/env python3
"""Make the 8-bit demo checkpoints from a small Llama checkpoint in F32.

    pip install -r tools/requirements-demo.txt
    python tools/quantize_demo.py SOURCE_DIR OUT_DIR

SOURCE_DIR is a Hugging Face folder (config.json, *.safetensors in F32, tokenizer files).
Two folders are written under OUT_DIR, each laid out as such checkpoints are published:

    stories260K-FP8    quant_method fp8: F8_E4M3 codes, BF16 weight_scale_inv per 128 x 128 block
    stories260K-w8a8   compressed-tensors int-quantized: I8 codes, BF16 weight_scale per row

Only the linear layers inside the blocks are quantized; embeddings, norms and head become BF16.
The same input gives the same bytes. The number helpers below also serve tools/oracle.py.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

# ---- number formats: numpy knows neither bfloat16 nor float8, so bits are made by hand ----


def bf16_bits(x):
    """Round F32 to bfloat16, nearest even, as U16 bits. Finite input only."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_bits_up(x):
    """The smallest bfloat16 that is not below x, for x > 0 in float64."""
    f = np.asarray(x, np.float32)
    f = np.where(f < x, np.nextafter(f, np.float32(np.inf)), f)
    return ((f.view(np.uint32) + 0xFFFF) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def e4m3_values():
    """The value of each of the 256 codes of F8_E4M3 (1-4-3, bias 7, no infinities)."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa / 512.0, np.ldexp(1 + mantissa / 8.0, exponent - 7))
    magnitude[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -magnitude, magnitude)


E4M3 = e4m3_values()
E4M3_MAX = 448.0
# Half way between neighbouring magnitudes 0x00..0x7E; exact in float64.
E4M3_MIDPOINTS = (E4M3[:0x7E] + E4M3[1:0x7F]) / 2


def e4m3_encode(x):
    """Nearest F8_E4M3 code of each float64, ties to the even code, saturating at +-448."""
    magnitude = np.minimum(np.abs(x), E4M3_MAX)
    code = np.searchsorted(E4M3_MIDPOINTS, magnitude, side="left")
    # side="left" sends a tie to the lower code; when that one is odd, the upper one is even.
    on_tie = E4M3_MIDPOINTS[np.minimum(code, len(E4M3_MIDPOINTS) - 1)] == magnitude
    code = code + (on_tie & (code % 2 == 1))
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


# ---- safetensors: a writer of our own, because the numpy one has no BF16 and no F8 ----

ITEM_BYTES = {"I64": 8, "U32": 4, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1}


def write_safetensors(path, tensors):
    """Write {name: (dtype string, array of its bits or values)} as one file.

    Widest elements come first, so that every tensor is aligned to its own element size.
    """
    header = {"__metadata__": {"format": "pt"}}
    blobs, end = [], 0
    for name in sorted(tensors, key=lambda n: (-ITEM_BYTES[tensors[n][0]], n)):
        dtype, array = tensors[name]
        array = np.asarray(array)
        assert array.dtype.itemsize == ITEM_BYTES[dtype], name
        blobs.append(array.tobytes())
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [end, end + len(blobs[-1])]}
        end += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


# ---- the two quantizers ----


def spread(grid, rows, columns, shape):
    """Repeat each cell of a scale grid over its rows x columns tile, cut to shape."""
    return np.repeat(np.repeat(grid, rows, 0), columns, 1)[: shape[0], : shape[1]]


def quantize_fp8_block(w, block=128):
    """[N, K] -> codes U8 [N, K] and BF16 scale bits [ceil(N / block), ceil(K / block)]."""
    n, k = w.shape
    padded = np.zeros((-(-n // block) * block, -(-k // block) * block))
    padded[:n, :k] = np.abs(w)
    amax = padded.reshape(len(padded) // block, block, -1, block).max(axis=(1, 3))
    # The scale is rounded up before the division: no element then passes 448, and the
    # rounding of the scale adds no error of its own.
    bits = bf16_bits_up(np.where(amax > 0, amax / E4M3_MAX, 1.0))
    scale = bf16_values(bits).astype(np.float64)
    return e4m3_encode(w / spread(scale, block, block, w.shape)), bits


def quantize_int8_channel(w):
    """[N, K] -> codes I8 [N, K] and BF16 scale bits [N, 1]; codes use all of -128..127."""
    amax = np.abs(w).max(axis=1, keepdims=True)
    bits = bf16_bits(np.where(amax > 0, amax / 127.5, 1.0))
    scale = bf16_values(bits).astype(np.float64)
    return np.clip(np.rint(w / scale), -128, 127).astype(np.int8), bits


def is_quantized(name):
    return name.startswith("model.layers.") and name.endswith("_proj.weight")


def convert(weights, method):
    out = {}
    for name, w in weights.items():
        if not is_quantized(name):
            out[name] = ("BF16", bf16_bits(w))
        elif method == "fp8":
            codes, scale = quantize_fp8_block(w.astype(np.float64))
            out[name] = ("F8_E4M3", codes)
            out[name + "_scale_inv"] = ("BF16", scale)
        else:
            codes, scale = quantize_int8_channel(w.astype(np.float64))
            out[name] = ("I8", codes)
            out[name + "_scale"] = ("BF16", scale)
    return out


# ---- folders ----

FP8_CONFIG = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}

INT8_ARGS = {"dynamic": False, "group_size": None, "num_bits": 8, "symmetric": True, "type": "int"}
W8A8_CONFIG = {
    "config_groups": {
        "group_0": {
            "input_activations": INT8_ARGS | {"dynamic": True, "strategy": "token"},
            "output_activations": None,
            "targets": ["Linear"],
            "weights": INT8_ARGS | {"observer": "minmax", "strategy": "channel"},
        }
    },
    "format": "int-quantized",
    "global_compression_ratio": None,
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}

CARD = """---
license: mit
language: en
datasets: [roneneldan/TinyStories]
tags: [{tag}, llama]
---
# {name}

A language model of 260 thousand parameters that writes little stories, with 8-bit weights.
It exists to try a program with: {kilobytes} KB, no download.

* **Origin**: `stories260K` from karpathy/tinyllamas, by Andrej Karpathy, trained on the
  TinyStories data set. Llama architecture: hidden 64, 5 layers, 8 heads sharing 4 key/value
  heads, 512 tokens of vocabulary, 512 positions, tied head. The query and key rows were put into
  the order of Hugging Face checkpoints first.
* **Quantized**: {how} Embedding and norms are BF16. No calibration data.
* **Error**: the matrices differ from the original by {error} (relative, Frobenius norm).
* **Made by** `tools/quantize_demo.py` of qgen; the same input gives the same bytes.
* **Licence**: MIT, see LICENSE.
"""

FP8_HOW = """the linear layers to FP8 (E4M3) with one BF16 scale per block of 128 x 128, in the layout
  of the Qwen3-*-FP8 checkpoints (`weight_scale_inv`, a multiplier). The scale is max|w| / 448, rounded
  up to BF16 before the codes are taken."""
W8A8_HOW = """the linear layers to INT8 with one BF16 scale per row, symmetric, in the
  `int-quantized` layout of compressed-tensors. The scale is max|w| / 127.5, rounded to BF16 before the
  codes are taken."""

LICENSE = """MIT License

Copyright (c) 2023 Andrej Karpathy

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


def relative_error(weights, tensors, method):
    """||W - dequantized|| / ||W|| over all quantized matrices together."""
    difference = total = 0.0
    for name in filter(is_quantized, weights):
        w = weights[name].astype(np.float64)
        if method == "fp8":
            scale = bf16_values(tensors[name + "_scale_inv"][1])
            q = E4M3[tensors[name][1]] * spread(scale, 128, 128, w.shape)
        else:
            q = tensors[name][1] * bf16_values(tensors[name + "_scale"][1]).astype(np.float64)
        difference += ((w - q) ** 2).sum()
        total += (w**2).sum()
    return np.sqrt(difference / total)


def write_folder(source, folder, weights, method):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = convert(weights, method)
    model_file = folder / "model.safetensors"
    write_safetensors(model_file, tensors)

    config = json.loads((source / "config.json").read_text())
    config["torch_dtype"] = "bfloat16"
    config["quantization_config"] = FP8_CONFIG if method == "fp8" else W8A8_CONFIG
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(source / name, folder / name)  # contents only: not the source's mode or times
    card = CARD.format(
        name=folder.name,
        tag="fp8" if method == "fp8" else "compressed-tensors",
        kilobytes=round(model_file.stat().st_size / 1000),
        how=FP8_HOW if method == "fp8" else W8A8_HOW,
        error=f"{100 * relative_error(weights, tensors, method):.2f} %",
    )
    (folder / "README.md").write_text(card)
    (folder / "LICENSE").write_text(LICENSE)


def load_f32(source):
    from safetensors.numpy import load_file

    weights = {}
    for path in sorted(source.glob("*.safetensors")):
        weights |= load_file(path)
    if not weights:
        sys.exit(f"{source}: no .safetensors file here")
    for name, w in weights.items():
        if w.dtype != np.float32:
            sys.exit(f"{name}: expected F32, found {w.dtype}")
    return dict(sorted(weights.items()))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    weights = load_f32(source)
    write_folder(source, out / "stories260K-FP8", weights, "fp8")
    write_folder(source, out / "stories260K-w8a8", weights, "int8")


if __name__ == "__main__":
    main()
