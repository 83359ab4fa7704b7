#!/usr/bin/env bash
# Everything that wants a GPU: builds for the one that is here, runs the tests of the kernels and of whole models on it,
# the same under compute-sanitizer, measures, alone and beside PyTorch, and ends with a short table. Each part can be had
# alone.
#   tools/gpu_check.sh BUILD_FOLDER [build] [tests] [sanitizer] [speed] [start] [peers]
# QGEN_CMAKE_OPTIONS goes to cmake (where libraries lie in unusual places), QGEN_SHARED is the shared test data.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/gpu_check.sh BUILD_FOLDER [build] [tests] [sanitizer] [speed] [start] [peers]}
shift
parts=${*:-build tests sanitizer speed start peers}
shared=${QGEN_SHARED:-$(pwd)/../shared}
table=()
has() { [[ " $parts " == *" $1 "* ]]; }
note() { table+=("$(printf '%-34s %s' "$1" "$2")"); }
# Runs a part, keeps its output, and notes how it ended.
part() {
  local name=$1 log=$build/$2
  shift 2
  local start=$SECONDS
  if "$@" > "$log" 2>&1; then
    note "$name" "passed in $((SECONDS - start)) s"
  else
    note "$name" "FAILED, see $log"
    tail -40 "$log"
    failed=1
  fi
}
failed=0
command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1 || { echo "gpu-check: no GPU here" >&2; exit 5; }
mkdir -p "$build"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$build/gpu.txt"

if has build; then
  part "build" build.log bash -c "
    cmake -S . -B '$build' -DQGEN_CUDA=ON -DQGEN_CUDA_ARCHITECTURES=\"\$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)\" ${QGEN_CMAKE_OPTIONS:-} &&
    cmake --build '$build' --target qgen qgen_gpu_tests -j $(nproc)"
fi
qgen=$build/qgen
gpu_tests=$build/tests/qgen_gpu_tests
export QGEN_SHARED=$shared
if has tests; then
  part "kernels and models on the GPU" tests.log "$gpu_tests"
  # Whole answers: the processor's, for every checkpoint that is here.
  for model in models/*/; do
    prompt='Once upon a time there was a'
    part "greedy text of $(basename "$model")" "text-$(basename "$model").log" bash -c "
      '$qgen' -m '$model' -p '$prompt' --raw --temp 0 -n 48 -q --no-stdin --device cuda > '$build/cuda.txt' &&
      '$qgen' -m '$model' -p '$prompt' --raw --temp 0 -n 48 -q --no-stdin --device cpu --activations f32 > '$build/cpu.txt' &&
      cmp '$build/cuda.txt' '$build/cpu.txt'"
  done
fi
if has sanitizer; then
  for tool in memcheck racecheck synccheck; do
    part "compute-sanitizer $tool" "$tool.log" compute-sanitizer --tool $tool --error-exitcode 9 "$gpu_tests" \
      --test-case='kernels: layers*,kernels: blocks*,kernels: several*,kernels: attention of*,kernels: inputs of 8*,kernels: the best*,kernels: the engine step*,kernels: the engine gives*'
  done
fi
if has speed; then
  for shape in qwen3-0.6b-fp8 qwen3-4b-fp8 qwen3-8b-fp8 qwen3-8b-int8 qwen3-32b-fp8; do
    [ -d "bench/configs/$shape" ] || continue
    log=$build/bench-$shape.txt
    depths=0,4096
    [[ $shape == qwen3-8b-* ]] && depths+=,32768
    if "$qgen" bench --device cuda --dummy "bench/configs/$shape" -p 512,4096 -n 64 -d $depths -r 3 > "$log" 2>&1; then
      cat "$log"
      while read -r test speed _; do note "$shape $test" "$speed tok/s"; done < <(grep -E '^ +(pp|tg)' "$log" | sed 's/ @ d/@/')
    else
      note "$shape" "FAILED: $(grep -m1 qgen: "$log")"
      failed=1
    fi
  done
  # Prompts another way: through qgen's own tiles, and with inputs of 8 bits.
  for way in "QGEN_CUBLASLT=off 16bit" "QGEN_CUBLASLT= 8bit"; do
    for shape in qwen3-8b-fp8 qwen3-8b-int8; do
      speed=$(env "${way% *}" "$qgen" bench --device cuda --dummy "bench/configs/$shape" --activations "${way#* }" -p 4096 -n 0 -r 3 2>&1 |
        awk '/^ +pp/ { print $2 " tok/s"; exit }') || failed=1
      note "$shape pp4096, $way" "${speed:-FAILED}"
    done
  done
  # What was said beforehand against what is taken, for a model of 4 GB.
  "$qgen" plan -m bench/configs/qwen3-4b-fp8 --device cuda -c 4096 --json > "$build/plan.json"
  before=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1)
  "$qgen" bench --device cuda --dummy bench/configs/qwen3-4b-fp8 -c 4096 -p 0 -n 256 -d 0 -r 20 > /dev/null 2>&1 &
  sleep 20
  note "memory, qwen3-4b-fp8, 4096 tokens" "said $(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["memory"]["total"] >> 20)' \
    "$build/plan.json") MiB, taken $(($(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1) - before)) MiB, driver included"
  wait || true
fi
if has start; then
  # From the program's start to its first scores, with the files in the system's cache: a model of 9 GB on disk.
  model=$build/start-qwen3-8b-fp8
  trap 'rm -rf "$model"' EXIT
  if python3 bench/make_safetensors.py bench/configs/qwen3-8b-fp8 "$model" > "$build/start.log" 2>&1; then
    cat "$model"/*.safetensors > /dev/null
    for device in cuda cpu; do
      times=()
      for _ in 1 2 3; do
        begin=$(date +%s%N)
        "$qgen" score -m "$model" --tokens 1,2 --device $device -c 4096 >> "$build/start.log" 2>&1 || { times+=("FAILED"); failed=1; continue; }
        times+=("$((($(date +%s%N) - begin) / 1000000)) ms")
      done
      note "qwen3-8b-fp8, start, $device" "$(printf '%s  ' "${times[@]}")"
    done
  else
    note "qwen3-8b-fp8, start" "FAILED, see $build/start.log"
    failed=1
  fi
  rm -rf "$model"
fi
if has peers; then
  for shape in qwen3-0.6b-fp8 qwen3-8b-fp8; do
    for way in "" --compile; do
      note "PyTorch, $shape ${way:-eager}" "$(python3 bench/torch_speed.py "bench/configs/$shape" --prompt 4096 $way 2> "$build/torch.log" ||
        { tail -1 "$build/torch.log"; echo FAILED; })"
    done
  done
fi
printf '\n%s\n' "$(cat "$build/gpu.txt")"
printf '%s\n' "${table[@]}"
exit $failed
