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
