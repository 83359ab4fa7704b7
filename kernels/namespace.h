// Everything in this room is compiled for one of two machines: for GPUs, in the namespace qgen::cuda, and by the tests
// for the executor of kernels/simt, in qgen::simt. So one program can hold both.
#pragma once

#if defined(QGEN_SIMT)
#define QGEN_BACKEND simt
#else
#define QGEN_BACKEND cuda
#endif
