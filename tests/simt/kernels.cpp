// The kernels, compiled for the executor.
#include "kernels/attend.cu"
#include "kernels/dense.cu"
#include "kernels/inputs.cu"
#include "kernels/linear_few.cu"
#include "kernels/linear_tiles.cu"
#include "kernels/rows.cu"
#include "kernels/scores.cu"
#include "kernels/speed.cu"
