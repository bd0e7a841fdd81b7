/* The kernel of the checks in OpenCL C. */
#include "bench.h"

const struct test_kernel opencl_kernel = {
    "opencl", "__kernel void sol_test(__global char *out, long out_at, __global char *in, long in_at, int value,\n"
              "                       __local int *shared)\n{\n"
              "    const size_t i = get_global_id(0);\n"
              "    shared[get_local_id(0)] = ((__global int *)(in + in_at))[i] + value;\n"
              "    barrier(CLK_LOCAL_MEM_FENCE);\n"
              "    ((__global int *)(out + out_at))[i] = shared[get_local_id(0)];\n}\n"};
