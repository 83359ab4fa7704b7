# Sampling: flag > generation_config.json > built-in, which is greedy; -v names the origin of each value; --temp 0 is greedy.

# Built in: greedy
$ qgen -m $MODEL -p "Once upon a time" -n 8 --stats=json
  , there was a little girl (no-eol)
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"] == {"value": 0, "origin": "built-in"}

# --temp 0 is greedy
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0 --stats=json
  , there was a little girl (no-eol)
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"] == {"value": 0, "origin": "flag"}

# The smallest temperature is greedy as well
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 1e-308 --seed 1
  , there was a little girl (no-eol)

# Limits of the choice have no effect there; a seed beside it is what scripts give
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --top-k 5 --top-p .5 --min-p .1 --typical-p .9 --seed 1
  , there was (no-eol)
stderr:
  qgen: warning: --top-k 5: no effect, --temp 0 always takes the likeliest token
  qgen: warning: --top-p 0.5: no effect, --temp 0 always takes the likeliest token
  qgen: warning: --min-p 0.1: no effect, --temp 0 always takes the likeliest token
  qgen: warning: --typical-p 0.9: no effect, --temp 0 always takes the likeliest token

# So is --top-k 1 at any temperature
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 5 --top-k 1
  , there was a little girl (no-eol)

# And the smallest --top-p
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 5 --top-p 1e-9
  , there was a little girl (no-eol)

# And --min-p 1
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 5 --min-p 1
  , there was a little girl (no-eol)

# A seed repeats the answer, another one gives another
$ for seed in 7 7 8; do qgen -m $MODEL -p "Once" -n 40 --temp 1 --seed $seed > seed; cksum < seed; done | uniq -c | wc -l
  2

# Without a seed answers differ
$ for i in 1 2; do qgen -m $MODEL -p "Once" -n 40 --temp 1 | cksum; done | uniq | wc -l
  2

# And the seed in the report repeats one
$ qgen -m $MODEL -p "Once" -n 40 --temp 1 --stats=json > a 2> a.json; qgen -m $MODEL -p "Once" -n 40 --temp 1 --seed $(grep -o '"seed":{"value":[0-9]*' a.json | cut -d: -f3) > b; cmp a b

# The model's generation_config.json is used
$ mkdir warm && cp $MODEL/* warm/ && printf '{"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}' > warm/generation_config.json

# And named
$ qgen -m warm -p "Once" -n 1 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"] == {"value": 0.7, "origin": "generation_config.json"}
where: it["sampling"]["top_k"] == {"value": 20, "origin": "generation_config.json"}
where: it["sampling"]["top_p"] == {"value": 0.8, "origin": "generation_config.json"}
where: it["sampling"]["repetition_penalty"] == {"value": 1.1, "origin": "generation_config.json"}
where: it["sampling"]["min_p"] == {"value": 0, "origin": "built-in"}

# A flag wins over it, and only that flag
$ qgen -m warm -p "Once" -n 1 --temp 0.5 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"] == {"value": 0.5, "origin": "flag"}
where: it["sampling"]["top_k"] == {"value": 20, "origin": "generation_config.json"}

# -v names the origin of each value
$ qgen -m warm -p "Once" -n 1 --temp 0.5 --seed 3 -v
  ...
stderr:
  * · llama 260K · * seed 3 (glob)
  ...
    temperature         0.5 (flag)
    top-k               20 (generation_config.json)
    top-p               0.8 (generation_config.json)
    min-p               0 (built-in)
    typical-p           1 (built-in)
    repeat-penalty      1.1 (generation_config.json)
    presence-penalty    0 (built-in)
    frequency-penalty   0 (built-in)
    seed                3 (flag)

# --temp 0 makes a model that samples greedy
$ qgen -m warm -p "Once upon a time" -n 4 --temp 0 --repeat-penalty 1
  , there was a (no-eol)

# do_sample false is greedy whatever else is said
$ printf '{"do_sample": false, "temperature": 0.7}' > warm/generation_config.json; qgen -m warm -p "Once upon a time" -n 8 --stats=json
  , there was a little girl (no-eol)
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"]["value"] == 0

# A value out of range in the file is the model's error
$ printf '{"do_sample": true, "top_p": 7}' > warm/generation_config.json; qgen -m warm -p "Once" -n 1
stderr:
  qgen: generation_config.json: top_p: 7 is out of range (expected 0 to 1)
  hint: --top-p sets another value
exit: 3

# A model without the file
$ rm warm/generation_config.json; qgen -m warm -p "Once upon a time" -n 8
  , there was a little girl (no-eol)

# --stop ends the answer before the string
$ qgen -m $MODEL -p "Once upon a time" -n 100 --temp 0 --stop Lily
  , there was a little girl named  (no-eol)

# Of several stop strings any ends it
$ qgen -m $MODEL -p "Once upon a time" -n 100 --temp 0 --stop zzz --stop " little"
  , there was a (no-eol)

# One that never comes changes nothing
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0 --stop girls
  , there was a little girl (no-eol)

# --logit-bias forces a token, or forbids it
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --logit-bias 261=1000; echo; qgen -m $MODEL -p "Once upon a" -n 1 --temp 0 --logit-bias 378=-1000 --stats=json 2>&1 | grep -c ' time'
   a a a
  0
exit: 1

# --repeat-penalty and the others change what is written
$ for flag in "" --repeat-penalty=2 --presence-penalty=2 --frequency-penalty=2; do qgen -m $MODEL -p "Once upon a time" -n 60 --temp 0 $flag | cksum; done | sort -u | wc -l
  4

# --typical-p too
$ for flag in "" --typical-p=0.2; do qgen -m $MODEL -p "Once" -n 60 --temp 1 --seed 5 $flag | cksum; done | sort -u | wc -l
  2

# GGUF models of a known family get the sampling that its makers publish, and say so
$ cp $SHARED/fixtures/gguf-q8_0-qwen3/*.gguf qwen3.gguf; qgen -m qwen3.gguf -p "Once" -n 1 --seed 3 -v
  ...
stderr:
  qwen3.gguf · qwen3 * seed 3 (glob)
  ...
    temperature         0.6 (published for Qwen3)
    top-k               20 (published for Qwen3)
    top-p               0.95 (published for Qwen3)
    min-p               0 (built-in)
  ...
needs: test -d "$SHARED/fixtures/gguf-q8_0-qwen3"

# Flags win
$ qgen -m qwen3.gguf -p "Once" -n 1 --temp 0 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["sampling"]["temperature"] == {"value": 0, "origin": "flag"} and it["sampling"]["top_k"] == {"value": 20, "origin": "published for Qwen3"}
needs: test -f qwen3.gguf

# Not where the file is of a base model or of another family
$ cp qwen3.gguf qwen3-base.gguf; cp $SHARED/fixtures/gguf-q8_0-stories/*.gguf stories.gguf; for model in qwen3-base stories; do qgen -m $model.gguf -p "Once" -n 1 --stats=json 2>&1 > /dev/null | grep -o '"temperature":{[^}]*}'; done
  "temperature":{"value":0,"origin":"built-in"}
  "temperature":{"value":0,"origin":"built-in"}
needs: test -f qwen3.gguf
