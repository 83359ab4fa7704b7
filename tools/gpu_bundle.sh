#!/usr/bin/env bash
# Writes a folder that runs on any x86-64 Linux with an NVIDIA driver (glibc 2.34 and later): the program, the tests of the
# kernels with their goldens, what times them, the libraries that they need, and run.sh (tools/gpu_bundle/), which says what
# to do with it; and the same as a tar file beside it.
#   tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER [--here]
# --here: for this machine alone, whatever it needs of its C library.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER [--here]}
out=${2:?usage: tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER [--here]}
most_bytes=$((45 << 20))

rm -rf "$out" "$out.tar"
mkdir -p "$out/bin" "$out/lib/runtime" "$out/bench"
programs=("$build/cuda/qgen" "$build/tests/qgen_gpu_tests" "$build/cuda/qgen_gpu_probe")
cp "${programs[@]}" "$out/bin/"
strip "$out"/bin/*
# All libraries but those of glibc. The C++ library's newest version may need a newer glibc than there is: the system's own
# is taken where it has one.
while read -r name arrow path _; do
  [ "$arrow" = '=>' ] || continue
  case $name in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.*) ;;
    libstdc++.so.* | libgcc_s.so.*) cp -L "$path" "$out/lib/runtime/$name" ;;
    *.so*) cp -L "$path" "$out/lib/$name" ;;
  esac
done < <(for program in "${programs[@]}"; do ldd "$program"; done | sort -u)

cp tools/gpu_bundle/run.sh "$out/"
mkdir -p "$out/tests"
cp -r tests/golden "$out/tests/"
cp -r bench/configs bench/torch_speed.py bench/make_safetensors.py bench/versus.py "$out/bench/"
mkdir -p "$out/models"
for model in stories260K-FP8 stories260K-w8a8; do cp -r "models/$model" "$out/models/"; done

if [ "${3:-}" != --here ]; then
  # Versions of symbols that appeared after glibc 2.34 and GCC 11.
  newer=$(for file in "$out"/bin/* "$out"/lib/*.so*; do
    objdump -T "$file" | awk -v file="${file##*/}" '
      match($0, /(GLIBC|GLIBCXX|CXXABI)_[0-9.]+/) {
        split(substr($0, RSTART, RLENGTH), version, "_"); split(version[2], number, ".")
        late = version[1] == "GLIBC" ? number[1] == 2 && number[2] > 34 : \
               version[1] == "GLIBCXX" ? number[2] >= 4 && number[3] > 29 : number[2] >= 3 && number[3] > 13
        if (late) print file ": " $NF " (" version[1] "_" version[2] ")"
      }'
  done)
  if [ -n "$newer" ]; then
    printf 'gpu-bundle: needs more than glibc 2.34 and the C++ library of GCC 11:\n%s\n' "$newer" >&2
    exit 1
  fi
fi
bytes=$(du -sb "$out" | cut -f1)
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "gpu-bundle: $out is too large (expected at most $most_bytes bytes, found $bytes)" >&2
  exit 1
fi
tar -C "$(dirname "$out")" -cf "$out.tar" "$(basename "$out")"
echo "gpu-bundle: $out and $out.tar, $((bytes >> 20)) MiB; on a machine with a GPU: $(basename "$out")/run.sh"
