#!/usr/bin/env bash
# What a machine with a GPU is to tell of qgen, part by part, from a folder that `make gpu-bundle` wrote elsewhere: nothing
# is built or installed here. Each part takes four minutes at most, prints a line for each thing it tried as soon as that is
# done, keeps it, and can be run again; a step that hangs or fails costs its own line.
#   ./run.sh              lists the parts, in the order of their worth
#   ./run.sh PART         runs one (./run.sh all: each of them)
#   ./run.sh table        prints what has been found so far as a Markdown table; of repeated lines the last
#   ./run.sh qgen ...     the program itself
# QGEN_RESULTS: the folder for lines and logs (results/ here); QGEN_PART_SECONDS: of a part (230); QGEN_CUBLASLT: the file of
# cuBLASLt where it is found neither by the loader nor beside nvcc, CUDA_HOME or PyTorch.
set -uo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")" && pwd)
cd "$root" || exit 1
results=${QGEN_RESULTS:-$root/results}
part_seconds=${QGEN_PART_SECONDS:-230}
export QGEN_SOURCE=$root
unset QGEN_SHARED QGEN_GOLDENS

parts=(
  "smoke       one kernel of each kind and one whole model, in half a minute"
  "tests       every test of the kernels and of the engine"
  "speed-8b    decoding with 8 billion weights, FP8 and INT8, at depths 0, 4096 and 32768"
  "parity      the goldens and whole answers on the GPU"
  "prefill     reading prompts, beside the library's own product"
  "sanitize-1  memcheck: products and small kernels"
  "sanitize-2  memcheck: attention, whole models, the library"
  "sanitize-3  racecheck: products and small kernels"
  "sanitize-4  racecheck: attention and a whole model"
  "sanitize-5  initcheck"
  "sanitize-6  synccheck"
  "speed-rest  decoding with other sizes, caches and precisions"
  "memory      memory that plan counts against memory that is allocated"
  "start       from the program's start to its first scores, 9 GB of files"
  "profile     where a token's time goes, kernel by kernel"
  "beside      PyTorch with transformers on the same shapes"
)

mkdir -p "$results/logs" || exit 1
lines=$results/lines.tsv
part=""
failed=0

