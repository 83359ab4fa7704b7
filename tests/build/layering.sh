#!/usr/bin/env bash
# Includes run one way through the rooms, and engines know no model family. Run from the repository's root.
set -euo pipefail

# Each room with the rooms it may include, itself aside.
rooms=(
  "base:"
  "checkpoint:base"
  "quant:base checkpoint"
  "model:base checkpoint quant"
  "engine:base checkpoint quant model"
  "cpu:base checkpoint quant model engine"
  "kernels:base checkpoint quant model engine"
  "tokenizer:base"
  "jinja:base"
  "chat:base jinja"
  "quantize:base checkpoint quant model tokenizer chat"
  "generate:base checkpoint quant model engine tokenizer chat quantize"
  "cli:base checkpoint quant model engine cpu tokenizer jinja chat quantize generate"
)
folder_of() { [ "$1" = kernels ] && echo kernels || echo "src/$1"; }
bad=0
for entry in "${rooms[@]}"; do
  room=${entry%%:*}
  allowed=" $room ${entry#*:} "
  while IFS=: read -r file line include; do
    target=$(sed -E 's/.*"([a-z_]+)\/.*/\1/' <<< "$include")
    if [[ $allowed != *" $target "* ]]; then
      echo "layering: $file:$line: $room may not include $target"
      bad=1
    fi
  done < <(grep -rnE '#include "[a-z_]+/' "$(folder_of "$room")" || true)
  if grep -rnE '#include "[^/"]+"' "$(folder_of "$room")"; then
    echo "layering: includes name their room"
    bad=1
  fi
done
for folder in src/*/; do
  room=$(basename "$folder")
  printf '%s\n' "${rooms[@]}" | grep -q "^$room:" || { echo "layering: $folder is no known room"; bad=1; }
done

# Words of families, "qwen" of qwen3_moe, in names, strings and comments of the engines: alone, before a digit or an underscore,
# or as a part of a name like kQwenNorm. A seed begins random numbers too, and Phi(x) is the normal distribution.
table=$(sed -n '/^constexpr Family kFamilies\[\]/,/^};/p' src/model/families/table.cpp)
families=$(sed -nE 's/^    \{"([a-z0-9_]+)",.*/\1/p' <<< "$table")
rows=$(grep -cE 'describe_[a-z0-9_]+\},$' <<< "$table" || true)
[ "$rows" -gt 0 ] && [ "$(wc -l <<< "$families")" -eq "$rows" ] ||
  { echo "layering: $(wc -w <<< "$families") of $rows families were found in src/model/families/table.cpp"; bad=1; }
words=$(sed -E 's/^seed_oss$/seed.oss/; t; s/[0-9_].*//' <<< "$families" | sort -u | paste -sd '|')
if grep -rnP "((?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:$words)(?![a-z])" src/engine src/cpu kernels | grep -v 'Phi(x)'; then
  echo "layering: an engine names a family"
  bad=1
fi

# Engines read no JSON, and neither do the vocabulary of plans and the canonical weight.
if grep -rnE '#include ["<](base/json|simdjson)|\bJson(Document)?\b' src/engine src/cpu kernels src/model/step.h src/quant/weight.h; then
  echo "layering: engines, steps and weights know no JSON"
  bad=1
fi

# nvcc reads no headers of libraries.
if grep -nE '#include [<"](fmt|simdjson|CLI)' kernels/device/*; then
  echo "layering: kernels include what they may not"
  bad=1
fi

# Only the command line room prints, and only main may leave the program.
if grep -rnE '\b(std::cout|std::cerr|fmt::print|printf|puts)\b *\(' src kernels --include='*.cpp' --include='*.h' --include='*.inc' | grep -vE 'src/cli/|snprintf'; then
  echo "layering: only src/cli prints"
  bad=1
fi
if grep -rnE '\b(std::)?(exit|abort|quick_exit)\(' src kernels --include='*.cpp' --include='*.h'; then
  echo "layering: nothing but main ends the program"
  bad=1
fi
[ $bad -eq 0 ] && echo "layering: good"
exit $bad
