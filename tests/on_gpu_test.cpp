// The tests of the kernels for the GPU of this machine.
#include "tests/kernels_attention_test.cpp"
#include "tests/kernels_engine_test.cpp"
#include "tests/kernels_linear_test.cpp"
#include "tests/kernels_steps_test.cpp"
