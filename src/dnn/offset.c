/* Offsets as C text: a constant plus products of index and stride. Constants are folded, zero terms left out. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "dnn/problem.h"

void offset_add(struct offset *o, const char *index, int64_t stride)
{
    if (!stride) return;
    if (isdigit((unsigned char)*index) && !index[strspn(index, "0123456789")])
        o->constant = size_add(o->constant, size_mul(strtoll(index, NULL, 10), stride));
    else
        o->terms = arena_printf(o->arena, stride == 1 ? "%s%s%s" : "%s%s%s * %lld", o->terms ? o->terms : "",
                                o->terms ? " + " : "", index, (long long)stride);
}

const char *offset_text(const struct offset *o)
{
    return text_plus(o->arena, o->terms ? o->terms : "0", o->constant);
}

const char *offset_from(const struct offset *o, const char *base)
{
    return text_plus(o->arena, text_address(o->arena, base, o->terms ? o->terms : "0"), o->constant);
}
