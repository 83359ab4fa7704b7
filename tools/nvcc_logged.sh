#!/usr/bin/env bash
# Runs a compiler, keeps what it says in a file and shows it only where it fails.
#   tools/nvcc_logged.sh LOG COMMAND...
log=$1
shift
"$@" > "$log" 2>&1 && exit 0
status=$?
cat "$log" >&2
exit $status
