/* The problems of dnn_test.c: a table in which each name says what the problem is about, and a generator of random
 * ones. */
#ifndef TEST_DNN_EXAMPLES_H
#define TEST_DNN_EXAMPLES_H

#include "base/base.h"

#define MAX_INPUTS 5
#define CONV                                                                  \
    " | #G=g; #C=#O//g; #O=#C*#G; #I=#J*#G; #P=(#Q+p+q-d*(#K-1)-1)//s+1 | | " \
    "t[N G*#C+C P] = (sum[J K] x[N G*#J+J s*P+d*K-p]:0 * w[G*#C+C J K])"
#define LINEAR "x[A.. I] w[O I] b?[O] -> y[A.. O] | | | y[A O] = (sum[I] x[A I] * w[O I]) + b[O]:0"

/* Layout of a tensor: the order of dimensions, outermost first ("0231"); NULL: row-major. */
struct layout {
    const char *order;
    int halo;  /* zeros around each pixel dimension (2, 3, ..) */
    int extra; /* extra elements between neighbours in the last but one dimension of the order */
};
struct example {
    const char *name, *row;
    const char *must;             /* a solver that must apply */
    const char *variant;          /* part of the name of its tested variant; NULL: any */
    int64_t shape[MAX_INPUTS][6]; /* ends with 0 */
    int64_t s[3], p[3], q[3], d[3], g;
    enum sol_dtype dtype;
    struct layout in[MAX_INPUTS], out;
    int activation; /* input 1 is not constant */
    bool inference; /* weights do not change */
};
#define NHWC         \
    {                \
        "0231", 0, 0 \
    }

#define CONV_IN "x[N I Q..] w[O J K..]"
#define CONV_OUT " -> y[N O P..] -> t[N O P..]" CONV
#define GRADIENT                                                                                          \
    "x[N I Q..] dy[N O P..] -> w[O J K..] | #G=g; #J=#I//#G; #C=#O//#G; #K=(#Q+p+q-s*(#P-1)-1)//d+1 | | " \
    "w[G*#C+C J K] = "
