# --prompt-lookup N: up to N tokens are guessed from earlier text and run at once. The answer stays what it is.

$ python3 $ROOT/tests/cli/scripted_model.py counts "one " "two " "three " "four " "five " loop
$ python3 $ROOT/tests/cli/scripted_model.py ends "once " "<0xC3>" "<0xA9>" " and " "out"

# Text that repeats itself, in fewer steps
$ qgen -m counts -p "go" -n 12 --prompt-lookup 8 --stats=json
  one two three four five one two three four five one two  (no-eol)
json: stderr schemas/stats.schema.json
where: it["output"]["tokens"] == 12 and it["stop"] == "max-tokens"
where: it["output"]["drafted_tokens"] == it["output"]["accepted_tokens"] > 2

# The report says how many came
$ qgen -m counts -p "go" -n 100 --prompt-lookup 8 --stats
  ...
stderr:
  ...
    output  100 tokens, .*, stop: max-tokens        logits #[0-9a-f]{8} (re)
    drafts  ([0-9]+) tokens, \1 accepted \(100%\) (re)

# And nothing without the option, or with 0
$ qgen -m counts -p "go" -n 2 --stats --prompt-lookup 0 2>&1 | grep -c drafts
  0
exit: 1

$ qgen -m counts -p "go" -n 100 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["output"]["drafted_tokens"] == it["output"]["accepted_tokens"] == 0

# Where nothing repeats there is nothing to guess
$ qgen -m ends -p "go" --prompt-lookup 8 --stats
  once é and out (no-eol)
stderr:
  ...
    drafts  0 tokens

# Every length of an answer, and every context
$ for n in $(seq 1 40); do
>   for way in "-n $n" "-c $((n + 3)) -q"; do
>     qgen -m counts -p "go" $way > plain; qgen -m counts -p "go" $way --prompt-lookup 5 > drafted; cmp plain drafted
>   done
> done

# Sampled with a seed: the same tokens; the engine whose scores do not depend on how many tokens run at once
$ for seed in $(seq 1 30); do
>   sampled() { qgen -m counts -p "go" -n 60 --device reference --temp 1 --logit-bias 354=4 --repeat-penalty 1.01 --seed $seed "$@"; }
>   sampled > plain; sampled --prompt-lookup 16 > drafted; cmp plain drafted
> done

# The end of the model inside a guess
$ qgen -m ends -p "once é and out" --prompt-lookup 8 --raw --stats=json
  once é and out (no-eol)
json: stderr schemas/stats.schema.json
where: it["stop"] == "end"

# A stop string inside a guess, and one across its end
$ qgen -m counts -p "go" -n 100 --prompt-lookup 8 --stop "one two three four five one two three four" --stats=json
json: stderr schemas/stats.schema.json
where: it["stop"] == "stop-string"

$ qgen -m counts -p "go" -n 100 --prompt-lookup 8 --stop "five one two three four five one two three four five one two x" --stop "e four five one two three four five one two t" --stats=json
  one two thre (no-eol)
json: stderr schemas/stats.schema.json
where: it["stop"] == "stop-string" and it["output"]["accepted_tokens"] > 0

# Probabilities and the hash of the reference engine are the same
$ for n in 0 8; do qgen -m counts -p "go" -n 30 --device reference --prompt-lookup $n --logprobs 2 --stats=json 2>&1 > /dev/null | python3 -c 'import json, sys; it = json.load(sys.stdin); print(it["logits_hash"], it["logprobs"])'; done | uniq | wc -l
  1

# Any number of threads gives the same bytes
$ for threads in 1 2 3; do qgen -m $MODEL -p "Once upon a time" -n 200 --temp 0.5 --seed 3 --prompt-lookup 16 --threads $threads | cksum; done | uniq | wc -l
  1

# Each line of a batch by itself, with its totals
$ printf '{"prompt":"go","max_tokens":%d}\n' 30 1 20 > lines.jsonl; qgen -m counts --batch lines.jsonl > plain; qgen -m counts --batch lines.jsonl --prompt-lookup 8 --stats=json | sed -E 's/"(seconds|seed|logits_hash)":[^,}]*//g' > drafted; sed -E 's/"(seconds|seed|logits_hash)":[^,}]*//g' plain | cmp - drafted
json: stderr schemas/batch-stats.schema.json
where: it["output_tokens"] == 51 and it["drafted_tokens"] == it["accepted_tokens"] > 20

$ qgen -m counts --batch lines.jsonl --prompt-lookup 8 --stats > /dev/null
stderr:
  ...
    * · 51 out, * tok/s · drafts * tokens, * accepted (100%) (glob)

# In a conversation, what was said before is looked up too
file: template
  {% for m in messages %}{{ m.content + eos_token }}{% endfor %}
$ cp template ends/chat_template.jinja; printf 'Hi\nHi\nHi\n' | qgen chat -m ends --prompt-lookup 8 --stats=json
  once é and out
  once é and out
  once é and out
jsonl: stderr schemas/stats.schema.json
where: [t["output"]["accepted_tokens"] > 0 for t in it] == [False, True, True]
where: [t["prompt"]["computed"] for t in it] == [3, 4, 4]

# /stats has them too
$ printf 'Hi\nHi\n/stats\n' | qgen chat -m ends --prompt-lookup 8
  once é and out
  once é and out
stderr:
  ...
    drafts  4 tokens, 4 accepted (100%)
  ...

# Thinking
$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "hm " "so " "</think>" "Good " "night." && cp template thinks/chat_template.jinja && qgen -m thinks -p "<think>hm so </think>Good night." --prompt-lookup 8 --stats=json
  Good night. (no-eol)
json: stderr schemas/stats.schema.json
where: it["output"]["thinking_tokens"] > 0

# A long answer in a pipe: Ctrl-C stops it
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --logit-bias 261=100 --prompt-lookup 32 --stats=json
  ...
expect: a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a
signal: INT
exit: 130
json: stderr schemas/stats.schema.json
where: it["stop"] == "interrupted" and it["output"]["accepted_tokens"] > 0

# A closed pipe is silent
$ qgen -m counts -p "go" --prompt-lookup 32 | head -c 3
  one (no-eol)
exit: 141

# The environment twin, which a flag wins over
$ QGEN_PROMPT_LOOKUP=8 qgen -m counts -p "go" -n 40 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["output"]["accepted_tokens"] > 0

$ QGEN_PROMPT_LOOKUP=8 qgen -m counts -p "go" -n 40 --prompt-lookup 0 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["output"]["drafted_tokens"] == 0

# Values that are not a number of tokens
$ qgen -m counts -p "go" --prompt-lookup 33
stderr:
  qgen: --prompt-lookup: '33' is not allowed (expected a whole number from 0 to 32)
  hint: * (glob)
exit: 2

$ qgen -m counts -p "go" --prompt-lookup -1
stderr:
  qgen: --prompt-lookup: '-1' is not allowed (expected a whole number from 0 to 32)
  ...
exit: 2

$ qgen chat -m counts --prompt-lookup some
stderr:
  qgen: --prompt-lookup: 'some' is not allowed (expected a whole number from 0 to 32)
  ...
exit: 2
