# Standard input is read for `--prompt -`, with no prompt and no terminal, or with a prompt and a pipe (its text, a blank
# line, the prompt); --no-stdin leaves it alone.

# A prompt from a pipe
$ printf 'Once upon a time' | qgen -m $MODEL -n 8 --temp 0
  , there was a little girl (no-eol)

# --prompt - with a pipe
$ printf 'Once upon a time' | qgen -m $MODEL -p - -n 8 --temp 0
  , there was a little girl (no-eol)

# --prompt - with a terminal
$ qgen -m $MODEL -p - -n 8 --temp 0
  , there was a little girl (no-eol)
tty: in
wait: 100 ms
send: Once upon a time^D^D

# --prompt - with a file
$ printf 'Once upon a time' > prompt; qgen -m $MODEL -p - -n 8 --temp 0 < prompt
  , there was a little girl (no-eol)

# --file
$ qgen -m $MODEL -f prompt -n 8 --temp 0
  , there was a little girl (no-eol)

# --file with a pipe's name
$ qgen -m $MODEL -f <(printf 'Once upon a time') -n 8 --temp 0 --no-stdin
  , there was a little girl (no-eol)

# A file that is missing is a usage error
$ qgen -m $MODEL -p x -f nowhere
stderr: qgen: nowhere: *No such file or directory* (glob)
exit: 2

# A pipe comes before the prompt, with a blank line between
$ printf 'Tom saw a cat.' | qgen -m $MODEL -p 'The cat' -n 5 --temp 0 > piped; qgen -m $MODEL -p $'Tom saw a cat.\n\nThe cat' -n 5 --temp 0 > typed; cmp piped typed

# The tokens are those of the two with a blank line between
$ printf 'Tom saw a cat.' | qgen -m $MODEL -p 'The cat' -n 0 --temp 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] == 14

# A pipe's own last newline is part of the blank line
$ printf 'Tom saw a cat.\n' | qgen -m $MODEL -p 'The cat' -n 0 --temp 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] == 14

# A redirected file does as a pipe does
$ printf 'Tom saw a cat.\n' > cat; qgen -m $MODEL -p 'The cat' -n 0 --temp 0 --stats=json < cat
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] == 14

# File, standard input, prompt: in that order
$ printf b | qgen -m $MODEL -f <(printf a) -p c -n 5 --temp 0 > piped; qgen -m $MODEL -p $'a\n\nb\n\nc' -n 5 --temp 0 > typed; cmp piped typed

# An empty pipe adds nothing
$ : | qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl (no-eol)

# --no-stdin leaves it alone
$ printf ignored | qgen -m $MODEL -p "Once upon a time" --no-stdin -n 8 --temp 0
  , there was a little girl (no-eol)

# So a loop keeps its lines
$ printf 'Once upon a time\nOnce upon a\n' | while read -r line; do qgen -m $MODEL -p "$line" --no-stdin -n 3 --temp 0; echo; done
  , there was
   time, there

# --no-stdin without any prompt is a usage error
$ printf ignored | qgen -m $MODEL --no-stdin -n 3
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2

# With a prompt, a terminal is not read
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl (no-eol)
tty: in

# Without a prompt, a terminal is a usage error
$ qgen -m $MODEL -n 3
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2
tty: in

# Nothing on standard input still starts a story
$ qgen -m $MODEL -n 4 --temp 0
  Once upon a time (no-eol)

# Closed, with a prompt, it does no harm
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0 <&-
  , there was a little girl (no-eol)

# Closed, without a prompt, it cannot be read
$ qgen -m $MODEL -n 3 <&-
stderr: qgen: standard input: cannot read: Bad file descriptor
exit: 1

# A folder cannot be read either
$ qgen -m $MODEL -n 3 -p - < /
stderr: qgen: standard input: cannot read: Is a directory
exit: 1

# A prompt may begin with a dash
$ qgen -m $MODEL -p "-- Once upon a time" -n 2 --temp 0 --no-stdin
  ...
where: out

# `score` reads a pipe, a file, and - for a pipe
$ printf 'Once upon' > text; for how in "" text -; do qgen score -m $MODEL $how < text | tail -n 1; done
  perplexity [0-9.]+ over 2 tokens (re)
  perplexity [0-9.]+ over 2 tokens (re)
  perplexity [0-9.]+ over 2 tokens (re)

# `score` does not wait at a terminal
$ qgen score -m $MODEL
stderr:
  qgen: score: no text
  hint: name a file, or - for standard input
exit: 2
tty: in

# `tokens` reads a pipe, a file, and - for a pipe
$ for how in "" text -; do qgen tokens -m $MODEL $how < text; done
  1 403 407
  1 403 407
  1 403 407

# `tokens` does not wait at a terminal
$ qgen tokens -m $MODEL
stderr:
  qgen: tokens: no text
  hint: name a file, or - for standard input
exit: 2
tty: in