# One line: what was tried, and what became of it. Kept at once.
note() {
  local what=${1//[$'\t\n']/ } result=${2//[$'\t\n']/ }
  printf '%-48s %s\n' "$what" "$result"
  printf '%s\t%s\t%s\t%s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$part" "$what" "$result" >> "$lines"
}
fault() {
  failed=1
  note "$1" "FAILED: $2"
}
seconds_left() { echo $((part_seconds - SECONDS)); }

# Runs a command for so many seconds at most, or what the part has left; its output goes to $log. False where it failed;
# $reason says why then.
log="" reason="" took=0
attempt() {
  local limit=$1 left status from=$SECONDS within="$1 s"
  shift
  left=$(seconds_left)
  if [ "$left" -lt 5 ]; then
    reason="not run, the part's time was over"
    return 1
  fi
  if [ "$limit" -gt "$left" ]; then limit=$left within="the part's $part_seconds s"; fi
  timeout -k 3 "$limit" "$@" > "$log" 2>&1 < /dev/null
  status=$?
  took=$((SECONDS - from))
  [ $status -eq 0 ] && return 0
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    reason="nothing within $within"
  else
    reason="exit $status: $(cause "$log")"
  fi
  return 1
}
# Of a log, the line that says most.
cause() {
  local line best="" last=""
  while IFS= read -r line; do
    line=${line#"${line%%[![:space:]]*}"}
    [ -n "$line" ] && last=$line
    case $best in '') case $line in
      qgen:* | qgen_gpu_probe:* | *exception:* | *ERROR:* | *'CHECK('* | *'error while loading'* | *Error:*) best=$line ;;
    esac ;; esac
    # What doctest says of an exception stands behind its name.
    case $line in *'exception:'*) best=${line#*exception: } ;; esac
  done < "$1"
  printf '%.160s' "${best:-$last}"
}
log_of() { log=$results/logs/$part-${1//[^A-Za-z0-9]/_}.txt; }

# --- what is here ---------------------------------------------------------------------------------------------------------

# The programs find lib/ by themselves, unless there is no /proc.
use_libraries() {
  local before=${LD_LIBRARY_PATH:-} more
  for more in "" "$root/lib"; do
    more=$more${before:+${more:+:}$before}
    if [ -n "$more" ]; then export LD_LIBRARY_PATH=$more; fi
    bin/qgen --version > /dev/null 2>&1 && return
  done
}
folder_of() {
  local found
  found=$(command -v "$1") || return 1
  found=$(readlink -f "$found")
  dirname "$found"
}
# cuBLASLt where the loader does not look: beside nvcc, in CUDA_HOME, or among Python's packages.
find_cublaslt() {
  [ -n "${QGEN_CUBLASLT:-}" ] && return
  local folders=() folder version
  [ -n "${CUDA_HOME:-}" ] && folders+=("$CUDA_HOME/lib64")
  folder=$(folder_of nvcc) && folders+=("$folder/../lib64" "$folder/../lib")
  if command -v python3 > /dev/null; then
    while IFS= read -r folder; do folders+=("$folder"); done <<< "$(timeout 20 python3 -c '
import os, sys
for path in sys.path:
    for part in ("nvidia/cu13/lib", "nvidia/cublas/lib"):
        print(os.path.join(path, part))' 2> /dev/null)"
  fi
  for version in 13 12; do
    for folder in "${folders[@]}"; do
      if [ -f "$folder/libcublasLt.so.$version" ]; then
        export QGEN_CUBLASLT=$folder/libcublasLt.so.$version
        return
      fi
    done
  done
}
find_sanitizer() {
  local folder
  command -v compute-sanitizer && return
  for folder in "${CUDA_HOME:+$CUDA_HOME/bin}" "$(folder_of nvcc)"; do
    [ -n "$folder" ] && [ -x "$folder/compute-sanitizer" ] && echo "$folder/compute-sanitizer" && return
  done
  return 1
}
describe_machine() {
  local said
  said=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv,noheader 2> /dev/null)
  note "machine" "${said:-nvidia-smi says nothing} · $(nproc) cores · Linux $(uname -r) · cuBLASLt ${QGEN_CUBLASLT:-where the loader looks}"
}

# --- tests ----------------------------------------------------------------------------------------------------------------

# The names of test cases, one a line.
test_cases() {
  local line
  while IFS= read -r line; do
    case $line in 'kernels: '*) printf '%s\n' "$line" ;; esac
  done <<< "$(timeout 30 bin/qgen_gpu_tests --list-test-cases 2>&1)"
}
is_library() { case $1 in *library* | *'8 bits'*) true ;; *) false ;; esac; }
is_model() {
  case $1 in
    *engine* | *model* | *'CUDA graph'* | *prompt* | *sequences* | *fork* | *window* | *'every field'* | *'of every type'* | *'range of F16'*) true ;;
    *) false ;;
  esac
}
is_attention() { case $1 in *attention*) true ;; *) false ;; esac; }
# run_case NAME SECONDS [COMMAND...]: one test case; a command that goes before the program.
run_case() {
  local name=$1 limit=$2
  shift 2
  log_of "$name"
  # Commas part the patterns of a filter.
  if ! attempt "$limit" "$@" bin/qgen_gpu_tests "--test-case=${name//,/?}"; then
    fault "${name#kernels: }" "$reason"
  else
    case $(< "$log") in
      *'cuBLASLt was not found'*) note "${name#kernels: }" "skipped: cuBLASLt was not found" ;;
      *) note "${name#kernels: }" "passed in $took s" ;;
    esac
  fi
}
# run_cases SECONDS WANTED [COMMAND...]: those for which the function WANTED is true.
run_cases() {
  local limit=$1 wanted=$2 name any=0
  shift 2
  while IFS= read -r name; do
    "$wanted" "$name" || continue
    any=1
    run_case "$name" "$limit" "$@"
  done <<< "$(test_cases)"
  [ $any -eq 1 ] || fault "tests" "$(timeout 30 bin/qgen_gpu_tests --list-test-cases 2>&1 | head -1)"
}
# same_answer MODEL: the GPU's greedy text is the processor's.
same_answer() {
  local model=models/$1 prompt='Once upon a time there was a' limit=60 device text=()
  for device in cuda cpu; do
    log_of "text-$1-$device"
    attempt $limit bin/qgen -m "$model" -p "$prompt" --raw -n 64 -q --no-stdin --device $device \
      $([ $device = cpu ] && echo --activations f32) || { fault "greedy text of $1" "--device $device, $reason"; return; }
    text+=("$(< "$log")")
  done
  if [ "${text[0]}" = "${text[1]}" ]; then
    note "greedy text of $1" "64 tokens as on the processor"
  else
    fault "greedy text of $1" "'${text[0]:0:60}' where the processor has '${text[1]:0:60}'"
  fi
}

