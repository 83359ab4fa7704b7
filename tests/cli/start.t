# --help in under 20 ms, with no CUDA library mapped.

# The help
$ qgen --help > /dev/null
within: 20 ms

# Of a command
$ qgen score --help > /dev/null
within: 20 ms

# Of another
$ qgen tokens --help > /dev/null
within: 20 ms

# The version
$ qgen --version > /dev/null
within: 20 ms

# A usage error
$ qgen --promt
stderr: ...
exit: 2
within: 20 ms

# The program links no CUDA library
$ ldd $QGEN | grep -ciE 'cuda|cublas|nvidia|nvrtc'
  0
exit: 1

# And maps none while it prints: each library that is opened
$ LD_DEBUG=files qgen --help 2>&1 > /dev/null | grep -ciE 'cuda|cublas|nvidia|nvrtc'
  0
exit: 1

# The answer of a small model on the CPU, from the shell and back
$ qgen -m $MODEL -p "Once upon a time" -n 1 --device cpu > /dev/null
within: 200 ms
