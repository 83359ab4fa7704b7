#!/usr/bin/env python3
"""What the linear layers of golden checkpoints see, by transformers: the largest magnitude of each input column.

    pip install -r tools/requirements-oracle.txt
    python tools/calibration_oracle.py [GOLDENS [OUT]]     (default: tests/golden, tests/golden-calibration)

Each model runs its golden's prompt in float64. Inputs come from hooks on the linear layers; those of experts, whose
weights are stacks here, are computed from the experts' input and the router's choice.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

MODELS = ["llama-bf16", "qwen3_moe-bf16"]


def seen_by(folder):
    ids = json.loads((folder / "expected" / "expected.json").read_text())["ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    seen = {}

    def add(name, x):
        largest = x.detach().abs().reshape(-1, x.shape[-1]).amax(0)
        seen[name] = torch.maximum(seen[name], largest) if name in seen else largest

    def linear(name):
        return lambda module, inputs: add(f"{name}.weight", inputs[0])

    def experts(name):
        def hook(module, inputs):
            x, chosen = inputs[0].reshape(-1, inputs[0].shape[-1]), inputs[1]
            for e in range(module.gate_up_proj.shape[0]):
                own = x[(chosen == e).any(-1)]
                if not len(own):
                    continue
                gate, up = (own @ module.gate_up_proj[e].T).chunk(2, -1)
                add(f"{name}.{e}.gate_proj.weight", own)
                add(f"{name}.{e}.up_proj.weight", own)
                add(f"{name}.{e}.down_proj.weight", module.act_fn(gate) * up)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(linear(name))
        elif name.endswith(".experts"):
            module.register_forward_pre_hook(experts(name))
        elif name.endswith("mlp.gate"):  # a router
            module.register_forward_pre_hook(linear(name))
    with torch.no_grad():
        model(torch.tensor([ids]))
    return {name: {"input_channel_max": [float(f"{x:.6g}") for x in values]} for name, values in sorted(seen.items())}


def main():
    goldens = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    out = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/golden-calibration")
    out.mkdir(exist_ok=True)
    for name in MODELS:
        (out / f"{name}.json").write_text(json.dumps(seen_by(goldens / name), separators=(",", ":")) + "\n")


main()
