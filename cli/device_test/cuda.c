/* The kernel of the checks in CUDA C++. */
#include "bench.h"

const struct test_kernel cuda_kernel = {"cuda",
                                        "extern __shared__ __align__(16) char shared_[];\n"
                                        "extern \"C\" __global__ void sol_test(char *out, char *in, int value)\n{\n"
                                        "    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                        "    int *shared = (int *)shared_;\n"
                                        "    shared[threadIdx.x] = ((int *)in)[i] + value;\n"
                                        "    __syncthreads();\n"
                                        "    ((int *)out)[i] = shared[threadIdx.x];\n}\n"};
