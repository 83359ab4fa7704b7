#!/usr/bin/env python3
"""Writes seeds for every fuzz target, and a dictionary of the words in them:  tests/fuzz/seeds.py FOLDER

They come from the models, golden files and tests of this repository and, where it is there, from the shared test data
(QGEN_SHARED, else ../shared): real configurations, templates and tokenizers, cut to a size that can be fuzzed.
"""
import base64
import json
import os
import re
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("QGEN_SHARED", ROOT.parent / "shared"))
SEPARATOR = b"\xff\xfe\xff"
MOST_BYTES = 32768
MOST_INPUT = 65536  # run.sh lets no input grow beyond it


class Seeds:
    def __init__(self, folder):
        self.folder, self.counts = folder, {}

    def add(self, target, data, most=MOST_BYTES):
        """One more seed, unless it is too large to be fuzzed."""
        data = data.encode() if isinstance(data, str) else data
        if len(data) > most:
            return
        self.counts[target] = self.counts.get(target, 0) + 1
        (self.folder / target).mkdir(exist_ok=True)
        (self.folder / target / f"{self.counts[target]:04}").write_bytes(data)

    def dictionary(self, target, words):
        """For libFuzzer: words as escaped literals."""
        lines = []
        for word in sorted(words):
            escaped = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word.encode())
            lines.append(f'"{escaped}"')
        (self.folder / f"{target}.dict").write_text("\n".join(lines) + "\n")

    def words_of(self, target, most=600):
        """What stands in quotes in a target's seeds, the short ones."""
        words = set()
        for seed in sorted((self.folder / target).iterdir()):
            words.update(re.findall(r'"([^"\\\n]{1,40})"', seed.read_bytes().decode(errors="ignore")))
        return {f'"{word}"' for word in sorted(words)[:most]}


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def header_of(safetensors):
    return safetensors[8:8 + struct.unpack("<Q", safetensors[:8])[0]]


def folders():
    found = sorted(ROOT.glob("tests/golden/*/")) + sorted(ROOT.glob("models/stories260K*/"))
    return found + (sorted(SHARED.glob("fixtures/*/")) if SHARED.is_dir() else [])


# --- checkpoints

def configurations(seeds):
    configs = [read(folder / "config.json") for folder in folders()]
    configs += [read(path) for path in sorted(SHARED.glob("data/configs/**/*.json"))] if SHARED.is_dir() else []
    for config in configs:
        if config:
            seeds.add("config_fuzz", config)
            seeds.add("plan_fuzz", config)
    for folder in folders():
        for name in ("model.safetensors.index.json", "generation_config.json"):
            if data := read(folder / name):
                seeds.add("config_fuzz", data)
    seeds.add("config_fuzz", '{"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.05,"typical_p":0.9,'
                             '"repetition_penalty":1.1,"presence_penalty":1.5,"frequency_penalty":0.1,"eos_token_id":[1,2]}')


