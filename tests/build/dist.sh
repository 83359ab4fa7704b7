#!/usr/bin/env bash
# The release of `make dist`, unpacked into a root with nothing in it but glibc: it needs nothing newer than glibc 2.34 and no
# library that it does not bring, answers like the program here, and reports errors. Where neither chroot nor a namespace of
# one's own is allowed, the same beside the system's libraries, and the test counts as skipped.
#   tests/build/dist.sh BUILD_FOLDER
set -euo pipefail
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "dist: $*"; bad=1; }

cmake --build "$build" --target qgen_release > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
archive=$(tools/dist.sh "$build" "$build/release/qgen")
again=$(sha256sum < "$archive")
tools/dist.sh "$build" "$build/release/qgen" > /dev/null
[ "$(sha256sum < "$archive")" = "$again" ] || wrong "the same files gave other bytes"
name=$(basename "$archive" .tar.gz)
[ "$name" = "qgen-$("$build/qgen" --version | awk '{ print $2 }')-linux-x86_64" ] || wrong "the archive is called $name"
root=$work/root
mkdir "$root"
tar -C "$root" -xzf "$archive"
[ "$(ls "$root")" = "$name" ] || wrong "the archive has more than one folder: $(ls "$root")"
release=$root/$name
bash tools/portable/check.sh "$release" || bad=1
# The check finds what it looks for.
mkdir "$work/here"
cp "$build/qgen" "$work/here/"
if bash tools/portable/check.sh "$work/here" > "$work/check"; then
  wrong "the program with this system's libraries passed the check"
fi
grep -q 'needs libstdc++.so.6, which is not bundled' "$work/check" || wrong "the check says: $(cat "$work/check")"
mkdir "$work/newer"
cp -L "$(ldd "$build/qgen" | awk '$1 == "libstdc++.so.6" { print $3 }')" "$work/newer/"
if objdump -T "$work"/newer/* | grep -qE 'GLIBC_2\.(3[5-9]|[4-9][0-9])'; then
  bash tools/portable/check.sh "$work/newer" | grep -q 'needs more than glibc 2.34' || wrong "newer symbols passed the check"
fi

for file in README.md LICENSE docs/formats.md schemas/answer.schema.json; do
  [ -s "$release/$file" ] || wrong "$file is missing"
done
[ "$(ls "$release/licenses" | wc -l)" -ge 10 ] || wrong "licenses are missing: $(ls "$release/licenses")"
cmp "$release/share/man/man1/qgen.1" <("$build/qgen" man) || bad=1
cmp "$release/share/bash-completion/completions/qgen" <("$build/qgen" completion bash) || bad=1
cmp "$release/share/zsh/site-functions/_qgen" <("$build/qgen" completion zsh) || bad=1
cmp "$release/share/fish/vendor_completions.d/qgen.fish" <("$build/qgen" completion fish) || bad=1
# Documents link to files of the release, or to tools of the repository.
while read -r from to; do
  [[ $to == *tools/* ]] || [ -e "$release/$(dirname "$from")/$to" ] || wrong "$from links to $to, which is missing"
done < <(cd "$release" && grep -oE '\]\([^)#: ]+(\)|#)' README.md docs/*.md bench/*.md | sed 's/:](/ /; s/[)#]$//')

# glibc, and nothing else.
loader=$(objdump -s -j .interp "$release/bin/qgen" > /dev/null && readelf -l "$release/bin/qgen" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
folder=$(dirname "$(ldd /bin/sh | grep -oE '/[^ ]+libc\.so[^ ]*')")
mkdir -p "$root/$folder" "$root$(dirname "$loader")" "$root/models" "$root/tmp"
cp -L "$loader" "$root$loader"
for library in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0; do
  [ ! -e "$folder/$library" ] || cp -L "$folder/$library" "$root/$folder/"
done
cp -r models/stories260K-FP8 "$root/models/"
PATH=$PATH:/usr/sbin
# Without /proc in the root the loader does not know the folder of a program, and is told.
lonely=(env -i LD_BIND_NOW=1 "LD_ORIGIN_PATH=/$name/bin")
empty=1
if chroot "$root" "$loader" --version > /dev/null 2>&1; then
  inside() { "${lonely[@]}" "$(command -v chroot)" "$root" "/$name/bin/qgen" "$@"; }
elif unshare --map-root-user --root="$root" "$loader" --version > /dev/null 2>&1; then
  inside() { "${lonely[@]}" "$(command -v unshare)" --map-root-user --root="$root" "/$name/bin/qgen" "$@"; }
else
  empty=0
  inside() { (cd "$root" && exec env -i LD_BIND_NOW=1 "$release/bin/qgen" "${@/#\/models/models}"); }
fi

prompt=(-p 'Once upon a time' -n 24 --temp 0 --no-stdin -q --device cpu)
expected=$("$build/qgen" -m models/stories260K-FP8 "${prompt[@]}")
found=$(inside -m /models/stories260K-FP8 "${prompt[@]}" 2>&1) || wrong "exit $?"
[ "$found" = "$expected" ] || wrong "the release says '$found', the program here '$expected'"
# A seed of its own, and a sampled answer.
found=$(inside -m /models/stories260K-FP8 -p 'Once upon a time' -n 8 --temp 1 --no-stdin -q 2>&1) || wrong "sampling: exit $?: $found"
# Errors are exceptions, which need the unwinder.
status=0
found=$(inside -m /models/none -p x --no-stdin 2>&1) || status=$?
if [ $status -ne 3 ] || [[ $found != 'qgen: '*'models/none: '* ]]; then
  wrong "a model that is missing: exit $status: $found"
fi
# Through a link, from another folder, the bundled library is found.
ln -s "$release/bin/qgen" "$work/linked"
maps=$(cd / && env -i LD_TRACE_LOADED_OBJECTS=1 "$work/linked" 2>&1)
grep -q "$release/bin/../lib/libsimdjson.so" <<< "$maps" || wrong "libraries: $maps"
if grep -E 'libstdc|libgcc_s|not found' <<< "$maps"; then
  wrong "the release loads the libraries above"
fi

[ $bad -eq 0 ] || exit 1
if [ $empty -eq 0 ]; then
  echo "dist: good beside the system's libraries; skipped: an empty root (neither chroot nor unshare is allowed)"
  exit 77
fi
echo "dist: $name, $(du -k "$archive" | cut -f1) KiB, good in an empty root"
