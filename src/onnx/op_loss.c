/* Losses. */
#include "onnx/ops.h"

#define NOTHING_IGNORED (-((int64_t)1 << 52)) /* no class has this number */

sol_status op_nll_loss(struct node *n)
{
    static const char *const modes[] = {"mean", "sum", "none"};
    tensor x = nd_in(n, 0), labels = nd_in(n, 1), weight = nd_in(n, 2);
    int64_t ignored = attr_int(n, "ignore_index", NOTHING_IGNORED);
    const char *text = attr_text(n, "reduction", "mean"), *mode = NULL;
    for (int i = 0; i < COUNT_OF(modes); i++)
        if (!strcmp(text, modes[i])) mode = modes[i];
    if (!mode) return n->status ? n->status : nd_invalid(n, "reduction '%s' does not exist", text);
    if (nd_rank(x) < 2 || nd_rank(labels) != nd_rank(x) - 1)
        return n->status ? n->status : nd_invalid(n, "expected [N, C, ..] and [N, ..]");
    if (strcmp(n->op->kind, "NLLLoss")) x = nd_make(n, "LogSoftmax", IN(x), WITH(INT("axis", 1)));
    nd_give(n, 0,
            nd_make(n, "NLLLoss", weight ? 3 : 2, (tensor[]){x, labels, weight},
                    WITH(INT("ignore", ignored), TEXT("mode", mode))));
    nd_give(n, 1, x);
    return n->status;
}
