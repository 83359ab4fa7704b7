# Exit codes: 0 good, 1 failed while running, 2 usage, 3 model unreadable or unsupported, 4 does not fit in memory,
# 5 no usable device, 6 cut short (cut_short.t), 128 + n after signal n (signals.t). After an error nothing is on standard output.

# 0
$ qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)

# 1: failed while running (stdout.t, stderr.t and report.t have more)
$ qgen -m $MODEL -p x -n 1 > /dev/full
stderr: qgen: standard output: cannot write: No space left on device
exit: 1

# 2: no model
$ qgen -p x
stderr:
  qgen: no model
  hint: --model DIR, or the environment variable QGEN_MODEL; `qgen --help` has examples
exit: 2

# 2: an empty one
$ qgen -m "" -p x
stderr:
  qgen: * (glob)
  ...
exit: 2

# 2: an option that is not there, with one suggestion
$ qgen --promt x
stderr:
  qgen: --promt: unknown option
  hint: did you mean --prompt?
exit: 2

# 2: nothing that is like it
$ qgen --frobnicate x
stderr:
  qgen: --frobnicate: unknown option
  hint: `qgen --help` lists the options
exit: 2

# 2: an option of another command
$ qgen tokens -m $MODEL --top-k 3
stderr:
  qgen: --top-k: unknown option
  hint: --top-k is an option of `qgen`, `qgen chat`, not of `qgen tokens`
exit: 2

$ qgen chat -m $MODEL -p x; qgen -m $MODEL --to=fp8
stderr:
  qgen: -p: unknown option
  hint: -p is an option of `qgen`, `qgen bench`, not of `qgen chat`
  qgen: --to=fp8: unknown option
  hint: --to is an option of `qgen quantize`, not of `qgen`
exit: 2

$ qgen --messages=x tokens -m $MODEL
stderr:
  qgen: --messages=x: unknown option
  hint: --messages is an option of `qgen tokens`, not of `qgen`
exit: 2

# 2: a short word that is like none
$ qgen -m $MODEL --n 5
stderr:
  qgen: --n: unknown option
  hint: `qgen --help` lists the options
exit: 2

# 2: a command that is not there
$ qgen scroe
stderr:
  qgen: scroe: unknown command
  hint: did you mean score? As a prompt: -p scroe
exit: 2

# 2: the same after options
$ qgen -m $MODEL -p x scor
stderr:
  qgen: scor: unknown command
  hint: did you mean score? As a prompt: -p scor
exit: 2

# 2: a value is missing
$ qgen -m $MODEL -p
stderr:
  qgen: --prompt: needs a value
  ...
exit: 2

# 2: not a number
$ qgen -m $MODEL -p x --temp hot
stderr:
  qgen: --temp: 'hot' is not allowed (expected a number, at least 0)
  ...
exit: 2

# 2: not a number
$ qgen -m $MODEL -p x --min-p nan
stderr:
  qgen: --min-p: 'nan' is not allowed (expected a number from 0 to 1)
  ...
exit: 2

# 2: out of range
$ qgen -m $MODEL -p x --top-p 2
stderr:
  qgen: --top-p: '2' is not allowed (expected a number from 0 to 1)
  ...
exit: 2

# 2: a negative count
$ qgen -m $MODEL -p x --threads -1
stderr:
  qgen: --threads: '-1' is not allowed (expected a whole number from 0 to 1024)
  ...
exit: 2

# 2: no whole number
$ qgen -m $MODEL -p x -n 1e3
stderr:
  qgen: --max-tokens: '1e3' is not allowed (expected a whole number, at least 0)
  ...
exit: 2

# 2: beyond a limit that only catches nonsense
$ qgen -m $MODEL -p x -c 1152921504606846976
stderr:
  qgen: --context: '1152921504606846976' is not allowed (expected a whole number up to 2147483648)
  ...
exit: 2

# 2: not one of the words
$ qgen -m $MODEL -p x --think maybe
stderr:
  qgen: --think: 'maybe' is not allowed (expected on, off, auto, low, medium, high)
  ...
exit: 2

# 2: not one of the cache types
$ qgen -m $MODEL -p x --kv fp4
stderr:
  qgen: --kv* (glob)
  ...
exit: 2

# 2: a form of report that is not there
$ qgen -m $MODEL -p x --stats=xml
stderr:
  qgen: --stats: 'xml' is not allowed (expected text, json)
  ...
exit: 2

# 2: a device that is not there
$ qgen -m $MODEL -p x --device tpu
stderr:
  qgen: --device tpu: unknown device
  hint: known: auto, cpu, * (glob)
exit: 2

$ qgen -m $MODEL -p x --device cpu:
stderr:
  qgen: --device cpu:: unknown device
  ...
exit: 2

# 2: an instruction set that is not there
$ qgen -m $MODEL -p x --device cpu:mmx
stderr:
  qgen: *cpu:mmx: unknown instruction set (glob)
  hint: known: * (glob)
exit: 2

# 2: a bias without an id
$ qgen -m $MODEL -p x --logit-bias 5
stderr:
  qgen: --logit-bias 5: not ID=BIAS (expected an id below 512)
  ...
exit: 2

# 2: a token beyond the vocabulary
$ qgen score -m $MODEL --tokens 1,9999
stderr:
  qgen: --tokens: '9999' is not a token id (expected 0 to 511)
  ...
exit: 2

# 2: a token that is not a number
$ qgen score -m $MODEL --tokens 1,x
stderr:
  qgen: --tokens: 'x' is not a token id (expected 0 to 511)
  ...
exit: 2

# 2: modes that do not go together
$ qgen tokens -m $MODEL --render
stderr:
  qgen: tokens: --render needs --chat or --messages
  ...
exit: 2

# 2: two texts for one
$ qgen score -m $MODEL --tokens 1,2 text
stderr:
  qgen: score: --tokens and a text
  hint: give one of them
exit: 2

# 2: a prompt that does not fit
$ qgen -m $MODEL -p "Once upon a time" -c 2
stderr:
  qgen: stories260K-FP8: the prompt does not fit in the context (expected at most 2 tokens, found 5)
  hint: --context 5 or more fits it
exit: 2

# 3: no such model (errors.t has more)
$ qgen -m org/absent -p x
stderr: ...
exit: 3

# 4: does not fit in memory, from the headers, before work
$ qgen -m $MODEL -p x -c 2000000000
stderr:
  qgen: stories260K-FP8: does not fit: * (glob)
  ...
exit: 4
within: 100 ms

# 5: a device that is known but not here
$ CUDA_VISIBLE_DEVICES= qgen -m $MODEL -p x -n 1 --device cuda
stderr:
  qgen: *cuda* (glob)
  ...
exit: 5

$ qgen -m $MODEL -p x -n 1 --device cuda:first
stderr:
  qgen: --device cuda:first: not the number of a GPU (expected cuda:N, found 'first')
  hint: --device cuda takes the first
exit: 2

$ qgen -m $MODEL -p x -n 1 --kv int4 --device cpu
stderr:
  qgen: --kv: 'int4' is not allowed (expected f16, bf16, f32, fp8, int8)
  hint: `qgen --help` lists the options
exit: 2

# 2: a text that is not there; a pipe by name is one
$ qgen tokens -m $MODEL nowhere
stderr: ...
exit: 2

$ qgen tokens -m $MODEL <(printf 'Once upon a time')
  1 403 407 261 378

# 2: standard output is no file to write a report to
$ qgen -m $MODEL -p x --stats-file -
stderr:
  qgen: --stats-file -: standard output is for text
  hint: a file; ./- if it is called so
exit: 2
