#!/usr/bin/env python3
"""Write a GGUF file of random weights in the shape that a config.json declares, for speed alone.

    tools/venv.sh build/smollm2/venv tools/requirements-smollm2.txt
    build/smollm2/venv/bin/python bench/make_gguf.py CONFIG_DIR OUT.gguf [--type q8_0|bf16]

CONFIG_DIR holds a config.json of the family llama or qwen3. What is written is what llama.cpp's converter would make of such
a model: all matrices in TYPE, the embedding too, norms in F32, no output matrix where the embeddings are tied, and a byte-level
vocabulary of the right size whose words mean nothing. The same arguments give the same bytes.
"""

import argparse
import json
import math
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
except ModuleNotFoundError as error:
    sys.exit(f"make_gguf: Python has no {error.name}\nhint: tools/venv.sh makes an environment that has it (see the first lines here)")

from versus import stop

Q8_0_CODES = 32  # of a block: so many codes after a scale in F16
INT8_RMS = 127 / math.sqrt(3)  # of codes that are all equally likely
FILE_TYPES = {"q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "bf16": gguf.LlamaFileType.MOSTLY_BF16}
DIRECT_BYTES = "!~", "¡¬", "®ÿ"  # first and last of those that byte-level BPE spells as themselves


def read_config(folder):
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(path, f"cannot be read ({error})", "CONFIG_DIR is a folder with the config.json of a model")
    if not isinstance(config, dict):
        stop(path, "no object", "CONFIG_DIR is a folder with the config.json of a model")
    family = config.get("model_type")
    if family not in ("llama", "qwen3"):
        stop(path, f"model_type {family!r} is not supported here", "supported: llama, qwen3")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            stop(path, f"{key} is not supported here", "models without biases only")
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "rms_norm_eps")
    missing = [key for key in needed if key not in config]
    if missing:
        stop(path, f"{', '.join(missing)} missing", "these make the shape")
    for key in (*needed[:-1], "num_key_value_heads", "head_dim"):
        value = config.get(key)
        if key in needed or value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                stop(path, f"{key}: expected a number of 1 or more, found {value!r}", "this makes the shape")
    if not config.get("head_dim") and config["hidden_size"] % config["num_attention_heads"] != 0:
        stop(path, "hidden_size is not a multiple of num_attention_heads, without head_dim", "this makes the shape")
    if not isinstance(config.get("rope_parameters") or {}, dict):
        stop(path, "rope_parameters: expected an object", "as transformers writes it")
    return config


# ---- the shape ----


