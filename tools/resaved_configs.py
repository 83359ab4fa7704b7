#!/usr/bin/env python3
"""The config.json of each golden after from_pretrained() and save_pretrained() of transformers.

    pip install -r tools/requirements-oracle.txt
    python tools/resaved_configs.py [GOLDENS [FILE]]     (default: tests/golden, tests/golden-configs/transformers5.json)

Finetunes of published models have such files: keys that were missing have their defaults, and some have other names.
"""

import json
import sys
import tempfile
from pathlib import Path

import transformers


def main():
    goldens = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    out = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/golden-configs/transformers5.json")
    configs = {}
    for folder in sorted(goldens.glob("*-bf16")):
        if "fp8" in folder.name or folder.name.startswith("chatglm"):  # ChatGLM is not in transformers
            continue
        with tempfile.TemporaryDirectory() as saved:
            transformers.AutoConfig.from_pretrained(folder).save_pretrained(saved)
            configs[folder.name] = json.loads(Path(saved, "config.json").read_text())
    out.parent.mkdir(exist_ok=True)
    out.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in configs.items()) + "\n}\n")


main()
