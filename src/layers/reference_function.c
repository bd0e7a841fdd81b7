/* A function from outside (sol/extend.h): it gets tensors, numbers and temporaries, which lie one behind the other in
 * the scratch memory. */
#include "layers/reference.h"

static size_t room_of(int64_t bytes)
{
    return ((size_t)bytes + 63) / 64 * 64;
}

static size_t function_scratch(const struct reference *a)
{
    size_t bytes = 63; /* the memory is aligned less than temporaries are */
    for (int i = 0; i < a->ntemp; i++) bytes += room_of(a->number[a->nnumber + i]);
    return a->ntemp ? bytes : 0;
}

static enum reference_error run_function(const struct reference *a, char *const *p, void *scratch,
                                         struct reference_bad *out_bad)
{
    void *tensor[REFERENCE_TENSORS];
    char *at = (char *)(((uintptr_t)scratch + 63) / 64 * 64);
    const int given = a->nin + a->values;
    for (int i = 0; i < given; i++) tensor[i] = p[i];
    for (int i = 0; i < a->ntemp; i++) {
        tensor[given + i] = at;
        at += room_of(a->number[a->nnumber + i]);
    }
    const int32_t failed = a->function(tensor, a->number, a->real);
    out_bad->index = failed;
    out_bad->limit = 0;
    return failed ? REFERENCE_FAILED : REFERENCE_GOOD;
}

REFERENCE_KIND reference_function = {"reference_function", "reference_function.c", function_scratch, run_function};
