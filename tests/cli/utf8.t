# Bytes are held until a character is whole; stop strings are held back likewise; one write per released piece, flushed.

$ python3 $ROOT/tests/cli/scripted_model.py emoji "a" "<0xF0>" "<0x9F>" "<0x98>" "<0x80>" "b" "<0xE2>" "<0x82>" "<0xAC>" "c"

# Characters of several tokens come whole
$ qgen -m emoji -p "Hi"
  a😀b€c (no-eol)
where: writes[0] == b"a" and all(w.decode() for w in writes)

# As soon as they are whole
$ qgen -m emoji -p "Hi" -n 5 --stop x
  a😀 (no-eol)
where: writes == [b"a", "😀".encode()]

$ python3 $ROOT/tests/cli/scripted_model.py row "<0xF0>" "<0x9F>" "<0x98>" "<0x80>" "<0xE2>" "<0x82>" "<0xAC>" "c"

# A row of byte tokens is held until it ends: as transformers decodes it, one bad byte makes all of it bad
$ qgen -m row -p "Hi"
  😀€c (no-eol)
where: writes == ["😀€c".encode()]

# A character that is cut short by the limit is marked, once for each byte as transformers does
$ qgen -m emoji -p "Hi" -n 3
  a�� (no-eol)

# Bytes that are no character are marked, and text goes on
$ python3 $ROOT/tests/cli/scripted_model.py broken "a" "<0xF0>" "<0x9F>" "b" && qgen -m broken -p "Hi"
  a��b (no-eol)

# Noise from a real vocabulary with byte tokens: every write is valid UTF-8
$ qgen -m $MODEL -p "Once" -n 400 --temp 9 --seed 1
  ...
allow: escapes
where: len(writes) > 100 and all(w.decode() for w in writes)

# And of another seed
$ qgen -m $MODEL -p "Once" -n 400 --temp 20 --seed 2
  ...
allow: escapes
where: len(writes) > 100 and all(w.decode() for w in writes)

# One write for each piece
$ qgen -m $MODEL -p "Once upon a time" -n 8 --temp 0
  , there was a little girl (no-eol)
where: writes == [b",", b" there", b" was", b" a", b" little", b" g", b"ir", b"l"] or len(writes) == 8

# Flushed: the first token is there while the model still writes
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 -q
  ...
allow: escapes
expect: ,
signal: TERM
exit: 143

$ python3 $ROOT/tests/cli/scripted_model.py stops "one" " <|" "im" "_e" "nd|>" " two" " <|im" "x" "y"

# The first half of a stop string is never shown
$ qgen -m stops -p "Hi" --stop "<|im_end|>"
  one  (no-eol)
where: writes == [b"one", b" "]

# And comes out when it turns out to be something else
$ qgen -m stops -p "Hi" --stop "<|im_start|>"
  one <|im_end|> two <|imxy (no-eol)
where: writes[:4] == [b"one", b" ", b"<|im_e", b"nd|>"]

# At the end of the text too
$ qgen -m stops -p "Hi" --stop "xyz"
  one <|im_end|> two <|imxy (no-eol)

# A stop string inside of a token ends the answer there
$ qgen -m stops -p "Hi" --stop "wo"
  one <|im_end|> t (no-eol)

# A stop string may have characters of several tokens
$ qgen -m emoji -p "Hi" --stop "😀"
  a (no-eol)

# Two stop strings: the first that is met in the text counts
$ qgen -m stops -p "Hi" --stop "end|>" --stop "im_e"
  one <| (no-eol)
