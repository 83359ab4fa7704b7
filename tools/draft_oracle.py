#!/usr/bin/env python3
"""Make tiny random checkpoints with a layer that drafts tokens, and what it guesses.

    pip install -r tools/requirements-oracle.txt
    python tools/draft_oracle.py [FOLDER [LLAMA_CPP]]          (default: tests/golden-draft)

With the sources of llama.cpp each comes as a GGUF file in F32 as well, by llama.cpp's own converter.

transformers ignores such layers, but each is a layer of its family, so a model of one layer stands for it: its inputs
are join [norm(table[token]), norm(hidden of the token before)], its own final norm and the output head follow. `hidden`
is what the final norm gives, of the model for the first guess and of the layer itself for the next ones, as SGLang's
models/deepseek_nextn.py and vLLM's models/qwen3_next_mtp.py have it. (vLLM's deepseek_mtp.py fed back the hidden row before
that norm until its pull request 45895; no published code of a maker guesses more than one token by one layer.) Parameters, their names and their codes are drawn as
tools/family_oracle.py draws them.
"""

import json
import logging
import shutil
import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers

from family_oracle import (
    SMALLEST_ROUTER_MARGIN,
    VOCAB,
    cases,
    draw,
    encode,
    fill,
    make_model,
    mixture_cases,
    no_float32,
    published_config,
    published_stacks,
    stacked,
    watch_routers,
)
from oracle import BY_NAME, PROMPT_TOKENS, dump, margin, write_checkpoint
from quantize_demo import write_safetensors

QWEN = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm", "mtp.layers.0.", "mtp_num_hidden_layers")
DEEPSEEK = tuple(f"model.layers.2.{part}" for part in ("enorm", "hnorm", "eh_proj", "shared_head.norm", "")) + ("num_nextn_predict_layers",)
# The case of family_oracle.py, its class where llama.cpp's converter takes the layer along, the method, the names, what makes its layer one of those that draft, whether norms add 1.
DRAFTS = (
    ("qwen3_next", "Qwen3NextForCausalLM", "fp8-block-bf16", QWEN, {"layer_types": ["full_attention"]}, 1),
    ("deepseek_v3", "", "bf16", DEEPSEEK, {"first_k_dense_replace": 0}, 0),
    ("glm4_moe", "Glm4MoeForCausalLM", "fp8-block-bf16", DEEPSEEK, {"first_k_dense_replace": 0}, 0),
)
SMALLEST_GUESS_MARGIN = 0.02


def parts_of(case, draft_config, rng):
    """The model, and one of a single layer with the parameters of its own; what they are drawn from."""
    single = replace(case, config=case.config | draft_config | {"num_hidden_layers": 1})
    return make_model(case), make_model(single)


