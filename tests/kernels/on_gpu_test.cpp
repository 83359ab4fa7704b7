// The tests of the kernels for the GPU of this machine.
#include "tests/kernels/attention_test.cpp"
#include "tests/kernels/engine_test.cpp"
#include "tests/kernels/linear_test.cpp"
#include "tests/kernels/steps_test.cpp"