run_smoke() {
  wanted() { case $1 in *smoke*) true ;; *) false ;; esac; }
  run_cases 20 wanted
  same_answer stories260K-FP8
}
run_tests() {
  wanted() { case $1 in *goldens*) false ;; *) true ;; esac; }
  run_cases 60 wanted
}
run_parity() {
  local families=() family folder line
  for folder in tests/golden/*-*/; do
    family=${folder#tests/golden/}
    family=${family%%-*}
    [[ " ${families[*]} " == *" $family "* ]] || families+=("$family")
  done
  for family in "${families[@]}"; do
    log_of "goldens $family"
    if attempt 100 env "QGEN_GOLDENS=$family" bin/qgen_gpu_tests '--test-case=*goldens*'; then
      while IFS= read -r line; do
        case $line in *MESSAGE:*goldens*) note "goldens of $family" "${line#*MESSAGE: }" ;; esac
      done < "$log"
    else
      fault "goldens of $family" "$reason"
    fi
  done
  same_answer stories260K-FP8
  same_answer stories260K-w8a8
}

# --- compute-sanitizer ----------------------------------------------------------------------------------------------------

sanitize() {
  local tool=$1 which=$2 program
  program=$(find_sanitizer) || { note "compute-sanitizer $tool" "missing here"; return; }
  run_cases 110 "$which" "$program" --tool "$tool" --error-exitcode 9
}
small_kernels() { ! is_model "$1" && ! is_attention "$1" && ! is_library "$1"; }
run_sanitize-1() { sanitize memcheck small_kernels; }
run_sanitize-2() {
  wanted() { ! small_kernels "$1" && case $1 in *goldens* | *'longer than a batch'*) false ;; *) true ;; esac; }
  sanitize memcheck wanted
}
# Without cuBLASLt: its kernels are not under test, and slow under racecheck.
run_sanitize-3() { QGEN_CUBLASLT=off sanitize racecheck small_kernels; }
run_sanitize-4() {
  wanted() { { is_attention "$1" || case $1 in *'smoke, a whole model'* | *'CUDA graph does'*) true ;; *) false ;; esac; } && ! is_library "$1"; }
  QGEN_CUBLASLT=off sanitize racecheck wanted
}
few_kernels() {
  case $1 in *smoke* | *'token after the other'* | *'several layers'* | *'best of a row'* | *'CUDA graph'* | *'shortlist has'*) true ;; *) false ;; esac
}
run_sanitize-5() { QGEN_CUBLASLT=off sanitize initcheck few_kernels; }
run_sanitize-6() { QGEN_CUBLASLT=off sanitize synccheck few_kernels; }

# --- speed ----------------------------------------------------------------------------------------------------------------

