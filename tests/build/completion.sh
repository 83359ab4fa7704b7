#!/usr/bin/env bash
# The completion scripts in the shells that are installed here:  tests/build/completion.sh PATH-TO-QGEN
set -u
qgen=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
check() {  # check NAME EXPECTED-WORD TEXT
  grep -qx -- "$2" <<< "$3" || { failed=1; printf 'completion: FAILED: %s (expected %s, found %s)\n' "$1" "$2" "${3//$'\n'/ }"; }
}
mkdir -p "$work/hub/models--org--some-model" "$work/here"
export HF_HUB_CACHE=$work/hub
touch "$work/here/question.txt"

# What bash would offer for the last of the words.
in_bash() {
  bash --norc -c '
    cd "$2" && eval "$("$1" completion bash)" 2> "$3" || exit
    COMP_WORDS=("${@:4}") COMP_CWORD=$(($# - 4))
    compopt() { :; }  # only allowed inside a real completion
    _qgen
    printf "%s\n" "${COMPREPLY[@]}"' bash "$qgen" "$work/here" "$work/err" "$@"
}
check "bash: an option" --model "$(in_bash qgen --mod)"
check "bash: a command" score "$(in_bash qgen sc)"
check "bash: a command's option" --window "$(in_bash qgen score --w)"
check "bash: choices" always "$(in_bash qgen --color al)"
check "bash: choices of a command" bf16 "$(in_bash qgen plan --kv b)"
check "bash: cached models" org/some-model "$(in_bash qgen -m org)"
check "bash: files" question.txt "$(in_bash qgen -f qu)"
check "bash: a file as an argument" question.txt "$(in_bash qgen score qu)"
check "bash: shells" fish "$(in_bash qgen completion fi)"
[ -s "$work/err" ] && { failed=1; cat "$work/err"; }

if command -v fish > /dev/null; then
  in_fish() { (cd "$work/here" && fish --no-config -c '$argv[1] completion fish | source; complete -C $argv[2]' "$qgen" "$1" | cut -f 1); }
  check "fish: an option" --model "$(in_fish "qgen --mod")"
  check "fish: a command" score "$(in_fish "qgen sc")"
  check "fish: a command's option" --window "$(in_fish "qgen score --w")"
  check "fish: choices" always "$(in_fish "qgen --color al")"
  check "fish: cached models" org/some-model "$(in_fish "qgen -m org")"
else
  echo "completion: fish is not installed, not tried"
fi

if command -v zsh > /dev/null; then
  # A real line editor on a pseudo-terminal; Tab lists what it knows.
  cat > "$work/zsh.zsh" << 'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; autoload -U compinit; compinit -D -u; eval \"\$($1 completion zsh)\"; zstyle ':completion:*' list-colors ''; unsetopt zle_bracketed_paste; cd $2"
# Each listing is asked for alone: what is typed, then the list, until nothing comes for a while.
for line in ${@:3}; do
  zpty -w -n shell "$line"$'\t\t'
  out=
  for _ in {1..40}; do
    zpty -r -t shell piece && out+=$piece || sleep 0.05
  done
  print -r -- "== $line"
  print -r -- "$out"
  zpty -w -n shell $'\x15'
done
zpty -d shell
END
  listing=$(zsh -f "$work/zsh.zsh" "$qgen" "$work/here" 'qgen --stats-f' 'qgen --color ' 'qgen score --wind' 'qgen sco' 2>&1 |
            sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g' | tr -d '\r\a' | tr ' ' '\n')
  check "zsh: an option" ".*--stats-file" "$listing"
  check "zsh: choices" always "$listing"
  check "zsh: a command's option" ".*--window" "$listing"
else
  echo "completion: zsh is not installed, not tried"
fi
[ $failed -eq 0 ] && echo "completion: good"
exit $failed
