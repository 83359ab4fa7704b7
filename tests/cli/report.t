# The report: model, method, engine, load time and speed, memory by weights, KV cache and work, time to the first token,
# prompt and output speed, stop reason, hash of the scores. Shown when stderr is a terminal; --stats forces it;
# --stats=json is one object with "schema": 1.

# On a terminal it is there
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0
  , there was a little (no-eol)
stderr:
  .*llama 260K · fp8 block 128x128 · cpu .*, [0-9]+ threads? · context 512 · no chat template · greedy.* (re)
    load    288 KiB in [0-9.]+ (ms|s) \([0-9.]+ [KMGT]iB/s\) (re)
    ram     288 KiB weights \+ [0-9.]+ [KM]iB kv \+ [0-9.]+ [KM]iB work = [0-9.]+ MiB.* (re)
    prompt  5 tokens, [0-9.]+ tok/s, first token [0-9.]+ (ms|s) (re)
    output  5 tokens, [0-9.]+ tok/s, [0-9.]+ GB/s, stop: max-tokens        logits #[0-9a-f]{8} (re)
  ...
tty: err

# Redirected, --stats asks for it
$ qgen -m $MODEL -p "Once upon a time" -n 5 --temp 0 --stats
  , there was a little (no-eol)
stderr:
  llama 260K · fp8 block 128x128 · cpu *context 512 · no chat template · greedy (glob)
    load    288 KiB in * (glob)
    ram     288 KiB weights + * (glob)
    prompt  5 tokens, * (glob)
    output  5 tokens, *, stop: max-tokens        logits #* (glob)

# --stats=text is the same
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats=text
  , (no-eol)
stderr:
  llama 260K · * (glob)
  ...

# The method is named
$ qgen -m $INT8 -p "Once upon a time" -n 1 --temp 0 --stats
  , (no-eol)
stderr:
  llama 260K · int8 channel · cpu * (glob)
  ...

# So is the engine
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats --device reference
  , (no-eol)
stderr:
  llama 260K · fp8 block 128x128 · reference* (glob)
  ...

# And the number of threads
$ qgen -m $MODEL -p "Once upon a time" -n 1 --temp 0 --stats --threads 1
  , (no-eol)
stderr:
  llama 260K · fp8 block 128x128 · cpu *, 1 thread · * (glob)
  ...

# A random seed is told
$ qgen -m $MODEL -p "Once" -n 1 --temp 1 --stats
  ...
stderr:
  llama 260K · .*· seed [0-9]+ (re)
  ...

# --stats=json is one object
$ qgen -m $MODEL -p "Once upon a time" -n 5 --stats=json --logprobs 2
  , there was a little (no-eol)
json: stderr schemas/stats.schema.json
where: it["schema"] == 1 and it["output"]["tokens"] == 5 and it["stop"] == "max-tokens"
where: it["model"] == "stories260K-FP8" and it["family"] == "llama" and it["prompt"]["tokens"] == 5
where: len(it["logprobs"]) == 5 and all(len(step["top"]) == 2 for step in it["logprobs"])
where: all(step["chosen"]["logprob"] == step["top"][0]["logprob"] <= 0 for step in it["logprobs"])
where: it["sampling"]["temperature"] == {"value": 0, "origin": "built-in"}
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
  llama 260K · fp8 block 128x128 · cpu *, 16bit activations, * (glob)
  ...

$ qgen -m $MODEL -p "Once" -n 1 --temp 0 --stats --activations f32
  ...
stderr:
  llama 260K · fp8 block 128x128 · cpu *, f32 activations, * (glob)
  ...

$ qgen -m $MODEL -p "Once" -n 1 --activations 4bit
stderr:
  qgen: --activations: '4bit' is not allowed (expected f32, 16bit, 8bit)
  ...
exit: 2