# bench WHAT SHAPE OPTIONS...: one test of `qgen bench` with random weights in that shape.
bench() {
  local what=$1 shape=$2 fields result=""
  shift 2
  log_of "$what"
  if ! attempt 100 bin/qgen bench --device cuda --dummy "bench/configs/$shape" --output csv "$@"; then
    fault "$what" "$reason"
    return
  fi
  while IFS=, read -r -a fields; do
    case ${fields[3]:-} in
      decode)
        result=$(printf '%.1f tok/s (%.1f to %.1f), %.0f GB/s' "${fields[6]}" "${fields[7]}" "${fields[8]}" "${fields[10]}e-9")
        [ -z "${fields[11]}" ] || result+=$(printf ', %.0f %% of the read beside it' "${fields[11]}e2") ;;
      prefill)
        result=$(printf '%.0f tok/s (%.0f to %.0f), %.1f TFLOP/s' "${fields[6]}" "${fields[7]}" "${fields[8]}" "${fields[12]}e-12")
        [ -z "${fields[13]}" ] || result+=$(printf ', %.0f %% of the product beside it' "${fields[13]}e2") ;;
    esac
  done < "$log"
  if [ -n "$result" ]; then note "$what" "$result"; else fault "$what" "no line of qgen bench: $(cause "$log")"; fi
}
# decode WHAT SHAPE DEPTH OPTIONS..., prompt WHAT SHAPE TOKENS OPTIONS...
decode() { bench "$1, decode at $3" "$2" -p 0 -n 64 -d "$3" -r 3 "${@:4}"; }
prompt() { bench "$1, prompt of $3" "$2" -p "$3" -n 0 -d 0 -r 3 "${@:4}"; }
run_speed-8b() {
  local depth method
  for depth in 0 4096 32768; do
    for method in fp8 int8; do decode "8B $method" qwen3-8b-$method $depth; done
  done
}
run_prefill() {
  local tokens method
  for tokens in 4096 512; do
    for method in fp8 int8; do prompt "8B $method" qwen3-8b-$method $tokens; done
  done
  for method in fp8 int8; do
    prompt "8B $method, inputs of 8 bits" qwen3-8b-$method 4096 --activations 8bit
    QGEN_CUBLASLT=off prompt "8B $method, own kernels" qwen3-8b-$method 4096
  done
  prompt "4B bf16" qwen3-4b-bf16 4096
  bench "8B fp8, prompt of 512 after 32768" qwen3-8b-fp8 -p 512 -n 0 -d 32768 -r 2
}
run_speed-rest() {
  local shape
  for shape in 0.6b-fp8 4b-fp8 32b-fp8; do
    decode "${shape/b-/B }" qwen3-$shape 0
    decode "${shape/b-/B }" qwen3-$shape 4096
    prompt "${shape/b-/B }" qwen3-$shape 4096
  done
  decode "8B fp8, cache fp8" qwen3-8b-fp8 32768 --kv fp8
  decode "8B fp8, cache int8" qwen3-8b-fp8 32768 --kv int8
  decode "0.6B int8" qwen3-0.6b-int8 0
  decode "0.6B bf16" qwen3-0.6b-bf16 0
  decode "4B int8" qwen3-4b-int8 0
}

# --- the rest -------------------------------------------------------------------------------------------------------------

