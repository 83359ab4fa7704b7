# Standard output holds the generated text, or the JSON or table that was asked for, and nothing else. A final newline is
# added on a terminal only.

# The text of the tokens, without a newline of our own
$ qgen -m $MODEL -p "Once upon a time" -n 30 --temp 0
  , there was a little girl named Lily. She loved to play with her toys and her toys. One day, (no-eol)

# Long options, with and without an equals sign
$ qgen --model=$MODEL --prompt "Once upon a time" --max-tokens 30 --temp=0
  , there was a little girl named Lily. She loved to play with her toys and her toys. One day, (no-eol)

# A single file is a model too
$ qgen -m $MODEL/model.safetensors -p "Once upon a time" -n 30 --temp 0
  , there was a little girl named Lily. She loved to play with her toys and her toys. One day, (no-eol)

# The reference engine writes the same
$ qgen -m $MODEL -p "Once upon a time" -n 30 --temp 0 --device reference
  , there was a little girl named Lily. She loved to play with her toys and her toys. One day, (no-eol)

# The INT8 model writes a story too
$ qgen -m $INT8 -p "Once upon a time" -n 8 --temp 0
  , there was a little girl (no-eol)

# No tokens asked, none written
$ qgen -m $MODEL -p "Once upon a time" -n 0

# On a terminal the text ends with a newline
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl
tty: out

$ python3 $ROOT/tests/cli/scripted_model.py lines "one" "<0x0A>"

# A text that ends with a newline gets no second one
$ qgen -m lines -p "go " -n 2
  one
tty: out

# In a pipe its own newline stays
$ qgen -m lines -p "go " -n 2
  one

# A continuation keeps its first space
$ qgen -m $MODEL -p "Once upon a" -n 3 --temp 0
   time, there (no-eol)

# The prompt is no part of the answer, even where it ends in a character that the vocabulary has only as bytes
$ qgen -m $MODEL -p "Once 😀" -n 1 --temp 0 --logit-bias 261=1000
   a (no-eol)

# A report asked for goes elsewhere
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0 --stats -v
  , there was a little girl (no-eol)
stderr: ...

# Errors leave it empty
$ qgen -m nowhere/nothing -p x
stderr: ...
exit: 3

# `score` writes its table
$ qgen score -m $MODEL --tokens 1,403,407,261
  0	1	-	"<s>"
  1	403	-[0-9.]+	"▁Once" (re)
  2	407	-[0-9.]+	"▁upon" (re)
  3	261	-[0-9.]+	"▁a" (re)
  perplexity [0-9.]+ over 3 tokens (re)

# `score --json` writes one object
$ printf 'Once upon a time' | qgen score -m $MODEL --json
json: stdout schemas/score.schema.json
where: [t["id"] for t in it["tokens"]] == [1, 403, 407, 261, 378]
where: it["tokens"][0]["logprob"] is None and it["scored"] == 4
where: abs(math.exp(-sum(t["logprob"] for t in it["tokens"][1:]) / it["scored"]) - it["perplexity"]) < 1e-3

# A single token has nothing to score
$ qgen score -m $MODEL --tokens 1 --json
json: stdout schemas/score.schema.json
where: it["scored"] == 0 and it["perplexity"] is None

# `score --logits` writes (tokens, vocabulary) floats to its file
$ qgen score -m $MODEL --tokens 1,403,407,261 --logits logits.f32 > /dev/null; stat -c %s logits.f32
  8192

# `tokens` writes ids
$ printf 'Once upon a time' | qgen tokens -m $MODEL
  1 403 407 261 378

# And back, with the text as it is
$ qgen tokens -m $MODEL --decode <<< "1 403 407 261 378"
  Once upon a time (no-eol)

# `tokens --json` writes one object
$ printf 'Once' | qgen tokens -m $MODEL --json
json: stdout schemas/tokens.schema.json
where: it["ids"] == [1, 403] and it["offsets"] == [[0, 0], [0, 4]] and it["pieces"] == ["<s>", "▁Once"]

# Whatever the text, its JSON is valid
$ printf 'a"\\\x01\xff\xc3\n😀' | qgen tokens -m $MODEL --json --invalid-utf8 replace
json: stdout schemas/tokens.schema.json
where: len(it["ids"]) == len(it["pieces"]) == len(it["offsets"])

# `tokens --decode --json`
$ qgen tokens -m $MODEL --decode --json <<< "[1, 403, 407]"
  {"schema":1,"text":"Once upon"}

# On a terminal the decoded text ends with a newline
$ qgen tokens -m $MODEL --decode <<< "1 403"
  Once
tty: out

# A full disk is an error
$ qgen -m $MODEL -p "Once" -n 5 > /dev/full
stderr: qgen: standard output: cannot write: No space left on device
exit: 1

# A full disk below `--logits` too
$ qgen score -m $MODEL --tokens 1,2,3 --logits /dev/full
stderr: qgen: --logits /dev/full: cannot write: No space left on device
exit: 1

# So is standard output that is closed
$ qgen -m $MODEL -p "Once" -n 5 >&-
stderr: qgen: standard output: cannot write: Bad file descriptor
exit: 1
