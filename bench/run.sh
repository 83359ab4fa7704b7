#!/usr/bin/env bash
# The measurements of bench/README.md, on this machine:  bench/run.sh BUILD [SHAPE...]
set -euo pipefail
build=$1
shift
[ $# -gt 0 ] || set -- qwen3-0.6b
configs=$(dirname "$0")/configs
grep -m 1 'model name' /proc/cpuinfo
for shape in "$@"; do
  for method in fp8 int8 bf16; do
    "$build/qgen" bench --dummy "$configs/$shape-$method" -p 512 -n 32 -d 0
    "$build/qgen" bench --dummy "$configs/$shape-$method" -p 0 -n 32 -d 0 --threads 1
    "$build/qgen" bench --dummy "$configs/$shape-$method" -p 0 -n 32 -d 4096
  done
  "$build/qgen" bench --dummy "$configs/$shape-fp8" -p 255 -n 0 -d 0
  "$build/qgen" bench --dummy "$configs/$shape-fp8" -p 0 -n 32 -d 4096 --kv bf16
  for target in avx512-vnni avx512 avx2 portable; do
    for method in fp8 int8; do
      "$build/qgen" bench --dummy "$configs/$shape-$method" -p 256 -n 8 -d 0 -r 3 --device cpu:$target || true
    done
  done
done
