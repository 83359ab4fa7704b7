# Each flag has a QGEN_* environment twin; a flag wins over it; a bad value is reported under the variable's name.

# Every flag that there is: who adds one here adds its twin below
$ qgen --help | grep -oE -- '^ +(-[a-zA-Z], ?)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort | tr '\n' ' '
  --activations --batch --chat-template-kwargs --color --context --device --done --draft --file --frequency-penalty --help --invalid-utf --json --kv --logit-bias --logprobs --max-tokens --min-p --model --no-stdin --parallel --presence-penalty --prompt --prompt-lookup --quantize --quantize-head --quiet --raw --reasoning --repeat-penalty --resume --save --seed --stats --stats-file --stop --system --temp --think --threads --top-k --top-p --trust-tensors --typical-p --unordered --verbose --version  (no-eol)

# And of the commands, without those that they share with the root
$ for command in $(qgen --help | sed -n '/^Commands:/,/^$/p' | grep -oE '^  [a-z]+'); do
>   echo $command $(qgen $command --help | grep -oE -- '^ +(-[a-zA-Z], ?)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vwE -- '--(activations|color|context|device|help|kv|model|quantize|system|think|threads|version)' | sort)
> done
  chat --chat-template-kwargs --draft --frequency-penalty --invalid-utf --max-tokens --min-p --presence-penalty --prompt-lookup --quiet --reasoning --repeat-penalty --resume --seed --stats --stats-file --stop --temp --top-k --top-p --trust-tensors --typical-p --verbose
  plan --draft --json --parallel --trust-tensors
  inspect --json --steps --tensors --trust-tensors
  bench --decode-tokens --depth --dummy --output --parallel --prefill --rounds --trust-tensors
  score --against --invalid-utf --json --logits --stride --tokens --trust-tensors --window
  quantize --block --compat --eval --force --input-stats --keep --mode --mse-grid --only --out --percentile --quiet --report --resume --rms-factor --smooth --to --trust-tensors --verify
  calibrate --force --invalid-utf --limit --out --quiet --text --trust-tensors --window
  verify --against --json --trust-tensors
  tokens --chat --chat-template-kwargs --decode --invalid-utf --json --messages --render
  models --json --markdown
  completion
  man

# The help says so
$ qgen --help | grep -c QGEN_
  1

# The main job from nothing but the environment
$ QGEN_MODEL=$MODEL QGEN_PROMPT="Once upon a time" QGEN_MAX_TOKENS=8 QGEN_TEMP=0 qgen
  , there was a little girl (no-eol)

# A flag wins
$ QGEN_MODEL=nowhere QGEN_PROMPT=x QGEN_MAX_TOKENS=1 qgen -m $MODEL -p "Once upon a time" -n 8
  , there was a little girl (no-eol)

# Short and long: the same twin
$ QGEN_MAX_TOKENS=1 qgen --model $MODEL --prompt "Once upon a time" --max-tokens 8
  , there was a little girl (no-eol)

# QGEN_FILE
$ printf 'Once upon a time' > prompt; QGEN_FILE=prompt qgen -m $MODEL -n 8
  , there was a little girl (no-eol)

# QGEN_NO_STDIN
$ printf ignored | QGEN_NO_STDIN=1 qgen -m $MODEL -p "Once upon a time" -n 8
  , there was a little girl (no-eol)

# QGEN_NO_STDIN=0 is no flag
$ printf 'Once upon a time' | QGEN_NO_STDIN=0 qgen -m $MODEL -n 8
  , there was a little girl (no-eol)

# QGEN_STOP
$ QGEN_STOP=" little" qgen -m $MODEL -p "Once upon a time" -n 8
  , there was a (no-eol)

# QGEN_PARALLEL and QGEN_UNORDERED; without --batch they change nothing
$ for i in 40 2; do echo '{"id":'$i',"prompt":"Once","max_tokens":'$i',"temperature":0}'; done > two.jsonl; QGEN_PARALLEL=2 QGEN_UNORDERED=1 qgen -m $MODEL --batch two.jsonl | grep -oE '"id":[0-9]+'
  "id":2
  "id":40

$ QGEN_PARALLEL=2 QGEN_UNORDERED=1 qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl (no-eol)

$ QGEN_PARALLEL=4 qgen plan -m $MODEL --device cpu --json
json: stdout schemas/plan.schema.json
where: it["parallel"] == 4

# QGEN_CONTEXT, QGEN_KV, QGEN_DEVICE, QGEN_THREADS, QGEN_STATS
$ QGEN_CONTEXT=99 QGEN_KV=f32 QGEN_DEVICE=cpu:portable QGEN_THREADS=1 QGEN_STATS=json qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)
json: stderr schemas/stats.schema.json
where: it["context"] == 99 and "portable" in it["engine"] and "1 thread" in it["engine"]
where: it["memory"]["kv"] > 99 * 5 * 2 * 4 * 8 * 2

