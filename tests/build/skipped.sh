#!/usr/bin/env bash
# Lists by name what tests left out because something was not there: FOLDER has a file for each test of ctest, a line for each
# thing. The exit code is 77, which ctest takes for skipped, where there is anything.
#
#     tests/build/skipped.sh FOLDER
set -euo pipefail
cd "$1"
shopt -s nullglob
found=0
for file in *; do
  [ -s "$file" ] || continue
  [ $found -ne 0 ] || echo "Not tested:"
  found=77
  sed "s/^/  $file: /" "$file"
done
exit $found
