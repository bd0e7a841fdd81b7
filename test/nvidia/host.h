// In front of CUDA C++ that a compiler for this processor makes run: the items of a group take turns (items.c), and
// pointers to the device's memory are moved to where that memory really is.
#include <math.h>
#include <utility>
using std::isfinite;
using std::signbit;

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __shared__ __thread
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
#define __builtin_assume(x)         \
    do {                            \
        if (!(x)) __builtin_trap(); \
    } while (0)

struct __align__(16) float4
{
    float x, y, z, w;
};
struct __align__(16) double2
{
    double x, y;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline double2 make_double2(double x, double y)
{
    return {x, y};
}

struct cuda_place {
    unsigned x, y, z;
};
struct cuda_group { // nvidia.h
    cuda_place item, items, group, groups;
    long span;
    void (*barrier)(void);
};
static __thread cuda_group *cuda_now;
#define threadIdx (cuda_now->item)
#define blockDim (cuda_now->items)
#define blockIdx (cuda_now->group)
#define gridDim (cuda_now->groups)
#define __syncthreads() cuda_now->barrier()

static inline float __int_as_float(int i)
{
    float f;
    __builtin_memcpy(&f, &i, sizeof f);
    return f;
}

// Of a whole group, whose items all exchange their values.
template <class T> static T __shfl_xor_sync(unsigned, T x, int n)
{
    static __thread T all[1024];
    all[threadIdx.x] = x;
    __syncthreads();
    const T y = all[threadIdx.x ^ n];
    __syncthreads();
    return y;
}

// The parts of matrices that the items of a warp have, as PTX says: cuda.cu.
static inline float sol_bits(float x, unsigned more)
{
    unsigned u;
    __builtin_memcpy(&u, &x, sizeof u);
    u = (u + more) & ~0x1fffu;
    __builtin_memcpy(&x, &u, sizeof u);
    return x;
}
static inline float sol_tf32(float x)
{
    return isfinite(x) ? sol_bits(x, 0x1000) : x;
}
static inline float sol_high(float x)
{
    return sol_bits(x, 0x1000);
}
static inline void sol_mma(float *c, float a0, float a1, float a2, float a3, float b0, float b1)
{
    static __thread float a[1024][4], b[1024][2];
    const unsigned i = threadIdx.x, row = i % 32 / 4, column = i % 4 * 2, warp = i - i % 32;
    const float own[] = {sol_bits(a0, 0), sol_bits(a1, 0), sol_bits(a2, 0), sol_bits(a3, 0)};
    __builtin_memcpy(a[i], own, sizeof own);
    b[i][0] = sol_bits(b0, 0), b[i][1] = sol_bits(b1, 0);
    __syncthreads();
    for (unsigned e = 0; e < 4; e++)
        for (unsigned k = 0; k < 8; k++)
            c[e] += a[warp + row * 4 + k % 4][k / 4 * 2 + e / 2] * b[warp + (column + e % 2) * 4 + k % 4][k / 4];
    __syncthreads();
}
static inline int __syncthreads_or(int x)
{
    static __thread int all[1024];
    int any = 0;
    all[threadIdx.x] = x;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x; i++) any |= all[i];
    __syncthreads();
    return any;
}

template <class T> static T cuda_parameter(const void *p, long)
{
    return *(const T *)p;
}
template <> char *cuda_parameter<char *>(const void *p, long span)
{
    char *at = *(char *const *)p;
    return at ? at + span : at;
}
template <class... A, size_t... I>
static void cuda_call(void (*kernel)(A...), cuda_group *g, void **p, std::index_sequence<I...>)
{
    cuda_now = g;
    kernel(cuda_parameter<A>(p[I], g->span)...);
}
template <class... A> static void cuda_run(void (*kernel)(A...), cuda_group *g, void **p)
{
    cuda_call(kernel, g, p, std::index_sequence_for<A...>());
}
template <class... A> static int cuda_sizes(void (*)(A...), int *out)
{
    const int sizes[] = {(int)sizeof(A)..., 0};
    for (unsigned i = 0; i < sizeof...(A); i++) out[i] = sizes[i];
    return sizeof...(A);
}

// What the double of the driver finds of a kernel.
#define CUDA_KERNEL(name)                                    \
    extern "C" void cuda_run_##name(cuda_group *g, void **p) \
    {                                                        \
        cuda_run(name, g, p);                                \
    }                                                        \
    extern "C" int cuda_sizes_##name(int *out)               \
    {                                                        \
        return cuda_sizes(name, out);                        \
    }