#define SCORES "s[B H T S] = (sum[D] q[B H T D] * k[B H S D]) * 0.1; "
#define WEIGHTS "(m,z)[B H T] = softsum[S] s[B H T S]; p[B H T S] = exp(s[B H T S] - m[B H T]); "
#define ATTENTION "q[B H T D] k[B H S D] v[B H S E] -> y[B H T E] | | | "
#define VALUES "y[B H T E] = (sum[S] p[B H T S] * v[B H S E]) / z[B H T]"
static const struct example examples[] = {
    {.name = "attention",
     .must = "attention",
     .row = ATTENTION SCORES WEIGHTS VALUES,
     .shape = {{2, 3, 37, 24}, {2, 3, 50, 24}, {2, 3, 50, 20}}},
    {.name = "attention, queries of three vectors, tokens apart",
     .must = "attention",
     .variant = "q48",
     .row = ATTENTION SCORES WEIGHTS VALUES,
     .shape = {{1, 2, 100, 33}, {1, 2, 300, 33}, {1, 2, 300, 64}},
     .in = {{"0213", 0, 8}, {"0213", 0, 0}, {"0213", 0, 16}},
     .out = {"0213", 0, 8}},
    {.name = "attention, queries of one vector, keys and values across",
     .must = "attention",
     .variant = "q16",
     .row = ATTENTION SCORES WEIGHTS VALUES,
     .shape = {{1, 2, 40, 16}, {1, 2, 161, 16}, {1, 2, 161, 18}},
     .in = {{"0132", 0, 0}, {"0132", 0, 1}, {"0132", 0, 0}},
     .out = {"0132", 0, 0}},
    {.name = "attention, few queries and keys, one element",
     .must = "attention",
     .row = ATTENTION SCORES WEIGHTS VALUES,
     .shape = {{2, 3, 2, 2}, {2, 3, 3, 2}, {2, 3, 3, 2}}},
    {.name = "attention, double",
     .must = "attention",
     .row = ATTENTION SCORES WEIGHTS VALUES,
     .shape = {{1, 3, 37, 24}, {1, 3, 290, 24}, {1, 3, 290, 20}},
     .dtype = SOL_F64},
    {.name = "attention, causal",
     .must = "attention",
     .row = ATTENTION SCORES "(m,z)[B H T] = softsum[S | S<=T] s[B H T S]; "
                             "p[B H T S] = where(S<=T, exp(s[B H T S] - m[B H T]), 0); " VALUES,
     .shape = {{1, 2, 170, 16}, {1, 2, 170, 16}, {1, 2, 170, 16}}},
    {.name = "attention, a window of keys",
     .must = "attention",
     .row = ATTENTION SCORES "(m,z)[B H T] = softsum[S | S<=T+3 and T<S+200] s[B H T S]; "
                             "p[B H T S] = where(S<=T+3 and T<S+200, exp(s[B H T S] - m[B H T]), 0); " VALUES,
     .shape = {{1, 1, 333, 8}, {1, 1, 300, 8}, {1, 1, 300, 9}}},
    {.name = "attention, later keys only, rows without a key",
     .must = "attention",
     .row = ATTENTION SCORES "(m,z)[B H T] = softsum[S | S>T] s[B H T S]; "
                             "p[B H T S] = where(S>T, exp(s[B H T S] - where(m[B H T]==(-inf),0,m[B H T])), 0); "
                             "y[B H T E] = (sum[S] p[B H T S] * v[B H S E]) / where(z[B H T]==0,1,z[B H T])",
     .shape = {{1, 2, 60, 16}, {1, 2, 55, 16}, {1, 2, 55, 16}}},
    {.name = "attention, bias, weights in front of the values",
     .must = "attention",
     .row = "q[B H T D] k[B H S D] v[B H S E] w[T S] -> y[B H T E] | | | " SCORES
            "x[B H T S] = s[B H T S] + w[T S]; (m,z)[B H T] = softsum[S] x[B H T S]; "
            "p[B H T S] = exp(x[B H T S] - m[B H T]) / z[B H T]; y[B H T E] = sum[S] v[B H S E] * p[B H T S]",
     .shape = {{1, 2, 70, 20}, {1, 2, 45, 20}, {1, 2, 45, 24}, {70, 45}}},
    {.name = "attention, shared heads, a mask of keys, relu of sums",
     .must = "attention",
     .row = "q[B H T D] k[B G S D] v[B G S E] w[B S] r[B T H E] -> y[B T H E] | #G=#H//2 | | "
            "s[B H T S] = (sum[D] q[B H T D] * k[B H//2 S D]) * 0.1 + where(w[B S]<0, (-inf), 0.0); "
            "(m,z)[B H T] = softsum[S] s[B H T S]; p[B H T S] = exp(s[B H T S] - where(m[B H T]==(-inf),0,m[B H T])); "
            "t[B H T E] = (sum[S] p[B H T S] * v[B H//2 S E]) / where(z[B H T]==0,1,z[B H T]); "
            "y[B T H E] = relu(t[B H T E] + r[B T H E])",
     .shape = {{2, 4, 35, 16}, {2, 2, 40, 16}, {2, 2, 40, 21}, {2, 40}, {2, 35, 4, 21}}},
    {.name = "1x1",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = t[N O P]",
     .shape = {{1, 20, 9, 7}, {40, 20, 1, 1}, {40}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "3x3 relu",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{1, 8, 13, 11}, {33, 8, 3, 3}, {33}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "3x3 halo, pixels apart",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 24, 10, 18}, {48, 24, 3, 3}, {48}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}},
     .out = {"0231", 0, 16}},
    {.name = "halo too small",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT "; y[N O P] = t[N O P] * b[O]",
     .shape = {{2, 5, 10, 18}, {7, 5, 5, 5}, {7}},
     .p = {2, 2},
     .q = {2, 2},
     .in = {{"0231", 1, 3}},
     .out = {"0231", 2, 0}},
    {.name = "chunks of K, residual, gelu",
     .must = "direct",
     .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = gelu(t[N O P] + r[N O P])",
     .shape = {{1, 150, 3, 19}, {24, 150, 3, 3}, {24}, {1, 24, 3, 19}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC, {0}, {0}, {"0231", 0, 8}},
     .out = {"0231", 0, 24}},
    {.name = "residual in another layout",
     .must = "direct",
     .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = clamp(t[N O P] * r[N O P], -1, 1)",
     .shape = {{2, 19, 9, 5}, {24, 19, 1, 1}, {24}, {2, 24, 9, 5}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "stride 2, 97x31, first layer",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{1, 3, 97, 31}, {24, 3, 7, 7}, {24}},
     .s = {2, 2},
     .p = {3, 3},
     .q = {3, 3},
     .in = {{"0123", 0, 0}},
     .out = NHWC},
    {.name = "dilated, asymmetric",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 17, 14, 9}, {17, 17, 3, 2}, {17}},
     .d = {2, 3},
     .p = {0, 4},
     .q = {3, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "grouped",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 3,
     .shape = {{2, 12, 8, 9}, {21, 4, 3, 3}, {21}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "grouped, halo",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 2,
     .shape = {{1, 40, 7, 7}, {32, 20, 3, 3}, {32}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}},
     .out = NHWC},
    {.name = "1-D",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = tanh(t[N O P])",
     .shape = {{2, 10, 131}, {16, 10, 9}, {16}},
     .s = {3},
     .p = {4},
     .q = {2},
     .in = {{"021", 0, 0}},
     .out = {"021", 0, 0}},
    {.name = "1-D rows as they are",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = tanh(t[N O P])",
     .shape = {{2, 10, 50}, {16, 10, 3}, {16}}},
    {.name = "3-D",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 6, 5, 6, 7}, {18, 6, 3, 3, 3}, {18}},
     .s = {1, 2, 1},
     .p = {1, 1, 1},
     .q = {1, 0, 1},
     .in = {{"02341", 0, 0}},
     .out = {"02341", 0, 0}},
    {.name = "batch 5, 7x7",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{5, 40, 7, 7}, {32, 40, 3, 3}, {32}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "1x1 stride 2",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = t[N O P]",
     .shape = {{1, 24, 15, 15}, {1000, 24, 1, 1}, {1000}},
     .s = {2, 2},
     .in = {NHWC},
     .out = NHWC},
    {.name = "channels first",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 18, 9, 11}, {20, 18, 3, 3}, {20}},
     .p = {1, 1},
     .q = {1, 1}},
    {.name = "f64",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .dtype = SOL_F64,
     .shape = {{2, 18, 9, 11}, {20, 18, 3, 3}, {20}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "f64 chunks, sigmoid",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = sigmoid(t[N O P])",
     .dtype = SOL_F64,
     .shape = {{1, 900, 5, 6}, {35, 900, 1, 1}, {35}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "linear", .must = "direct", .row = LINEAR, .shape = {{37, 70}, {50, 70}, {50}}},
    {.name = "linear 3-D, chunks", .must = "direct", .row = LINEAR, .shape = {{2, 9, 1500}, {17, 1500}, {17}}},
    {.name = "one row", .must = "gemv", .row = LINEAR, .shape = {{1, 515}, {1000, 515}, {1000}}},
    {.name = "five rows", .must = "direct", .row = LINEAR, .shape = {{5, 700}, {129, 700}, {129}}},
    {.name = "sums in scratch: channels first, chunks",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{1, 1000, 6, 5}, {40, 1000, 1, 1}, {40}},
     .in = {NHWC}},
    {.name = "two stores",
     .must = "direct",
     .row = CONV_IN " b[O] -> y[N O P..] t[N O P..]" CONV " + b[G*#C+C]; y[N O P] = silu(t[N O P])",
     .shape = {{1, 20, 9, 7}, {40, 20, 3, 3}, {40}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "positions",
     .must = "direct",
     .row = "x[A I] w[O I] -> y[A O] | | | y[A O] = [A>=O+2] * (sum[I] x[A I] * w[O I])",
     .shape = {{37, 20}, {50, 20}}},
    {.name = "constant on the left",
     .must = "direct",
     .row = "x[B T C] w[O T] b[O] -> y[B O C] | | | y[B O C] = (sum[T] x[B T C] * w[O T]) + b[O]",
     .shape = {{3, 20, 40}, {30, 20}, {30}}},
    {.name = "several loads in each statement behind it",
     .must = "direct",
     .row = "x[A I] w[O I] a[A O] b[A O] -> y[A O] | | | t[A O] = sum[I] x[A I] * w[O I]; "
            "s[A O] = t[A O] * a[A O] + b[A O] * (1 - a[A O]); y[A O] = s[A O] * b[A O] - a[A O] * (1 - b[A O])",
     .shape = {{37, 20}, {23, 20}, {37, 23}, {37, 23}}},
    {.name = "gradient 3x3",
     .must = "weights-winograd",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{3, 33, 9, 14}, {3, 40, 9, 14}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}, NHWC},
     .activation = 1},
    {.name = "gradient 3x3 over the edge, scaled",
     .must = "weights-winograd",
     .row = GRADIENT "0.5 * (sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0)",
     .shape = {{2, 72, 6, 5}, {2, 19, 4, 7}},
     .p = {0, 2},
     .q = {0, 2},
     .in = {NHWC, {"0231", 0, 8}},
     .activation = 1},
    {.name = "gradient 3x3 in groups",
     .must = "weights-winograd",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{2, 48, 8, 8}, {2, 64, 8, 8}},
     .p = {1, 1},
     .q = {1, 1},
     .g = 2,
     .in = {{"0231", 2, 0}, NHWC},
     .activation = 1},
    {.name = "gradient of a volume's weights",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{2, 19, 5, 9, 8}, {2, 20, 5, 9, 8}},
     .p = {1, 1, 1},
     .q = {1, 1, 1},
     .in = {{"02341", 1, 0}, {"02341", 0, 0}},
     .activation = 1},
    {.name = "gradient 1x1",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{5, 35, 19, 17}, {5, 20, 19, 17}},
     .in = {NHWC, {"0231", 0, 5}},
     .activation = 1},
    {.name = "gradient of a stem",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{2, 3, 33, 40}, {2, 24, 17, 20}},
     .s = {2, 2},
     .p = {3, 3},
     .q = {3, 2},
     .in = {{"0231", 3, 0}, NHWC},
     .activation = 1},
    {.name = "gradient, dilated, over the edge",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{2, 20, 40, 31}, {2, 24, 20, 15}},
     .s = {2, 2},
     .p = {3, 3},
     .q = {2, 4},
     .d = {2, 3},
     .in = {{"0231", 1, 0}, NHWC},
     .activation = 1},
    {.name = "gradient in groups, channels first",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{2, 30, 12, 250}, {2, 9, 10, 248}},
     .g = 3,
     .activation = 1},
    {.name = "gradient in one dimension, f64",
     .must = "weights",
     .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
     .shape = {{3, 20, 600}, {3, 24, 598}},
     .p = {1},
     .q = {1},
     .in = {{"021", 1, 0}, {"021", 0, 0}},
     .dtype = SOL_F64,
     .activation = 1},
    {.name = "gradient of a product",
     .must = "weights",
     .row = "dy[B T O] x[B T I] r[O I] -> w[O I] | | | w[O I] = (sum[B T] dy[B T O] * x[B T I]) + r[O I]",
     .shape = {{3, 21, 40}, {3, 21, 70}, {40, 70}},
     .activation = 1},
    {.name = "matmul",
     .must = "matmul",
     .row = "a[B.. M K] b[B.. K N] -> y[B.. M N] | | | y[B M N] = sum[K] a[B M K] * b[B K N]",
     .shape = {{2, 3, 37, 20}, {2, 3, 20, 48}},
     .activation = 1},
    {.name = "matmul, odd",
     .must = "matmul",
     .row = "a[B.. M K] b[B.. K N] -> y[B.. M N] | | | y[B M N] = 0.5 * (sum[K] a[B M K] * b[B K N])",
     .shape = {{2, 3, 37, 700}, {2, 3, 700, 35}},
     .activation = 1},
    {.name = "scores",
     .must = "matmul",
     .row = "q[B T H D] k[B S H D] m[T S] -> y[B H T S] | | | y[B H T S] = (sum[D] q[B T H D] * k[B S H D]) * 0.125 + "
            "m[T S]",
     .shape = {{2, 19, 3, 64}, {2, 33, 3, 64}, {19, 33}},
     .activation = 1},
    {.name = "values",
     .must = "matmul",
     .row = "p[B H T S] v[B S H D] -> y[B T H D] | | | y[B T H D] = sum[S] p[B H T S] * v[B S H D]",
     .shape = {{2, 3, 19, 33}, {2, 33, 3, 64}},
     .activation = 1},
    {.name = "gram",
     .must = "matmul",
     .row = "a[M K] -> y[M N] | #N=#M | | y[M N] = sum[K] a[M K] * a[N K]",
     .shape = {{37, 21}}},
    {.name = "channels first, 1x1, as a product",
     .must = "matmul",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 18, 8, 12}, {20, 18, 1, 1}, {20}}},
    {.name = "one row, few columns", .must = "gemv", .row = LINEAR, .shape = {{1, 7}, {11, 7}, {11}}},
    {.name = "one query",
     .must = "gemv",
     .row = "q[B H D] k[B S H D] -> y[B H S] | | | y[B H S] = relu((sum[D] q[B H D] * k[B S H D]) * 0.125)",
     .shape = {{2, 3, 40}, {2, 33, 3, 40}},
     .activation = 1},
    {.name = "all pixels",
     .must = "gemv",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{1, 18, 3, 5}, {20, 18, 3, 5}, {20}}},
    {.name = "one row, columns",
     .must = "gemv",
     .variant = "columns",
     .row = "x[M K] w[K N] b[N] -> y[M N] | | | y[M N] = relu((sum[K] x[M K] * w[K N]) + b[N])",
     .shape = {{1, 77}, {77, 1003}, {1003}},
     .activation = 1},
    {.name = "one row, few columns and terms",
     .must = "gemv",
     .variant = "columns",
     .row = "x[M K] w[K N] -> y[M N] | | | y[M N] = tanh(sum[K] x[M K] * w[K N])",
     .shape = {{1, 3}, {3, 5}},
     .activation = 1},
    {.name = "one query, values",
     .must = "gemv",
     .variant = "columns",
     .row = "p[B H S] v[B S H D] -> y[B H D] | | | y[B H D] = sum[S] p[B H S] * v[B S H D]",
     .shape = {{2, 3, 40}, {2, 40, 3, 41}},
     .activation = 1},
    {.name = "f64, columns of a sum over two axes",
     .must = "gemv",
     .variant = "columns",
     .row = "x[K J] w[J P K N] -> y[P N] | | | y[P N] = sum[J K] x[K J] * w[J P K N]",
     .shape = {{9, 4}, {4, 3, 9, 70}},
     .dtype = SOL_F64,
     .activation = 1},
    {.name = "f64 one row", .must = "gemv", .row = LINEAR, .shape = {{1, 99}, {21, 99}, {21}}, .dtype = SOL_F64},
    {.name = "groups of 8 with halo",
     .variant = "groups",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 8,
     .shape = {{1, 64, 9, 7}, {64, 8, 3, 3}, {64}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}},
     .out = NHWC},
    {.name = "groups of 2, dilated",
     .variant = "groups",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 32,
     .d = {2, 2},
     .shape = {{1, 64, 9, 7}, {64, 2, 3, 3}, {64}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "groups of 4",
     .variant = "groups",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 8,
     .shape = {{2, 32, 8, 9}, {32, 4, 3, 3}, {32}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "groups as panels",
     .variant = "panels",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 3,
     .s = {2, 1},
     .shape = {{2, 15, 9, 8}, {48, 5, 3, 3}, {48}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "groups of two panels, halo",
     .variant = "panels",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 4,
     .shape = {{1, 48, 9, 7}, {128, 12, 3, 3}, {128}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}},
     .out = NHWC},
    {.name = "groups as panels, several chunks",
     .variant = "panels",
     .must = "direct",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .g = 2,
     .shape = {{1, 420, 4, 5}, {64, 210, 2, 2}, {64}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "winograd 11x9",
     .must = "winograd",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 18, 11, 9}, {40, 18, 3, 3}, {40}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "winograd halo, residual, chunks",
     .must = "winograd",
     .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P] + r[N O P])",
     .shape = {{1, 816, 5, 6}, {24, 816, 3, 3}, {24}, {1, 24, 5, 6}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}, {0}, {0}, NHWC},
     .out = NHWC},
    {.name = "winograd f64, no padding",
     .must = "winograd",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = tanh(t[N O P])",
     .shape = {{3, 8, 9, 9}, {12, 8, 3, 3}, {12}},
     .in = {NHWC},
     .out = NHWC,
     .dtype = SOL_F64},
    {.name = "winograd 5x5",
     .must = "winograd",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{2, 19, 9, 12}, {35, 19, 5, 5}, {35}},
     .p = {2, 2},
     .q = {2, 1},
     .in = {NHWC},
     .out = NHWC},
    {.name = "winograd, two dilations",
     .must = "winograd",
     .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P] + r[N O P])",
     .shape = {{2, 16, 17, 13}, {24, 16, 3, 3}, {24}, {2, 24, 17, 13}},
     .d = {2, 5},
     .p = {2, 5},
     .q = {2, 5},
     .in = {{"0231", 2, 0}, {0}, {0}, NHWC},
     .out = NHWC},
    {.name = "winograd panels, chunks with a rest, two panels",
     .must = "winograd",
     .variant = "F(4,3) panel",
     .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P] + r[N O P])",
     .shape = {{1, 150, 9, 14}, {131, 150, 3, 3}, {131}, {1, 131, 9, 14}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {{"0231", 1, 0}, {0}, {0}, NHWC},
     .out = NHWC,
     .inference = true},
    {.name = "winograd panels, F(2,3), images, a chunk of all",
     .must = "winograd",
     .variant = "F(2,3) panel",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{3, 9, 5, 4}, {20, 9, 3, 3}, {20}},
     .p = {1, 1},
     .q = {1, 1},
     .in = {NHWC},
     .out = NHWC,
     .inference = true},
    {.name = "winograd panels 5x5, f64, dilation",
     .must = "winograd",
     .variant = "F(2,5) panel",
     .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
     .shape = {{1, 40, 15, 11}, {21, 40, 5, 5}, {21}},
     .d = {2, 1},
     .p = {4, 2},
     .q = {4, 2},
     .in = {NHWC},
     .out = NHWC,
     .dtype = SOL_F64,
     .inference = true},
    {.name = "transposed, one residue",
     .must = "direct",
     .row = "x[N I Q0 Q1] w[I O K0 K1] b[O] -> y[N O P0 P1] | #P0=2*#Q0-1; #P1=2*#Q1; #U=#Q0-1; #V=#Q1; #T=2; #S=1 | | "
            "y[N O 2*U+1 2*V] = (sum[I T S] x[N I U-T+1 V-S]:0 * w[I O 2*T 2*S+1]) + b[O]",
     .shape = {{2, 20, 7, 9}, {20, 18, 3, 3}, {18}},
     .in = {NHWC},
     .out = NHWC},
    {.name = "a slice of a wider output",
     .must = "direct",
     .row = "x[N I Q0 Q1] w[O I] -> y[N C Q0 Q1] | #C=#O+40 | | y[N O+8 Q0 Q1] = relu(sum[I] x[N I Q0 Q1] * w[O I])",
     .shape = {{2, 20, 7, 9}, {19, 20}},
     .in = {NHWC},
     .out = NHWC},
};

