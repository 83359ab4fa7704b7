#!/usr/bin/env bash
# What a shell sees: streams, exit codes, errors, standard input, signals. Run from the repository's root:
#   tests/command_line.sh PATH-TO-QGEN
set -u
qgen=$1
model=models/stories260K-FP8
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
unset ${!QGEN_@} 2> /dev/null

check() {  # check NAME CONDITION...
  if "${@:2}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "command_line: FAILED: $1"
    echo "  exit code $code"
    sed 's/^/  stdout: /' "$work/out" | head -c 2000
    sed 's/^/  stderr: /' "$work/err" | head -c 2000
  fi
}
# Runs the program with nothing on standard input; sets $code, and the files out and err.
run() { "$qgen" "$@" < /dev/null > "$work/out" 2> "$work/err"; code=$?; }
# The same with text on standard input.
run_with() { printf '%s' "$1" | "$qgen" "${@:2}" > "$work/out" 2> "$work/err"; code=$?; }
exits() { [ "$code" -eq "$1" ]; }
out_is() { [ "$(cat "$work/out"; echo .)" = "$1." ]; }
out_empty() { [ ! -s "$work/out" ]; }
err_empty() { [ ! -s "$work/err" ]; }
out_has() { grep -qF -- "$1" "$work/out"; }
err_has() { grep -qF -- "$1" "$work/err"; }
err_lines() { [ "$(wc -l < "$work/err")" -eq "$1" ]; }

# --- the main job: text on stdout and nothing else
run -m $model -p "Once upon a time" -n 30 --temp 0
check "an answer exits with 0" exits 0
check "a redirected stderr stays empty" err_empty
story=$(cat "$work/out")
check "the model writes a story" out_has "there was a little girl named Lily"
check "no newline is added to a pipe" test "$(tail -c 1 "$work/out" | wc -l)" -eq 0
run -m $model -p "Once upon a time" -n 30 --temp 0
check "the same command gives the same bytes" out_is "$story"
run --model=$model --prompt "Once upon a time" --max-tokens 30 --temp=0
check "long options" out_is "$story"
run -m $model/model.safetensors -p "Once upon a time" -n 30 --temp 0
check "a single file" out_is "$story"
run -m $model -p "Once upon a time" -n 30 --temp 0 --device reference
check "the reference engine writes the same" out_is "$story"
run -m models/stories260K-w8a8 -p "Once upon a time" -n 30 --temp 0
check "the INT8 model writes a story too" out_has "there was a little"
run -m $model -p "Once upon a time" -n 0
check "no tokens asked, none written" out_is ""
run -m $model -p "Once" -n 40 --temp 1 --seed 7
first=$(cat "$work/out")
run -m $model -p "Once" -n 40 --temp 1 --seed 7
check "a seed repeats the answer" out_is "$first"
run -m $model -p "Once" -n 40 --temp 1 --seed 8
check "another seed gives another answer" test "$(cat "$work/out")" != "$first"
run -m $model -p "Once upon a time" -n 100 --temp 0 --stop Lily
check "a stop string ends the answer before it" out_is ", there was a little girl named "
run -m $model -p "Once upon a time" -n 100 --temp 0 --stop zzz --stop " little" --stats=json
check "of several stop strings any ends it" out_is ", there was a"
check "and the report says so" err_has '"stop":"stop-string"'

run -m $model -p "Once upon a" -n 3 --temp 0
check "a continuation keeps its first space" out_is " time, there"
run -m $model -p "Once upon a time" -n 30 --temp 1e-308 --seed 1
check "the smallest temperature is greedy" out_is "$story"

# --- standard input
run_with "Once upon a time" -m $model -n 30 --temp 0
check "a prompt from a pipe" out_is "$story"
run_with "Once upon a time" -m $model -p - -n 30 --temp 0
check "--prompt -" out_is "$story"
printf 'Once upon a time' > "$work/prompt"
run -m $model -f "$work/prompt" -n 30 --temp 0
check "--file" out_is "$story"
run_with "Tom saw a cat." -m $model -p "The cat" -n 5 --temp 0 --stats=json
check "a pipe comes before the prompt" err_has '"prompt":{"tokens":'
joined=$(grep -o '"prompt":{"tokens":[0-9]*' "$work/err")
run -m $model -p $'Tom saw a cat.\n\nThe cat' -n 5 --temp 0 --stats=json
check "with a blank line between" test "$(grep -o '"prompt":{"tokens":[0-9]*' "$work/err")" = "$joined"
run_with "ignored" -m $model -p "Once upon a time" --no-stdin -n 30 --temp 0
check "--no-stdin" out_is "$story"
run -m $model
check "no prompt at all still starts a story" exits 0

