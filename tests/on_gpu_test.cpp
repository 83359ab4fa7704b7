// The tests of the kernels for the GPU of this machine.
#include "tests/kernels_test.cpp"