/* -- random problems */

static uint32_t seed;

static inline int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static const char *const tails[] = {" + b[G*#C+C]; y[N O P] = relu(t[N O P])", "; y[N O P] = t[N O P] * b[O]",
                                    " + b[G*#C+C]; y[N O P] = silu(t[N O P])",
                                    "; y[N O P] = max(t[N O P], b[O]) + r[N O P]"};

static inline void random_conv(struct example *e)
{
    const int rank = 1 + pick(3), groups = pick(3) ? 1 : 1 << pick(4), most = rank == 3 ? 7 : rank == 2 ? 15 : 60;
    static char text[1024];
    const int tail = pick(COUNT_OF(tails));
    snprintf(text, sizeof text, "%s b[O]%s%s%s", CONV_IN, tail == 3 ? " r[N O P..]" : "", CONV_OUT, tails[tail]);
    const int ic = 1 + pick(pick(4) ? 20 : 150), oc = 2 + pick(pick(4) ? 40 : 100), n = 1 + pick(3);
    *e = (struct example){.name = "random convolution", .must = "direct", .row = text, .g = groups};
    int64_t *x = e->shape[0], *w = e->shape[1], *r = e->shape[3];
    x[0] = n, x[1] = ic * groups, w[0] = oc * groups, w[1] = ic, r[0] = n, r[1] = oc * groups;
    e->shape[2][0] = oc * groups;
    const int winograd = pick(3) ? 0 : 2 + pick(4);
    for (int i = 0; i < rank; i++) {
        const int k = winograd ? winograd : 1 + pick(4);
        e->s[i] = winograd ? 1 : 1 + !pick(3);
        e->d[i] = 1 + (pick(4) ? 0 : 1 + pick(3));
        e->p[i] = pick(k + 1);
        e->q[i] = pick(k + 1);
        w[2 + i] = k;
        x[2 + i] = e->d[i] * (k - 1) + 1 + pick(most);
        r[2 + i] = (x[2 + i] + e->p[i] + e->q[i] - e->d[i] * (k - 1) - 1) / e->s[i] + 1;
    }
    if (tail != 3) memset(r, 0, sizeof e->shape[3]);
    static const char *const orders[] = {"021", "0231", "02341"};
    const bool last = pick(5) != 0;
    for (int i = 0; i < 4; i += 3)
        e->in[i] = (struct layout){last ? orders[rank - 1] : NULL, i ? 0 : pick(3), pick(3) * 8};
    if (!last) memset(e->in, 0, sizeof e->in);
    e->out = (struct layout){pick(6) ? orders[rank - 1] : NULL, 0, pick(2) * 16};
    if (!e->out.order) e->out.extra = 0;
    e->dtype = pick(5) ? SOL_F32 : SOL_F64;
}

