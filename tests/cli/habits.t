# What people type who know other programs: it just works where it means the same, or gets a hint.

# A positional prompt
$ qgen -m $MODEL "Once upon a time" -n 3
  , there was (no-eol)

# Behind an option whose value may be missing; the value comes behind "="
$ qgen -m $MODEL --stats "Once upon a time" -n 3 2>&1 | grep -c "there was\|output  3 tokens"; qgen -m $MODEL --stats=json -n 3 "Once upon a time"
  2
  , there was (no-eol)
json: stderr schemas/stats.schema.json

# Where it is another option's value it is left alone
$ qgen -m $MODEL -p --stats -n 0 --json
json: stdout schemas/answer.schema.json
where: it["usage"]["prompt_tokens"] == 7  # those of "--stats", not of "--stats=text"

$ qgen models --markdown families
stderr:
  qgen: families: unknown argument
  hint: * (glob)
exit: 2

# Before the options, and with a pipe before it
$ qgen "Once upon a time" -m $MODEL -n 3; printf 'Tom saw a cat.\n' | qgen -m $MODEL 'The cat' -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'
  , there was"prompt":{"tokens":14

# It wins over the environment's
$ QGEN_PROMPT=x qgen -m $MODEL "Once upon a time" -n 3
  , there was (no-eol)

# After -- it may begin with a dash
$ qgen -m $MODEL -n 2 -- "-- Once upon a time" | wc -w
  2

# Commands win over prompts
$ qgen -m $MODEL tokens <<< "Once upon a time"
  1 403 407 261 378

# A prompt that looks like a command is one by -p
$ qgen -m $MODEL scor -n 1
stderr:
  qgen: scor: unknown command
  hint: did you mean score? As a prompt: -p scor
exit: 2

$ qgen -m $MODEL -p scor -n 0

# Exchanged letters are no prompt
$ qgen -m $MODEL caht
stderr:
  qgen: caht: unknown command
  hint: did you mean chat? As a prompt: -p caht
exit: 2

# Without a model the hint has the right line
$ qgen "Once upon a time"
stderr:
  qgen: no model
  hint: qgen -m MODEL "Once upon a time"
exit: 2

$ qgen $MODEL
stderr:
  qgen: no model
  hint: qgen -m models/stories260K-FP8 "PROMPT", or qgen chat models/stories260K-FP8
exit: 2

$ qgen $MODEL "Once upon a time"
stderr:
  qgen: no model
  hint: qgen -m models/stories260K-FP8 "Once upon a time"
exit: 2

# Several words need quotes
$ qgen -m $MODEL Once upon a time
stderr:
  qgen: upon: unknown argument
  hint: a prompt of several words stands in quotes
exit: 2

$ qgen -m $MODEL -p Once upon a time
stderr:
  qgen: a: unknown argument
  hint: a prompt of several words stands in quotes
exit: 2

# The model as a word of commands
$ qgen plan $MODEL | head -n 1; qgen inspect $MODEL | head -n 1
  llama 260K · fp8 block 128x128 · cpu
  stories260K-FP8

$ printf 'Once upon a time' | qgen tokens $MODEL; printf 'Once upon a time' > text; qgen tokens $MODEL text; QGEN_MODEL=$MODEL qgen tokens text; qgen score $MODEL text | tail -n 1
  1 403 407 261 378
  1 403 407 261 378
  1 403 407 261 378
  perplexity * over 4 tokens (glob)

# It wins over the environment, and one of them is enough
$ QGEN_MODEL=nowhere qgen plan $MODEL | head -n 1
  llama 260K · fp8 block 128x128 · cpu

$ qgen plan -m $MODEL $INT8
stderr:
  qgen: models/stories260K-w8a8: unknown argument, --model is given already
  ...
exit: 2

# `help`, `version`, `run`
$ qgen help | cmp - <(qgen --help); qgen help plan | cmp - <(qgen plan --help); qgen version | cmp - <(qgen --version)

$ qgen run $MODEL "Once upon a time" -n 3; printf 'Once upon a time' | qgen run --temp 0 $MODEL -n 3
  , there was, there was (no-eol)

$ qgen run
stderr:
  qgen: run: no model
  hint: qgen run MODEL [PROMPT]
exit: 2

# `run` without a prompt is a conversation, on a terminal
$ qgen run $MODEL
stderr:
  qgen: stories260K-FP8: no chat template
  ...
tty: in out
exit: 3

# Long names of other programs
$ qgen -m $MODEL -p "Once upon a time" --temperature 0 --n-predict 3 --ctx-size 99 --repetition-penalty 1 --stats=json
  , there was (no-eol)
json: stderr schemas/stats.schema.json
where: it["context"] == 99 and it["sampling"]["temperature"]["origin"] == "flag"

$ qgen -m $MODEL -p "Once upon a time" --max_tokens=3 --top_k 1 --max-new-tokens 3
  , there was (no-eol)

$ qgen -m $MODEL --max_tokens --temp 3
stderr:
  qgen: --max-tokens: '--temp' is not allowed (expected a whole number, at least 0)
  ...
exit: 2

# An equals sign after a short name
$ qgen -m=$MODEL -n=3 -p="Once upon a time"
  , there was (no-eol)

# A prompt may be called so
$ qgen -m $MODEL -n 0 -p -ngl; qgen -m $MODEL -n 0 --prompt --temperature

# -t is refused with both names
$ qgen -m $MODEL -p x -t 8
stderr:
  qgen: -t: the temperature in some programs, the number of threads in others
  hint: --temp T, or --threads N
exit: 2

$ for t in -t0.7 -t=1 "-t 8"; do qgen -m $MODEL -p x $t; done 2>&1 | grep -c '^hint: --temp T, or --threads N'
  3
exit: 2

# What does not exist here gets a hint
$ qgen -m $MODEL -p x -ngl 99
stderr:
  qgen: -ngl: not an option of qgen
  hint: the whole model goes to one device: --device cuda, cuda:N or cpu
exit: 2

$ for word in list pull serve show; do qgen $word 2>&1 | tail -n 1; done
  hint: `qgen models` lists what can be run and what is in the Hugging Face cache
  hint: `hf download ORG/NAME` fetches a model; qgen never uses the network
  hint: qgen is not a server; --batch - answers JSON lines as they come
  hint: `qgen inspect -m MODEL` shows what a model is made of
exit: 2

# Bare, on a terminal: ten lines
$ qgen
stderr:
  qgen: runs 8-bit language models from a shell
  ...
tty: in out err
exit: 2
where: err.count("\n") == 10 and all(len(line) <= 80 for line in err.splitlines()) and "--help" in err

# Elsewhere: one, and a hint
$ qgen
stderr:
  qgen: no model
  hint: * (glob)
exit: 2