# Warnings name it too
$ QGEN_CONTEXT=600 qgen -m $MODEL -p "Once upon a time" -n 1 --stats-file warned.json
  , (no-eol)
stderr: qgen: warning: QGEN_CONTEXT 600: stories260K-FP8 was made for 512 tokens, beyond them answers get worse
json: warned.json
where: it["warnings"] == ["QGEN_CONTEXT 600: stories260K-FP8 was made for 512 tokens, beyond them answers get worse"]

# QGEN_ACTIVATIONS
$ QGEN_ACTIVATIONS=f32 qgen -m $MODEL -p "Once" -n 1 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["activations"] == "f32"

# Sampling, each with its origin
$ QGEN_TEMP=0.5 QGEN_TOP_K=11 QGEN_TOP_P=0.91 QGEN_MIN_P=0.01 QGEN_TYPICAL_P=0.92 QGEN_REPEAT_PENALTY=1.5 QGEN_PRESENCE_PENALTY=0.2 QGEN_FREQUENCY_PENALTY=0.3 QGEN_SEED=42 QGEN_LOGPROBS=3 qgen -m $MODEL -p "Once" -n 2 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: {name: s["value"] for name, s in it["sampling"].items()} == {"temperature": 0.5, "top_k": 11, "top_p": 0.91, "min_p": 0.01, "typical_p": 0.92, "repetition_penalty": 1.5, "presence_penalty": 0.2, "frequency_penalty": 0.3, "seed": 42}
where: {s["origin"] for s in it["sampling"].values()} == {"flag"}
where: len(it["logprobs"][0]["top"]) == 3

# QGEN_LOGIT_BIAS
$ QGEN_LOGIT_BIAS=261=1000 qgen -m $MODEL -p "Once upon a time" -n 2
   a a (no-eol)

# QGEN_BATCH
$ QGEN_BATCH=- qgen -m $MODEL -n 3 <<< '{"prompt": "Once upon a"}'
jsonl: stdout schemas/batch.schema.json
where: [line["text"] for line in it] == [" time, there"]

# QGEN_STATS_FILE
$ QGEN_STATS_FILE=stats.json qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)
json: stats.json schemas/stats.schema.json

# QGEN_STATS=text
$ QGEN_STATS=text qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)
stderr:
  stories260K-FP8 · llama 260K · * (glob)
  ...

# QGEN_JSON, QGEN_SAVE, QGEN_RESUME, QGEN_DONE, QGEN_INVALID_UTF8
$ python3 $ROOT/tests/cli/scripted_model.py talks "Yes" && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > talks/chat_template.jinja

$ QGEN_JSON=1 QGEN_SAVE=talk.json qgen -m talks -p Hi
json: stdout schemas/answer.schema.json
where: it["text"] == "Yes"

$ QGEN_RESUME=talk.json QGEN_INVALID_UTF8=replace qgen -m talks -p $'a\xff' --save talk.json; python3 -c 'import json; print(ascii([m["content"] for m in json.load(open("talk.json"))["messages"]]))'
  Yes['Hi', 'Yes', 'a\ufffd', 'Yes']

$ echo '{"prompt": "Hi"}' > in.jsonl; qgen -m talks --batch in.jsonl > out.jsonl; QGEN_DONE=out.jsonl qgen -m talks --batch in.jsonl

# Of conversations --batch takes no notice, nor does a model without a template; what is typed is an error there
$ QGEN_SAVE=never.json QGEN_RESUME=nowhere.json qgen -m talks --batch in.jsonl | grep -c '"text":"Yes"'; QGEN_SAVE=never.json QGEN_RESUME=nowhere.json QGEN_SYSTEM=Be qgen -m $MODEL -p "Once upon a time" -n 1; ls never.json 2> /dev/null
  1
  , (no-eol)
exit: 2

$ QGEN_SAVE=never.json qgen -m $MODEL -p "Once upon a time" -n 1 --resume talk.json
stderr:
  qgen: --resume: the model has no chat template
  ...
exit: 2

