#!/usr/bin/env bash
# Runs every fuzz target for some seconds from small seeds; stops at the first finding.
#   tests/fuzz/run.sh BUILD SECONDS
set -euo pipefail
build=$1 seconds=$2
export UBSAN_OPTIONS=print_stacktrace=1
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
mkdir -p "$seeds"/{safetensors_fuzz,config_fuzz,tokenizer_json_fuzz,jinja_fuzz,tokenizer_encode_fuzz}
head -c 4096 models/stories260K-FP8/model.safetensors > "$seeds/safetensors_fuzz/truncated"
cp tests/golden/*/model.safetensors "$seeds/safetensors_fuzz/" 2> /dev/null || true
for folder in tests/golden/*/; do
  cp "$folder/config.json" "$seeds/config_fuzz/$(basename "$folder").json"
  [ -f "$folder/model.safetensors.index.json" ] && cp "$folder/model.safetensors.index.json" "$seeds/config_fuzz/$(basename "$folder").index.json"
done
cp models/stories260K-FP8/tokenizer.json "$seeds/tokenizer_json_fuzz/"
for target in "$build"/*_fuzz; do
  name=$(basename "$target")
  echo "fuzz: $name, $seconds s"
  mkdir -p "$seeds/$name"
  log="$seeds/$name.log"
  if ! "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 "$seeds/$name" > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name failed"
    exit 1
  fi
  grep 'number_of_executed_units' "$log"
done