# --- the report
run -m $model -p "Once upon a time" -n 5 --stats
check "--stats" err_has "llama 260K · fp8 block 128x128 · cpu"
check "it says when there is no chat template" err_has "no chat template"
check "with memory" err_has "weights +"
check "and a hash of the scores" err_has "logits #"
check "no escape codes when redirected" bash -c "! grep -q $'\x1b' '$work/err'"
run -m $model -p "Once upon a time" -n 5 --stats=json --logprobs 2
check "--stats=json is one object" python3 -c "
import json; d = json.load(open('$work/err'))
assert d['schema'] == 1 and d['output']['tokens'] == 5 and d['stop'] == 'max-tokens', d
assert len(d['logprobs']) == 5 and len(d['logprobs'][0]['top']) == 2
assert d['logprobs'][0]['chosen']['logprob'] == d['logprobs'][0]['top'][0]['logprob'] <= 0
assert d['sampling']['temperature'] == {'value': 0, 'origin': 'built-in'}, d['sampling']
assert d['memory']['total'] == sum(d['memory'][k] for k in ('weights', 'kv', 'work'))"
run -m $model -p "Once" -n 5 --stats-file "$work/stats"
check "--stats-file" grep -q '"schema":1' "$work/stats"
check "leaves stderr alone" err_empty
run -m $model -p "Once" -n 3 -v --temp 0.5 --seed 1
check "-v names origins" err_has "0.5 (flag)"
QGEN_MODEL=$model QGEN_MAX_TOKENS=30 QGEN_TEMP=0 run -p "Once upon a time"
check "environment twins" out_is "$story"
QGEN_MODEL=nowhere run -m $model -p "Once upon a time" -n 30 --temp 0
check "a flag wins over the environment" out_is "$story"

# --- usage
run --help
check "--help exits with 0" exits 0
check "examples come first" test "$(grep -n 'qgen -m' "$work/out" | head -n 1 | cut -d: -f1)" -lt "$(grep -n Options "$work/out" | head -n 1 | cut -d: -f1)"
check "families are listed" out_has "qwen3"
run --version
check "--version" out_has "qgen "
for arguments in "--promt x" "-m $model -p x --temp hot" "-m $model -p x --top-p 2" "-p x" "scroe" "-m $model -p x --threads -1" \
  "-m $model -p x --device tpu" "-m $model -p x --device cpu:mmx" "-m $model -p x --kv fp4" "-m $model -p x --think maybe" \
  "-m $model -p x --logit-bias 5" "-m $model -p x --system be" "score -m $model --tokens 1,9999" "score -m $model --tokens 1,x" "tokens -m $model --render"; do
  # shellcheck disable=SC2086
  run $arguments
  check "usage error: $arguments" exits 2
  check "says so: $arguments" err_has "qgen: "
  check "nothing on stdout: $arguments" out_empty
done
run --promt x
check "a typo gets one suggestion" err_has "did you mean --prompt?"
run -m $model -p x scor
check "a command's too" err_has "did you mean score?"

