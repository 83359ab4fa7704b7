# Names out of files and from the command line cannot pretend to be anything else; errors name what a user can change.

# A newline in a name begins no line
$ qgen -m $'x\nhint: run this' -p Once
stderr:
  qgen: x\nhint: run this: no such file or folder
exit: 3

$ mkdir odd && cp $MODEL/* odd/ && python3 -c "
> import json
> config = json.load(open('$MODEL/config.json'))
> config['model_type'] = 'x\nhint: run this\x1b[31m\x9b31m'
> json.dump(config, open('odd/config.json', 'w'))"; qgen -m odd -p Once
stderr:
  qgen: odd/config.json: model_type 'x\nhint: run this[31m31m' is not supported
  ...
exit: 3

# Nor does a byte that is a control character of an 8-bit terminal get through
$ qgen -m $'red\x9b31m' -p Once
stderr: qgen: red�31m: no such file or folder
exit: 3

# In tables and lists it is the same
$ repo=.cache/huggingface/hub/models--org--odd commit=0123456789abcdef0123456789abcdef01234567
> mkdir -p $repo/refs $repo/snapshots/$commit && printf $commit > $repo/refs/main && cp odd/* $repo/snapshots/$commit/; qgen models > models.txt; grep -c '^ *org/odd .*cannot be run' models.txt; grep -c $'[\x1b\x9b]' models.txt
  1
  0
exit: 1

# Nor does the name of a model where nothing is wrong: in the report, of one answer or a batch
$ name=$'x\nhint: run this' && cp -r $MODEL "$name" && qgen -m "$name" -p Once -n 1 --stats > /dev/null; qgen -m "$name" --batch - -n 1 --stats <<< '{"prompt": "Once"}' > /dev/null
stderr:
  x\nhint: run this · llama 260K · * (glob)
    load * (glob)
    ram * (glob)
    prompt * (glob)
    output * (glob)
  x\nhint: run this · cpu * (glob)
    1 line, 0 failed · * (glob)

# In its one line on a terminal
$ qgen -m $'x\nhint: run this' -p Once -n 1 --color never
  ...
stderr: x\nhint: run this · 2 in, * (glob)
tty: out err

# At the head of a conversation
$ python3 $ROOT/tests/cli/scripted_model.py $'talk\nhint: x' "Yes" && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > $'talk\nhint: x/chat_template.jinja'; TERM=dumb qgen chat -m $'talk\nhint: x'
  ...
tty: in out err
expect: hint: x ·
expect: > 
send: ^D
stderr: ...
where: r"talk\nhint: x · " in out + err

# In what is said of its files
$ qgen inspect -m $'x\nhint: run this' | head -n 1; qgen verify -m $'x\nhint: run this' --against $MODEL | grep -c '^hint'; qgen score -m $MODEL --tokens 1,2,3 --against $'x\nhint: run this' | tail -n 1
  x\nhint: run this
  0
  against x\nhint: run this: * (glob)

# Environment twins are named where they are wrong
$ QGEN_TOP_P=0.5 QGEN_TYPICAL_P=0 qgen -m $MODEL -p Once
stderr: qgen: QGEN_TYPICAL_P: 0 is out of range (expected above 0 to 1)
exit: 2

$ QGEN_KV=int4 qgen -m $MODEL -p Once --device cpu
stderr:
  qgen: QGEN_KV: 'int4' is not allowed (expected f16, bf16, f32, fp8, int8)
  ...
exit: 2

$ QGEN_DEVICE=gpu9 qgen -m $MODEL -p Once
stderr:
  qgen: QGEN_DEVICE gpu9: * (glob)
  ...
exit: 2

$ QGEN_STATS_FILE=nowhere/x.json qgen -m $MODEL -p Once
stderr: qgen: QGEN_STATS_FILE nowhere/x.json: cannot write: No such file or directory
exit: 1

$ QGEN_MODEL=nowhere qgen -p Once
stderr:
  qgen: QGEN_MODEL=nowhere: no such file or folder, and not in the Hugging Face cache * (glob)
  ...
exit: 3

$ QGEN_FILE=nowhere qgen -m $MODEL
stderr:
  qgen: QGEN_FILE=nowhere: cannot open: No such file or directory
exit: 2

# But not where an option was typed
$ QGEN_TYPICAL_P=0 qgen -m $MODEL -p Once --typical-p 2
stderr:
  qgen: --typical-p: '2' is not allowed (expected a number from 0 to 1)
  ...
exit: 2

# What a line of a batch calls itself comes back as it came
file: ids.jsonl
  {"id": 1.50, "prompt": "Once"}
  {"id": 1e5, "prompt": "Once", "seed": 18446744073709551615, "temperature": 1}
  {"custom_id": "\u00e9\/", "prompt": "Once"}
  {"id": 123456789012345678901234567890, "prompt": "Once"}
  {"id": {"a" : [ 1 ]}, "prompt": "Once"}
  {"id": -0, "prompt": 5}
  {"id": null, "prompt": "Once", "seed": 18446744073709551616}

$ qgen -m $MODEL --batch ids.jsonl -n 1 --no-stdin | sed -E 's/.*"id":(.*),"(text|error)":.*/\1/'
  1.50
  1e5
  "\u00e9\/"
  123456789012345678901234567890
  {"a" : [ 1 ]}
  -0
  null
stderr: ...
exit: 1

# A byte order mark may stand before any line, as where files were put together
$ printf '{"id": 1, "prompt": "Once"}\n\357\273\277{"id": "a\\u00e9", "prompt": "Once"}\n' | qgen -m $MODEL --batch - -n 1 | grep -o '"id":[^,]*'
  "id":1
  "id":"a\u00e9"

$ printf '{"id": NaN, "prompt": "Once"}\n' | qgen -m $MODEL --batch - -n 1
jsonl: stdout schemas/batch.schema.json
where: it[0]["id"] is None and it[0]["error"]["message"] == "line 1: id: not valid JSON"
stderr: ...
exit: 1

$ qgen -m $MODEL --batch ids.jsonl -n 1 --no-stdin
stderr: ...
jsonl: stdout schemas/batch.schema.json
where: it[1]["seed"] == 18446744073709551615
where: it[6]["error"]["message"] == "line 7: seed: 1.8446744073709552e+19 is out of range (expected an integer from 0 to 18446744073709551615)"
exit: 1
