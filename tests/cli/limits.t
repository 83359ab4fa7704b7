# Memory in proportion to what is read; time too. Limits on memory are those of the program's account.

# A line of a batch that is made to take gigabytes is read like any other
$ python3 -c "
> keys = ''.join('{\"%s\":' % (chr(97 + i % 26) * 8000) for i in range(1000))
> print('{\"prompt\":\"Once\"}\n{\"prompt\":\"a\",\"metadata\":%s1%s}\n{\"prompt\":\"a\",\"odd\":%s1%s}\n{\"prompt\":\"Once\"}' % ((keys, '}' * 1000) * 2))" > nested.jsonl

$ (ulimit -v 1500000; exec qgen -m $MODEL --batch nested.jsonl -n 1 --no-stdin)
needs: (ulimit -v 1500000; qgen --version)
exit: 1
jsonl: stdout schemas/batch.schema.json
where: [("error" in line) for line in it] == [False, False, True, False]
stderr: ...
where: "line 3: odd" in it[2]["error"]["message"] and len(it[2]["error"]["message"]) < 5000

# A line that does not fit into memory is an error of its own, and so is one that is too long
$ python3 -c "
> print('{\"id\":1,\"prompt\":\"Once\"}')
> print('{\"id\":2,\"prompt\":\"a\",\"metadata\":\"%s\"}' % ('x' * (40 << 20)))
> print('{\"id\":3,\"prompt\":\"a\",\"metadata\":\"%s\"}' % ('x' * (70 << 20)))
> print('{\"id\":4,\"prompt\":\"Once\"}')" > large.jsonl

$ (ulimit -v 600000; exec qgen -m $MODEL --batch large.jsonl -n 1 --no-stdin --threads 1 -c 100)
needs: (ulimit -v 600000; qgen --version)
exit: 1
jsonl: stdout schemas/batch.schema.json
stderr: ...
where: [line["error"]["code"] if "error" in line else 0 for line in it] == [0, 4, 2, 0]
where: "line 2: does not fit in memory (it has 40.0 MiB, " in it[1]["error"]["message"]
where: "line 3: too long (expected at most 67108864 bytes)" in it[2]["error"]["message"]

