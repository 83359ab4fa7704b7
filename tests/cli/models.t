# `qgen models`: families, methods and engines supported; checkpoints in the Hugging Face cache.

# The tables, and an empty cache
$ qgen models
  Families
    llama    * (glob)
  ...
  Methods
  ...
    fp8  * (glob)
  ...
  Engines
  ...
    cpu  *here * (glob)
  ...
  
  Hugging Face cache ($TMP/.cache/huggingface/hub)
    no models; `hf download org/name` puts one there

# As JSON
$ qgen models --json
json: stdout schemas/models.schema.json
where: {"llama", "mistral", "qwen2", "qwen3"} <= {f["name"] for f in it["families"]}
where: {"none", "fp8", "compressed-tensors"} <= {m["name"] for m in it["methods"]}
where: {"cpu", "reference"} <= {e["name"] for e in it["engines"] if e["available"]}
where: it["cache"]["models"] == []

# Two models in the cache, one of them broken
$ for name in good broken; do
>   repo=.cache/huggingface/hub/models--org--$name commit=0123456789abcdef0123456789abcdef01234567
>   mkdir -p $repo/refs $repo/snapshots/$commit && printf $commit > $repo/refs/main && cp $MODEL/* $repo/snapshots/$commit/
> done; printf '{' > .cache/huggingface/hub/models--org--broken/snapshots/*/config.json; mkdir -p .cache/huggingface/hub/datasets--org--data .cache/huggingface/hub/.locks

# Both are listed, the broken one with its reason
$ qgen models
  ...
  Hugging Face cache ($TMP/.cache/huggingface/hub)
    org/broken        -  cannot be run: config.json: not valid JSON * (glob)
    org/good    287 KiB  llama · fp8 block 128x128

# As JSON too
$ qgen models --json
json: stdout schemas/models.schema.json
where: [(m["name"], m["family"], m["problem"] is None) for m in it["cache"]["models"]] == [("org/broken", None, False), ("org/good", "llama", True)]

# What it lists can be run
$ qgen -m $(qgen models --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cache"]["models"][1]["name"])') -p "Once upon a time" -n 1
  , (no-eol)

# The cache is where the hub's variables say
$ HF_HOME=nowhere qgen models --json
json: stdout schemas/models.schema.json
where: it["cache"] == {"folder": "nowhere/hub", "models": []}
