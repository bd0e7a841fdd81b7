/* Prints the epilogue of a contraction as C text: what happens to a vector of sums between its register and memory. */
#ifndef SOL_DNN_EPILOGUE_H
#define SOL_DNN_EPILOGUE_H

#include "dnn/problem.h"

/* The number of lanes in use is the variable `valid` of the function that is printed. */
#define EPILOGUE_PART (-1)
struct epilogue {
    const struct problem *p;
    const struct target *target;
    int lanes;  /* 1: scalar */
    bool named; /* pointers are called like tensors, not e<view> */
    int temps;  /* numbers the temporaries */
    /* C text of the element offset of the register's first lane in view number `view`, relative to pointer
     * `e<view>`. */
    const char *(*place)(void *user, struct text *out, int view);
    /* C text of the value of an index variable at the first lane; called only for index variables in problem.valued. */
    const char *(*ivar)(void *user, int ivar);
    /* Takes a value that would be stored in a view; NULL: it is stored. Scalar only. */
    void (*keep)(void *user, struct text *out, int view, const char *value);
    void *user;
    /* Names of vectors that already hold a view (a bias, loaded once for many pixels); NULL: none. */
    const char *held[PROBLEM_MAX_VIEWS];
    bool used[PROBLEM_MAX_VIEWS]; /* set for the views that epilogue_print has read or stored */
};

/* The vector type of the sums: "f32x16". */
const char *epilogue_type(const struct epilogue *e);
/* The vector type of a view: that of its element's compute type. */
const char *epilogue_view_type(const struct epilogue *e, int view);
/* "const float *": how a pointer to the elements of a view is declared. */
const char *epilogue_pointer(const struct problem *p, int view);
/* The functions that copy a part of a vector, for EPILOGUE_PART; a call of one, or of memcpy. */
void epilogue_copy_functions(const struct problem *p, int lanes, struct text *out);
const char *epilogue_copy(const struct problem *p, const char *to, const char *from, int valid, int bytes);
/* Prints the statements that take the sums from the variable `sum` to memory. Only the first `valid` lanes are
 * stored. */
void epilogue_print(struct epilogue *e, struct text *out, const char *sum, int valid);
/* Declares a vector that holds view `view`, of which `valid` lanes exist, and returns its name. */
const char *epilogue_hold(struct epilogue *e, struct text *out, int view, int valid);
/* The parameters `const float *e0, float *e1, ..` and the matching arguments " e0 + offset, .." */
void epilogue_parameters(const struct problem *p, struct text *out);
/* Silences warnings about unused parameters. */
void epilogue_parameters_used(const struct problem *p, struct text *out);

#endif
