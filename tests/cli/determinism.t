# The same binary, device, flags and seed: the same bytes, whatever the number of threads.

# Greedy
$ qgen -m $MODEL -p "Once upon a time" -n 200 --temp 0
  ...
runs: 3

# Sampled
$ qgen -m $MODEL -p "Once upon a time" -n 200 --temp 1 --seed 5
  ...
allow: escapes
runs: 3

# INT8, with every filter
$ qgen -m $INT8 -p "Once upon a time" -n 200 --temp 0.9 --top-k 40 --top-p 0.95 --min-p 0.02 --typical-p 0.9 --repeat-penalty 1.1 --presence-penalty 0.1 --frequency-penalty 0.1 --seed 5
  ...
allow: escapes
runs: 3

# The reference engine
$ qgen -m $MODEL -p "Once upon a time" -n 30 --temp 1 --seed 5 --device reference
  ...
runs: 2

# The scores are the same to the last bit
$ qgen score -m $MODEL --tokens 1,403,407,261,378 --logits /dev/stdout | cksum
  ...
runs: 3

# The report's hash too
$ for i in 1 2 3; do qgen -m $MODEL -p "Once" -n 40 --temp 1 --seed 3 --stats=json 2>&1 > /dev/null | grep -o '"logits_hash":"[0-9a-f]*"'; done | uniq | wc -l
  1

# The number of threads changes nothing
$ for threads in 1 2 3 7; do qgen -m $MODEL -p "Once upon a time" -n 100 --temp 1 --seed 9 --threads $threads | cksum; done | uniq | wc -l
  1

# Nor does it change scores
$ for threads in 1 2 5; do seq -s ' ' 1 120 | qgen score -m $INT8 --threads $threads --json | cksum; done | uniq | wc -l
  1

# Pieces of text are the same bytes as on a terminal, its last newline aside
$ qgen -m $MODEL -p "Once upon a time" -n 30 --temp 0 > pipe; (cat pipe; echo) > line; script -qec 'qgen -m $MODEL -p "Once upon a time" -n 30 --temp 0 2> /dev/null' /dev/null < /dev/null | tr -d '\r' | cmp - line
needs: command -v script
