#!/usr/bin/env python3
"""Does qgen open and run what bench/make_safetensors.py writes?  tests/tools/make_safetensors_test.py PATH-TO-QGEN"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

MAKE = Path(__file__).resolve().parents[2] / "bench" / "make_safetensors.py"
CONFIG = {"model_type": "qwen3", "num_hidden_layers": 3, "hidden_size": 256, "num_attention_heads": 4, "head_dim": 64}
CONFIG |= {"num_key_value_heads": 2, "intermediate_size": 400, "vocab_size": 500, "rms_norm_eps": 1e-6}
CONFIG |= {"max_position_embeddings": 256, "rope_theta": 1e6, "tie_word_embeddings": False}
CONFIG |= {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
PARAMETERS = 2 * 500 * 256 + 3 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 400 * 256 + 2 * 64 + 2 * 256) + 256


def output(*argv):
    done = subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def main():
    qgen = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="qgen-make-safetensors-") as folder:
        config, model = Path(folder) / "config", Path(folder) / "model"
        config.mkdir()
        for tied in (False, True):
            (config / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": tied}))
            output(sys.executable, MAKE, config, model)
            found = json.loads(output(qgen, "inspect", "-m", model, "--json"))
            shown = (found["family"], found["method"], found["parameters"])
            assert shown == ("qwen3", "fp8 block 128x128", PARAMETERS - tied * 500 * 256), shown
            scored = json.loads(output(qgen, "score", "-m", model, "--tokens", "1,2,3,4", "--json"))
            assert math.isfinite(scored["perplexity"]) and scored["perplexity"] > 1, scored
        gptq = {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False, "sym": True, "checkpoint_format": "gptq"}
        (config / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": gptq}))
        output(sys.executable, MAKE, config, Path(folder) / "gptq")
        assert json.loads(output(qgen, "inspect", "-m", Path(folder) / "gptq", "--json"))["method"] == "int8 group 128"
        output(qgen, "score", "-m", Path(folder) / "gptq", "--tokens", "1,2,3,4", "--json")
        (config / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": True}))
        first = {path.name: path.read_bytes() for path in model.iterdir()}
        output(sys.executable, MAKE, config, model)
        assert first == {path.name: path.read_bytes() for path in model.iterdir()}, "other bytes the second time"
        for wrong in ("{", "[]", json.dumps(CONFIG | {"model_type": "llama"}), json.dumps({"model_type": "qwen3"})):
            (config / "config.json").write_text(wrong)
            done = subprocess.run([sys.executable, MAKE, config, model], capture_output=True, text=True)
            assert done.returncode == 1 and "not what is needed" in done.stderr and "\nhint: " in done.stderr, done.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
