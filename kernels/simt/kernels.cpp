// The kernels, compiled for the executor.
#include "kernels/device/attend.cu"
#include "kernels/device/dense.cu"
#include "kernels/device/inputs.cu"
#include "kernels/device/linear_few.cu"
#include "kernels/device/linear_tiles.cu"
#include "kernels/device/rows.cu"
#include "kernels/device/scores.cu"
#include "kernels/device/speed.cu"
