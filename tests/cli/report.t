# The report: model, method, engine, load time and speed, memory by weights, KV cache and work, time to the first token,
# prompt and output speed, stop reason, hash of the scores. All of it with --stats or -v, one line where stdout and stderr are
# terminals, nothing otherwise; --stats=json is one object with "schema": 1.

# One line where both streams are terminals, after the text's own line
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --color never
  , there was a little
stderr: stories260K-FP8 · 5 in, [0-9.]+ m?s · 5 out, [0-9]+ tok/s · max-tokens (re)
tty: out err

# With the seed that repeats it
$ qgen -m $MODEL -p "Once" -n 5 --temp 1 --seed 12345 --color never
  ...
stderr: stories260K-FP8 · 2 in, .* · 5 out, .* · max-tokens · seed 12345 (re)
tty: out err

# However long the model's name is: at most 79 columns
$ long=org-$(printf 'x%.0s' {1..90}); cp -r $MODEL $long; qgen -m $long -p "Once" -n 400 --temp 1 --color never
  ...
stderr: org-x*… · * (glob)
tty: out err
where: len(err.rstrip("\n")) == 79

# None in `x=$(qgen …)`, in `qgen … | tee file`, nor in `qgen … > file`
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0
  , there was a little (no-eol)
tty: err

$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0
  , there was a little
tty: out

# All of it where --stats asks for it, on a terminal too
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats --color never
  , there was a little
stderr:
  stories260K-FP8 · llama 260K · fp8 block 128x128 · cpu .*, [0-9]+ threads? · context 512 · no chat template · greedy (re)
    load    288 KiB in [0-9.]+ (ms|s) \([0-9.]+ [KMGT]iB/s\) (re)
    ram     288 KiB weights \+ [0-9.]+ [KM]iB kv \+ [0-9.]+ [KM]iB work = [0-9.]+ MiB.* (re)
    prompt  5 tokens, [0-9.]+ tok/s, first token [0-9.]+ (ms|s) (re)
    output  5 tokens, [0-9.]+ tok/s, [0-9.]+ GB/s, stop: max-tokens        logits #[0-9a-f]{8} (re)
tty: out err

# It begins on a fresh line where it meets the text: in one pipe, in one file
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats 2>&1 | head -n 2
  , there was a little
  stories260K-FP8 · * (glob)

$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats > both 2>&1; head -n 2 both
  , there was a little
  stories260K-FP8 · * (glob)

# And where another program may write the text to the terminal (tee)
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats --color never | cat
  , there was a little (no-eol)
stderr:

  stories260K-FP8 · * (glob)
  ...
tty: err

# So do warnings and errors
$ qgen -m $MODEL -p "Once upon a time" -c 8 --temp 0 2>&1 | cat
  , there was a
  qgen: warning: * (glob)
exit: 6

# A text that ends its line needs no other
$ qgen -m $MODEL --batch - -n 1 --stats <<< '{"prompt": "Once upon a time"}' 2>&1 | sed -n '2p'
  stories260K-FP8 · * (glob)

# Redirected, --stats asks for it
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats
  , there was a little (no-eol)
stderr:
  * · llama 260K · fp8 block 128x128 · cpu *context 512 · no chat template · greedy (glob)
    load    288 KiB in * (glob)
    ram     288 KiB weights + * (glob)
    prompt  5 tokens, * (glob)
    output  5 tokens, *, stop: max-tokens        logits #* (glob)

# --stats=text is the same
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats=text
  , (no-eol)
stderr:
  * · llama 260K · * (glob)
  ...

# The method is named
$ qgen -m $INT8 -p "Once upon a time" -n 1 --temp 0 --stats
  , (no-eol)
stderr:
  * · llama 260K · int8 channel · cpu * (glob)
  ...

# So is the engine
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats --device reference
  , (no-eol)
stderr:
  * · llama 260K · fp8 block 128x128 · reference* (glob)
  ...

# And the number of threads
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats --threads 1
  , (no-eol)
stderr:
  * · llama 260K · fp8 block 128x128 · cpu *, 1 thread · * (glob)
  ...

