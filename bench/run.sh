#!/usr/bin/env bash
# The measurements of bench/README.md, on this machine:  bench/run.sh BUILD [SHAPE...]
set -euo pipefail
build=$1
shift
[ $# -gt 0 ] || set -- 0.6b
grep -m 1 'model name' /proc/cpuinfo
for shape in "$@"; do
  for method in fp8 int8 bf16; do
    "$build/engine_bench" --shape "$shape" --method $method
    "$build/engine_bench" --shape "$shape" --method $method --threads 1 --prompt 0
    "$build/engine_bench" --shape "$shape" --method $method --depth 4096 --prompt 0
  done
  "$build/engine_bench" --shape "$shape" --method fp8 --prompt 255
  "$build/engine_bench" --shape "$shape" --method fp8 --depth 4096 --prompt 0 --kv bf16
  for body in avx512-vnni avx512 avx2 portable; do
    for method in fp8 int8; do
      "$build/engine_bench" --shape "$shape" --method $method --device cpu:$body --rounds 3 --tokens 8 --prompt 256 || true
    done
  done
done
