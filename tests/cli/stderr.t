# Standard error holds errors, warnings, progress and the report; nothing with -q unless it fails; no escape codes where it
# is redirected. That a good run leaves a redirected stderr empty is checked by every case that expects nothing there.

# A good run is silent
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0
  , there was (no-eol)

# On a terminal -q is silent as well
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 -q
  , there was
tty: out err

# The long name does the same
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --quiet
  , there was
tty: out err

# -q with a failure is not
$ qgen -m nowhere -p x -q
stderr:
  qgen: nowhere: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: `qgen models` lists what is there, `hf download ORG/NAME` fetches one
exit: 3

# Closed, it does no harm
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --stats 2>&-
  , there was (no-eol)

# And a closed stderr does not turn another file into one
$ qgen -m $MODEL -p "Once" -n 3 --stats --stats-file closed.json 2>&- > /dev/null; python3 -m json.tool closed.json > /dev/null

# Full, it keeps no report, which was asked for
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --stats 2> /dev/full
  , there was (no-eol)
exit: 1

# Names in errors cannot carry control characters
$ qgen -m $'red\x1b[31m\x07model' -p x
stderr:
  qgen: red[31mmodel: no such file or folder
exit: 3

# A model with damaged weights: the second of its fp8 codes is NaN
$ mkdir nan && cp $MODEL/* nan/ && python3 - << 'END'
> import json, struct
> data = bytearray(open("nan/model.safetensors", "rb").read())
> size = struct.unpack("<Q", data[:8])[0]
> header = json.loads(data[8:8 + size])
> data[8 + size + header["model.layers.0.mlp.gate_proj.weight"]["data_offsets"][0] + 1] = 0x7F
> open("nan/model.safetensors", "wb").write(data)
> END

# It is warned about, and its scores are an error
$ qgen -m nan -p "Once" -n 3
stderr:
  qgen: warning: nan: 1 fp8 codes of the weights are NaN, the first in model.layers.0.mlp.gate_proj
  qgen: the model's scores are not finite numbers
  hint: 1 fp8 codes of the weights are NaN: the checkpoint is damaged
exit: 1

# With -q there is only the error
$ qgen -m nan -p "Once" -n 3 -q
stderr:
  qgen: the model's scores are not finite numbers
  hint: 1 fp8 codes of the weights are NaN: the checkpoint is damaged
exit: 1

$ head -c 450 /dev/zero | tr '\0' 'a' > long; head -c 2400 /dev/zero | tr '\0' 'a' > longer

# Progress through a long prompt, on one line of a terminal that goes away
$ qgen -m $MODEL -f longer --no-stdin -c 3000 --device reference -n 0 --stats
stderr: ...
tty: err
expect: reading the prompt
where: err.count("\n") == 6 and re.search(r"\r.*[0-9]+.*\r\x1b\[K", err)

# None with -q
$ qgen -m $MODEL -f long --no-stdin -c 2000 --device reference -n 0 -q
tty: err

# None where it is redirected: the report alone
$ qgen -m $MODEL -f long --no-stdin --device reference -n 0 --stats
stderr:
  * · llama 260K · * (glob)
    load * (glob)
    ram * (glob)
    prompt * (glob)
    output * (glob)
