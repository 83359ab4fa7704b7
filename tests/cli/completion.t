# `qgen completion bash|zsh|fish`: scripts that the shells can read and that know every command and option.
# tests/build/completion.sh tries what they offer.

# A script is read by bash, and completes a command
$ qgen completion bash > script && bash -n script && bash -c 'eval "$(qgen completion bash)"; COMP_WORDS=(qgen sc) COMP_CWORD=1; _qgen; echo "${COMPREPLY[@]}"'
  score

# By zsh
$ qgen completion zsh > script && zsh -n script
needs: command -v zsh

# By fish
$ qgen completion fish > script && fish --no-execute script
needs: command -v fish

# Each knows every option of the main help
$ for shell in bash zsh fish; do
>   qgen completion $shell > script
>   qgen --help | grep -oE -- '^ +(-[a-zA-Z], ?)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | while read -r option; do
>     grep -qE -- "(--|-l )${option#--}" script || echo "$shell does not know $option"; done; done

# And every command
$ for shell in bash zsh fish; do
>   qgen completion $shell > script
>   qgen --help | sed -n '/ommands:/,/^$/p' | grep -oE '^  [a-z]+' | while read -r command; do
>     grep -qw -- "$command" script || echo "$shell does not know $command"; done; done

# A shell that is not there
$ qgen completion tcsh
stderr:
  qgen: *'tcsh' is not allowed (expected bash, zsh, fish) (glob)
  ...
exit: 2

# None named
$ qgen completion
stderr:
  qgen: completion: for which shell?
  hint: qgen completion bash, zsh or fish
exit: 2

# The manual page is one that man can read without a warning
$ qgen man | man --warnings -l - 2>&1 > /dev/null | head -n 3
needs: command -v man && command -v groff

# It has every option of the main help
$ qgen man | sed 's/\\-/-/g' > page; qgen --help | grep -oE -- '^ +(-[a-zA-Z], ?)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | while read -r option; do
>   grep -qF -- "$option" page || echo "the page lacks $option"; done
