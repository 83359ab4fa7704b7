#!/usr/bin/env bash
# Copies the shared libsimdjson into a folder so that it needs no shared C++ library: Debian has no static one.
#   tools/portable/simdjson.sh LIBSIMDJSON FOLDER [COMPILER]
# The copy names libsimdcxx.so in the place of libstdc++.so.6 and libgcc_s.so.1: their names in its string table are
# overwritten. libsimdcxx.so has the versions of symbols that the copy asks for. The functions come from the program that
# links FOLDER/libsimdjson.so, out of its static C++ library, with the options in FOLDER/link.txt; so there is one C++
# library in the process. _Unwind_Resume is hidden in static libraries: it is reached through two jumps
# (tools/portable/glibc.cpp has the other one).
set -euo pipefail
library=$(readlink -f "$1")
folder=$2
compiler=${3:-c++}
name=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
mkdir -p "$folder"

versions=$(objdump -p "$library" | awk '/^Version References/ { on = 1 } on && /(GLIBCXX|CXXABI|GCC)_/ { print $NF }' | sort -u)
[ -n "$versions" ] || { echo "simdjson.sh: $library asks for no C++ library" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed 's/$/ { };/; s/^GCC_3.0 .*/GCC_3.0 { global: _Unwind_Resume; };/' <<< "$versions" > "$work/versions"
cat > "$work/resume.s" << 'END'
.globl _Unwind_Resume
.type _Unwind_Resume, @function
_Unwind_Resume: jmp *qgen_unwind_resume@GOTPCREL(%rip)
.section .note.GNU-stack, "", @progbits
END
"$compiler" -shared -nostdlib "$work/resume.s" -Wl,-soname,libsimdcxx.so "-Wl,--version-script=$work/versions" \
  -o "$folder/libsimdcxx.so"

objdump -T "$library" | awk '/\*UND\*/ && /\((GLIBCXX|CXXABI)_/ {
  printf "-Wl,-u,%s -Wl,--export-dynamic-symbol=%s\n", $NF, $NF }' > "$folder/link.txt"
echo "-Wl,--export-dynamic-symbol=qgen_unwind_resume -Wl,--allow-shlib-undefined" >> "$folder/link.txt"

# Names of the same length, the rest zero bytes.
LC_ALL=C sed -e 's/\x00libstdc++\.so\.6\x00/\x00libsimdcxx.so\x00\x00/' -e 's/\x00libgcc_s\.so\.1\x00/\x00libsimdcxx.so\x00/' \
  "$library" > "$folder/$name.new"
if objdump -p "$folder/$name.new" | grep -E 'libstdc\+\+|libgcc_s'; then
  echo "simdjson.sh: $library still asks for the libraries above" >&2
  exit 1
fi
chmod 755 "$folder/$name.new"
mv "$folder/$name.new" "$folder/$name"
ln -sf "$name" "$folder/libsimdjson.so"
