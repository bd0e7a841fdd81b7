/* In front of sources in CUDA C++ for clang, which has no headers of CUDA: what NVIDIA's compilers know by themselves. */
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __CUDACC__
#define isfinite __builtin_isfinite
#define signbit __builtin_signbit
#define __int_as_float(x) __builtin_bit_cast(float, (int)(x))
#define __float_as_int(x) __builtin_bit_cast(int, (float)(x))

struct sol_place {
    unsigned x;
};
#define threadIdx (sol_place{(unsigned)__nvvm_read_ptx_sreg_tid_x()})
#define blockIdx (sol_place{(unsigned)__nvvm_read_ptx_sreg_ctaid_x()})
#define blockDim (sol_place{(unsigned)__nvvm_read_ptx_sreg_ntid_x()})

struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) double2 { double x, y; };
#define make_float4(...) (float4{__VA_ARGS__})
#define make_double2(...) (double2{__VA_ARGS__})

#define __syncthreads_or __nvvm_bar0_or
template <class T> static __device__ T __shfl_xor_sync(unsigned items, T x, int n)
{
    int part[sizeof x / sizeof(int)];
    __builtin_memcpy(part, &x, sizeof x);
    for (int &p : part) p = __nvvm_shfl_sync_bfly_i32(items, p, n, 31);
    __builtin_memcpy(&x, part, sizeof x);
    return x;
}

/* Functions of libdevice, whose sqrtf and hypotf round by a flag that not every clang has. */
#define X(type, name, of, ...) extern "C" __device__ type name(__VA_ARGS__) __asm__(of);
#define UNARY(name) X(double, name, "__nv_" #name, double) X(float, name##f, "__nv_" #name "f", float)
#define BINARY(name) X(double, name, "__nv_" #name, double, double) X(float, name##f, "__nv_" #name "f", float, float)
UNARY(acos) UNARY(acosh) UNARY(asin) UNARY(asinh) UNARY(atan) UNARY(atanh) UNARY(ceil) UNARY(cos) UNARY(cosh) UNARY(erf)
UNARY(erfc) UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(fabs) UNARY(floor) UNARY(lgamma) UNARY(log) UNARY(log10)
UNARY(log1p) UNARY(log2) UNARY(rint) UNARY(sin) UNARY(sinh) UNARY(tan) UNARY(tanh) UNARY(trunc)
BINARY(atan2) BINARY(copysign) BINARY(fmod) BINARY(nextafter) BINARY(pow)
X(double, sqrt, "__nv_dsqrt_rn", double) X(float, sqrtf, "__nv_fsqrt_rn", float)
X(double, hypot, "__nv_hypot", double, double)
#define hypotf(x, y) ((float)hypot(x, y))