# A random seed is told
$ qgen -m $MODEL -p "Once" -n 1 --temp 1 --stats
  ...
stderr:
  .* · llama 260K · .*· seed [0-9]+ (re)
  ...

# --stats=json is one object
$ qgen -m $MODEL -p "Once upon a time" -n 5 --stats=json --logprobs 2
  , there was a little (no-eol)
json: stderr schemas/stats.schema.json
where: it["schema"] == 1 and it["output"]["tokens"] == 5 and it["stop"] == "max-tokens"
where: it["model"] == "stories260K-FP8" and it["family"] == "llama" and it["prompt"]["tokens"] == 5
where: len(it["logprobs"]) == 5 and all(len(step["top"]) == 2 for step in it["logprobs"])
where: all(step["chosen"]["logprob"] == step["top"][0]["logprob"] <= 0 for step in it["logprobs"])
where: it["sampling"]["temperature"] == {"value": 0, "origin": "built-in"} and it["sampling"]["seed"]["origin"] == "random"
where: it["memory"]["total"] == sum(it["memory"][k] for k in ("weights", "kv", "work"))

# With stderr on a terminal too
$ qgen -m $MODEL -p "Once upon a time" -n 5 --stats=json
  , there was a little (no-eol)
json: stderr schemas/stats.schema.json
tty: err

# Why it stopped: the model's end
$ qgen -m $MODEL -p "Once" -n 5 --logit-bias 2=1000 --stats=json
json: stderr schemas/stats.schema.json
where: it["stop"] == "end" and it["output"]["tokens"] == 0

# A stop string, and which
$ qgen -m $MODEL -p "Once upon a time" -n 100 --temp 0 --stop zzz --stop " little" --stats=json
  , there was a (no-eol)
json: stderr schemas/stats.schema.json
where: it["stop"] == "stop-string" and it["stop_string"] == " little"

# The context
$ qgen -m $MODEL -p "Once upon a time" -c 8 -n 100 --temp 0 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["stop"] == "context" and it["context"] == 8
exit: 6

# No tokens at all
$ qgen -m $MODEL -p "Once" -n 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["output"]["tokens"] == 0 and it["stop"] == "max-tokens"

# Probabilities of steps that were sampled belong to what was chosen
$ qgen -m $MODEL -p "Once" -n 20 --temp 1 --seed 3 --stats=json --logprobs 512
  ...
json: stderr schemas/stats.schema.json
where: all(any(t == step["chosen"] for t in step["top"]) for step in it["logprobs"])
where: all(abs(sum(math.exp(t["logprob"]) for t in step["top"]) - 1) < 1e-3 for step in it["logprobs"])

# --stats-file has the JSON, and stderr stays empty
$ qgen -m $MODEL -p "Once upon a time" -n 5 --stats-file stats.json
  , there was a little (no-eol)
json: stats.json schemas/stats.schema.json

# A file that cannot be written is an error before any work
$ qgen -m $MODEL -p "Once" -n 5 --stats-file nowhere/stats.json
stderr: qgen: --stats-file nowhere/stats.json: cannot write: No such file or directory
exit: 1

# -v names where settings come from
$ qgen -m $MODEL -p "Once" -n 3 -v --temp 0.5 --seed 1
  ...
stderr:
  ...
    temperature         0.5 (flag)
    top-k               0 (built-in)
  ...
    seed                1 (flag)
  ...


# The precision of activations: the next more precise where a model has no kernel for it (fp8 weights here)
$ qgen -m $MODEL -p "Once" -n 1 --temp 0 --stats --activations 8bit
  ...
stderr:
  * · llama 260K · fp8 block 128x128 · cpu *, 16bit activations, * (glob)
  ...

$ qgen -m $MODEL -p "Once" -n 1 --temp 0 --stats --activations f32
  ...
stderr:
  * · llama 260K · fp8 block 128x128 · cpu *, f32 activations, * (glob)
  ...

$ qgen -m $MODEL -p "Once" -n 1 --activations 4bit
stderr:
  qgen: --activations: '4bit' is not allowed (expected f32, 16bit, 8bit)
  ...
exit: 2
