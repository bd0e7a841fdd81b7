/* Recurrent layers. Those with the usual functions are layers of SOL. All others (peepholes, other functions, sequences
 * of different lengths) are unrolled. */
#include "onnx/ops.h"

#define MOST_STEPS 512

struct cell {
    tensor x, h, c;       /* [T N I]; [N H], NULL: zeros */
    tensor w, u, b, e, p; /* [gates*H I], [gates*H H], [gates*H], .., [3*H]; b, e, p may be NULL */
    tensor lengths;       /* [N 1], NULL: all are T */
    const char *act[3];
    int64_t size;
    bool reverse, inner;
    tensor y, last_h, last_c; /* results */
};

static const char *const functions[][2] = {
    {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"}, {"Relu", "relu"}, {"Softsign", "softsign"}, {"Softplus", "softplus"}};

static tensor act(struct node *n, const char *function, tensor x)
{
    enum sol_dtype t = nd_type_of(x);
    if (!strcmp(function, "softplus")) return nd_fn3(n, function, x, nd_number(n, t, 1), nd_number(n, t, 40));
    return nd_fn1(n, function, x);
}

static tensor gate(struct node *n, const struct cell *c, tensor all, int i)
{
    return nd_slice(n, all, -1, i * c->size, (i + 1) * c->size);
}

static tensor linear(struct node *n, tensor x, tensor w, tensor b)
{
    return nd_make(n, "Linear", b ? 3 : 2, (tensor[]){x, w, b}, PLAIN);
}

/* The parts of a step that a peephole adds: P[i] * c. */
static tensor peep(struct node *n, const struct cell *k, tensor gate_value, int i, tensor c)
{
    return k->p ? nd_fn2(n, "add", gate_value, nd_fn2(n, "mul", gate(n, k, k->p, i), c)) : gate_value;
}

static void step_lstm(struct node *n, const struct cell *k, tensor xw, tensor *h, tensor *c)
{
    tensor all = nd_fn2(n, "add", xw, linear(n, *h, k->u, k->e));
    tensor i = act(n, k->act[0], peep(n, k, gate(n, k, all, 0), 0, *c));
    tensor f = act(n, k->act[0], peep(n, k, gate(n, k, all, 2), 2, *c));
    tensor g = act(n, k->act[1], gate(n, k, all, 3));
    *c = nd_fn2(n, "add", nd_fn2(n, "mul", f, *c), nd_fn2(n, "mul", i, g));
    tensor o = act(n, k->act[0], peep(n, k, gate(n, k, all, 1), 1, *c));
    *h = nd_fn2(n, "mul", o, act(n, k->act[2], *c));
}

static void step_gru(struct node *n, const struct cell *k, tensor xw, tensor *h)
{
    int64_t zr = 2 * k->size, all = 3 * k->size;
    tensor e_zr = k->e ? nd_slice(n, k->e, 0, 0, zr) : NULL, e_h = k->e ? nd_slice(n, k->e, 0, zr, all) : NULL;
    tensor u_zr = nd_slice(n, k->u, 0, 0, zr), u_h = nd_slice(n, k->u, 0, zr, all);
    tensor gates = nd_fn2(n, "add", nd_slice(n, xw, -1, 0, zr), linear(n, *h, u_zr, e_zr));
    tensor z = act(n, k->act[0], gate(n, k, gates, 0)), r = act(n, k->act[0], gate(n, k, gates, 1));
    tensor inner =
        k->inner ? nd_fn2(n, "mul", r, linear(n, *h, u_h, e_h)) : linear(n, nd_fn2(n, "mul", r, *h), u_h, e_h);
    tensor g = act(n, k->act[1], nd_fn2(n, "add", nd_slice(n, xw, -1, zr, all), inner));
    *h = nd_fn2(n, "add", g, nd_fn2(n, "mul", z, nd_fn2(n, "sub", *h, g)));
}

/* After the end of a sequence the state does not change and the output is 0. */
static void write_out(struct node *n, struct cell *k)
{
    int64_t steps = nd_size(k->x, 0), state[2] = {nd_size(k->x, 1), k->size};
    bool lstm = !strcmp(n->op->name, "LSTM"), gru = !strcmp(n->op->name, "GRU");
    if (!nd_fixed(n, steps, "the number of steps")) return;
    if (steps > MOST_STEPS || !steps) {
        nd_reject(n, "more than %d steps (or none) are not supported here", MOST_STEPS);
        return;
    }
    enum sol_dtype t = nd_type_of(k->x);
    tensor *y = NEW_ARRAY(n->r->arena, tensor, steps), zero = nd_fill(n, t, 2, state, 0);
    tensor h = k->h ? k->h : zero, c = k->c ? k->c : zero, xw = linear(n, k->x, k->w, k->b);
    for (int64_t i = 0; i < steps && !n->status; i++) {
        int64_t at = k->reverse ? steps - 1 - i : i;
        tensor old_h = h, old_c = c, now = nd_make(n, "Select", IN(xw), WITH(INT("axis", 0), INT("index", at)));
        if (lstm)
            step_lstm(n, k, now, &h, &c);
        else if (gru)
            step_gru(n, k, now, &h);
        else
            h = act(n, k->act[0], nd_fn2(n, "add", now, linear(n, h, k->u, k->e)));
        y[at] = h;
        if (!k->lengths) continue;
        tensor runs = nd_fn2(n, "gt", k->lengths, nd_number(n, SOL_I64, (double)at));
        y[at] = nd_fn3(n, "where", runs, h, zero);
        h = nd_fn3(n, "where", runs, h, old_h);
        if (lstm) c = nd_fn3(n, "where", runs, c, old_c);
    }
    k->y = nd_make(n, "Stack", (int)steps, y, WITH(INT("axis", 0)));
    k->last_h = h;
    k->last_c = c;
}

static void use_row(struct node *n, struct cell *k)
{
    tensor out[3] = {0}, inputs[7] = {k->x, k->w, k->u, k->b, k->e, k->h, k->c};
    const struct nd_layer lstm = {"LSTM", 7, inputs, WITH(TEXT("order", "iofg"), INT("reverse", k->reverse))};
    const struct nd_layer gru = {"GRU", 6, inputs,
                                 WITH(TEXT("order", "zrn"), INT("reverse", k->reverse), INT("inner", k->inner))};
    const struct nd_layer rnn = {"RNN", 6, inputs, WITH(TEXT("act", k->act[0]), INT("reverse", k->reverse))};
    if (!strcmp(n->op->name, "LSTM"))
        nd_make_all(n, &lstm, 3, out);
    else
        nd_make_all(n, strcmp(n->op->name, "GRU") ? &rnn : &gru, 2, out);
    k->y = out[0];
    k->last_h = out[1];
    k->last_c = out[2];
}

static bool is_usual(const struct node *n, const struct cell *k)
{
    if (k->p || k->lengths) return false;
    bool simple = !strcmp(n->op->name, "RNN");
    if (simple) return !strcmp(k->act[0], "tanh") || !strcmp(k->act[0], "relu");
    bool lstm = !strcmp(n->op->name, "LSTM");
    return !strcmp(k->act[0], "sigmoid") && !strcmp(k->act[1], "tanh") && (!lstm || !strcmp(k->act[2], "tanh"));
}

/* The functions of direction d: three names for LSTM, two for GRU, one for RNN. */
static void read_functions(struct node *n, int directions, int d, struct cell *k)
{
    const char *names[6];
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    int each = !strcmp(n->op->name, "LSTM") ? 3 : !strcmp(n->op->name, "GRU") ? 2 : 1;
    int given = attr_texts(n, "activations", 6, names);
    if (given > 0 && given != each * directions)
        nd_invalid(n, "activations: expected %d names, got %d", each * directions, given);
    for (int i = 0; i < each && !n->status; i++) {
        const char *name = given > 0 ? names[each * d + i] : each == 1 ? "Tanh" : usual[i];
        k->act[i] = NULL;
        for (int f = 0; f < COUNT_OF(functions); f++)
            if (!strcasecmp(name, functions[f][0])) k->act[i] = functions[f][1];
        if (!k->act[i]) nd_reject(n, "activation '%.40s' is not supported", name);
    }
}

static tensor pick(struct node *n, tensor x, int axis, int i)
{
    return x ? nd_make(n, "Select", IN(x), WITH(INT("axis", axis), INT("index", i))) : NULL;
}

/* Do all sequences have the full length? If this is unknown, each step checks. */
static tensor read_lengths(struct node *n, int64_t steps, int64_t batch)
{
    if (!nd_has(n, 4)) return NULL;
    tensor lengths = nd_in(n, 4);
    const bool fixed = !size_varies(batch) && !size_varies(steps);
    bool full = fixed && nd_is_known(n, 4) && nd_elements(lengths) == batch;
    int64_t *known = NEW_ARRAY(n->r->arena, int64_t, full ? batch : 1);
    if (full) full = known_ints(n, 4, "sequence_lens", (int)batch, known) == batch;
    for (int64_t i = 0; i < batch && full; i++) full = known[i] == steps;
    return full ? NULL : nd_reshape(n, nd_cast(n, lengths, SOL_I64), 2, (int64_t[]){batch, 1});
}

static bool check_shapes(struct node *n, tensor x, int gates, int directions, int64_t hidden)
{
    tensor w = nd_in(n, 1), u = nd_in(n, 2), b = nd_in(n, 3);
    if (n->status) return false;
    bool fits = nd_rank(x) == 3 && nd_rank(w) == 3 && nd_rank(u) == 3 && nd_size(w, 0) == directions &&
                nd_size(u, 0) == directions && nd_size(w, 1) == gates * hidden && nd_size(u, 1) == gates * hidden &&
                nd_size(u, 2) == hidden && nd_size(w, 2) == nd_size(x, 2);
    if (b) fits = fits && nd_rank(b) == 2 && nd_size(b, 0) == directions && nd_size(b, 1) == 2 * gates * hidden;
    if (!fits) nd_invalid(n, "the shapes of X, W, R and B do not fit each other");
    return fits && !nd_above(nd_size(x, 1), INT32_MAX - 1);
}

static void read_direction(struct node *n, int gates, int directions, int d, bool batch_first, struct cell *k)
{
    tensor b = nd_in(n, 3);
    int state_axis = batch_first;
    k->w = pick(n, nd_in(n, 1), 0, d);
    k->u = pick(n, nd_in(n, 2), 0, d);
    if (b) {
        tensor both = pick(n, b, 0, d);
        k->b = nd_slice(n, both, 0, 0, gates * k->size);
        k->e = nd_slice(n, both, 0, gates * k->size, 2 * gates * k->size);
    }
    k->h = pick(n, nd_in(n, 5), state_axis, d);
    k->c = pick(n, nd_in(n, 6), state_axis, d);
    k->p = pick(n, nd_in(n, 7), 0, d);
    read_functions(n, directions, d, k);
}

sol_status op_recurrent(struct node *n)
{
    struct cell k[2] = {0};
    tensor x = nd_in(n, 0), outs[3][2];
    int gates = !strcmp(n->op->name, "LSTM") ? 4 : !strcmp(n->op->name, "GRU") ? 3 : 1;
    const char *direction = attr_text(n, "direction", "forward");
    bool both = !strcmp(direction, "bidirectional"), back = !strcmp(direction, "reverse");
    bool batch_first = attr_flag(n, "layout", 0), inner = attr_flag(n, "linear_before_reset", 0);
    int64_t hidden = attr_int(n, "hidden_size", nd_size(nd_in(n, 2), 2));
    if (hidden < 1 || hidden > 1 << 24) return n->status ? n->status : nd_invalid(n, "hidden_size is out of range");
    if (attr_flag(n, "input_forget", 0)) nd_reject(n, "input_forget=1 is not supported");
    if (!both && !back && strcmp(direction, "forward")) nd_invalid(n, "direction '%.40s' does not exist", direction);
    if (!check_shapes(n, x, gates, 1 + both, hidden)) return n->status;
    if (batch_first) x = nd_swap(n, x, 0, 1);
    tensor lengths = read_lengths(n, nd_size(x, 0), nd_size(x, 1));
    for (int d = 0; d <= both; d++) {
        k[d] = (struct cell){.x = x, .lengths = lengths, .size = hidden, .reverse = back || d, .inner = inner};
        read_direction(n, gates, 1 + both, d, batch_first, &k[d]);
        if (n->status) return n->status;
        if (is_usual(n, &k[d]))
            use_row(n, &k[d]);
        else
            write_out(n, &k[d]);
        outs[0][d] = k[d].y;
        outs[1][d] = k[d].last_h;
        outs[2][d] = k[d].last_c;
    }
    for (int i = 0; i < MIN(n->nout, 3); i++) {
        if (!nd_wants(n, i)) continue;
        tensor y = nd_make(n, "Stack", 1 + both, outs[i], WITH(INT("axis", i ? batch_first : 1)));
        nd_give(n, i, i || !batch_first ? y : nd_permute(n, y, (int64_t[]){2, 0, 1, 3}));
    }
    return n->status;
}