def head_size(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def kv_heads(config):
    return config.get("num_key_value_heads") or config["num_attention_heads"]


def shapes(config):
    """Name -> shape, rows first, in the order in which they are read."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * head_size(config)
    kv = kv_heads(config) * head_size(config)
    out = {"token_embd": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        block = {"attn_norm": (hidden,), "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden)}
        if config["model_type"] == "qwen3":
            block |= {"attn_q_norm": (head_size(config),), "attn_k_norm": (head_size(config),)}
        block |= {"attn_output": (hidden, q), "ffn_norm": (hidden,)}
        block |= {"ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
        out |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    out["output_norm"] = (hidden,)
    if not config.get("tie_word_embeddings", False):
        out["output"] = (config["vocab_size"], hidden)
    return {f"{name}.weight": shape for name, shape in out.items()}


def add_metadata(writer, config, file_type):
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    writer.add_name(f"random weights in the shape of {config['model_type']}")
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config.get("max_position_embeddings", 4096))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads(config))
    writer.add_key_length(head_size(config))
    writer.add_value_length(head_size(config))
    writer.add_rope_dimension_count(head_size(config))
    # Scaled rotations cost what others do, so the scaling is left out.
    writer.add_rope_freq_base(float(rope.get("rope_theta") or config.get("rope_theta") or 10000))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def byte_letters():
    """The letter that byte-level BPE has for each byte: itself where it shows, else the next one above 255."""
    shown = [byte for first, last in DIRECT_BYTES for byte in range(ord(first), ord(last) + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + others.index(byte)) for byte in range(256)]


def add_tokenizer(writer, size):
    letters = byte_letters()
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("e", "r")]
    tokens = letters + ["".join(pair) for pair in merges]
    end = "<|endoftext|>"
    if size <= len(tokens):
        stop("vocab_size", f"{size} is too small", f"the bytes, a few merges and the end of text are {len(tokens) + 1} tokens")
    tokens += [f"word{i}" for i in range(len(tokens), size - 1)] + [end]
    types = [gguf.TokenType.NORMAL] * (size - 1) + [gguf.TokenType.CONTROL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)


# ---- the weights ----


def stored_type(name, shape, wanted):
    """The type of a tensor. As in llama.cpp, rows that are no whole blocks become F16."""
    if len(shape) == 1:
        return gguf.GGMLQuantizationType.F32
    if wanted == "q8_0" and shape[1] % Q8_0_CODES != 0:
        return gguf.GGMLQuantizationType.F16
    return gguf.GGMLQuantizationType[wanted.upper()]


def random_weights(random, shape, kind):
    """Weights of about 1 / sqrt(columns), so that a layer's output stays as large as its input; norms of about 1."""
    types = gguf.GGMLQuantizationType
    if kind == types.F32:
        return random.uniform(0.9, 1.1, shape).astype(np.float32)
    rows, columns = shape
    if kind == types.Q8_0:
        row_bytes = columns // Q8_0_CODES * (2 + Q8_0_CODES)
        out = np.frombuffer(bytearray(random.bytes(rows * row_bytes)), np.uint8).reshape(rows, row_bytes)
        blocks = out.reshape(-1, 2 + Q8_0_CODES)
        codes = blocks[:, 2:].view(np.int8)
        np.maximum(codes, -127, out=codes)  # what a quantizer writes
        scales = random.uniform(0.5, 1.5, len(blocks)) / (INT8_RMS * math.sqrt(columns))
        blocks[:, :2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
        return out
    if kind == types.F16:
        return (random.uniform(-1.7, 1.7, shape) / math.sqrt(columns)).astype(np.float16)
    # BF16: a random sign and mantissa under an exponent drawn from the four at and below the wanted size.
    out = np.frombuffer(bytearray(random.bytes(2 * rows * columns)), np.uint16).reshape(shape)
    largest = 127 + 1 - round(math.log2(columns) / 2)
    exponents = np.uint16(largest) - ((out >> 7) & 3)
    out &= 0x807F
    out |= exponents << 7
    return out.view(np.uint8)


def byte_shape(shape, kind):
    """The shape of what random_weights returns."""
    if kind == gguf.GGMLQuantizationType.Q8_0:
        return (shape[0], shape[1] // Q8_0_CODES * (2 + Q8_0_CODES))
    return shape if kind != gguf.GGMLQuantizationType.BF16 else (shape[0], 2 * shape[1])


ITEM = {
    gguf.GGMLQuantizationType.F32: np.float32,
    gguf.GGMLQuantizationType.F16: np.float16,
    gguf.GGMLQuantizationType.BF16: np.uint8,
    gguf.GGMLQuantizationType.Q8_0: np.uint8,
}


def write(config, path, wanted):
    writer = gguf.GGUFWriter(path, config["model_type"])
    add_metadata(writer, config, FILE_TYPES[wanted])
    add_tokenizer(writer, config["vocab_size"])
    tensors = [(name, shape, stored_type(name, shape, wanted)) for name, shape in shapes(config).items()]
    for name, shape, kind in tensors:
        item, stored = np.dtype(ITEM[kind]), byte_shape(shape, kind)
        writer.add_tensor_info(name, stored, item, math.prod(stored) * item.itemsize, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    # One tensor at a time, so that a model larger than the memory can be written.
    random = np.random.Generator(np.random.SFC64(1))
    for _, shape, kind in tensors:
        writer.write_tensor_data(random_weights(random, shape, kind))
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG_DIR", type=Path)
    parser.add_argument("out", metavar="OUT.gguf", type=Path)
    parser.add_argument("--type", choices=FILE_TYPES, default="q8_0")
    options = parser.parse_args()
    config = read_config(options.config)
    if options.out.exists() and not options.out.is_file():
        stop(options.out, "is there and no file", "OUT.gguf is written anew")
    unfinished = options.out.with_name(options.out.name + ".part")
    try:
        write(config, unfinished, options.type)
        unfinished.rename(options.out)
    except OSError as error:
        stop(options.out, f"cannot be written ({error.strerror or error})", "is there a folder and enough space?")
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{options.out} written, {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
