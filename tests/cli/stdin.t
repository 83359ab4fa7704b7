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
$ printf 'Once upon a time\nOnce upon a\n' > lines; while read -r line; do qgen -m $MODEL -p "$line" --no-stdin -n 3 --temp 0; echo; done < lines
  , there was
   time, there

# Without it too: a file that was read in part is left alone, with a warning; none at its end
$ while read -r line; do qgen -m $MODEL -p "$line" -n 3 --temp 0; echo; done < lines
  , there was
   time, there
stderr: qgen: warning: standard input is a file that another program has begun to read, so it is left alone (in loops: --no-stdin)

# Beside --file as well; -q says nothing, and --prompt - is asked for
$ { read -r line; qgen -m $MODEL -f <(printf 'Once upon a time') -n 3 --temp 0 -q; } < lines; { read -r line; qgen -m $MODEL -p - -n 3 --temp 0; } < lines
  , there was time, there (no-eol)

# Without any prompt the rest of the file is one
$ { read -r line; qgen -m $MODEL -n 3 --temp 0; } < lines
   time, there (no-eol)

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

# Nothing on standard input is no prompt
$ qgen -m $MODEL -n 4
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2

$ for text in '' '\n' '\r\n'; do printf "$text" | qgen -m $MODEL -n 4; printf "$text" | qgen -m $MODEL -n 4 -p -; printf "$text" > empty; qgen -m $MODEL -n 4 -f empty; done 2>&1 | grep -c 'no prompt'
  9
exit: 2

# An empty prompt that is typed is one: the model begins by itself
$ qgen -m $MODEL -p "" -n 4 --temp 0
  Once upon a time (no-eol)