def checkpoints(seeds):
    tiny = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F8_E4M3", "shape": [3, 1], "data_offsets": [8, 11]},
            "__metadata__": {"format": "pt"}}
    header = json.dumps(tiny).encode()
    seeds.add("safetensors_fuzz", struct.pack("<Q", len(header)) + header + bytes(range(11)))
    for folder in folders():
        data = read(folder / "model.safetensors")
        if data:
            seeds.add("safetensors_fuzz", data)
            seeds.add("safetensors_fuzz", data[:4096])
            seeds.add("model_fuzz", read(folder / "config.json") + SEPARATOR + header_of(data))
        for path in sorted(folder.glob("*.safetensors")):
            beside = [next(iter(sorted(folder.glob(name))), None) for name in ("quant_model_description*.json", "hf_quant_config.json")]
            seeds.add("binder_fuzz", SEPARATOR.join([read(folder / "config.json"), header_of(read(path)),
                                                     *(read(side) if side else b"" for side in beside)]), MOST_INPUT)
    # AMD Quark's 4 bits have AWQ's tensors under other names.
    awq = ROOT / "tests/golden/qwen2-awq"
    header = header_of(read(awq / "model.safetensors"))
    for of, name in ((b".qweight", b".weight"), (b".qzeros", b".weight_zero_point"), (b".scales", b".weight_scale")):
        header = header.replace(of, name)
    config = json.loads(read(awq / "config.json"))
    config["quantization_config"] = {"quant_method": "quark", "export": {"pack_method": "reorder"}, "global_quant_config": {
        "weight": {"dtype": "int4", "qscheme": "per_group", "group_size": 8, "ch_axis": 1}}}
    seeds.add("binder_fuzz", SEPARATOR.join([json.dumps(config).encode(), header]), MOST_INPUT)


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(keys, tensors):
    """A GGUF file; keys: (name, value), tensors: (name, shape as ggml has it, type, data)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys:
        out += gguf_text(name)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + gguf_text(value)
        elif isinstance(value, float):
            out += struct.pack("<If", 6, value)
        elif isinstance(value, list):
            kind = 8 if isinstance(value[0], str) else 6 if isinstance(value[0], float) else 5
            out += struct.pack("<IIQ", 9, kind, len(value))
            out += b"".join(gguf_text(v) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", v) for v in value)
        else:
            out += struct.pack("<II", 4, value)
    data = b""
    for name, shape, kind, content in tensors:
        out += gguf_text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<q", size) for size in shape)
        out += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return out + bytes(-len(out) % 32) + data


def gguf_models(seeds):
    hidden, inner, vocab = 32, 64, 6
    block_bytes = {2: 18, 7: 24}  # Q4_0, Q5_1
    tokens = [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm"),
              ("tokenizer.ggml.tokens", ["h", "i", "hi", "<s>", "</s>", "x"]), ("tokenizer.ggml.merges", ["h i"]),
              ("tokenizer.ggml.token_type", [1, 1, 1, 3, 3, 1]), ("tokenizer.ggml.bos_token_id", 3), ("tokenizer.ggml.eos_token_id", 4),
              ("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")]
    pieces = [("tokenizer.ggml.model", "llama"), ("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>", "<0x41>", "\u2581a", "a"]),
              ("tokenizer.ggml.scores", [0.0, 0.0, 0.0, 0.0, -1.0, -2.0]), ("tokenizer.ggml.token_type", [2, 3, 3, 6, 1, 1])]
    for arch, tokenizer, kind in (("llama", tokens, 0), ("llama", pieces, 8), ("qwen2", tokens, 1), ("qwen3", tokens, 8),
                                  ("llama", tokens, 2), ("qwen3", tokens, 7)):
        keys = [("general.architecture", arch)] + [(f"{arch}.{name}", value) for name, value in (
            ("block_count", 1), ("embedding_length", hidden), ("attention.head_count", 2), ("attention.head_count_kv", 1),
            ("feed_forward_length", inner), ("context_length", 64), ("attention.layer_norm_rms_epsilon", 1e-5),
            ("rope.freq_base", 10000.0), ("vocab_size", vocab))] + tokenizer
        head = hidden // 2

        def matrix(rows, cols):
            if kind == 8:
                return b"".join(struct.pack("<e32b", 0.01, *range(-16, 16)) for _ in range(rows * cols // 32))
            if kind in block_bytes:
                return (struct.pack("<ee", 0.01, -0.1) + bytes(range(100, 96 + block_bytes[kind]))) * (rows * cols // 32)
            return struct.pack("<f", 0.1) * (rows * cols) if kind == 0 else struct.pack("<e", 0.1) * (rows * cols)

        shapes = {"attn_q": (hidden, hidden), "attn_k": (head, hidden), "attn_v": (head, hidden), "attn_output": (hidden, hidden),
                  "ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
        tensors = [("token_embd.weight", (hidden, vocab), kind, matrix(vocab, hidden)),
                   ("output_norm.weight", (hidden,), 0, struct.pack("<f", 1) * hidden)]
        tensors += [(f"blk.0.{name}.weight", (cols, rows), kind, matrix(rows, cols)) for name, (rows, cols) in shapes.items()]
        tensors += [(f"blk.0.{name}.weight", (hidden,), 0, struct.pack("<f", 1) * hidden) for name in ("attn_norm", "ffn_norm")]
        if arch == "qwen2":
            tensors += [(f"blk.0.attn_{name}.bias", (size,), 0, struct.pack("<f", 0.5) * size)
                        for name, size in (("q", hidden), ("k", head), ("v", head))]
        if arch == "qwen3":
            tensors += [(f"blk.0.attn_{name}_norm.weight", (head,), 0, struct.pack("<f", 1) * head) for name in "qk"]
        whole = gguf(keys, tensors)
        seeds.add("gguf_fuzz", whole)
        seeds.add("split_gguf_fuzz", whole)
        for count in (2, 3):
            parts = []
            for i in range(count):
                own = tensors[i::count]
                split = [("split.count", count), ("split.no", i), ("split.tensors.count", len(tensors))]
                parts.append(gguf((keys if i == 0 else []) + split, own))
            seeds.add("split_gguf_fuzz", SEPARATOR.join(parts))
    seeds.add("gguf_fuzz", gguf(tokens, []))
    for path in sorted(ROOT.glob("tests/golden-gguf/*.gguf")):
        for target in ("gguf_fuzz", "split_gguf_fuzz"):
            seeds.add(target, read(path), MOST_INPUT)
    for folder in folders():
        for path in sorted(folder.glob("*.gguf")):
            seeds.add("gguf_fuzz", read(path)[:8192])


# --- tokenizers

def golden_tokenizers():
    """The cases of tests/golden-tokenizer as whole files, as the test that reads them puts them together."""
    folder = ROOT / "tests/golden-tokenizer"
    models = json.loads(read(folder / "models.json"))
    charsmap = json.loads(read(folder / "charsmap.json"))
    for path in sorted(folder.glob("case-*.json")):
        case = json.loads(read(path))
        model = models[case["model"]]
        for flag in case["flags"]:
            model = model.replace(f'"{flag}":false', f'"{flag}":true', 1)
        yield (case["tokenizer"][:-1] + ',"model":' + model + "}").replace("@CHARSMAP@", charsmap)


def sentencepiece(path, pieces):
    """The first pieces of a SentencePiece model and everything that is no piece."""
    data, at, out, taken = read(path), 0, b"", 0
    while at < len(data):
        begin, key, at = at, data[at], at + 1
        if key & 7 != 2:
            return b""
        length = shift = 0
        while True:
            byte, at = data[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
        if key >> 3 == 1:
            taken += 1
        if (key >> 3 != 1 or taken <= pieces) and at - begin < MOST_BYTES // 2:
            out += data[begin:at]
    return out


def varint_field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def tiny_sentencepiece(kind):
    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581", -3, 1), ("a", -4, 1), ("\u2581a", -1, 1), ("<0x41>", 0, 6), ("[u]", 0, 4)]
    out = b"".join(varint_field(1, varint_field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, type_]))
                   for text, score, type_ in pieces)
    return out + varint_field(2, bytes([3 << 3, kind])) + varint_field(3, bytes([3 << 3, 1, 4 << 3, 1]))


def tokenizers(seeds):
    for text in golden_tokenizers():
        seeds.add("tokenizer_json_fuzz", text)
    for folder in folders():
        seeds.add("tokenizer_json_fuzz", read(folder / "tokenizer.json") or "{}")
    for kind in (1, 2):
        seeds.add("tokenizer_json_fuzz", tiny_sentencepiece(kind))
    for path in sorted(SHARED.glob("data/tokenizers/*/tokenizer.model")):
        seeds.add("tokenizer_json_fuzz", sentencepiece(path, 300))
    config = json.dumps({"added_tokens_decoder": {"6": {"content": "<x>", "special": False}, "5": {"content": "<|endoftext|>", "special": True}},
                         "bos_token": "<|endoftext|>", "add_bos_token": True, "eos_token": {"content": "<|im_end|>"}, "legacy": False,
                         "tokenizer_class": "Qwen2Tokenizer", "chat_template": "{{ messages[0].content }}"})
    vocab, merges = '{"h":0,"i":1,"\u0120":2,"hi":3,"\u0120hi":4,"<|endoftext|>":5}', "#version: 0.2\nh i\n\u0120 hi\n"
    small = ['{"unk_token":"<|endoftext|>","additional_special_tokens":["<x>"]}', '{"<y>":7}']
    separator = SEPARATOR
    for first in (config, "", "{}", config.replace("Qwen2", "GPT2")):
        seeds.add("tokenizer_files_fuzz", separator.join(part.encode() for part in [first, vocab, merges, *small]))
        seeds.add("tokenizer_files_fuzz", separator.join([first.encode(), b"", b"", small[0].encode(), b"", tiny_sentencepiece(2)]))
    for path in [folder / "tokenizer_config.json" for folder in folders()] + sorted(SHARED.glob("data/tokenizers/*/tokenizer_config.json")):
        if data := read(path):
            seeds.add("tokenizer_files_fuzz", separator.join([data, vocab.encode(), merges.encode()]))
    tekken = {"config": {"pattern": "\\p{L}+|.", "default_vocab_size": 263, "default_num_special_tokens": 5},
              "special_tokens": [{"rank": i, "token_str": text} for i, text in enumerate(("<unk>", "<s>", "</s>", "[INST]"))],
              "vocab": [{"rank": i, "token_bytes": base64.b64encode(piece).decode()} for i, piece in
                        enumerate([bytes([byte]) for byte in range(256)] + [b"th", b"the"])]}
    for specials in (5, 4000):
        tekken["config"] |= {"default_vocab_size": 258 + specials, "default_num_special_tokens": specials}
        seeds.add("tokenizer_files_fuzz", separator * 6 + json.dumps(tekken).encode())
    gpt2 = SHARED / "data/tokenizers/gpt2"
    if gpt2.is_dir():
        lines = read(gpt2 / "merges.txt").decode().splitlines()[:120]
        pieces = dict(sorted(json.loads(read(gpt2 / "vocab.json")).items(), key=lambda item: item[1])[:256])
        for line in lines[1:]:
            pieces.setdefault(line.replace(" ", ""), len(pieces))
        seeds.add("tokenizer_files_fuzz", separator.join([b"{}", json.dumps(pieces, ensure_ascii=False).encode(), "\n".join(lines).encode()]))


def expressions(seeds):
    texts = json.loads(read(ROOT / "tests/golden-tokenizer/texts.json"))
    sources = list(golden_tokenizers())
    sources += [read(path).decode(errors="ignore")[:200000] for path in sorted(SHARED.glob("data/tokenizers/*/tokenizer.json"))]
    patterns = {json.loads(f'"{found}"') for source in sources for found in re.findall(r'"Regex":\s*"((?:[^"\\]|\\.)*)"', source)}
    patterns |= {r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"[[:alpha:]&&[^aeiou]]+", r"(?<x>a)\k<x>",
                 r"(?m:.)\b\B\h\R\X", r"a{,3}+b{2,}?", r"(?i-m:x)(?#comment)[^\w\s]"}
    for i, pattern in enumerate(sorted(patterns)):
        seeds.add("regex_fuzz", pattern)
        seeds.add("regex_fuzz", pattern.encode() + SEPARATOR + texts[i % len(texts)].encode())
    words = {"\\p{L}", "\\p{Han}", "\\P{^Lu}", "(?i:", "(?m:", "(?x)", "(?=", "(?!", "(?<=", "(?<!", "(?>", "&&", "[:alpha:]", "[^", "{1,3}+",
             "\\s+(?!\\S)", "\\b", "\\h", "\\R", "\\X", "\\K", "\\G", "\\u0041", "\\x{41}", "*?", "++", "|"}
    seeds.dictionary("regex_fuzz", words)


def encoder_texts(seeds):
    texts = json.loads(read(ROOT / "tests/golden-tokenizer/texts.json"))
    for text in texts:
        seeds.add("tokenizer_encode_fuzz", text)
    for path in sorted(SHARED.glob("data/text/*")) if SHARED.is_dir() else []:
        seeds.add("tokenizer_encode_fuzz", read(path)[1000:3000])
    seeds.add("tokenizer_encode_fuzz", "<e><t> the aaa\u0120the\n")


# --- templates and conversations

def templates(seeds):
    golden = json.loads(read(ROOT / "tests/golden-chat/cases.json"))
    for case in golden["cases"]:
        seeds.add("jinja_fuzz", case["template"])
    for path in sorted(SHARED.glob("data/chat-templates/*.jinja")) if SHARED.is_dir() else []:
        seeds.add("jinja_fuzz", read(path))
    names = set()
    for case in golden["cases"]:
        names.update(re.findall(r"[a-zA-Z_]{2,20}", case["template"]))
    seeds.dictionary("jinja_fuzz", {"{%", "%}", "{{", "}}", "{#", "#}", "{%-", "-%}", "{% for ", "{% endfor %}", "{% if ", "{% endif %}", "|", "**",
                                    "//", "~", "loop.index", "messages[0]", "namespace(", *names})
    for conversation in golden["conversations"].values():
        seeds.add("chat_fuzz", json.dumps(conversation))
        seeds.add("chat_fuzz", json.dumps({"schema": 1, "model": "m", "system": "Be brief.", "messages": conversation}))
    seeds.add("chat_fuzz", '[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","tool_calls":'
                           '[{"name":"f","arguments":{"a":[1,2.5,null,18446744073709551615]}}]},{"role":"tool","content":"ok","name":"f"}]')
    seeds.add("chat_fuzz", '"""a\nb\n"""\nx \\\ny\n//z\n')


def batches(seeds):
    for line in ('{"id":1,"prompt":"Once"}', '{"custom_id":"a\\u00e9","messages":[{"role":"user","content":"Hi"}],"max_tokens":3,"stop":["x","y"]}',
                 '{"custom_id":"r","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"system","content":"s"},'
                 '{"role":"user","content":[{"type":"text","text":"Hi"}]}],"temperature":0.5,"top_p":1,"seed":18446744073709551615,'
                 '"logprobs":true,"top_logprobs":3,"n":1,"stream":false,"max_completion_tokens":5}}',
                 '{"prompt":"a","raw":true,"think":"off","top_k":5,"min_p":0.1,"typical_p":0.9,"repeat_penalty":1.1,"presence_penalty":0,'
                 '"frequency_penalty":0,"logit_bias":{"5":-100,"7":2.5},"stop":"z","logprobs":2,"user":"u","metadata":{"k":1},"store":false}',
                 '{"id":123456789012345678901234567890,"prompt":"x","system":"s","seed":null}', '{"id":{"a":[1.50,"\\""]},"prompt":1}'):
        seeds.add("batch_fuzz", line)


def statistics(seeds):
    for text in ('{"model.layers.0.mlp.up_proj.weight": {"input_channel_max": [0.5, 1e-3, 0]}}', '{"a.weight":{"input_channel_max":[]},"b":{}}'):
        seeds.add("statistics_fuzz", text)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    seeds = Seeds(folder)
    for make in (configurations, checkpoints, gguf_models, tokenizers, expressions, encoder_texts, templates, batches, statistics):
        make(seeds)
    for target in ("config_fuzz", "plan_fuzz", "model_fuzz", "binder_fuzz", "safetensors_fuzz", "tokenizer_json_fuzz", "tokenizer_files_fuzz", "batch_fuzz",
                   "chat_fuzz", "statistics_fuzz"):
        seeds.dictionary(target, seeds.words_of(target))
    seeds.dictionary("gguf_fuzz", {"GGUF", "general.architecture", "llama", "qwen2", "qwen3", "llama.block_count", "tokenizer.ggml.model",
                                   "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.merges", "token_embd.weight",
                                   "blk.0.attn_q.weight", "general.alignment", "split.count", "split.no"})
    (folder / "split_gguf_fuzz.dict").write_bytes((folder / "gguf_fuzz.dict").read_bytes())
    print("seeds: " + ", ".join(f"{target} {count}" for target, count in sorted(seeds.counts.items())))


if __name__ == "__main__":
    main()
