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

/* A load or store of 16 bytes needs this alignment. */
static __device__ inline int sol_even(const void *p)
{
    return ((uint64_t)p & 15) == 0;
}
static __device__ inline float4 sol_load4(const float *p, int even)
{
    if (even) return *(const float4 *)p;
    const float4 v = {p[0], p[1], p[2], p[3]};
    return v;
}
static __device__ inline void sol_store4(float4 v, float *p, int even)
{
    if (even)
        *(float4 *)p = v;
    else
        p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
}
static __device__ inline double2 sol_load2(const double *p, int even)
{
    if (even) return *(const double2 *)p;
    const double2 v = {p[0], p[1]};
    return v;
}
static __device__ inline void sol_store2(double2 v, double *p, int even)
{
    if (even)
        *(double2 *)p = v;
    else
        p[0] = v.x, p[1] = v.y;
}

#define sol_neighbour(x, n) __shfl_xor_sync(0xffffffffu, x, n) /* of item i ^ n */

static __device__ inline void sol_memset(char *to, int value, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) to[i] = (char)value;
}