$ QGEN_RESUME=nowhere.json qgen -m talks -p Hi
stderr: qgen: QGEN_RESUME=nowhere.json: cannot open: No such file or directory
exit: 2

# QGEN_VERBOSE
$ QGEN_VERBOSE=1 qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)
stderr:
  ...
    temperature         0 (built-in)
  ...

# QGEN_QUIET
$ QGEN_QUIET=1 qgen -m $MODEL -p "Once upon a time" -n 1
  ,
tty: out err

# QGEN_COLOR
$ QGEN_COLOR=never qgen -m $MODEL -p "Once upon a time" -n 1
  ,
stderr: ...
tty: out err
where: "\x1b" not in err

$ python3 $ROOT/tests/cli/scripted_model.py chat "<think>" "hm" "</think>" "yes" && printf '{{ bos_token }}{%% for m in messages %%}[{{ m.role }}] {{ m.content }}{%% endfor %%}{%% if enable_thinking is defined and not enable_thinking %%}fast{%% endif %%}:' > chat/chat_template.jinja

# QGEN_RAW
$ QGEN_RAW=1 qgen -m chat -p "Hi "
  <think>hm</think>yes (no-eol)

# QGEN_REASONING
$ QGEN_REASONING=show qgen -m chat -p "Hi"
  <think>hm</think>yes (no-eol)

# QGEN_SYSTEM, QGEN_THINK, QGEN_CHAT and QGEN_RENDER
$ printf Hi | QGEN_MODEL=chat QGEN_SYSTEM=Be QGEN_THINK=off QGEN_CHAT=1 QGEN_RENDER=1 qgen tokens
  <s>[system] Be[user] Hifast: (no-eol)

# QGEN_MESSAGES
$ printf '[{"role": "user", "content": "a"}]' > messages.json; QGEN_MESSAGES=messages.json qgen tokens -m chat --render
  <s>[user] a: (no-eol)

# QGEN_DECODE and QGEN_JSON
$ QGEN_DECODE=1 QGEN_JSON=1 qgen tokens -m $MODEL <<< "1 403 407"
  {"schema":1,"text":"Once upon"}

# QGEN_TOKENS and QGEN_LOGITS
$ QGEN_TOKENS=1,2,3 QGEN_LOGITS=logits.f32 qgen score -m $MODEL > /dev/null; stat -c %s logits.f32
  6144

# QGEN_WINDOW and QGEN_STRIDE
$ QGEN_WINDOW=4 QGEN_STRIDE=2 qgen score -m $MODEL --tokens 1,2,3,4,5,6 --json
json: stdout schemas/score.schema.json
where: it["window"] == 4 and it["stride"] == 2

# QGEN_TENSORS and QGEN_STEPS
$ QGEN_TENSORS=1 QGEN_STEPS=1 QGEN_JSON=1 qgen inspect -m $MODEL
json: stdout schemas/inspect.schema.json
where: len(it["tensors"]) == 82 and len(it["steps"]) == 27

# A bad value is reported under the variable's name
$ QGEN_TEMP=hot qgen -m $MODEL -p x
stderr:
  qgen: QGEN_TEMP: 'hot' is not allowed (expected a number, at least 0)
  ...
exit: 2

# One that is out of range as well
$ QGEN_TOP_P=2 qgen -m $MODEL -p x
stderr:
  qgen: QGEN_TOP_P: '2' is not allowed (expected a number from 0 to 1)
  ...
exit: 2

# A bad switch too
$ QGEN_RAW=maybe qgen -m $MODEL -p x
stderr:
  qgen: QGEN_RAW: 'maybe' is not allowed (expected 1 or 0)
  ...
exit: 2

# Root flags before a command are the command's
$ printf 'Once upon a time' | qgen -m $MODEL tokens
  1 403 407 261 378

# An empty variable is none
$ QGEN_TEMP= QGEN_KV= QGEN_SEED= qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0
  , there was (no-eol)

# --help and --version are asked for by hand only
$ QGEN_VERSION=1.2.0 QGEN_HELP=please qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0
  , there was (no-eol)

# What is typed wins over a variable that says the opposite
$ QGEN_MODEL=$MODEL qgen bench --dummy $MODEL -p 4 -n 0 -d 0 -r 1 --output csv | head -n 1 | cut -c1-5
  model

$ QGEN_PROMPT=hi qgen -m $MODEL --batch - <<< '{"prompt": "Once upon a time", "max_tokens": 3}' | cut -c1-20
  {"schema":1,"line":1
