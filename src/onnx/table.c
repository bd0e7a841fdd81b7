/* The table of operators, and finding a row in it. */
#include <string.h>

#include "onnx/ops.h"

static const struct op ops[] = {
#define OP(domain, name, first, last, least, most, function, kind) \
    {domain, name, first, last, least, most, function, kind},
#define REJECTED(name, reason)
#include "onnx/ops.def"
#undef OP
#undef REJECTED
};

static const struct {
    const char *name, *reason;
} rejected[] = {
#define OP(...)
#define REJECTED(name, reason) {name, reason},
#include "onnx/ops.def"
#undef OP
#undef REJECTED
};

const struct op *op_at(int i)
{
    return i >= 0 && i < COUNT_OF(ops) ? &ops[i] : NULL;
}

const struct op *op_find(const char *domain, const char *name, int64_t version, const char **out_reason)
{
    *out_reason = *domain ? "operators of this domain are not known, and the model has no function of this name"
                          : "there is no such operator";
    for (int i = 0; i < COUNT_OF(ops); i++) {
        if (strcmp(ops[i].name, name) || strcmp(ops[i].domain, domain)) continue;
        if (version >= ops[i].first && (!ops[i].last || version <= ops[i].last)) return &ops[i];
        *out_reason = "the operator does not exist in this opset";
    }
    for (int i = 0; i < COUNT_OF(rejected) && !*domain; i++)
        if (!strcmp(rejected[i].name, name)) *out_reason = rejected[i].reason;
    return NULL;
}
