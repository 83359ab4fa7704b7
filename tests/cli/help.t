# --help of the program and of each command: examples first, then options; families, methods and devices are listed.

# It exits with 0 and says everything on standard output
$ qgen --help
  ...
where: out.startswith("qgen: runs 8-bit language models from a shell\n\n  qgen -m ")
where: 0 < out.index("qgen -m") < out.index("Usage:") < out.index("Options:")
where: all(f"\n  {command} " in out for command in ("score", "tokens"))
where: all(len(line) <= 80 for line in out.splitlines())

# It lists the exit codes, those of signals too
$ qgen --help | grep -o '129, 130, 141, 143'
  129, 130, 141, 143

# -h is the same
$ qgen --help > long; qgen -h | cmp long -

# Before any other check
$ qgen -m nowhere --temp 1 --help | cmp long -

# On a terminal too, without colours
$ qgen --help
  ...
tty: out
where: "\x1b" not in out

# Its lines follow the terminal's width
$ qgen --help
  ...
tty: out 110x40
where: 95 < max(len(line) for line in out.splitlines()) <= 110

$ qgen --help
  ...
tty: out 50x40
where: max(len(line) for line in out.splitlines() if "qgen -m" not in line) <= 50

# Every command's fits 80 columns, too
$ for command in $(qgen --help | sed -n '/ommands:/,/^$/p' | grep -oE '^  [a-z]+'); do qgen $command --help | awk 'length > 80'; done

# What an option does is a phrase that begins with a small letter or a code, not a fragment of its name
$ qgen --help | grep -A1 -E -- '--(seed|threads) '
        --threads N           how many threads compute; 0 means one for each
                              physical core [0]
  --
        --seed N              the seed of the random choices [a random one, which
                              the report names]

# Every command has one: examples, usage, options
$ for command in $(qgen --help | sed -n '/ommands:/,/^$/p' | grep -oE '^  [a-z]+'); do
>   qgen $command --help | awk -v command=$command '/^  qgen/ && !examples {examples = NR} /^Usage: qgen/ {usage = NR} /^Options:/ {options = NR}
>     END {if (!(examples && examples < usage && usage < options)) print command ": examples, usage and options are not in this order"}'
> done

# The version
$ qgen --version
  qgen [0-9]+\.[0-9]+\.[0-9]+.* (re)

$ qgen -V
  qgen [0-9]+\.[0-9]+\.[0-9]+.* (re)

# Each family is in docs/families.md
$ qgen --help | sed -n '/^Families:/,/^$/p' | awk '/^  [^ ]/ {print $1}' > families; cat families; while read -r family; do
>   grep -q "| \`$family\` |" $ROOT/docs/families.md || echo "docs/families.md does not name $family"; done < families
  llama
  mistral
  ...

# Methods and devices are listed
$ qgen --help
  ...
where: all(f"\n  {name} " in out for name in ("fp8", "compressed-tensors", "cpu", "reference"))
