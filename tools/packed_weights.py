"""Quantized layers in the layouts of other libraries, for tools/oracle.py: for each method a function that makes the
tensors of one linear layer, and its dequantized matrix in F32, from a matrix in float64.

Written from the formulas of the libraries, each named below; matrices are dequantized from the stored numbers as they
would be read back, F32 operation by F32 operation where the scales are floats.
"""

import numpy as np
from quantize_demo import E4M3, e4m3_encode


def words(values, bits):
    """Values of so many bits, dense along the last axis, lowest bits first: U32 words, the last filled up with zeros."""
    values = np.asarray(values, np.uint64)
    in_word = 32 // bits
    pad = -values.shape[-1] % in_word
    values = np.concatenate([values, np.zeros((*values.shape[:-1], pad), np.uint64)], -1)
    values = values.reshape(*values.shape[:-1], -1, in_word)
    return (values << np.arange(0, 32, bits, dtype=np.uint64)).sum(-1).astype(np.uint32)


def affine(w, group, bits):
    """Unsigned codes, F16 scales and whole zero points, for groups of columns."""
    n, k = w.shape
    tiles = w.reshape(n, k // group, group)
    low, high = np.minimum(tiles.min(-1), 0), np.maximum(tiles.max(-1), 0)
    most = 2**bits - 1
    scale = np.maximum((high - low) / most, 1e-4).astype(np.float16)
    zero = np.clip(np.rint(-low / scale), 0, most)
    codes = np.clip(np.rint(tiles / scale[..., None].astype(float)) + zero[..., None], 0, most)
    return codes.reshape(n, k).astype(np.int64), scale, zero.astype(np.int64)


def gptq(module, w, rng, bits, group, version, order):
    """GPTQModel: qweight packs along K, qzeros along N, less one in version 1 and in whole words."""
    n, k = w.shape
    g_idx = rng.permutation(np.repeat(np.arange(k // group), group)) if order else np.arange(k) // group
    columns = np.argsort(g_idx, kind="stable")
    codes, scale, zero = affine(w[:, columns], group, bits)
    zero[0, 0] = 0
    stored = np.empty_like(codes)
    stored[:, columns] = codes
    zeros = words(zero.T, bits)
    if version == 1:
        zeros = zeros - np.uint32(sum(1 << bit for bit in range(0, 32, bits)))
    tensors = {
        module + ".qweight": ("I32", pack_rows(stored.T, bits)),
        module + ".qzeros": ("I32", zeros),
        module + ".scales": ("F16", np.ascontiguousarray(scale.T)),
    }
    if order:
        tensors[module + ".g_idx"] = ("I32", g_idx.astype(np.int32))
    values = (stored - zero[:, g_idx]) * scale[:, g_idx].astype(float)
    return tensors, values.astype(np.float32)


def pack_rows(codes, bits):
    """Words along the first axis."""
    return np.ascontiguousarray(words(np.ascontiguousarray(codes.T), bits).T)


def awq(module, w, rng, group):
    """AutoAWQ, version gemm: words along N, whose columns are in the order 0, 2, 4, 6, 1, 3, 5, 7."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes, scale, zero = affine(w, group, 4)

    def pack(x):
        return words(x.reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape), 4)

    tensors = {
        module + ".qweight": ("I32", pack(codes.T)),
        module + ".qzeros": ("I32", pack(zero.T)),
        module + ".scales": ("F16", np.ascontiguousarray(scale.T)),
    }
    group_of = np.arange(w.shape[1]) // group
    return tensors, ((codes - zero[:, group_of]) * scale[:, group_of].astype(float)).astype(np.float32)


def pack_quantized(module, w, rng, bits, group):
    """compressed-tensors: codes and zero points plus the middle value, the zero points packed along N."""
    codes, scale, zero = affine(w, group, bits)
    tensors = {
        module + ".weight_packed": ("I32", words(codes, bits)),
        module + ".weight_scale": ("F16", scale),
        module + ".weight_zero_point": ("I32", pack_rows(zero, bits)),
        module + ".weight_shape": ("I64", np.array(w.shape, np.int64)),
    }
    group_of = np.arange(w.shape[1]) // group
    return tensors, ((codes - zero[:, group_of]) * scale[:, group_of].astype(float)).astype(np.float32)


def mlx(module, w, rng, bits, group):
    """mlx-lm, mode affine: scale * code + bias, each operation rounded."""
    n, k = w.shape
    tiles = w.reshape(n, k // group, group)
    scale = ((tiles.max(-1) - tiles.min(-1)) / (2**bits - 1)).astype(np.float32)
    bias = tiles.min(-1).astype(np.float32)
    scale[0], bias[0] = -scale[0], tiles[0].max(-1)  # scales have either sign
    codes = np.clip(np.rint((tiles - bias[..., None]) / scale[..., None].astype(float)), 0, 2**bits - 1)
    values = codes.astype(np.float32) * scale[..., None] + bias[..., None]
    tensors = {
        module + ".weight": ("U32", words(codes.reshape(n, k), bits)),
        module + ".scales": ("F32", scale),
        module + ".biases": ("F32", bias),
    }
    return tensors, values.reshape(n, k)


def hqq(module, w, rng, group, axis):
    """hqq, 8 bits: (code - zero) * scale with a zero that is a float; groups of neighbours, or one a column of (size,
    groups)."""
    tiles = w.reshape(-1, group) if axis == 1 else w.reshape(group, -1)
    low, high = tiles.min(axis, keepdims=True), tiles.max(axis, keepdims=True)
    scale = ((high - low) / 255).astype(np.float32)
    zero = (-low / scale).astype(np.float32)
    codes = np.clip(np.rint(tiles / scale + zero), 0, 255).astype(np.uint8)
    values = (codes.astype(np.float32) - zero) * scale
    tensors = {
        module + ".W_q": ("U8", codes),
        module + ".scale": ("F32", scale),
        module + ".zero": ("F32", zero),
        module + ".shape": ("I64", np.array(w.shape, np.int64)),
        module + ".nbits": ("I32", np.array(8, np.int32)),
        module + ".axis": ("I32", np.array(axis, np.int32)),
    }
    return tensors, values.reshape(w.shape)


def llm_int8(module, w, rng):
    """bitsandbytes: (code * SCB) * (1 / 127), each product rounded."""
    scb = np.abs(w).max(1).astype(np.float32)
    codes = np.rint(w * 127 / scb[:, None].astype(float)).astype(np.int8)
    values = codes.astype(np.float32) * scb[:, None] * np.float32(7.874015718698502e-3)
    tensors = {
        module + ".weight": ("I8", codes),
        module + ".SCB": ("F32", scb),
        module + ".weight_format": ("U8", np.array(0, np.uint8)),
    }
    return tensors, values


def tiles(scales):
    """A matrix of bytes as tensor cores want it (cuBLAS, 1D block scaling factors): tiles of 128 x 4, row r of one at 16 * (r % 32) + 4 *
    (r // 32); filled up with ones, which nothing reads."""
    rows, cols = scales.shape
    down, across = -(-rows // 128), -(-cols // 4)
    full = np.ones((down * 128, across * 4), np.uint8)
    full[:rows, :cols] = scales
    full = full.reshape(down, 4, 32, across, 4).transpose(0, 3, 2, 1, 4)
    return full.reshape(down * 32, across * 16)


def torchao_mxfp8(module, w, rng):
    """torchao's MXTensor: E4M3 and a power of two for 32 columns, with the largest of them below 448."""
    n, k = w.shape
    blocks = w.reshape(n, k // 32, 32)
    exponent = np.ceil(np.log2(np.abs(blocks).max(-1) / 448))
    codes = e4m3_encode(blocks / 2.0 ** exponent[..., None])
    values = np.where(codes & 0x80, -1, 1) * E4M3[codes & 0x7F] * 2.0 ** exponent[..., None]
    tensors = {
        module + "._weight_qdata": ("F8_E4M3", codes.reshape(n, k)),
        module + "._weight_scale": ("F8_E8M0", tiles((exponent + 127).astype(np.uint8))),
    }
    return tensors, values.reshape(n, k).astype(np.float32)


def torchao_nvfp4(module, w, rng):
    """torchao's NVFP4Tensor: E2M1, two to a byte, E4M3 for 16 columns, and a float for the tensor."""
    n, k = w.shape
    blocks = w.reshape(n, k // 16, 16)
    whole = np.float32(np.abs(w).max() / (6 * 448))
    scale = e4m3_encode(np.abs(blocks).max(-1) / 6 / float(whole))
    factor = E4M3[scale] * float(whole)
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.abs(np.abs(blocks / factor[..., None])[..., None] - magnitudes).argmin(-1)
    values = np.sign(blocks) * magnitudes[codes] * factor[..., None]
    codes = (codes | np.where(blocks < 0, 8, 0)).reshape(n, k).astype(np.uint8)
    tensors = {
        module + "._weight_qdata": ("U8", codes[:, ::2] | codes[:, 1::2] << 4),
        module + "._weight_scale": ("F8_E4M3", tiles(scale)),
        module + "._weight_per_tensor_scale": ("F32", np.array(whole)),
    }
    return tensors, values.reshape(n, k).astype(np.float32)


def torchao_int4(module, w, rng, group):
    """torchao's Int4Tensor: code * scale + zero_point, each operation rounded; codes of two's complement, two to a byte."""
    n, k = w.shape
    blocks = w.reshape(n, k // group, group)
    low = blocks.min(-1)
    scale = ((blocks.max(-1) - low) / 15).astype(np.float32)
    zero = (low + 8 * scale).astype(np.float32)
    codes = np.clip(np.rint((blocks - zero[..., None]) / scale[..., None].astype(float)), -8, 7)
    values = codes.astype(np.float32) * scale[..., None] + zero[..., None]
    nibbles = codes.reshape(n, k).astype(np.int8).view(np.uint8) & 15
    tensors = {
        module + "._weight_qdata": ("I8", (nibbles[:, ::2] | nibbles[:, 1::2] << 4).view(np.int8)),
        module + "._weight_scale": ("F32", np.ascontiguousarray(scale.T)),
        module + "._weight_zero_point": ("F32", np.ascontiguousarray(zero.T)),
    }
    return tensors, values.reshape(n, k)
