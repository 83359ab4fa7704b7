#!/usr/bin/env bash
# Prints a checkpoint's line for models.txt:  tools/models_line.sh QGEN MODEL "HARDWARE"
set -euo pipefail
qgen=$1 model=$2 hardware=$3
"$qgen" -m "$model" -p "Once upon a time" --raw --no-stdin --temp 0 -n 16 --stats=json --logprobs 1 2>&1 > /dev/null | HARDWARE=$hardware python3 -c '
import datetime, json, os, sys
d, hardware = json.load(sys.stdin), os.environ["HARDWARE"]
ids = " ".join(str(step["chosen"]["id"]) for step in d["logprobs"][:8])
rate = d["output"]["tokens_per_second"]
print(" | ".join([d["model"], d["family"], d["method"], d["engine"], ids, d["logits_hash"],
                  f"{rate:.0f} tok/s, {hardware}, {datetime.date.today()}"]))'
