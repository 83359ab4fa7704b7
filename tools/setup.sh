#!/usr/bin/env bash
# Installs what is missing to build, from Debian's packages; says nothing where all is there.
#   tools/setup.sh [clang-format|clang-tidy|clang ...]
set -euo pipefail

packages=(g++ cmake make pkg-config libfmt-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev doctest-dev)
for tool in "$@"; do
  case $tool in
    clang) packages+=(clang libclang-rt-14-dev) ;;
    *) packages+=("$tool") ;;
  esac
done

command -v dpkg-query > /dev/null || { echo "setup: not a Debian system; please install: ${packages[*]}" >&2; exit 0; }
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "setup: missing: ${missing[*]} (install them as root)" >&2; exit 1; }
  sudo=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
# The package lists of a fresh machine are empty or old.
"${install[@]}" > /dev/null 2>&1 || { "${sudo[@]}" apt-get update -qq > /dev/null && "${install[@]}" > /dev/null; }
