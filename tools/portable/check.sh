#!/usr/bin/env bash
# Whether every program and library in these folders runs with glibc 2.34 and no other library of the system:
#   tools/portable/check.sh FOLDER ...
# Prints what is in the way, and exits with 1: versions of glibc's symbols that are newer, and needed libraries that neither
# belong to glibc nor lie in the folders, and folders of this machine where libraries are looked for.
set -euo pipefail
files=() bad=0
while IFS= read -r -d '' file; do
  # ELF files alone.
  [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] && files+=("$file")
done < <(find "$@" -type f -print0)
[ ${#files[@]} -gt 0 ] || { echo "check: no programs in $*" >&2; exit 1; }
for file in "${files[@]}"; do
  newer=$(objdump -T "$file" | awk 'match($0, /\(?GLIBC_[0-9.]+/) {
    text = substr($0, RSTART, RLENGTH); sub(/.*_/, "", text); split(text, number, ".")
    if (number[1] > 2 || number[1] == 2 && number[2] > 34) print "  " $NF " (GLIBC_" text ")" }')
  if [ -n "$newer" ]; then
    printf 'check: %s: needs more than glibc 2.34:\n%s\n' "$file" "$newer"
    bad=1
  fi
  path=$(objdump -p "$file" | awk '$1 == "RPATH" || $1 == "RUNPATH" { print $2 }')
  if [ -n "$path" ] && [ "$path" != '$ORIGIN/../lib' ]; then
    echo "check: $file: looks for libraries in $path (expected \$ORIGIN/../lib)"
    bad=1
  fi
  while read -r needed; do
    case $needed in
      libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | ld-linux-x86-64.so.2) continue ;;
    esac
    if ! find "$@" -name "$needed" | grep -q .; then
      echo "check: $file: needs $needed, which is not bundled"
      bad=1
    fi
  done < <(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }')
done
exit $bad
