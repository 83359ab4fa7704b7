#!/usr/bin/env bash
# The model of a GPU's time reads what `qgen inspect --steps --json` prints, and has the same shapes as its own tables.
#   tests/build/gpu_time.sh QGEN
set -euo pipefail
qgen=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for model in 0.6b-fp8 8b-fp8; do
  "$qgen" inspect "bench/configs/qwen3-$model" --steps --json > "$folder/plan.json"
  python3 bench/gpu_time.py predict --plan "$folder/plan.json" --context 0,4096 | sed "s/^qwen3-//" > "$folder/by-plan"
  python3 bench/gpu_time.py predict --model "$model" --context 0,4096 > "$folder/by-name"
  diff "$folder/by-name" "$folder/by-plan"
done
grep -q "tok/s" "$folder/by-plan"
python3 bench/gpu_time.py check > "$folder/check"
grep "^36 of 50 within 15 %: 28 of 37" "$folder/check"
echo "gpu_time: good"
