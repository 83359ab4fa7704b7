# `qgen score`: the log-probability of each token of a text, and its perplexity; --tokens for ids as they are; --logits for
# raw scores. stdout.t has its table and its JSON.

# Scores are the model's own: those of --logprobs
$ qgen score -m $MODEL --tokens 1,403,407,261,378 --json > score.json; qgen -m $MODEL -p "Once upon a" -n 1 --temp 0 --logprobs 1 --stats=json
   time (no-eol)
json: stderr schemas/stats.schema.json
where: abs(json.load(open(folder / "score.json"))["tokens"][4]["logprob"] - it["logprobs"][0]["chosen"]["logprob"]) < 1e-4

# And those in the raw scores
$ qgen score -m $MODEL --tokens 1,403,407 --logits logits.f32 --json > score.json; python3 -c "
> import json, math, struct
> rows = [struct.unpack('<512f', open('logits.f32', 'rb').read()[2048 * t:2048 * (t + 1)]) for t in range(3)]
> found = [t['logprob'] for t in json.load(open('score.json'))['tokens']]
> after = lambda row, id: row[id] - math.log(sum(map(math.exp, row)))
> print(found[0], abs(found[1] - after(rows[0], 403)) < 1e-5, abs(found[2] - after(rows[1], 407)) < 1e-5)"
  None True True

# Ids may be between commas, white space or brackets
$ for ids in "1,403,407" "1 403 407" "[1, 403, 407]"; do qgen score -m $MODEL --tokens "$ids" | cksum; done | uniq | wc -l
  1

# A text is scored as `tokens` splits it, without the newline at its end
$ printf 'Once upon a time, é 😀\n' > text; qgen score -m $MODEL text --json | python3 -c 'import json, sys; print(*[t["id"] for t in json.load(sys.stdin)["tokens"]])' > scored; qgen tokens -m $MODEL text | cmp scored -

# A file that is missing
$ qgen score -m $MODEL nowhere.txt
stderr:
  qgen: nowhere.txt: no such file
  hint: text itself goes through standard input: echo TEXT | qgen score …
exit: 2

# Logits that cannot be written: told before work
$ qgen score -m $MODEL --tokens 1,2 --logits nowhere/logits
stderr: qgen: --logits nowhere/logits: cannot write: No such file or directory
exit: 1

# Windows of a long text: each starts afresh, so that its first token has no score
$ qgen score -m $MODEL --tokens $(seq -s, 3 22) --window 10 --json
json: stdout schemas/score.schema.json
where: it["window"] == 10 and it["stride"] == 10 and len(it["tokens"]) == 20
where: [i for i, t in enumerate(it["tokens"]) if t["logprob"] is None] in ([0], [0, 10])

# A smaller stride gives every token something before it
$ qgen score -m $MODEL --tokens $(seq -s, 3 22) --window 10 --stride 5 --json
json: stdout schemas/score.schema.json
where: [i for i, t in enumerate(it["tokens"]) if t["logprob"] is None] == [0] and it["scored"] == 19

# A window as long as the text changes nothing
$ for window in "" "--window 20"; do qgen score -m $MODEL --tokens $(seq -s, 3 22) $window | cksum; done | uniq | wc -l
  1

# A stride beyond the window leaves tokens out: a usage error
$ qgen score -m $MODEL --tokens $(seq -s, 3 22) --window 10 --stride 11
stderr:
  qgen: *stride* (glob)
  ...
exit: 2

# Longer than the context: windows of the context, and no cut
$ printf 'a %.0s' {1..900} | qgen score -m $MODEL --json
json: stdout schemas/score.schema.json
where: it["window"] == 512 and len(it["tokens"]) > 900

# Beside another model: nothing lies between a model and itself, little between two quantizations of one
$ qgen score -m $MODEL --tokens $(seq -s, 3 90) --against $MODEL | tail -n 1
  against stories260K-FP8: perplexity [0-9.]+, KL divergence -?0.000000 in the mean and 0.000000 at most, same choice for 100.00 % (re)
$ echo "Once upon a time, there was a little girl named Lily. She loved to play outside in the park." | qgen score -m $MODEL --window 20 --stride 10 --against $INT8 --json
json: stdout schemas/score.schema.json
where: it["against"]["model"] == "stories260K-w8a8" and 0 < it["against"]["mean_kl"] < 0.05 and it["scored"] > 20
where: it["against"]["same_choice"] > 0.8
where: abs(math.log(it["against"]["perplexity"]) - it["mean_nll"]) < 0.1
$ qgen score -m $MODEL --tokens 1,2,3 --against $ROOT/tests/golden/llama-bf16
stderr: qgen: --against *llama-bf16: another vocabulary (expected 512 tokens, found 64) (glob)
exit: 2

# INT8 and the reference engine
$ for device in cpu reference; do qgen score -m $INT8 --tokens 1,403,407,261,378 --device $device | tail -n 1; done
  perplexity [0-9.]+ over 4 tokens (re)
  perplexity [0-9.]+ over 4 tokens (re)

# Ctrl-C stops it
$ printf 'a %.0s' {1..3000} > long; qgen score -m $MODEL long -c 8000 --window 6000 --device reference
stderr: ...
wait: 300 ms
signal: INT
exit: 130

# The model's own files are never written
$ cp -r $MODEL own; for file in model.safetensors config.json tokenizer.json; do qgen score -m own --tokens 1,2,3 --logits own/$file; done 2>&1 | grep -v hint; cmp own/model.safetensors $MODEL/model.safetensors
  qgen: --logits own/model.safetensors: it is a file of the model itself
  qgen: --logits own/config.json: it is a file of the model itself
  qgen: --logits own/tokenizer.json: it is a file of the model itself
$ for again in 1 2; do qgen score -m own --tokens 1,2,3 --logits own/logits.f32 | tail -n 1; done
  perplexity [0-9.]+ over 2 tokens (re)
  perplexity [0-9.]+ over 2 tokens (re)