run_memory() {
  local shape context
  for shape in "qwen3-0.6b-fp8 4096" "qwen3-4b-fp8 4096" "qwen3-8b-int8 32768"; do
    read -r shape context <<< "$shape"
    log_of "$shape"
    if attempt 70 bin/qgen_gpu_probe memory "bench/configs/$shape" --context "$context"; then
      note "memory, $shape" "$(tail -1 "$log")"
    else
      fault "memory, $shape" "$reason"
    fi
  done
}
run_start() {
  local model=$results/start-qwen3-8b-fp8 device times begin
  command -v python3 > /dev/null || { note "8B fp8, start" "missing here: python3, which writes its files"; return; }
  trap 'rm -rf "$model"' EXIT
  log_of write
  if attempt 120 python3 bench/make_safetensors.py bench/configs/qwen3-8b-fp8 "$model"; then
    cat "$model"/*.safetensors > /dev/null
    for device in cuda cpu; do
      times=""
      log_of "$device"
      for _ in 1 2 3; do
        begin=$(date +%s%N)
        attempt 40 bin/qgen score -m "$model" --tokens 1,2 --device $device -c 4096 || { times=""; break; }
        times+="$((($(date +%s%N) - begin) / 1000000)) ms  "
      done
      if [ -n "$times" ]; then note "8B fp8, start, $device" "$times"; else fault "8B fp8, start, $device" "$reason"; fi
    done
  else
    fault "8B fp8, start" "$reason"
  fi
  rm -rf "$model"
}
run_profile() {
  local shape depth
  for shape in "qwen3-8b-fp8 0" "qwen3-8b-fp8 4096" "qwen3-8b-int8 0" "qwen3-0.6b-fp8 0" "qwen3-8b-fp8 32768"; do
    read -r shape depth <<< "$shape"
    log_of "$shape-$depth"
    if attempt 60 bin/qgen_gpu_probe profile "bench/configs/$shape" --depth "$depth"; then
      cat "$log"
      note "profile, $shape @ $depth" "$(head -1 "$log"); $(tail -1 "$log")"
    else
      fault "profile, $shape @ $depth" "$reason"
    fi
  done
}
run_beside() {
  local shape way
  log_of import
  command -v python3 > /dev/null || { note "PyTorch" "missing here: python3"; return; }
  if ! attempt 90 python3 -c 'import torch, transformers; assert torch.cuda.is_available(), "PyTorch sees no GPU"'; then
    note "PyTorch" "missing here ($reason)"
    return
  fi
  for way in "" --compile; do
    for shape in qwen3-0.6b-fp8 qwen3-8b-fp8; do
      log_of "$shape$way"
      if attempt 100 python3 bench/torch_speed.py "bench/configs/$shape" --prompt 4096 $way; then
        note "PyTorch, $shape ${way:-eager}" "$(tail -1 "$log")"
      else
        fault "PyTorch, $shape ${way:-eager}" "$reason"
      fi
    done
  done
}

# --- the command line -----------------------------------------------------------------------------------------------------

table() {
  local time name what result key order=() at
  declare -A last=() machine=()
  [ -f "$lines" ] || { echo "run.sh: nothing has been run yet (expected lines in $lines)" >&2; return 1; }
  while IFS=$'\t' read -r time name what result; do
    if [ "$what" = machine ]; then
      machine[$result]=$time
      continue
    fi
    key="$name | $what"
    [ -n "${last[$key]+set}" ] || order+=("$key")
    last[$key]=${result//|/\\|}
  done < "$lines"
  for at in "${!machine[@]}"; do printf '%s: %s\n' "${machine[$at]}" "$at"; done
  printf '\n| part | what | result |\n|---|---|---|\n'
  for key in "${order[@]}"; do printf '| %s | %s |\n' "$key" "${last[$key]}"; done
}
names() { for at in "${parts[@]}"; do echo "${at%% *}"; done; }

case ${1:-} in
  '')
    echo "usage: ./run.sh PART | all | table | qgen ...; the parts, in the order of their worth:"
    printf '  %s\n' "${parts[@]}"
    exit 0 ;;
  table)
    table
    exit ;;
  qgen)
    use_libraries
    shift
    exec bin/qgen "$@" ;;
  all)
    while IFS= read -r at; do "$root/run.sh" "$at" || failed=1; done <<< "$(names)"
    exit $failed ;;
esac
case " $(names | tr '\n' ' ') " in *" $1 "*) ;; *)
  echo "run.sh: no part '$1' (expected one of: $(names | tr '\n' ' '))" >&2
  exit 2 ;;
esac
part=$1
SECONDS=0
use_libraries
find_cublaslt
echo "== $part"
describe_machine
"run_$part"
echo "== $part: $([ $failed -eq 0 ] && echo passed || echo 'some lines failed') in $SECONDS s"
exit $failed
