#!/usr/bin/env bash
# What a release (tools/dist.sh) and the bundle for GPUs (tools/gpu_bundle.sh) have in common. Sourced by both, in the
# repository's root and with `set -e`.

# pack_programs BUILD OUT PROGRAM[=NAME] ...: stripped portable programs, each called NAME there, and the libraries that
# they bring; all of them are checked.
pack_programs() {
  local build=$1 out=$2 program
  shift 2
  mkdir -p "$out"/{bin,lib}
  for program in "$@"; do
    strip -o "$out/bin/$(basename "${program#*=}")" "${program%%=*}"
  done
  cp "$build"/lib/*.so.* "$build/lib/libsimdcxx.so" "$out/lib/"
  strip "$out"/lib/*
  bash tools/portable/check.sh "$out/bin" "$out/lib"
}

# pack_documents OUT QGEN [PACKAGE ...]: documents, the manual page and completion scripts as QGEN prints them, and licenses:
# qgen's own, those of the libraries that are part of its programs, and those of Debian's PACKAGEs.
pack_documents() {
  local out=$1 qgen=$2 package
  shift 2
  mkdir -p "$out"/{bench,licenses,share/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}}
  "$qgen" man > "$out/share/man/man1/qgen.1"
  "$qgen" completion bash > "$out/share/bash-completion/completions/qgen"
  "$qgen" completion zsh > "$out/share/zsh/site-functions/_qgen"
  "$qgen" completion fish > "$out/share/fish/vendor_completions.d/qgen.fish"
  cp -r README.md LICENSE CHANGELOG.md HACKING.md models.txt docs schemas "$out/"
  cp bench/*.md "$out/bench/"
  for package in libfmt-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev libbsd-dev libmd-dev \
    libncurses-dev "libstdc++-$(c++ -dumpversion)-dev" "$@"; do
    cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package" || { echo "pack: no license of $package" >&2; return 1; }
  done
}
