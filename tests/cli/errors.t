# Errors are `qgen: subject: problem (expected, found)`, then `hint:`; under 100 ms for anything a header shows. Every kind
# of broken checkpoint exits with 3 and leaves standard output empty.

$ mkdir empty

# A folder without anything
$ qgen -m empty -p x
stderr:
  qgen: empty*config.json* (glob)
  ...
exit: 3
within: 100 ms

$ mkdir broken && cp $MODEL/* broken/ && head -c 100000 $MODEL/model.safetensors > broken/model.safetensors

# A file that is cut short: what was expected and found, and what to do
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: * (expected *, found *) (glob)
  hint: * (glob)
exit: 3
within: 100 ms

$ : > broken/model.safetensors

# A file of no bytes
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: * (glob)
  hint: * (glob)
exit: 3
within: 100 ms

$ head -c 4096 /dev/zero > broken/model.safetensors

# A file that is something else
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: * (glob)
  hint: * (glob)
exit: 3
within: 100 ms

$ python3 -c "
> import struct; open('broken/model.safetensors', 'wb').write(struct.pack('<Q', 8) + b'{\"a\": 1' + b' ' * 100)"

# A header that is no JSON
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: header: not valid JSON * (glob)
  ...
exit: 3
within: 100 ms

$ python3 -c "
> import struct; open('broken/model.safetensors', 'wb').write(struct.pack('<Q', 1 << 62) + b'{}')"

# A header longer than the file
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: * (glob)
  hint: * (glob)
exit: 3
within: 100 ms

$ printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 302412\n' 1 > broken/model.safetensors

# A pointer of git-lfs instead of the weights
$ qgen -m broken -p x
stderr:
  qgen: broken/model.safetensors: * (glob)
  hint: * (glob)
exit: 3
within: 100 ms

$ rm broken/model.safetensors

# No weights at all
$ qgen -m broken -p x
stderr:
  qgen: broken: no .safetensors file
  ...
exit: 3
within: 100 ms

$ rm broken/config.json; mkfifo broken/config.json

# A file in the folder that cannot be read by anyone: a pipe in its place
$ qgen -m broken -p x
stderr:
  qgen: broken/config.json: * (glob)
  ...
exit: 3
within: 100 ms

$ rm broken/config.json; ln -s config.json broken/config.json

# A symbolic link to itself
$ qgen -m broken -p x
stderr:
  qgen: *broken/config.json: * (glob)
  ...
exit: 3
within: 100 ms

$ rm broken/config.json; cp $MODEL/model.safetensors broken/

$ printf '{"model_type": "llama",' > broken/config.json

# A config that is no JSON
$ qgen -m broken -p x
stderr:
  qgen: broken/config.json: not valid JSON * (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"hidden_size": 64/"hidden_size": 1e99/' $MODEL/config.json > broken/config.json

# An absurd size names its key
$ qgen -m broken -p x
stderr:
  qgen: broken/config.json: *hidden_size* (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"hidden_size": 64/"hidden_size": "64"/' $MODEL/config.json > broken/config.json

# A size of the wrong type
$ qgen -m broken -p x
stderr:
  qgen: broken/config.json: *hidden_size* (glob)
  ...
exit: 3
within: 100 ms

$ grep -v hidden_size $MODEL/config.json > broken/config.json

# A size that is missing
$ qgen -m broken -p x
stderr:
  qgen: broken/config.json: *hidden_size* (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"intermediate_size": 172/"intermediate_size": 180/' $MODEL/config.json > broken/config.json

# A size that does not fit the tensors
$ qgen -m broken -p x
stderr:
  qgen: *mlp.*proj* (expected *, found *) (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"num_hidden_layers": 5/"num_hidden_layers": 6/' $MODEL/config.json > broken/config.json

# A layer too many
$ qgen -m broken -p x
stderr:
  qgen: *model.layers.5.* (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"num_hidden_layers": 5/"num_hidden_layers": 4/' $MODEL/config.json > broken/config.json

# A layer too few leaves tensors that nothing uses, among them scales
$ qgen -m broken -p x
stderr:
  qgen: *model.layers.4.* (glob)
  ...
exit: 3
within: 100 ms

$ sed 's/"model_type": "llama"/"model_type": "mamba"/; s/LlamaForCausalLM/MambaForCausalLM/' $MODEL/config.json > broken/config.json

# An architecture that is not known
$ qgen -m broken -p x
stderr:
  qgen: *mamba* (glob)
  hint: *llama* (glob)
exit: 3
within: 100 ms

$ cp $MODEL/config.json broken/; python3 -c "
> data = open('broken/model.safetensors', 'rb').read()
> open('broken/model.safetensors', 'wb').write(data.replace(b'layers.0.mlp.up_proj.weight_scale_inv', b'layers.0.mlp.up_proj.weight_forgotten'))"

# Codes without their scale
$ qgen -m broken -p x
stderr:
  qgen: *model.layers.0.mlp.up_proj* (glob)
  ...
exit: 3
within: 100 ms

$ python3 -c "
> data = open('$MODEL/model.safetensors', 'rb').read()
> open('broken/model.safetensors', 'wb').write(data.replace(b'layers.0.mlp.up_proj.weight_scale_inv', b'layers.9.mlp.up_proj.weight_scale_inv'))"

# A scale of something that is not there
$ qgen -m broken -p x
stderr:
  qgen: *model.layers.*.mlp.up_proj* (glob)
  ...
exit: 3
within: 100 ms

$ cp $MODEL/* broken/

$ rm broken/tokenizer.json

# No tokenizer
$ qgen -m broken -p x
stderr:
  qgen: broken: no tokenizer (expected tokenizer.json, vocab.json with merges.txt, tekken.json, or tokenizer.model)
  hint: fetch the whole model folder, not only the weights
exit: 3
within: 100 ms

# Scoring ids needs none
$ qgen score -m broken --tokens 1,2,3 > /dev/null

$ printf '{"model": ' > broken/tokenizer.json

# A tokenizer that is no JSON
$ qgen -m broken -p x
stderr:
  qgen: *tokenizer.json: not valid JSON * (glob)
  ...
exit: 3
within: 100 ms

# A tokenizer of another model, with the id
$ sed 's/"▁Once": 403/"▁Once": 60403/' $MODEL/tokenizer.json > broken/tokenizer.json; printf Once | qgen score -m broken
stderr:
  qgen: *60403* (expected * (glob)
  hint: the tokenizer and the weights do not belong together
exit: 3
within: 100 ms

$ cp $MODEL/tokenizer.json broken/; printf '[' > broken/generation_config.json

# A generation_config.json that is no JSON
$ qgen -m broken -p x
stderr:
  qgen: broken/generation_config.json: * (glob)
  ...
exit: 3
within: 100 ms

$ printf GGUF > model.gguf

# A GGUF file that ends too early
$ qgen -m model.gguf -p x
stderr:
  qgen: model.gguf: truncated: the version runs beyond the file (expected 4 bytes, found 0)
  hint: an interrupted download? compare the file's size with the original
exit: 3
within: 100 ms

# Any other file
$ qgen -m $MODEL/README.md -p x
stderr:
  qgen: models/stories260K-FP8/README.md: not a model * (glob)
  ...
exit: 3
within: 100 ms

# A file that may not be read
$ cp $MODEL/* broken/; chmod 000 broken/model.safetensors; setpriv --reuid=65534 --clear-groups -- qgen -m broken -p x
stderr:
  qgen: *broken/model.safetensors: *ermission denied* (glob)
  ...
exit: 3
needs: chmod 755 $TMP && setpriv --reuid=65534 --clear-groups -- qgen --version

# One line and a hint: errors of the command line
$ for arguments in "--temp hot" "--top-p 2" "--threads -1" "-n 1e3" "--think maybe" "--kv fp4" "--stats=xml" "--logit-bias 5" "--device tpu" "--system be" "--prompt"; do
>   qgen -m $MODEL $arguments < /dev/null 2>&1 | sed -n '2{/^hint: /!p};3p' ; qgen -m $MODEL $arguments < /dev/null 2>&1 | grep -c ^hint; done | sort | uniq -c
       11 1
exit: 2

# And of files
$ for file in config.json tokenizer.json generation_config.json model.safetensors; do
>   cp -f $MODEL/* broken/; printf '\x02\0\0\0\0\0\0\0{[' > broken/$file; qgen -m broken -p x 2>&1 | grep -c '^hint: '; done
  1
  1
  1
  1
exit: 3

# Errors name the file with its folder
$ cp -f $MODEL/* broken/; printf '{' > broken/tokenizer.json; qgen -m broken -p x
stderr:
  qgen: broken/tokenizer.json: * (glob)
  ...
exit: 3