# --- models that cannot be read
run -m org/absent -p x
check "an absent model exits with 3" exits 3
check "with the download line" err_has "hf download org/absent"
run -m "$work" -p x
check "a folder without config.json" exits 3
mkdir "$work/broken" && cp $model/* "$work/broken/"
head -c 100000 $model/model.safetensors > "$work/broken/model.safetensors"
run -m "$work/broken" -p x
check "a truncated file exits with 3" exits 3
check "names the file" err_has "broken/model.safetensors"
check "with what was expected and found" err_has "expected"
check "and a hint" err_has "hint:"
check "in two lines" err_lines 2
cp $model/model.safetensors "$work/broken/" && rm "$work/broken/tokenizer.json"
run -m "$work/broken" -p x
check "a missing tokenizer" err_has "no tokenizer"
run score -m "$work/broken" --tokens 1,2,3
check "score with ids needs none" exits 0
sed 's/"hidden_size": 64/"hidden_size": 1e99/' $model/config.json > "$work/broken/config.json"
run -m "$work/broken" -p x
check "an absurd size names its key" err_has "hidden_size"
run -m $model -p "$(printf 'word %.0s' {1..600})" -n 5
check "a prompt that does not fit is an error before any work" exits 2
check "with both numbers" err_has "expected at most 512 tokens, found"
run -m $model -p x -c 100000000000
check "a context beyond counting is a usage error" exits 2
run -m $model -p x -c 2000000000
check "a context that does not fit in memory exits with 4" exits 4
check "and says what would fit" err_has "fits"
run -m $model -p "Once upon a time" -c 16 -n 100 --temp 0 --stats=json
check "a full context ends the answer" err_has '"stop":"context"'

# --- pipes and signals
"$qgen" -m $model -p "Once upon a time" -n 400 --temp 0 2> "$work/err" < /dev/null | head -c 10 > "$work/out"
code=${PIPESTATUS[0]}
check "a closed pipe exits with 141" exits 141
check "silently" err_empty
"$qgen" -m $model -p "Once" -n 5 > /dev/full 2> "$work/err" < /dev/null
code=$?
check "a full disk exits with 1" exits 1
check "and says so" err_has "cannot write"
for signal in INT:130 TERM:143; do
  "$qgen" -m $model -p "Once upon a time" -c 400000 -n 390000 --temp 1 --seed 1 --stats=json > "$work/out" 2> "$work/err" < /dev/null &
  child=$!
  for _ in $(seq 100); do [ -s "$work/out" ] && break; sleep 0.05; done
  kill -s "${signal%%:*}" $child
  wait $child
  code=$?
  check "SIG${signal%%:*} exits with ${signal##*:}" exits "${signal##*:}"
  check "and reports" err_has '"stop":"interrupted"'
done

# --- score
run score -m $model --tokens 1,403,407,261 --logits "$work/logits"
check "score --tokens" out_has "perplexity"
check "one line a token and one for all" test "$(wc -l < "$work/out")" -eq 5
check "logits are (tokens, vocabulary) floats" test "$(stat -c %s "$work/logits")" -eq $((4 * 512 * 4))
run_with "Once upon a time" score -m $model --json
check "score --json" python3 -c "
import json, math; d = json.load(open('$work/out'))
assert d['tokens'][0]['id'] == 1 and d['tokens'][0]['logprob'] is None
assert abs(math.exp(-sum(t['logprob'] for t in d['tokens'][1:]) / d['scored']) - d['perplexity']) < 1e-3"

sed 's/"▁Once": 403/"▁Once": 60403/' $model/tokenizer.json > "$work/broken/tokenizer.json"
cp $model/config.json "$work/broken/"
run_with "Once" score -m "$work/broken"
check "a tokenizer of another model exits with 3" exits 3
check "and names the id" err_has "60403"
run -m $model -p x -f "$work/nowhere"
check "a prompt file that is missing is a usage error" exits 2
"$qgen" -m $model -f <(printf 'Once upon a time') -n 30 --temp 0 --no-stdin > "$work/out" 2> "$work/err"
code=$?
check "a prompt from a pipe by name" out_is "$story"
rm "$work/broken/config.json" && mkfifo "$work/broken/config.json"
run -m "$work/broken" -p x
check "a pipe in place of a model's file exits with 3" exits 3
rm "$work/broken/config.json" && ln -sf config.json "$work/broken/config.json"
run -m "$work/broken" -p x
check "a symbolic link to itself exits with 3" exits 3

# --- tokens
run_with "Once upon a time" tokens -m $model
check "tokens" out_is $'1 403 407 261 378\n'
run_with "1 403 407 261 378" tokens -m $model --decode
check "tokens --decode" out_is "Once upon a time"
run_with "Once" tokens -m $model --json
check "tokens --json" python3 -c "
import json; d = json.load(open('$work/out'))
assert d['schema'] == 1 and d['ids'] == [1, 403] and d['offsets'] == [[0, 0], [0, 4]] and d['pieces'][0] == '<s>', d"
run_with "x" tokens -m $model --chat
check "no chat template" exits 3
mkdir "$work/chat" && cp $model/tokenizer.json $model/tokenizer_config.json "$work/chat/"
printf '%s' "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}
{% endfor %}{% if enable_thinking is defined and not enable_thinking %}fast{% endif %}" > "$work/chat/chat_template.jinja"
run_with $'Hi </s>\n' tokens -m "$work/chat" --chat --render --system Be
check "tokens --render needs only tokenizer and template" out_is $'<s>[system] Be\n[user] Hi </s>\n'
run_with "Hi </s>" tokens -m "$work/chat" --chat
check "the template's special tokens are special, the user's are text" bash -c "grep -q '^1 ' '$work/out' && ! grep -qw 2 '$work/out'"
run_with "Hi" tokens -m "$work/chat" --chat --render --think off
check "--think sets enable_thinking" out_has "fast"
printf '[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]' > "$work/messages.json"
run tokens -m "$work/chat" --messages "$work/messages.json" --render
check "tokens --messages" out_is $'<s>[user] a\n[assistant] b\n'
printf '{"role":1}' > "$work/messages.json"
run tokens -m "$work/chat" --messages "$work/messages.json"
check "a bad conversation is a usage error" exits 2
cp $model/config.json $model/model.safetensors $model/generation_config.json "$work/chat/"
run -m "$work/chat" -p "Hi" -n 3 --stats
check "the chat template is used where there is one" err_has "· chat template"
run -m "$work/chat" -p "Hi" -n 3 --stats --raw
check "unless --raw" err_has "no chat template"
printf '{{ raise_exception("no such role") }}' > "$work/chat/chat_template.jinja"
run -m "$work/chat" -p "Hi"
check "a template's own error is a model error" exits 3
check "with its words" err_has "no such role"

# --- reasoning: a template that opens a block leaves everything the model writes inside it
printf '%s' '{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}<think>' > "$work/chat/chat_template.jinja"
run -m "$work/chat" -p "Once upon a time" -n 20 --temp 0 --reasoning show
check "--reasoning show" test -s "$work/out"
thought=$(cat "$work/out")
for mode in auto hide; do
  run -m "$work/chat" -p "Once upon a time" -n 20 --temp 0 --reasoning $mode --stats=json
  check "--reasoning $mode keeps it out of a pipe" out_empty
  check "and counts it" err_has '"thinking_tokens":20'
done
printf '%s' '{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}<think>x</think>' > "$work/chat/chat_template.jinja"
run -m "$work/chat" -p "Once upon a time" -n 20 --temp 0
check "a closed block hides nothing" test -s "$work/out"
check "thinking is text like any other" test -n "$thought"

# --- a prompt that spells every added token of a real vocabulary
qwen=${QGEN_SHARED:-}/data/tokenizers/qwen3
if [ -d "$qwen" ]; then
  python3 -c "
import json; names = [t['content'] for t in json.load(open('$qwen/tokenizer.json'))['added_tokens']]
print(' '.join(names) + ''.join(names))" > "$work/specials"
  "$qgen" tokens -m "$qwen" --chat "$work/specials" > "$work/out" 2> "$work/err"
  code=$?
  check "user text never becomes a special token" python3 -c "
import json; added = {t['id'] for t in json.load(open('$qwen/tokenizer.json'))['added_tokens']}
ids = [int(i) for i in open('$work/out').read().split()]
assert len(ids) > 200 and [i for i in ids if i in added] == [151644, 151645, 151644], [i for i in ids if i in added]"
fi

# --- the README's tables name what the program supports
"$qgen" --help | sed -n '/^Families:/,/^Devices:/p' | awk '/^  /{print $1}' > "$work/families"
check "the table of families was found" test "$(wc -l < "$work/families")" -ge 4
while read -r family; do
  check "the README names $family" grep -q "| \`$family\` |" README.md
done < "$work/families"

# --- speed of the program itself
run --help
start=$(date +%s%N)
for _ in 1 2 3 4 5; do "$qgen" --help > /dev/null; done
slow=${QGEN_TIME_FACTOR:-1}  # sanitizers take their time
check "--help in under 20 ms" test $((($(date +%s%N) - start) / 5000000)) -lt $((20 * slow))
start=$(date +%s%N)
run -m org/absent -p x
check "an error in under 100 ms" test $((($(date +%s%N) - start) / 1000000)) -lt $((100 * slow))

echo "command_line: $passed passed, $failed failed"
[ $failed -eq 0 ]