# A config.json like that is a model that is read, or not, for what it says
$ mkdir deep && cp $MODEL/* deep/ && python3 -c "
> keys = ''.join('{\"%s\":' % (chr(97 + i % 26) * 8000) for i in range(1000))
> open('deep/config.json', 'w').write(open('$MODEL/config.json').read().rstrip()[:-1] + ', \"extra\": ' + keys + '1' + '}' * 1000 + '}')"

$ (ulimit -v 1500000; exec qgen -m deep -p Once -n 1 --no-stdin)
  ...
needs: (ulimit -v 1500000; qgen --version)

# A header with a long name and very many dimensions
$ rm -rf deep; mkdir deep && cp $MODEL/* deep/ && python3 -c "
> import struct
> header = ('{\"' + 'n' * 200000 + '\":{\"dtype\":\"U8\",\"shape\":[' + ','.join(['1'] * 100000) + '],\"data_offsets\":[0,1]}}').encode()
> open('deep/model.safetensors', 'wb').write(struct.pack('<Q', len(header)) + header + b'x')"

$ (ulimit -v 400000; exec qgen -m deep -p Once -n 1 --no-stdin)
needs: (ulimit -v 400000; qgen --version)
stderr:
  qgen: deep/model.safetensors: tensor "nnn*…": too many dimensions (expected at most 8, found 100000) (glob)
exit: 3
within: 100 ms

# A tokenizer that doubles each letter thirty times
$ rm -rf deep; mkdir deep && cp $MODEL/* deep/ && python3 -c "
> import json
> tokenizer = json.load(open('$MODEL/tokenizer.json'))
> tokenizer['normalizer'] = {'type': 'Sequence', 'normalizers': [{'type': 'Replace', 'pattern': {'String': 'a'}, 'content': 'aa'}] * 30}
> json.dump(tokenizer, open('deep/tokenizer.json', 'w'))"

$ (ulimit -v 1500000; exec qgen -m deep -p a -n 1 --no-stdin)
needs: (ulimit -v 1500000; qgen --version)
stderr:
  qgen: tokenizer: its stages make more than * bytes of the text (glob)
  hint: a damaged tokenizer.json?
exit: 3
within: 1 s

# A token of 400 KB that nearly matches everywhere
$ rm -rf deep; mkdir deep && cp $MODEL/* deep/ && python3 -c "
> import json
> tokenizer = json.load(open('$MODEL/tokenizer.json'))
> tokenizer['added_tokens'].append({'id': 512, 'content': 'a' * 400000 + 'b', 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': True})
> json.dump(tokenizer, open('deep/tokenizer.json', 'w'))
> open('long.txt', 'w').write('a' * 400000)"

$ qgen tokens -m deep long.txt | wc -w
  [0-9]+ (re)
within: 3 s

# A template with very many variables
$ rm -rf deep; mkdir deep && cp $MODEL/* deep/ && python3 -c "
> open('deep/chat_template.jinja', 'w').write(''.join('{%%set v%d=1%%}' % i for i in range(60000)))"

$ qgen -m deep -p a -n 1 --no-stdin
stderr:
  qgen: deep/chat_template.jinja:*: the template takes more than 10000000 steps (glob)
exit: 3
within: 5 s

# What is left of a limit on addresses is what is free
$ (ulimit -v 8000000; exec qgen plan -m $MODEL -c 100 --threads 1 --json)
needs: (ulimit -v 8000000; qgen --version)
json: stdout schemas/plan.schema.json
where: it["fits"] and 6e9 < it["memory"]["free"] < 8.192e9

$ python3 - << 'END'
> import json
> config = json.load(open("models/stories260K-FP8/config.json"))
> config |= {"num_hidden_layers": 200, "max_position_embeddings": 1 << 24}
> json.dump(config, open("config.json", "w"))
> END

# Weights that are not there take no more addresses than the largest matrix: the account says what they would take
$ mkdir absent && echo '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}' > absent/config.json

$ (ulimit -v 4000000; exec qgen plan -m absent -c 1000 --threads 1 --device cpu)
  llama 8.0B · bf16 · cpu · as config.json declares it, the weights are not here
    weights  15.0 GiB
  ...
needs: (ulimit -v 4000000; qgen --version)
stderr:
  qgen: absent: does not fit: needs 15\.[0-9] GiB, 3\.[0-9]+ GiB of memory are free (re)
    weights 15.0 GiB   kv 128 MiB (1000 tokens, f16)   work * (glob)
  hint: the weights alone are too large for this machine
exit: 4

# Where even that does not fit
$ (ulimit -v 800000; exec qgen plan -m absent -c 1000 --threads 1 --device cpu)
needs: (ulimit -v 800000; qgen --version)
stderr: qgen: absent: does not fit in memory (it has 0.98 GiB, * MiB are free) (glob)
exit: 4

# A configuration of a few bytes that asks for everything: no memory is taken for it
$ mkdir vast && echo '{"model_type": "llama", "hidden_size": 1048576, "num_hidden_layers": 4096, "num_attention_heads": 8192, "intermediate_size": 1048576, "vocab_size": 1048576, "max_position_embeddings": 1048576, "torch_dtype": "bfloat16"}' > vast/config.json; python3 - << 'END'
> import resource, subprocess
> run = subprocess.run(["qgen", "plan", "-m", "vast", "--threads", "1", "--device", "cpu"], capture_output=True, text=True)
> print(run.returncode, run.stderr.splitlines()[0])
> print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 200000)
> END
  4 qgen: vast: does not fit* (glob)
  True
needs: test -z "$QGEN_TIME_FACTOR"

# And the account is made with it
$ mkdir many && cp config.json many/ && (ulimit -v 8000000; exec qgen plan -m many -c 1000000 --threads 1) > /dev/null
needs: (ulimit -v 8000000; qgen --version)
stderr:
  qgen: many: does not fit: needs [0-9.]+ GiB, [67]\.[0-9]+ GiB of memory are free (re)
  ...
exit: 4

# What is said to fit into a limited address space does, threads included
$ (ulimit -v 400000; most=$(qgen -m $MODEL -p x -c 2000000000 2>&1 | grep -o 'context [0-9]* fits' | tr -dc 0-9); qgen -m $MODEL -p "Once upon a time" -n 3 -c $((most * 19 / 20)) --threads 2 -q)
  , there was (no-eol)
needs: (ulimit -v 400000; qgen --version)
