#!/usr/bin/env bash
# Runs every fuzz target, or those named, for some seconds from seeds of real files (seeds.py) and from what earlier runs
# found worth keeping (BUILD/corpus); stops at the first finding and leaves its input in BUILD.
#   tests/fuzz/run.sh BUILD SECONDS [TARGET...]
set -euo pipefail
build=$1 seconds=$2
shift 2
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 tests/fuzz/seeds.py "$work"
if [ $# -eq 0 ]; then
  set -- "$build"/*_fuzz
fi
total=0
for target in "$@"; do
  name=$(basename "$target")
  mkdir -p "$work/$name" "$build/corpus/$name"
  log="$work/$name.log"
  dictionary=()
  [ -s "$work/$name.dict" ] && dictionary=("-dict=$work/$name.dict")
  if ! "$build/$name" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -malloc_limit_mb=1024 -max_len=65536 \
      -print_final_stats=1 -artifact_prefix="$build/" "${dictionary[@]}" \
      "$build/corpus/$name" "$work/$name" > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name failed"
    exit 1
  fi
  runs=$(sed -nE 's/^stat::number_of_executed_units: *([0-9]+)/\1/p' "$log")
  total=$((total + runs))
  echo "fuzz: $name: $runs runs in $seconds s"
done
echo "fuzz: $total runs, no finding"
