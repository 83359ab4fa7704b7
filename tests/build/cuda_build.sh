#!/usr/bin/env bash
# The engine for GPUs, compiled for every kind that the build is for, without a warning (nvcc would fail) and with no
# kernel that keeps anything in memory that should be in registers; and what the programs say where there is no GPU.
#   tests/build/cuda_build.sh BUILD_FOLDER
set -euo pipefail
build=$1
cmake --build "$build" --target qgen_with_cuda qgen_gpu_tests -j "$(nproc)" > "$build/cuda/build.log" 2>&1 || {
  cat "$build/cuda/build.log"
  exit 1
}

# What ptxas says of a kernel stands in two lines after its name.
report=$(awk '
  /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for .*/, "", name)
                               arch = $0; sub(/.* for ./, "", arch); sub(/.$/, "", arch) }
  /bytes stack frame/ { stack = $1; stores = $5; loads = $9
                        for (i = 1; i <= NF; ++i) { if ($(i + 1) == "bytes" && $(i + 2) == "stack") stack = $i } }
  /Used [0-9]+ registers/ { for (i = 1; i <= NF; ++i) if ($i == "Used") registers = $(i + 1)
                            print arch, name, registers, stack, stores, loads }
' "$build"/cuda/*.log "$build"/cuda/timed/*.log)
kernels=$(wc -l <<< "$report")
archs=$(cut -d' ' -f1 <<< "$report" | sort -u | tr '\n' ' ')
bad=0
if [ "$kernels" -lt 80 ]; then
  echo "cuda: only $kernels kernels were found in what ptxas said"
  bad=1
fi
if spilled=$(awk '$4 + $5 + $6 > 0' <<< "$report") && [ -n "$spilled" ]; then
  printf 'cuda: kernels with a stack or spilled registers:\n%s\n' "$spilled"
  bad=1
fi
[ "$(grep -c 'gemv_kernel.*ELi2ELi16EEEEEv' <<< "$report")" -ge 15 ] || { echo "cuda: no kernels for a few tokens"; bad=1; }
if grep -hE '\bwarning\b' "$build"/cuda/*.log "$build"/cuda/timed/*.log; then
  bad=1
fi
if command -v cuobjdump > /dev/null; then
  for object in gemv attend gemm gemm_split experts_grouped experts_chosen; do
    cuobjdump -sass -arch sm_90 "$build/cuda/$object.o"
  done | python3 tests/build/sass.py || bad=1
  # clocks OBJECT KERNEL MOST ...: those of a matrix product in the loop of a kernel.
  clocks() {
    cuobjdump -sass -arch sm_90 "$build/cuda/$1.o" | python3 bench/sass_clocks.py "$2" --most "$3" "${@:4}" || bad=1
  }
  clocks attend 'attend_tiles_kernelILNS0_9CacheKindE0ELi128E' 11.8 --blocks 2
  clocks experts_grouped 'grouped_kernel.*CodesE4ELi16ELi1E' 11 --products 64
  # The way of a warp of keys.
  clocks recurrence 'recur_chunks_kernelILb1ELi128E' 33 --products 56
  clocks gemm_split 'split_gemm_kernel.*CodesE4ELi16ELi1E' 13 --products 64
else
  echo "cuda: no cuobjdump here, machine code was not looked at"
fi
echo "cuda: $kernels kernels for $archs"
awk '{ n = $2; sub(/^_ZN4qgen4cuda[0-9]*/, "", n); sub(/_kernel.*/, "", n); if ($3 > most[n]) most[n] = $3; if (!(n in least) || $3 < least[n]) least[n] = $3 }
     END { for (n in most) printf "  %-22s %3d to %3d registers\n", n, least[n], most[n] }' <<< "$report" | sort

qgen=$build/cuda/qgen
model=models/stories260K-FP8
"$qgen" --help > /dev/null
if ! nvidia-smi -L > /dev/null 2>&1; then
  status=0
  said=$("$qgen" -m "$model" -p x -n 1 --device cuda --no-stdin 2>&1) || status=$?
  if [ $status -ne 5 ] || ! grep -q 'qgen: --device cuda: ' <<< "$said" || ! grep -q 'hint: ' <<< "$said"; then
    printf 'cuda: without a GPU: exit %s\n%s\n' "$status" "$said"
    bad=1
  fi
  if [ "$("$qgen" -m "$model" -p 'Once upon a time' -n 8 --no-stdin -q)" != "$("$build/qgen" -m "$model" -p 'Once upon a time' -n 8 --no-stdin -q)" ]; then
    echo "cuda: without a GPU the processor's answer differs"
    bad=1
  fi
  said=$("$build/tests/qgen_gpu_tests" --test-case='*smoke? a whole model*' 2>&1) && status=0 || status=$?
  if [ $status -ne 1 ] || ! grep -q 'exception: --device cuda: no ' <<< "$said"; then
    printf 'cuda: the tests for GPUs without one: exit %s\n%s\n' "$status" "$said"
    bad=1
  fi
fi
exit $bad
