#!/usr/bin/env bash
# The bundle for machines with a GPU, unpacked where there is none: in a root with nothing in it but a C library, a shell and
# a few commands. The program says that there is no driver and computes on the processor; run.sh goes through all of its
# parts beside a made-up nvidia-smi, and each ends with its lines. Then with the processor in the place of the GPU: lines of
# what works, of what fails and of what hangs. A root of Debian's own may be given instead.
#   tests/build/gpu_bundle.sh BUILD_FOLDER [ROOT [BUNDLE]]
set -euo pipefail
build=$(cd "$1" && pwd)
skip() { echo "gpu_bundle: skipped, $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "chroot wants root"
work=$(mktemp -d)
root=${2:-$work/root}
leave() {
  mountpoint -q "$root/proc" && umount "$root/proc"
  rm -rf "$work" "$root/bundle"
}
trap leave EXIT
chroot=$(command -v chroot || echo /usr/sbin/chroot)
bad=0
wrong() { echo "gpu_bundle: $*"; bad=1; }

if [ $# -lt 2 ]; then
  mkdir -p "$root"/{usr/bin,lib64,tmp,dev,proc}
  ln -s usr/bin "$root/bin"
  # A program, and the libraries that it needs, where they are here.
  bring() {
    local path library
    path=$(readlink -f "$(command -v "$1")")
    cp "$path" "$root/usr/bin/$1"
    while read -r library; do
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    done < <(ldd "$path" | grep -oE '/[^ ]+\.so[^ ]*')
  }
  for name in bash env timeout date cat cp mkdir rm dirname readlink head tail tr nproc uname sleep; do bring "$name"; done
  # What the programs take from the C library besides.
  for library in libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0; do
    path=$(ldconfig -p | grep -oE "/[^ ]*x86_64[^ ]*/$library$" | head -1)
    [ -z "$path" ] || cp -L "$path" "$root$(dirname "$(ldd /bin/true | grep -oE '/[^ ]+libc\.so[^ ]*')")/"
  done
  touch "$root/dev/null"
  mknod -m 666 "$root/dev/null-device" c 1 3 2> /dev/null && mv "$root/dev/null-device" "$root/dev/null"
  for library in libstdc++.so.6 libcudart.so.13 libcuda.so.1; do
    find "$root" -name "$library" | grep -q . && wrong "$library is in what should be an empty root"
  done
fi
bundle=${3:-$work/bundle}
[ $# -ge 3 ] || bash tools/gpu_bundle.sh "$build" "$bundle" > "$work/log" || { cat "$work/log"; exit 1; }
# Documents and licenses are those of a release.
for file in README.md LICENSE docs/gpus.md bench/README.md schemas/bench.schema.json licenses/libfmt-dev licenses/doctest-dev \
  share/bash-completion/completions/qgen share/zsh/site-functions/_qgen share/fish/vendor_completions.d/qgen.fish; do
  [ -s "$bundle/$file" ] || wrong "$file is missing"
done
cmp "$bundle/share/man/man1/qgen.1" <("$build/qgen" man) || bad=1
rm -rf "$root/bundle"
cp -r "$bundle" "$root/bundle"
# A loader without /proc does not know where a program lies; run.sh does.
mount -t proc proc "$root/proc" 2> /dev/null || echo "gpu_bundle: no /proc in the root"
cat > "$root/usr/bin/nvidia-smi" << 'END'
#!/bin/bash
echo "NVIDIA Nothing, 000.00, 1 MiB, 1 MHz, 1 MHz"
END
chmod +x "$root/usr/bin/nvidia-smi"
inside() { env -i PATH=/usr/bin:/bin QGEN_PART_SECONDS=100 "$chroot" "$root" "$@"; }

status=0
said=$(inside /bundle/run.sh qgen -m /bundle/models/stories260K-FP8 -p x -n 1 --device cuda --no-stdin 2>&1) || status=$?
if [ $status -ne 5 ] || [[ $said != *'qgen: --device cuda: no NVIDIA driver is installed'* ]]; then
  wrong "--device cuda: exit $status: $said"
fi
prompt=(-p 'Once upon a time' -n 24 --no-stdin -q)
expected=$("$build/qgen" -m models/stories260K-FP8 "${prompt[@]}" --device cpu)
for device in cpu auto; do
  found=$(inside /bundle/run.sh qgen -m /bundle/models/stories260K-FP8 "${prompt[@]}" --device $device 2>&1) || wrong "--device $device failed"
  [ "$found" = "$expected" ] || wrong "--device $device says '$found', the program here '$expected'"
done

# Every part, each of its lines with what went wrong. Half of the lines of parts that measure would have been another thing
# than a missing driver if anything of the bundle were missing.
status=0
inside /bundle/run.sh all > "$work/all" 2>&1 || status=$?
[ $status -eq 1 ] || wrong "run.sh all: exit $status (expected 1)"
parts=$(inside /bundle/run.sh | awk '/^  / { print $1 }')
[ "$(wc -l <<< "$parts")" -ge 16 ] || wrong "only these parts: $parts"
for part in $parts; do
  grep -q "^== $part\$" "$work/all" || wrong "part $part did not begin"
  grep -q "^== $part: .* in [0-9]* s\$" "$work/all" || wrong "part $part did not end"
  awk -F'\t' -v part="$part" '$2 == part && $3 != "machine"' "$root/bundle/results/lines.tsv" | grep . > /dev/null ||
    wrong "part $part has no line"
done
if unexplained=$(grep -E 'FAILED' "$work/all" | grep -vE 'no NVIDIA driver is installed'); then
  wrong "these failed for another reason than the driver:" "$unexplained"
fi
[ "$(grep -c 'no NVIDIA driver' "$work/all")" -ge 40 ] || wrong "fewer than 40 lines speak of the driver"
if odd=$(grep -E 'command not found|No such file|unbound variable|syntax error|while loading' "$work/all"); then
  wrong "run.sh stumbled:" "$odd"
fi
table=$(inside /bundle/run.sh table)
[ "$(grep -c '^| ' <<< "$table")" -ge 50 ] || wrong "the table is short:" "$table"
inside /bundle/run.sh nonsense > /dev/null 2>&1 && wrong "an unknown part was taken"
[ $bad -eq 0 ] || { cat "$work/all"; exit 1; }

# The processor in the place of the GPU: small shapes, short depths, the kernels in their executor.
programs=$root/bundle/bin
mv "$programs/qgen" "$programs/qgen-real"
cat > "$programs/qgen" << 'END'
#!/bin/bash
cd "${0%/*}/.."
arguments=("${@/#cuda/cpu}")
arguments=("${arguments[@]/%4096/32}")
exec bin/qgen-real "${arguments[@]/%32768/64}"
END
cp "$build/tests/qgen_tests" "$programs/qgen_gpu_tests"
# This one is not portable: it takes the libraries of this machine.
while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done < <(ldd "$build/tests/qgen_tests" | grep -oE '/[^ ]+\.so[^ ]*')
printf '#!/bin/bash\necho "== 3 errors"\nexit 9\n' > "$root/usr/bin/compute-sanitizer"
chmod +x "$programs/qgen" "$root/usr/bin/compute-sanitizer"
for config in "$root"/bundle/bench/configs/*/config.json; do
  sed -i -E 's/("num_hidden_layers"): [0-9]+/\1: 1/; s/("hidden_size"): [0-9]+/\1: 256/; s/("intermediate_size"): [0-9]+/\1: 256/
             s/("num_attention_heads"): [0-9]+/\1: 2/; s/("num_key_value_heads"): [0-9]+/\1: 1/; s/("vocab_size"): [0-9]+/\1: 512/' "$config"
done
results=$root/bundle/results/lines.tsv
expect_lines() {
  local part=$1 count=$2 pattern=$3 found
  found=$(awk -F'\t' -v part="$part" '$2 == part && $3 != "machine" { print $3 ": " $4 }' "$results" | grep -cE "$pattern" || true)
  [ "$found" -eq "$count" ] || wrong "part $part: $found lines (expected $count) of '$pattern'"
}
rm "$results"
inside /bundle/run.sh smoke > "$work/smoke" 2>&1 || wrong "smoke failed on the processor:" "$(cat "$work/smoke")"
expect_lines smoke 5 '^smoke, .*: passed in [0-9]+ s$'
expect_lines smoke 1 '^greedy text of stories260K-FP8: 64 tokens as on the processor$'
inside /bundle/run.sh speed-8b > "$work/speed" 2>&1 || wrong "speed-8b failed on the processor:" "$(cat "$work/speed")"
expect_lines speed-8b 6 '^8B (fp8|int8), decode at (0|4096|32768): [0-9.]+ tok/s \([0-9.]+ to [0-9.]+\), [0-9]+ GB/s$'
inside /bundle/run.sh prefill > "$work/prefill" 2>&1 || wrong "prefill failed on the processor:" "$(cat "$work/prefill")"
expect_lines prefill 10 ', prompt of [0-9 a-z]+: [0-9]+ tok/s \([0-9]+ to [0-9]+\), [0-9.]+ TFLOP/s, [0-9]+ % of the product beside it$'
inside /bundle/run.sh sanitize-6 > "$work/sanitize" 2>&1 && wrong "errors that a sanitizer found were passed over"
expect_lines sanitize-6 14 ': FAILED: exit 9: == 3 errors$'
# A program that hangs loses its own line, and no more than the part's time. A busy machine takes some of that to start.
printf '#!/bin/bash\nsleep 1000\n' > "$programs/qgen_gpu_probe"
env -i PATH=/usr/bin:/bin QGEN_PART_SECONDS=9 "$chroot" "$root" /bundle/run.sh memory > "$work/hang" 2>&1 && wrong "what hangs passed"
expect_lines memory 1 '^memory, qwen3-0.6b-fp8: FAILED: nothing within the part.s 9 s$'
expect_lines memory 2 ': FAILED: not run, the part.s time was over$'
[ $bad -eq 0 ] || exit 1
echo "gpu_bundle: $(du -sm "$bundle" | cut -f1) MiB, $(wc -l <<< "$parts") parts"
