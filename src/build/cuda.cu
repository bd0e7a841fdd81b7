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

#define sol_even(p) (((uint64_t)(p) & 15) == 0) /* a load or store of 16 bytes needs this alignment */
static __device__ inline float4 sol_load4(const float *p, int even)
{
    return even ? *(const float4 *)p : make_float4(p[0], p[1], p[2], p[3]);
}
static __device__ inline void sol_store4(float4 v, float *p, int even)
{
    if (even) *(float4 *)p = v;
    else p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
}
static __device__ inline double2 sol_load2(const double *p, int even)
{
    return even ? *(const double2 *)p : make_double2(p[0], p[1]);
}
static __device__ inline void sol_store2(double2 v, double *p, int even)
{
    if (even) *(double2 *)p = v;
    else p[0] = v.x, p[1] = v.y;
}

/* Units for small matrices, by the items of a warp (dnn/simt_mma.c). */
#ifdef __CUDACC__
static __device__ inline float sol_tf32(float x)
{
    int y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __int_as_float(y);
}
static __device__ inline float sol_high(float x) /* rounded to TF32, if it is finite; x - sol_high(x) is exact */
{
    return __int_as_float((__float_as_int(x) + 0x1000) & ~0x1fff);
}
static __device__ inline void sol_mma(float *c, float a0, float a1, float a2, float a3, float b0, float b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_int(a0)), "r"(__float_as_int(a1)), "r"(__float_as_int(a2)), "r"(__float_as_int(a3)),
          "r"(__float_as_int(b0)), "r"(__float_as_int(b1)));
}
#endif
#define sol_any(x) __syncthreads_or(x) /* of the group, which it joins */

#define sol_neighbour(x, n) __shfl_xor_sync(0xffffffffu, x, n) /* of item i ^ n */

static __device__ inline void sol_memset(char *to, int value, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) to[i] = (char)value;
}

