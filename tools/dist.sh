#!/usr/bin/env bash
# Writes a release that runs on any x86-64 Linux with glibc 2.34 and nothing else installed: programs, the libraries they
# bring, the manual page, completion scripts, documents and licenses.
#   tools/dist.sh BUILD_FOLDER PROGRAM[=NAME] ...     portable programs, each called NAME there
# The file is BUILD_FOLDER/qgen-VERSION-linux-x86_64.tar.gz; the same files give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/dist.sh BUILD_FOLDER PROGRAM[=NAME] ...}
shift
[ $# -gt 0 ] || { echo "dist: no programs" >&2; exit 1; }

first=${1%%=*}
version=$("$first" --version | awk '{ print $2 }')
name=qgen-$version-linux-x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/$name
mkdir -p "$out"/{bin,lib,licenses,share/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}}
for program in "$@"; do
  file=${program%%=*}
  to=$out/bin/${program#*=}
  [ "$file" != "$program" ] || to=$out/bin/$(basename "$file")
  strip -o "$to" "$file"
done
cp "$build"/lib/*.so.* "$build/lib/libsimdcxx.so" "$out/lib/"
strip "$out"/lib/*
bash tools/portable/check.sh "$out/bin" "$out/lib"

"$first" man > "$out/share/man/man1/qgen.1"
"$first" completion bash > "$out/share/bash-completion/completions/qgen"
"$first" completion zsh > "$out/share/zsh/site-functions/_qgen"
"$first" completion fish > "$out/share/fish/vendor_completions.d/qgen.fish"
cp -r README.md LICENSE CHANGELOG.md HACKING.md models.txt docs schemas "$out/"
mkdir "$out/bench"
cp bench/*.md "$out/bench/"
# Of the libraries that are part of the programs.
for package in libfmt-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev libbsd-dev libmd-dev \
  libncurses-dev "libstdc++-$(c++ -dumpversion)-dev"; do
  cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package" || { echo "dist: no license of $package" >&2; exit 1; }
done

chmod -R u=rwX,go=rX "$out"
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" -cf - "$name" | gzip -9n > "$build/$name.tar.gz"
echo "$build/$name.tar.gz"
