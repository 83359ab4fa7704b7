#!/usr/bin/env bash
# Runs the seeds of all fuzz targets once:  tests/fuzz/replay.sh FUZZ_REPLAY
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 tests/fuzz/seeds.py "$work"
"$1" "$work" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
