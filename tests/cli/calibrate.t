# `qgen calibrate`: what a model's layers see in a text, for `qgen quantize`

# The maxima of every matrix' inputs
$ printf 'Once upon a time, there was a little girl. She liked to play.' > text; qgen calibrate -m $MODEL --text text --out inputs.json
  inputs.json: the inputs of 35 matrices of stories260K-FP8 over [0-9]+ tokens, in [0-9.]+ s (re)
$ python3 -c "
> import json
> seen = json.load(open('inputs.json'))
> print(len(seen), len(seen['model.layers.4.mlp.down_proj.weight']['input_channel_max']), all(x >= 0 for v in seen.values() for x in v['input_channel_max']))"
  35 172 True

# A text on standard input, and as many tokens of it as wanted; more text never lowers a maximum. In f32 those of a token
# do not depend on how many run together
$ qgen calibrate -m $MODEL --activations f32 --text text --out whole.json -q; qgen calibrate -m $MODEL --activations f32 --limit 5 --out few.json < text | sed 's/.* over/over/; s/, in.*//'; python3 -c "
> import json
> few, all = json.load(open('few.json')), json.load(open('whole.json'))
> print(max(a - b for name in few for a, b in zip(few[name]['input_channel_max'], all[name]['input_channel_max'])) <= 1e-6)"
  over 5 tokens
  True

# Quantizing with it: errors weighted, or inputs smoothed; --eval says what the text makes of it
$ qgen quantize -m $MODEL --to int8 --mode mse --input-stats inputs.json --out weighted --eval text | grep -E 'perplexity|KL'
  over [0-9]+ tokens of text: perplexity [0-9.]+, of the original [0-9.]+ (re)
    KL divergence 0.0[0-9]+ in the mean, [0-9.]+ at most; the same choice for [0-9.]+ % (re)
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --smooth 0.5 --input-stats $ROOT/tests/golden-calibration/llama-bf16.json --out smoothed --report json
json: stdout schemas/quantize.schema.json
where: it["smoothed"] == 2 and it["verdict"] == "GOOD"
$ qgen quantize -m $MODEL --to fp8-channel --out evaluated --eval text --report json
json: stdout schemas/quantize.schema.json
where: it["evaluation"]["tokens"] > 5 and abs(it["evaluation"]["perplexity"] / it["evaluation"]["original_perplexity"] - 1) < 0.2

# A text that cannot be evaluated is refused before the work
$ qgen quantize -m $MODEL --to int8 --out unwritten --eval /dev/null; qgen quantize -m $MODEL --to int8 --out unwritten --eval nowhere; ls unwritten 2> /dev/null
stderr:
  qgen: --eval /dev/null: fewer than two tokens
  qgen: --eval nowhere: no such file
exit: 2
$ qgen quantize -m $MODEL --to int8 --out piped --eval - < text | grep -c perplexity
  1
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out unwritten --eval text || echo $?; ls unwritten 2> /dev/null
  3
stderr:
  qgen: */llama-bf16: no tokenizer (expected *) (glob)
  hint: fetch the whole model folder, not only the weights
exit: 2

# What is there is replaced on demand only, a link keeps pointing where it does, a pipe is no file
$ qgen calibrate -m $MODEL --text text --out inputs.json
stderr:
  qgen: --out inputs.json: is there already
  hint: another name, or --force
exit: 2
$ ln -s few.json link.json; qgen calibrate -m $MODEL --text text --out link.json --force -q; readlink link.json; cmp few.json inputs.json
  few.json
$ mkfifo pipe; qgen calibrate -m $MODEL --text text --out pipe --force
stderr:
  qgen: pipe: cannot write: a pipe or a device (expected a file)
exit: 1
$ qgen calibrate -m $MODEL --text text --out /dev/stdout --force | cat
stderr:
  qgen: /dev/stdout: cannot write: a pipe or a device (expected a file)
exit: 1

# A text that is empty, as behind a pipe that failed, is none
$ printf '' | qgen calibrate -m $MODEL --out none.json; ls none.json 2> /dev/null
stderr:
  qgen: calibrate: no text
  hint: --text FILE, or a text on standard input
exit: 2

# Maxima that no text has
$ python3 -c "
> import json
> seen = json.load(open('$ROOT/tests/golden-calibration/llama-bf16.json'))
> for name in seen: seen[name]['input_channel_max'] = [3e38] * len(seen[name]['input_channel_max'])
> json.dump(seen, open('huge.json', 'w'))
> json.dump({name: {'input_channel_max': []} for name in seen}, open('empty.json', 'w'))"
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --smooth 1 --input-stats huge.json --out x
stderr:
  qgen: --smooth: the maxima of the inputs of * are too large (they would be divided by up to 3e+38) (glob)
  hint: `qgen calibrate` writes those of the model
exit: 2
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --mode mse --input-stats empty.json --out x
stderr:
  qgen: empty.json: * is empty (expected a number for each column) (glob)
exit: 2

# What cannot be done is said
$ qgen calibrate -m $MODEL --text text
stderr:
  qgen: calibrate: no file to write
  hint: --out FILE
exit: 2
$ qgen calibrate -m $MODEL --text nowhere --out x.json
stderr:
  qgen: nowhere: no such file
  hint: text itself goes through standard input: echo TEXT | qgen calibrate …
exit: 2
$ qgen quantize -m $MODEL --to int8 --smooth 0.5 --out x
stderr:
  qgen: --smooth: needs --input-stats
  hint: `qgen calibrate` writes that file
exit: 2
$ qgen quantize -m $MODEL --to int8 --smooth 0.5 --input-stats inputs.json --out x
stderr:
  qgen: * a quantized checkpoint cannot be smoothed (glob)
  hint: start from the unquantized checkpoint, or leave --smooth away
exit: 3
$ qgen quantize -m $MODEL --to fp8-channel --smooth 0.5 --input-stats inputs.json --out x
stderr:
  qgen: --smooth: without effect
  hint: it belongs to --to int8 and --to int8-tensor
exit: 2

# --force replaces statistics, and no other file
$ printf '{"a": 1}' > other.json; qgen calibrate -m $MODEL --text text --out other.json --force; cat other.json
  {"a": 1} (no-eol)
stderr:
  qgen: --out other.json: it holds something else than statistics
  hint: a new file
$ qgen calibrate -m $MODEL --text text --out inputs.json --force -q
