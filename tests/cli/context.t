# A prompt that does not fit is an error before any work, with both numbers. A context that fills while generating stops
# the answer and says so. Text is never cut.

# One token too long: the model's own context is 512
$ qgen score -m $MODEL --tokens $(seq -s, 1 3) --json | grep -c perplexity; printf 'a %.0s' {1..600} | qgen -m $MODEL -n 5
  1
stderr:
  qgen: stories260K-FP8: the prompt does not fit in the context \(expected at most 512 tokens, found [0-9]+\) (re)
  hint: --context [0-9]+ would go beyond what the model was made for (re)
exit: 2

# With --context both numbers are those
$ qgen -m $MODEL -p "Once upon a time" -c 4
stderr:
  qgen: stories260K-FP8: the prompt does not fit in the context (expected at most 4 tokens, found 5)
  hint: --context 5 or more fits it
exit: 2

# That is told before the answer begins, and before work: an enormous prompt takes no longer than its tokens
$ head -c 300000 /dev/zero | tr '\0' 'a' | qgen -m $MODEL
stderr:
  qgen: stories260K-FP8: the prompt does not fit in the context (expected at most 512 tokens, found *) (glob)
  hint: * (glob)
exit: 2
within: 1 s

# A prompt that just fits gets its one token
$ qgen -m $MODEL -p "Once upon a time" -c 5 -n 100 --temp 0 --stats=json
  , (no-eol)
json: stderr schemas/stats.schema.json
where: it["stop"] == "context" and it["output"]["tokens"] == 1
exit: 6

# A context that fills stops the answer, exits with 6 and says so
$ qgen -m $MODEL -p "Once upon a time" -c 16 -n 100 --temp 0 --stats
  ...
stderr:
  ...
    output  12 tokens, * stop: context * (glob)
exit: 6

# Without -n the context is the limit
$ qgen -m $MODEL -p "Once upon a time" -c 16 --temp 0 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["stop"] == "context" and it["output"]["tokens"] == 12
exit: 6

# A context beyond the model's own is allowed where it is asked for
$ printf 'a %.0s' {1..600} | qgen -m $MODEL -c 2000 -n 1 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["context"] == 2000 and it["prompt"]["tokens"] > 512

# No context at all is a usage error
$ qgen -m $MODEL -p x -c 0
stderr:
  qgen: --context: * (glob)
  ...
exit: 2

# One beyond counting too
$ qgen -m $MODEL -p x -c 100000000000
stderr:
  qgen: --context: * (glob)
  ...
exit: 2

# A context that does not fit in memory exits with 4, both numbers, the account and what would fit
$ qgen -m $MODEL -p x -c 2000000000
stderr:
  qgen: stories260K-FP8: does not fit: needs [0-9.]+ TiB, [0-9.]+ [GMT]iB of memory are free (re)
    weights 288 KiB   kv [0-9.]+ TiB \(2000000000 tokens, f16\)   work [0-9.]+ [GMT]iB (re)
  hint: --context [0-9]+ fits (re)
exit: 4

# A prompt that is far too long is refused before all of it is tokenized (20 MB)
$ yes 'the little dog ran to the park and saw a big red ball.' | head -c 20000000 > long; qgen -m $MODEL -f long
stderr:
  qgen: stories260K-FP8: the prompt does not fit in the context \(expected at most 512 tokens, found more than [0-9]+\) (re)
  hint: it has 20000000 bytes; a part of them, or a summary, may do
exit: 2
within: 2 s

# Nor does a chat template have to read it, which may have no more than 64 MiB
$ python3 $ROOT/tests/cli/scripted_model.py two Hello && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > two/chat_template.jinja; head -c 70000000 /dev/zero | tr '\0' a > long; qgen -m two -f long
stderr:
  qgen: two: the prompt does not fit in the context (expected at most * tokens, found more than *) (glob)
  hint: it has 70000000 bytes; a part of them, or a summary, may do
exit: 2

# Beyond what the model was made for: a word about it
$ qgen -m $MODEL -p "Once upon a time" -c 600 -n 1
  , (no-eol)
stderr: qgen: warning: --context 600: stories260K-FP8 was made for 512 tokens, beyond them answers get worse