# One newline at the end of standard input and of a file is none of the text, with a template or without
$ for text in 'Once upon a time' 'Once upon a time\n' 'Once upon a time\r\n'; do printf "$text" > text; qgen -m $MODEL -f text -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'; qgen -m $MODEL -n 0 --raw --stats=json < text 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'; qgen tokens -m $MODEL < text | wc -w; done | sort | uniq -c | sed 's/^ *//'
  6 "prompt":{"tokens":5
  2 5
  1 6

# One, not all, and none of a prompt that is typed
$ printf 'Once upon a time\n\n' | qgen -m $MODEL -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'; qgen -m $MODEL -p $'Once upon a time\n' -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'
  "prompt":{"tokens":6
  "prompt":{"tokens":6

# Files from elsewhere: a byte order mark goes, line ends become newlines
$ printf '\xef\xbb\xbfTom saw\r\na cat.\r\n' > windows; printf 'Tom saw\na cat.' > plain; for file in windows plain; do qgen -m $MODEL -f $file -n 9 --temp 0 --json | grep -o '"text":.*"prompt_tokens":[0-9]*' ; done | uniq | wc -l
  1

# Texts that are measured lose the mark, and keep their line ends as they are
$ printf '\xef\xbb\xbfOnce upon\r\na time\n' > marked; printf 'Once upon\r\na time' > unmarked; for file in marked unmarked; do qgen tokens -m $MODEL $file; qgen tokens -m $MODEL --json < $file; qgen score -m $MODEL $file | tail -n 1; qgen calibrate -m $MODEL --text $file --out inputs-$file.json -q; done | sort | uniq -c | sed 's/^ *//' | cut -c1-20; cmp inputs-marked.json inputs-unmarked.json; qgen tokens -m $MODEL --json marked | grep -c '<0x0D>'
  2 1 403 407 * (glob)
  2 perplexity * (glob)
  2 {"schema":1,"ids":* (glob)
  1

# UTF-16 is told apart
$ printf '\xff\xfeT\0o\0' | qgen -m $MODEL -n 1
stderr:
  qgen: standard input: UTF-16 (expected UTF-8)
  hint: iconv -f utf-16 -t utf-8 converts it
exit: 2

$ printf '\xff\xfeT\0o\0' | qgen tokens -m $MODEL
stderr:
  qgen: standard input: UTF-16 (expected UTF-8)
  hint: iconv -f utf-16 -t utf-8 converts it
exit: 2

# Bytes that are no UTF-8 are an error that names the byte
$ printf 'one\ntwo \xff' | qgen -m $MODEL -n 1
stderr:
  qgen: standard input: not UTF-8 (found the byte 0xFF at offset 8, line 2)
  hint: --invalid-utf8 replace puts U+FFFD in its place; iconv converts other encodings
exit: 2

$ printf 'caf\xe9' > latin; qgen -m $MODEL -f latin -n 1; qgen -m $MODEL -p $'caf\xe9' -n 1; qgen tokens -m $MODEL latin; qgen score -m $MODEL latin
stderr:
  qgen: latin: not UTF-8 (found the byte 0xE9 at offset 3, line 1)
  hint: * (glob)
  qgen: --prompt: not UTF-8 (found the byte 0xE9 at offset 3, line 1)
  hint: * (glob)
  qgen: latin: not UTF-8 (found the byte 0xE9 at offset 3, line 1)
  hint: * (glob)
  qgen: latin: not UTF-8 (found the byte 0xE9 at offset 3, line 1)
  hint: * (glob)
exit: 2

# In conversations too, wherever they are read from, and in system messages
$ python3 $ROOT/tests/cli/scripted_model.py talk "Yes" && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > talk/chat_template.jinja; printf '[{"role": "user", "content": "caf\xe9"},\n {"role": "assistant", "content": "b"}]' > latin.json
$ qgen tokens -m talk --messages - < latin.json; qgen tokens -m talk --messages latin.json; qgen -m talk --resume latin.json -p Hi --no-stdin; qgen chat -m talk --resume latin.json <<< Hi; printf '/load latin.json\n' | qgen chat -m talk; qgen tokens -m talk --chat -s $'caf\xe9' <<< Hi
stderr:
  qgen: standard input: not UTF-8 (found the byte 0xE9 at offset 33, line 1)
  hint: --invalid-utf8 replace puts U+FFFD in its place; iconv converts other encodings
  qgen: latin.json: not UTF-8 (found the byte 0xE9 at offset 33, line 1)
  hint: * (glob)
  qgen: latin.json: not UTF-8 (found the byte 0xE9 at offset 33, line 1)
  hint: * (glob)
  qgen: latin.json: not UTF-8 (found the byte 0xE9 at offset 33, line 1)
  hint: * (glob)
  qgen: latin.json: not UTF-8 (found the byte 0xE9 at offset 33, line 1)
  hint: * (glob)
  qgen: --system: not UTF-8 (found the byte 0xE9 at offset 3, line 1)
  hint: * (glob)
exit: 2

$ for from in - latin.json; do qgen tokens -m talk --messages $from --render --invalid-utf8 replace < latin.json; echo; done; qgen -m talk --resume latin.json -p Hi --no-stdin --invalid-utf8 replace --save out.json && python3 -c 'import json; print(ascii(json.load(open("out.json"))["messages"][0]["content"]))'; qgen tokens -m talk --chat -s $'caf\xe9' --render --invalid-utf8 replace <<< Hi
  caf�b
  caf�b
  Yes'caf\ufffd'
  caf�Hi (no-eol)

# --invalid-utf8 replace takes them as U+FFFD
$ qgen -m $MODEL -f latin -n 0 --invalid-utf8 replace --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'; qgen -m $MODEL -p $'caf\ufffd' -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'
  "prompt":{"tokens":7
  "prompt":{"tokens":7

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

# -f twice, -s twice: a word about what counts
$ qgen -m $MODEL -f nowhere -f prompt -n 3 --temp 0
  , there was (no-eol)
stderr: qgen: warning: --file: given 2 times, only the last one counts

$ qgen -m nowhere -m $MODEL -p - --no-stdin -n 3 --temp 0 < prompt
  , there was (no-eol)
stderr:
  qgen: warning: --model: given 2 times, only the last one counts
  qgen: warning: --no-stdin: no effect, --prompt - reads it

# --stop with nothing to stop at
$ qgen -m $MODEL -f prompt -n 3 --temp 0 --stop ""
  , there was (no-eol)
stderr: qgen: warning: --stop '': no effect, the text is empty

# --logprobs with nowhere to go, --seed where nothing is drawn
$ qgen -m $MODEL -f prompt -n 3 --logprobs 2 --seed 4
  , there was (no-eol)
stderr:
  qgen: warning: --seed 4: no effect, the model answers greedily (--temp 0.7 draws)
  qgen: warning: --logprobs 2: no effect without --json, --stats=json or --stats-file

$ qgen -m $MODEL -f prompt -n 3 --logprobs 2 --stats-file stats.json --temp 0 --seed 4; QGEN_LOGPROBS=2 QGEN_SEED=1 qgen -m $MODEL -f prompt -n 3
  , there was, there was (no-eol)

$ qgen -m $MODEL -f prompt -n 3 --logprobs 2 --seed 4 -q
  , there was (no-eol)
