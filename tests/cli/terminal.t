# On a terminal, control characters in the model's output are dropped, newline and tab aside; a pipe gets exact bytes.

$ python3 $ROOT/tests/cli/scripted_model.py rude "a" "<0x1B>" "[31mred" "<0x07>" "<0x08>" "b" "<0x0D>" "<0x09>" "c" "<0xC2>" "<0x9B>" "2J" "<0x7F>" "<0x00>" "<0x0A>" "d"

# A pipe gets exact bytes
$ qgen -m rude -p "Hi"
  a\x1b[31mred\x07\x08b\x0d	c\x9b2J\x7f\x00 (esc)
  d (no-eol)
allow: escapes
where: out.encode() == b"a\x1b[31mred\x07\x08b\r\tc\xc2\x9b2J\x7f\x00\nd"

# A terminal gets text
$ qgen -m rude -p "Hi"
  a[31mredb	c2J
  d
tty: out
where: "\x1b" not in out and "\x9b" not in out

# Whatever the number of tokens in which they come
$ python3 $ROOT/tests/cli/scripted_model.py single "a" $'\x1b]0;title\x07' "b" && qgen -m single -p "Hi"
  a]0;titleb
tty: out

# And from `tokens --decode`
$ qgen tokens -m $MODEL --decode <<< "1 403 30 10 34 16 407"
  Once\x1b\x07\x1f\x0d upon (esc) (no-eol)
allow: escapes

$ qgen tokens -m $MODEL --decode <<< "1 403 30 10 34 16 407"
  Once upon
tty: out

# And in the table of `score`, which is quoted
$ qgen score -m single --tokens 1,324,354,325 | cut -f 4
  "<s>"
  "a"
  "\u001b]0;title\u0007"
  "b"
  perplexity * over 3 tokens (glob)

# The controls beyond ASCII too: a model whose token is a CSI of one character
$ python3 $ROOT/tests/cli/scripted_model.py csi "a" $'\xc2\x9b31m' "b"

$ qgen -m csi -p "Hi"
  a31mb
tty: out

$ qgen score -m csi --tokens 1,354,325
  ...
tty: out
where: "\x9b" not in out

$ qgen -m csi --batch - <<< '{"prompt": "Hi"}'
  ...
tty: out
where: "\x9b" not in out

# Nor can a prompt that is shown
$ printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > csi/chat_template.jinja; printf 'a\x1b[31m\xc2\x9bb' | qgen tokens -m csi --chat --render
  a[31mb
tty: out

# No colour in what is redirected
$ qgen -m $MODEL -p "Once" -n 1 --stats
  ...
stderr:
  * · llama 260K · * (glob)
  ...
tty: out

# NO_COLOR: no escape byte on any terminal
$ NO_COLOR=1 qgen -m $MODEL -p "Once upon a time" -n 3 --stats -v
  , there was
stderr: ...
tty: in out err
where: "\x1b" not in out + err

# --color never: the same
$ qgen -m $MODEL -p "Once upon a time" -n 3 --stats -v --color never
  , there was
stderr: ...
tty: in out err
where: "\x1b" not in out + err

# --color always colours redirected output too
$ qgen -m $MODEL -p "Once upon a time" -n 3 --stats --color always
  , there was (no-eol)
stderr: ...
allow: escapes
where: "\x1b" not in out

# Nothing waits for a terminal's width: a tiny one
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl
stderr: ...
tty: in out err 1x1

# What takes long says how far it is, on a terminal, in one line that goes away
$ qgen -m $MODEL -p "$(printf 'the little dog ran. %.0s' {1..400})" -c 4096 -n 0 --device reference
  ...
stderr: ...
tty: err
where: re.search("reading the prompt: [0-9]+ of [0-9]+ tokens", err) and "\r\x1b[K" in err

# And nowhere else
$ qgen -m $MODEL -p "$(printf 'the little dog ran. %.0s' {1..70})" -n 0 --device reference
  ...

$ qgen -m $MODEL -p "$(printf 'the little dog ran. %.0s' {1..70})" -n 0 --device reference -q
  ...
tty: err

# A terminal that cannot do it gets no colour
$ TERM=dumb qgen -m $MODEL -p "Once upon a time" -n 3 --stats
  , there was
stderr: ...
tty: err out
where: "\x1b" not in err
