/* In front of every source in OpenCL C 1.2: the names of C that kernels use, and the frame of a launch. */
#if defined cl_khr_fp64 && !defined SOL_SINGLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#else /* built with -cl-single-precision-constant; kernels.h: struct target.single */
#define double float
#endif
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define INT64_C(x) x##L
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define __builtin_isfinite isfinite
#define __builtin_signbit signbit

struct sol_frame {
    __global const int64_t *sizes; /* of the call */
    __global volatile int32_t *error; /* 0, or the first error of the call, */
    __global volatile int32_t *error_step; /* and its step */
    int32_t step;
};
enum { SOL_KERNEL_OK, SOL_KERNEL_INDEX, SOL_KERNEL_DIVISION };

/* vectors need no more alignment than their elements */
#define sol_even(p) 1
#define sol_load4(p, even) vload4(0, p)
#define sol_store4(v, p, even) vstore4(v, 0, p)
#define sol_load2(p, even) vload2(0, p)
#define sol_store2(v, p, even) vstore2(v, 0, p)

static inline void sol_memset(__global char *to, int value, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) to[i] = (char)value;
}