def rms(x, weight, plus_one, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (weight + plus_one)


def guesses(model, layer, extra, plus_one, ids):
    """The logits of the model, of the first guess behind each pair of tokens, and of the second one."""
    eps = model.config.rms_norm_eps
    norm_token, norm_hidden, join = (torch.from_numpy(w.astype(np.float64)) for w in extra)

    def inputs(tokens, hidden):
        e = model.model.embed_tokens(torch.tensor(tokens))
        both = torch.cat([rms(e, norm_token, plus_one, eps), rms(hidden, norm_hidden, plus_one, eps)], -1)
        return both @ join.T

    def run(x):
        hidden = layer.model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        return hidden, model.lm_head(hidden)

    with torch.no_grad():
        hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        x = inputs(ids[1:], hidden[:-1])
        after, first = run(x)
        second = []
        for t in range(len(ids) - 1):
            next_x = inputs([int(first[t].argmax())], after[t : t + 1])
            second.append(run(torch.cat([x[: t + 1], next_x]))[1][-1])
        return model.lm_head(hidden).numpy(), first.numpy(), torch.stack(second).numpy()


def make(case, method_name, names, draft_config, plus_one, out):
    method, name = BY_NAME[method_name], case.name
    *own, prefix, key = names
    for attempt in range(400):
        rng = np.random.default_rng([zlib.crc32(f"draft {name}".encode()), attempt])
        model, layer = parts_of(case, draft_config, rng)
        margins = []
        for part in (model, layer):
            watch_routers(part, margins)
        drawn = draw({n: p.detach() for n, p in model.named_parameters()}, case, rng)
        tensors, plain, _ = encode(published_stacks(drawn, case), method, rng)
        drawn = draw({n: p.detach() for n, p in layer.named_parameters()}, case, rng)
        drawn = {n: w for n, w in drawn.items() if "embed_tokens" not in n and "lm_head" not in n}
        more, more_plain, _ = encode(published_stacks(drawn, case), method, rng)
        width = model.config.hidden_size
        extra = {f"{own[i]}.weight": 1 - plus_one + 0.25 * rng.standard_normal(width) for i in range(2)}
        extra[f"{own[2]}.weight"] = 1.7 * rng.standard_normal((width, 2 * width)) / np.sqrt(2 * width)
        extra_tensors, extra_plain, _ = encode(extra, method, rng)
        ids = rng.integers(0, VOCAB, PROMPT_TOKENS).tolist()
        fill(model, stacked(plain, model, case))
        more_plain |= {n: plain[n] for n in ("model.embed_tokens.weight", "lm_head.weight")}
        fill(layer, stacked(more_plain, layer, case))
        for part, into in ((model, tensors), (layer, more)):
            for n, buffer in part.named_buffers():
                if case.biases and n.endswith(case.biases):
                    buffer.copy_(torch.from_numpy(0.1 * rng.standard_normal(buffer.shape)).float())
                    into[n] = ("F32", buffer.numpy().astype(np.float32))
        margins.clear()
        with no_float32():
            logits, first, second = guesses(model, layer, list(extra_plain.values()), plus_one, ids)
        if min(margins) > SMALLEST_ROUTER_MARGIN and min(map(margin, first)) > SMALLEST_GUESS_MARGIN:
            break
    else:
        print(f"{name}: no draw with clear routers", flush=True)
        return
    for n, value in more.items():
        if n.startswith("model.layers.0."):
            tensors[prefix + n.removeprefix("model.layers.0.")] = value
        elif n == "model.norm.weight":
            tensors[f"{own[3]}.weight"] = value
    tensors |= extra_tensors
    if names is DEEPSEEK:  # as published: copies of what the layer shares with the model
        tensors[f"{prefix}embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
        tensors[f"{prefix}shared_head.head.weight"] = tensors["lm_head.weight"]
    folder = out / name
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "expected").mkdir(parents=True)
    write_checkpoint(folder, published_config(case, method) | {key: 1}, tensors, "one")
    arrays = {"logits": logits, "first": first, "second": second}
    write_safetensors(folder / "expected" / "draft.safetensors", {n: ("F32", a.astype(np.float32)) for n, a in arrays.items()})
    versions = {p.__name__: p.__version__.split("+")[0] for p in (torch, transformers, np)}
    dump(folder / "expected" / "expected.json", {"producer": "tools/draft_oracle.py", "versions": versions, "vocab": VOCAB, "ids": ids})
    print(f"{name:32} draw {attempt}", flush=True)


def convert(folder, architecture, llama_cpp):
    """Into FOLDER/expected/model.gguf."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import conversion
    import gguf

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as copy:
        copy = Path(copy)
        shutil.copy(folder / "model.safetensors", copy)
        config = json.loads((folder / "config.json").read_text())
        dump(copy / "config.json", config | {"architectures": [architecture]})
        hparams = conversion.ModelBase.load_hparams(copy, False)
        kind = conversion.get_model_class(conversion.get_model_architecture(hparams, conversion.ModelType.TEXT))
        for base in kind.__mro__:
            if "set_vocab" in base.__dict__:
                base.set_vocab = lambda self: self._set_vocab_none()
        with torch.inference_mode():
            kind(copy, gguf.LlamaFileType.ALL_F32, folder / "expected/model.gguf", eager=True).write()


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden-draft")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    by_name = {case.name: case for case in (*cases(), *mixture_cases())}
    for name, architecture, *rest in DRAFTS:
        make(by_name[name], *rest, out)
        if len(sys.argv) > 2 and architecture:
            convert(out / name, architecture, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
