#!/usr/bin/env bash
# Makes a Python environment with the packages of a requirements file; says nothing where it is there already.
#   tools/venv.sh FOLDER REQUIREMENTS
set -euo pipefail
folder=$1 requirements=$2
cmp -s "$requirements" "$folder/installed.txt" && exit 0  # written last

fail() {  # fail PROBLEM HINT
  printf 'venv: %s: %s\nhint: %s\n' "$folder" "$1" "$2" >&2
  exit 1
}
"$(dirname "$0")/setup.sh" python3-venv
rm -rf "$folder" && mkdir -p "$folder"
log=$folder/install.log
python3 -m venv "$folder" > "$log" 2>&1 || {
  fail "Python cannot make an environment ($(tail -n 1 "$log"))" "install Python 3.11 or newer with its venv module"
}
echo "venv: installing $(paste -s -d ' ' "$requirements") in $folder" >&2
"$folder/bin/pip" install --quiet --retries 2 --disable-pip-version-check -r "$requirements" > "$log" 2>&1 || {
  fail "pip cannot install $requirements ($(grep '^ERROR' "$log" | tail -n 1))" \
    "this needs Python 3.11 or newer and a network that reaches the Python package index; $log has the details"
}
cp "$requirements" "$folder/installed.txt"
