#!/usr/bin/env bash
# Writes a release that runs on any x86-64 Linux with glibc 2.34 and nothing else installed: programs, the libraries they
# bring, the manual page, completion scripts, documents and licenses.
#   tools/dist.sh BUILD_FOLDER PROGRAM[=NAME] ...     portable programs, each called NAME there
# The file is BUILD_FOLDER/qgen-VERSION-linux-x86_64.tar.gz; the same files give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/portable/pack.sh
build=${1:?usage: tools/dist.sh BUILD_FOLDER PROGRAM[=NAME] ...}
shift
[ $# -gt 0 ] || { echo "dist: no programs" >&2; exit 1; }

first=${1%%=*}
version=$("$first" --version | awk '{ print $2 }')
name=qgen-$version-linux-x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/$name
pack_programs "$build" "$out" "$@"
pack_documents "$out" "$first"

chmod -R u=rwX,go=rX "$out"
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" -cf - "$name" | gzip -9n > "$build/$name.tar.gz"
echo "$build/$name.tar.gz"
