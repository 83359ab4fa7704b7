#!/usr/bin/env python3
"""Makes a model that writes what it is told: after any prompt the given pieces, in order, and then its end token.

  scripted_model.py [--drafts] FOLDER PIECE...     a PIECE is a token's text, or <0xNN> for a token that is one byte

It is a Llama of one layer that adds nothing to the embeddings, which are the rows of the identity; the row of the
output head that follows a token picks its successor. So pieces must differ from each other, and the prompt must not
end with one of them. The last PIECE may be `loop`: then the first one follows instead of the end.

With --drafts it is a Qwen3.5 with a layer that drafts tokens, which knows what follows each of them but the last PIECE.
"""
import json
import struct
import sys
from pathlib import Path

drafts = sys.argv[1] == "--drafts"
arguments = sys.argv[2 if drafts else 1 :]
folder, pieces = Path(arguments[0]), arguments[1:]
loop = pieces[-1] == "loop"
pieces = pieces[:-1] if loop else pieces
names = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + [chr(c) for c in range(32, 127)]
names += [piece for piece in pieces if piece not in names]
ids = {name: i for i, name in enumerate(names)}
script = [ids[piece] for piece in pieces]
assert len(set(script)) == len(script), "pieces must differ"

vocab, hidden, inner = len(names), 64 * -(-len(names) // 64), 32
follower = {token: script[0] for token in range(vocab)}
follower |= dict(zip(script, script[1:] + [script[0] if loop else ids["</s>"]]))


def matrix(rows, columns, ones=()):
    data = bytearray(4 * rows * columns)
    for row, column in ones:
        struct.pack_into("<f", data, 4 * (row * columns + column), 1)
    return (rows, columns), data


def ones(count):
    return (count,), struct.pack(f"<{count}f", *[1] * count)


def layer(prefix):
    out = {
        "input_layernorm.weight": ones(hidden),
        "post_attention_layernorm.weight": ones(hidden),
        "mlp.gate_proj.weight": matrix(inner, hidden),
        "mlp.up_proj.weight": matrix(inner, hidden),
        "mlp.down_proj.weight": matrix(hidden, inner),
        "self_attn.q_proj.weight": matrix(2 * hidden if drafts else hidden, hidden),
        "self_attn.k_proj.weight": matrix(hidden // 4, hidden),
        "self_attn.v_proj.weight": matrix(hidden // 4, hidden),
        "self_attn.o_proj.weight": matrix(hidden, hidden),
    }
    if drafts:
        out |= {"self_attn.q_norm.weight": ones(hidden // 4), "self_attn.k_norm.weight": ones(hidden // 4)}
    return {prefix + name: tensor for name, tensor in out.items()}


tensors = {
    "model.embed_tokens.weight": matrix(vocab, hidden, [(i, i) for i in range(vocab)]),
    "lm_head.weight": matrix(vocab, hidden, [(after, token) for token, after in follower.items()]),
    "model.norm.weight": ones(hidden),
    **layer("model.layers.0."),
}
family = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
if drafts:
    family = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "layer_types": ["full_attention"],
              "head_dim": hidden // 4, "mtp_num_hidden_layers": 1}
    tensors |= layer("mtp.layers.0.") | {
        "mtp.fc.weight": matrix(hidden, 2 * hidden, [(i, i) for i in range(vocab) if i != script[-1]]),
        "mtp.pre_fc_norm_embedding.weight": ones(hidden),
        "mtp.pre_fc_norm_hidden.weight": ones(hidden),
        "mtp.norm.weight": ones(hidden),
    }
header, body = {}, bytearray()
for name, (shape, data) in tensors.items():
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)

folder.mkdir(parents=True, exist_ok=True)
(folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
(folder / "config.json").write_text(json.dumps({
    **family, "hidden_size": hidden, "intermediate_size": inner,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": vocab,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}))
special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
(folder / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "normalizer": None, "pre_tokenizer": None,
    "added_tokens": [{"id": i, "content": names[i], **special} for i in range(3)],
    "post_processor": {"type": "TemplateProcessing", "pair": [],
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "vocab": ids, "merges": []}}))
(folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