static inline void random_product(struct example *e)
{
    static char text[512];
    static const char *const as[] = {"M K", "K M"}, *const bs[] = {"K N", "N K"};
    const int ta = pick(2), tb = pick(2), batch = pick(2), b_batch = batch && pick(2);
    const int m = 1 + pick(pick(3) ? 40 : 200), k = 1 + pick(pick(3) ? 40 : 900), n = 1 + pick(pick(3) ? 70 : 300);
    snprintf(text, sizeof text, "a[%s%s] b[%s%s] -> y[%sM N] | | | y[%sM N] = 0.5 * (sum[K] a[%s%s] * b[%s%s])",
             batch ? "B " : "", as[ta], b_batch ? "B " : "", bs[tb], batch ? "B " : "", batch ? "B " : "",
             batch ? "B " : "", as[ta], b_batch ? "B " : "", bs[tb]);
    *e = (struct example){
        .name = "random product", .must = "", .row = text, .activation = pick(2), .dtype = pick(5) ? SOL_F32 : SOL_F64};
    int i = 0;
    if (batch) e->shape[0][i++] = 3;
    e->shape[0][i++] = ta ? k : m;
    e->shape[0][i] = ta ? m : k;
    i = 0;
    if (b_batch) e->shape[1][i++] = 3;
    e->shape[1][i++] = tb ? n : k;
    e->shape[1][i] = tb ? k : n;
}

#endif
