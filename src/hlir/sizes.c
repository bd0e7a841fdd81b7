/* What the interpreter computes with sizes that vary, as far as it is the same for all of them: the values of tensors
 * that shapes are made of (Shape, Gather, Concat, Reshape). */
#include "hlir/sizes.h"

#include <string.h>

int64_t sizes_binary(enum ex_kind kind, int64_t a, int64_t b)
{
    switch (kind) {
    case EX_ADD: return size_add(a, b);
    case EX_SUB: return size_sub(a, b);
    case EX_MUL: return size_mul(a, b);
    case EX_FLOOR: return size_le(1, b) ? size_floor_div(a, b) : SIZE_BAD;
    case EX_MOD: return size_le(1, b) ? size_mod(a, b) : SIZE_BAD;
    default: return SIZE_BAD;
    }
}

static int64_t rounded_to_zero(int64_t a, int64_t b)
{
    if (!size_le(1, b)) return SIZE_BAD;
    if (size_le(0, a)) return size_floor_div(a, b);
    return size_le(a, 0) ? size_sub(0, size_floor_div(size_sub(0, a), b)) : SIZE_BAD;
}

static int64_t absolute(int64_t a)
{
    return size_le(0, a) ? a : size_le(a, 0) ? size_sub(0, a) : SIZE_BAD;
}

int64_t sizes_call(int math_row, const int64_t *args)
{
    const char *name = math_at(math_row)->name;
    static const char *const comparisons[] = {"lt", "le", "eq", "ne", "ge", "gt"};
    if (!strcmp(name, "min")) return size_min(args[0], args[1]);
    if (!strcmp(name, "max")) return size_max(args[0], args[1]);
    if (!strcmp(name, "clamp")) return size_min(size_max(args[0], args[1]), args[2]);
    if (!strcmp(name, "floordiv")) return sizes_binary(EX_FLOOR, args[0], args[1]);
    if (!strcmp(name, "remainder")) return sizes_binary(EX_MOD, args[0], args[1]);
    if (!strcmp(name, "truncdiv")) return rounded_to_zero(args[0], args[1]);
    if (!strcmp(name, "abs")) return absolute(args[0]);
    for (int i = 0; i < COUNT_OF(comparisons); i++) {
        if (strcmp(name, comparisons[i]) != 0) continue;
        const int holds = sizes_compare((enum ex_cmp)i, args[0], args[1]);
        return holds < 0 ? SIZE_BAD : holds;
    }
    return SIZE_BAD;
}

int sizes_compare(enum ex_cmp op, int64_t a, int64_t b)
{
    const bool below = size_lt(a, b), above = size_lt(b, a);
    switch (op) {
    case CMP_LT: return below ? 1 : size_le(b, a) ? 0 : -1;
    case CMP_LE: return size_le(a, b) ? 1 : above ? 0 : -1;
    case CMP_EQ: return a == b ? 1 : below || above ? 0 : -1;
    case CMP_NE: return a == b ? 0 : below || above ? 1 : -1;
    case CMP_GE: return size_le(b, a) ? 1 : below ? 0 : -1;
    case CMP_GT: return above ? 1 : size_le(a, b) ? 0 : -1;
    }
    return -1;
}

int64_t sizes_reduce(enum reduce_kind op, int64_t a, int64_t b)
{
    switch (op) {
    case RED_SUM: return size_add(a, b);
    case RED_PROD: return size_mul(a, b);
    case RED_MAX: return size_max(a, b);
    case RED_MIN: return size_min(a, b);
    default: return SIZE_BAD;
    }
}
