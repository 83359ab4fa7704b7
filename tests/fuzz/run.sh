#!/usr/bin/env bash
# Runs every fuzz target for some seconds from small seeds; stops at the first finding.
#   tests/fuzz/run.sh BUILD SECONDS
set -euo pipefail
build=$1 seconds=$2
export UBSAN_OPTIONS=print_stacktrace=1
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
mkdir -p "$seeds"/{safetensors_fuzz,gguf_fuzz,config_fuzz,tokenizer_json_fuzz,jinja_fuzz,tokenizer_encode_fuzz}
head -c 4096 models/stories260K-FP8/model.safetensors > "$seeds/safetensors_fuzz/truncated"
cp tests/golden/*/model.safetensors "$seeds/safetensors_fuzz/" 2> /dev/null || true
for folder in tests/golden/*/; do
  cp "$folder/config.json" "$seeds/config_fuzz/$(basename "$folder").json"
  [ -f "$folder/model.safetensors.index.json" ] && cp "$folder/model.safetensors.index.json" "$seeds/config_fuzz/$(basename "$folder").index.json"
done
# A GGUF file with a tokenizer and the keys of a model, and no tensors.
number() { printf "\\x$(printf %02x "$1")\0\0\0"; }
long() { number "$1" && printf '\0\0\0\0'; }
text() { long ${#1} && printf %s "$1"; }
list() { text "$1" && number 9 && number 8 && long $(($# - 1)) && for item in "${@:2}"; do text "$item"; done; }
{
  printf GGUF && number 3 && long 0 && long 12
  for key in block_count embedding_length attention.head_count feed_forward_length vocab_size attention.layer_norm_rms_epsilon context_length; do
    text "llama.$key" && number 4 && number 2
  done
  text general.architecture && number 8 && text llama
  text tokenizer.ggml.model && number 8 && text gpt2
  text tokenizer.ggml.pre && number 8 && text smollm
  list tokenizer.ggml.tokens h i hi
  list tokenizer.ggml.merges "h i"
} > "$seeds/gguf_fuzz/model.gguf"
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
