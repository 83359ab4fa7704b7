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

# A download that is not complete says what is missing
$ hub=.cache/huggingface/hub; commit=0123456789abcdef0123456789abcdef01234567
> for name in begun shards tokenless; do mkdir -p $hub/models--org--$name/{refs,snapshots/$commit} && printf $commit > $hub/models--org--$name/refs/main; done
> rm -r $hub/models--org--begun/snapshots; cp $MODEL/config.json $hub/models--org--shards/snapshots/*/; cp $MODEL/{config.json,model.safetensors} $hub/models--org--tokenless/snapshots/*/
> printf '{"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}' > $hub/models--org--shards/snapshots/$commit/model.safetensors.index.json

$ qgen models | sed -n '/^Hugging/,$p' | grep -vE 'broken|good'
  Hugging Face cache ($TMP/.cache/huggingface/hub)
    org/begun            -  cannot be run: org/begun: revision main has no snapshot in the Hugging Face cache
    org/shards           -  cannot be run: model.safetensors.index.json: names a file that is missing: model-00002-of-00002.safetensors
    org/tokenless        -  cannot be run: its tokenizer is missing

# Several GGUF models of one repository are listed one by one, and can be run so
$ hub=.cache/huggingface/hub; commit=0123456789abcdef0123456789abcdef01234567; mkdir -p $hub/models--org--many-GGUF/{refs,snapshots/$commit} && printf $commit > $hub/models--org--many-GGUF/refs/main; cp $SHARED/fixtures/gguf-q8_0-stories-split/*.gguf $SHARED/fixtures/gguf-f16-stories/*.gguf $hub/models--org--many-GGUF/snapshots/$commit/; qgen models | grep many; qgen -m org/many-GGUF:f16 -p "Once upon a time" -n 1 --temp 0
    org/many-GGUF/gguf-f16-stories.gguf * llama · f16 (glob)
    org/many-GGUF/gguf-q8_0-stories-split-00001-of-00003.gguf * llama · int8 group 32 (glob)
  , (no-eol)
needs: test -d "$SHARED/fixtures/gguf-f16-stories"

# docs/ holds the tables as they are printed
$ diff <(qgen models --markdown=families) $ROOT/docs/families.md && diff <(qgen models --markdown=formats) $ROOT/docs/formats.md

# Both documents, one below the other
$ diff <(qgen models --markdown) <(qgen models --markdown=families; echo; qgen models --markdown=formats)

# Every row of the tables is in the documents
$ qgen models --json | python3 -c 'import json, os, sys; it = json.load(sys.stdin); docs = os.environ["ROOT"] + "/docs/"; print([row["name"] for key in ("families", "methods") for row in it[key] if "| `%s` |" % row["name"] not in open(docs + {"methods": "formats"}.get(key, key) + ".md").read()])'
  []

# Another document, and two forms at a time
$ qgen models --markdown=engines
exit: 2
stderr: ...
$ qgen models --markdown --json
exit: 2
stderr: qgen: --markdown: cannot be combined with --json
