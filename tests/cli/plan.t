# `qgen plan`: what a model will take in memory, from headers only; exit 4 if it will not fit.

# The account, what is free, and how fast it can be
$ qgen plan -m $MODEL
  llama 260K · fp8 block 128x128 · cpu
    weights   288 KiB  threefold for each FP8 matrix with NaN codes
    kv        480 KiB  512 tokens in f16, 960 B each
    work     [0-9. ]+ [KM]iB (re)
    program  [0-9. ]+ MiB  with its tokenizer (re)
    total    [0-9. ]+ MiB  of [0-9.]+ [MGT]iB free (re)
    context  512 tokens, all the model was made for
    speed    288 KiB read for a token, 608 KiB with a full context: * (glob)

# Other weights are never copied for NaN codes
$ qgen plan -m $INT8 | grep weights; qgen plan -m $MODEL --device reference | grep weights
    weights +[0-9.]+ KiB (re)
    weights +288 KiB (re)

# As JSON; the parts make the total
$ qgen plan -m $MODEL --json
json: stdout schemas/plan.schema.json
where: it["fits"] is True and it["context"] == it["model_context"] == it["largest_context"] == 512
where: it["memory"]["total"] == sum(it["memory"][k] for k in ("weights", "kv", "work", "program"))
where: it["memory"]["kv"] == 512 * it["kv_bytes_per_token"]
where: 0 < it["speed"]["full"]["bytes_per_token"] - it["speed"]["empty"]["bytes_per_token"] <= it["memory"]["kv"]
where: it["declared"] is False

# A run takes what was planned
$ qgen -m $MODEL -p x -n 1 --threads 1 -c 300 --stats-file run.json > /dev/null; qgen plan -m $MODEL --threads 1 -c 300 --json > plan.json
json: plan.json schemas/plan.schema.json
where: all(it["memory"][k] == json.load(open(folder / "run.json"))["memory"][k] for k in ("weights", "kv", "work"))

# --context and --kv change the cache
$ qgen plan -m $MODEL -c 1024 --kv f32 --json
json: stdout schemas/plan.schema.json
where: it["context"] == 1024 and it["kv_type"] == "f32"
where: it["memory"]["kv"] == 1024 * it["kv_bytes_per_token"] and it["kv_bytes_per_token"] > 960

# A cache of 8 bits
$ qgen plan -m $MODEL -c 1024 --kv int8 --json
json: stdout schemas/plan.schema.json
where: it["kv_type"] == "int8" and it["kv_bytes_per_token"] == 640 and it["state_bytes"] == 0

# What recurrent layers hold is counted apart from what each token adds
$ qgen plan -m $ROOT/tests/golden/qwen3_next-bf16 -c 64 | grep kv
    kv       *KiB  64 tokens in f16, 128 B each, and * KiB of states (glob)

$ qgen plan -m $ROOT/tests/golden/qwen3_next-bf16 -c 64 --json
json: stdout schemas/plan.schema.json
where: it["state_bytes"] == 4320 and 0 <= it["memory"]["kv"] - 64 * it["kv_bytes_per_token"] - it["state_bytes"] < 64

# INT8
$ qgen plan -m $INT8 --json
json: stdout schemas/plan.schema.json
where: it["method"] == "int8 channel" and it["memory"]["weights"] > 300000

# What does not fit: the account, and an error with both numbers and what would fit
$ qgen plan -m $MODEL -c 2000000000
  llama 260K · fp8 block 128x128 · cpu
  ...
stderr:
  qgen: stories260K-FP8: does not fit: needs [0-9.]+ TiB, [0-9.]+ [MGT]iB of memory are free (re)
    weights 288 KiB   kv [0-9.]+ TiB \(2000000000 tokens, f16\)   work [0-9.]+ [GMT]iB (re)
  hint: --context [0-9]+ fits (re)
exit: 4
within: 100 ms

# As JSON too
$ qgen plan -m $MODEL -c 2000000000 --json
json: stdout schemas/plan.schema.json
stderr: ...
exit: 4
where: it["fits"] is False and 0 < it["largest_context"] < 2000000000

# From headers only: the account is the same where a download has not got beyond them, and a warning says so
$ mkdir cut && cp $MODEL/* cut/ && head -c 12000 $MODEL/model.safetensors > cut/model.safetensors

$ qgen plan -m cut --json
json: stdout schemas/plan.schema.json
where: it["memory"]["weights"] == 295212 and it["declared"] is False
stderr:
  qgen: warning: cut/model.safetensors: not all of its weights are there (an unfinished download?)
within: 1000 ms

# What inspect says of it is what it says of the whole file, but for the name
$ qgen inspect -m $MODEL --tensors --steps --json | sed 's/"model":"[^"]*"//' > whole.json
$ qgen inspect -m cut --tensors --steps --json | sed 's/"model":"[^"]*"//' | cmp - whole.json
stderr:
  qgen: warning: cut/model.safetensors: not all of its weights are there (an unfinished download?)
$ qgen inspect -m $MODEL --tensors --steps | tail -n +2 > whole.txt
$ qgen inspect -m cut --tensors --steps | tail -n +2 | diff whole.txt -
stderr:
  qgen: warning: cut/model.safetensors: not all of its weights are there (an unfinished download?)

$ qgen -m cut -p x -n 1
stderr:
  qgen: cut/model.safetensors: * (expected *, found *) (glob)
  ...
exit: 3

# Before the weights are downloaded config.json is enough: the same account, as it declares
$ mkdir config && cp $MODEL/*.json config/

$ qgen plan -m config
  llama 260K · fp8 block 128x128 · cpu · as config.json declares it, the weights are not here
  ...

$ qgen plan -m config --json
json: stdout schemas/plan.schema.json
where: it["declared"] is True and it["method"] == "fp8 block 128x128" and it["memory"]["weights"] == 295212

# A model that is not there
$ qgen plan -m org/absent
stderr:
  ...
  hint: hf download org/absent
exit: 3

# No model
$ qgen plan
stderr:
  qgen: no model
  ...
exit: 2

# It is quick, though it measures the memory's speed
$ qgen plan -m $MODEL > /dev/null
within: 3 s

# What a model cannot see at all is refused, as a run would
$ qgen plan -m $ROOT/tests/golden/glm_moe_dsa-bf16 -c 1000
stderr:
  qgen: glm_moe_dsa-bf16: the context is longer than what its sparse attention sees whole; choosing among more keys is not supported (expected at most 512 tokens, found 1000)
  hint: --context 512
exit: 2
$ qgen score -m $ROOT/tests/golden/gpt2-bf16 --tokens 1,2,3 -c 100000000
stderr:
  qgen: gpt2-bf16: the context is longer than the model's table of positions (expected at most 40 tokens, found 100000000)
  hint: --context 40
exit: 2
