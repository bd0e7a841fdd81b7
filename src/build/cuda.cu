/* In front of every source in CUDA C++: the names of C that kernels use, and the frame of a launch. */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define INT64_C(x) x##L
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807L - 1)
#define INT64_MAX 9223372036854775807L
#define UINT64_MAX 18446744073709551615UL
#define __builtin_isfinite isfinite
#define __builtin_signbit signbit

struct sol_frame {
    const int64_t *sizes;    /* of the call */
    volatile int32_t *error; /* 0, or the first error of the call, */
    volatile int32_t *error_step; /* and its step */
    int32_t step;
};
enum { SOL_KERNEL_OK, SOL_KERNEL_INDEX, SOL_KERNEL_DIVISION };

extern __shared__ __align__(16) char shared_[]; /* of the group, as large as the launch says */

static __device__ inline void sol_memset(char *to, int value, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) to[i] = (char)value;
}

