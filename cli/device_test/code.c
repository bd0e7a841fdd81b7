/* Code: compile, load and find, and what RUN and LAUNCH do with it. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "build/build.h"
#include "module.c"

/* The text of that file. */
__asm__(".section .rodata\n"
        "sol_test_module_text:\n"
        ".incbin \"device_test/module.c\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char sol_test_module_text[] __attribute__((visibility("hidden")));

static const struct test_kernel *const kernels[] = {&opencl_kernel, &cuda_kernel};

static bool has(const struct bench *b, uint32_t features)
{
    return (b->type->features & features) == features;
}

static const char *kernel_text(const struct bench *b)
{
    for (int i = 0; i < COUNT_OF(kernels); i++)
        if (!strcmp(kernels[i]->flavour, b->type->flavour)) return kernels[i]->text;
    return NULL;
}

/* -- code of the checks */

struct loaded {
    struct sol_blob blob;
    struct sol_code *code;
};

static const char flags[] = "-O2 -std=gnu11 -fPIC -fwrapv -fno-strict-aliasing -fvisibility=hidden";

static sol_status compile_text(struct bench *b, const char *text, struct sol_blob *out_blob,
                               struct sol_failure *out_why)
{
    const struct sol_code_text t = {
        .size = sizeof t, .name = "sol_device_test", .text = text, .arch = b->info.arch, .flags = flags};
    *out_blob = (struct sol_blob){.size = sizeof *out_blob, .name = "sol_device_test"};
    return b->type->compile(b->type, b->host, &t, out_blob, out_why);
}

static char *joined(const char *x, const char *y)
{
    const size_t n = strlen(x);
    char *text = malloc(n + strlen(y) + 1);
    memcpy(text, x, n);
    strcpy(text + n, y);
    return text;
}

/* The module, or the kernel in the device's flavour. */
static enum verdict load(struct bench *b, struct loaded *l)
{
    struct sol_failure why = failure_new();
    sol_status status = SOL_OK;
    *l = (struct loaded){.blob = {.size = sizeof l->blob, .name = "sol_device_test"}};
    if (!has(b, SOL_DEVICE_IN_PROCESS)) {
        char *text = has(b, SOL_DEVICE_LAUNCHES) ? joined(kernel_text(b), "")
                                                 : joined(source_header(NULL), sol_test_module_text);
        status = compile_text(b, text, &l->blob, &why);
        free(text);
        WANT(!status, "a small text compiles", "status %d: %s", status, why.text);
        WANT(l->blob.data && l->blob.bytes, "code", "no bytes");
    }
    if (!has(b, SOL_DEVICE_LAUNCHES)) l->blob.module = &sol_module;
    struct sol_blob passing = l->blob;
    passing.data = l->blob.data ? memcpy(malloc(l->blob.bytes), l->blob.data, l->blob.bytes) : NULL;
    status = b->type->load(b->device, &passing, &l->code, &why);
    if (passing.data) memset((void *)(uintptr_t)passing.data, 0, passing.bytes); /* load has copied it */
    free((void *)(uintptr_t)passing.data);
    WANT(!status, "the code loads", "status %d: %s", status, why.text);
    return GOOD;
}

static void unload(struct bench *b, struct loaded *l)
{
    b->type->unload(l->code);
    if (l->blob.data) b->type->blob_free(b->type, b->host, &l->blob);
}

/* -- compile, load, find */

static enum verdict nonsense_is_rejected(struct bench *b)
{
    struct sol_failure why = failure_new();
    struct sol_blob blob;
    if (!b->type->compile) return skip(b, "SOL compiles for this device");
    const sol_status status = compile_text(b, "this is not code;\nnor this\n", &blob, &why);
    WANT(status == SOL_ERR_COMPILER, "SOL_ERR_COMPILER for a text that is not code", "status %d, '%s'", status,
         why.text);
    WANT(says_why(&why) && strlen(why.text) > 20, "the first lines of the compiler's log", "'%s'", why.text);
    return GOOD;
}

static enum verdict damaged_code_is_rejected(struct bench *b)
{
    struct sol_failure why = failure_new();
    struct sol_code *code = NULL;
    static const char nonsense[5000] = "no code";
    if (has(b, SOL_DEVICE_IN_PROCESS)) return skip(b, "IN_PROCESS: code has no bytes");
    const struct sol_blob blob = {.size = sizeof blob,
                                  .data = nonsense,
                                  .bytes = sizeof nonsense,
                                  .module = has(b, SOL_DEVICE_LAUNCHES) ? NULL : &sol_module,
                                  .name = "nonsense"};
    const sol_status status = b->type->load(b->device, &blob, &code, &why);
    WANT(status && says_why(&why), "an error for bytes that are not code", "status %d, '%s'", status, why.text);
    struct loaded l;
    const enum verdict verdict = load(b, &l);
    if (verdict) return verdict;
    unload(b, &l);
    return GOOD;
}

static enum verdict unknown_kernels_are_not_found(struct bench *b)
{
    struct sol_failure why = failure_new();
    struct loaded l;
    void *kernel = NULL;
    if (!has(b, SOL_DEVICE_LAUNCHES)) return skip(b, "no LAUNCHES");
    if (!kernel_text(b)) return skip(b, "sol-device-test has no kernel in its flavour");
    TRY(load(b, &l));
    sol_status status = b->type->find(l.code, "nobody", &kernel, &why);
    WANT(status && says_why(&why), "an error for a function that the source does not have", "status %d, '%s'", status,
         why.text);
    why = failure_new();
    status = b->type->find(l.code, "sol_test", &kernel, &why);
    WANT(!status && kernel, "the function that it has", "%s", why.text);
    unload(b, &l);
    return GOOD;
}

static enum verdict launches_compute(struct bench *b)
{
    enum { ITEMS = 16, GROUPS = 5, N = ITEMS * GROUPS, SKIP = 12 };
    struct sol_failure why = failure_new();
    struct loaded l;
    struct lane lane;
    void *kernel;
    sol_ptr raw[2];
    int32_t in[N], out[N], value = 7;
    if (!has(b, SOL_DEVICE_LAUNCHES)) return skip(b, "no LAUNCHES");
    if (!kernel_text(b)) return skip(b, "sol-device-test has no kernel in its flavour");
    TRY(load(b, &l));
    sol_status status = b->type->find(l.code, "sol_test", &kernel, &why);
    for (int i = 0; i < 2 && !status; i++) status = b->type->alloc(b->device, sizeof in + SKIP, &raw[i], &why);
    if (!status) status = lane_open(&lane, b, &why);
    WANT(!status, "a kernel, memory and a stream", "%s", why.text);
    for (int i = 0; i < N; i++) in[i] = i * 3;
    const int32_t other = 1000;
    struct sol_arg arg[] = {{.kind = SOL_ARG_POINTER, .pointer = raw[1] + SKIP},
                            {.kind = SOL_ARG_POINTER, .pointer = raw[0] + SKIP},
                            {.kind = SOL_ARG_VALUE, .bytes = sizeof value, .value = &value},
                            {.kind = SOL_ARG_SHARED, .bytes = ITEMS * sizeof(int32_t)}};
    const struct sol_arg wrong_arg[] = {
        arg[0], arg[1], {.kind = SOL_ARG_VALUE, .bytes = sizeof other, .value = &other}, arg[3]};
    struct sol_launch launch = {
        .kernel = kernel, .groups = {GROUPS, 1, 1}, .items = {ITEMS, 1, 1}, .narg = COUNT_OF(arg), .arg = arg};
    struct sol_launch none = launch;
    none.groups[1] = 0;
    none.arg = wrong_arg;
    const struct sol_command c[] = {write_of(raw[0] + SKIP, in, sizeof in),
                                    fill_of(raw[1], 0, sizeof in + SKIP),
                                    {.kind = SOL_COMMAND_LAUNCH, .label = "test", .launch = &launch},
                                    {.kind = SOL_COMMAND_LAUNCH, .label = "no groups", .launch = &none}};
    status = lane_submit(&lane, COUNT_OF(c), c, &why);
    WANT(!status, "success", "%s", why.text);
    value = 1000000; /* submit has copied it, the launch and the arguments */
    memset(arg, 0, sizeof arg);
    memset(&launch, 0, sizeof launch);
    const struct sol_command r = read_of(raw[1] + SKIP, out, sizeof out);
    status = lane_do(&lane, 1, &r, &why);
    WANT(!status, "success", "%s", why.text);
    for (int i = 0; i < N; i++) WANT(out[i] == i * 3 + 7, "in[i] + 7", "%d for i = %d", out[i], i);
    lane_close(&lane);
    for (int i = 0; i < 2; i++) b->type->free(b->device, raw[i]);
    unload(b, &l);
    return GOOD;
}

/* -- RUN */

enum { SEED = 11, MOST_THREADS = 4 };

struct program {
    struct loaded loaded;
    struct lane lane;
    sol_ptr raw[TEST_BUFFERS], scratch;
    int64_t sizes[1], step_ns[5];
    uint64_t seeds[8];
    struct sol_run run;
    float x[TEST_N], y[TEST_N], z[TEST_PARTS + 1];
};

static enum verdict program_open(struct bench *b, struct program **out_p)
{
    struct sol_failure why = failure_new();
    struct program *p = calloc(1, sizeof *p);
    TRY(load(b, &p->loaded));
    sol_status status = lane_open(&p->lane, b, &why);
    for (int i = 0; i < TEST_BUFFERS && !status; i++)
        status = b->type->alloc(b->device, sol_module.buffer[i].bytes, &p->raw[i], &why);
    if (!status) status = b->type->alloc(b->device, MOST_THREADS * 64, &p->scratch, &why);
    const struct sol_command constant = write_of(p->raw[TEST_C], test_constant, sizeof test_constant);
    if (!status) status = lane_do(&p->lane, 1, &constant, &why);
    WANT(!status, "memory, and a stream", "%s", why.text);
    for (int i = 0; i < TEST_N; i++) p->x[i] = (float)(i % 50);
    p->sizes[0] = TEST_N - 1;
    p->seeds[1] = SEED;
    p->run = (struct sol_run){.code = p->loaded.code,
                              .program = 1,
                              .count = 5,
                              .nbase = TEST_BUFFERS,
                              .base = p->raw,
                              .scratch = p->scratch,
                              .sizes = p->sizes,
                              .seeds = p->seeds,
                              .nseed = 8,
                              .threads = MOST_THREADS};
    *out_p = p;
    return GOOD;
}

static void program_close(struct bench *b, struct program *p)
{
    lane_close(&p->lane);
    for (int i = 0; i < TEST_BUFFERS; i++) b->type->free(b->device, p->raw[i]);
    b->type->free(b->device, p->scratch);
    unload(b, &p->loaded);
    free(p);
}

/* Writes x, clears y, runs what `run` says, and reads y and z. IN_PROCESS code has its constants. */
static sol_status program_run(struct program *p, struct sol_failure *out_why)
{
    const sol_ptr constant = p->raw[TEST_C];
    if (has(p->lane.b, SOL_DEVICE_IN_PROCESS)) p->raw[TEST_C] = 0;
    const struct sol_command c[] = {write_of(p->raw[TEST_X], p->x, sizeof p->x),
                                    fill_of(p->raw[TEST_Y], 0, sizeof p->y),
                                    {.kind = SOL_COMMAND_RUN, .label = "test", .run = &p->run},
                                    read_of(p->raw[TEST_Y], p->y, sizeof p->y),
                                    read_of(p->raw[TEST_Z], p->z, sizeof p->z)};
    const sol_status status = lane_do(&p->lane, COUNT_OF(c), c, out_why);
    p->raw[TEST_C] = constant;
    return status;
}

static enum verdict compare(struct bench *b, const struct program *p, int n, bool scaled, bool seeded)
{
    float sum = 0;
    for (int i = 0; i < n; i++) {
        const float before = scaled ? p->x[i + 1] * 3 + test_constant[i] : 0;
        const float want = before + (seeded ? SEED : 0);
        sum += before;
        WANT(p->y[i] == want, "what the steps compute", "%g instead of %g in element %d", p->y[i], want, i);
    }
    WANT(p->y[n] == 0, "tasks up to the size of the call", "element %d was written, too", n);
    if (scaled && n) WANT(p->z[TEST_PARTS] == sum, "the sum by all workers", "%g instead of %g", p->z[TEST_PARTS], sum);
    return GOOD;
}

static enum verdict programs_run(struct bench *b)
{
    struct program *p;
    struct sol_failure why;
    if (!has(b, SOL_DEVICE_PROGRAMS)) return skip(b, "no PROGRAMS");
    TRY(program_open(b, &p));
    for (int threads = 1; threads <= MOST_THREADS; threads += 3)
        for (int n = TEST_N - 1; n >= 0; n -= 333) {
            p->run.threads = threads;
            p->sizes[0] = n;
            const sol_status status = program_run(p, &why);
            WANT(!status, "success", "status %d: %s", status, why.text);
            TRY(compare(b, p, n, true, true));
        }
    program_close(b, p);
    return GOOD;
}

static enum verdict parts_of_programs_run(struct bench *b)
{
    static const unsigned char without_scale[] = {0, 0, 0, 1, 1};
    struct program *p;
    struct sol_failure why;
    if (!has(b, SOL_DEVICE_PROGRAMS)) return skip(b, "no PROGRAMS");
    TRY(program_open(b, &p));
    p->run.only = without_scale;
    sol_status status = program_run(p, &why);
    WANT(!status, "success", "%s", why.text);
    TRY(compare(b, p, TEST_N - 1, false, true));
    p->run.only = NULL;
    p->run.count = 3;
    status = program_run(p, &why);
    WANT(!status, "success", "%s", why.text);
    TRY(compare(b, p, TEST_N - 1, true, false));
    p->run.first = 3;
    p->run.count = 1;
    status = program_run(p, &why);
    WANT(!status, "success", "%s", why.text);
    TRY(compare(b, p, TEST_N - 1, false, true));
    program_close(b, p);
    return GOOD;
}

static enum verdict steps_are_timed(struct bench *b)
{
    struct program *p;
    struct sol_failure why;
    if (!has(b, SOL_DEVICE_PROGRAMS)) return skip(b, "no PROGRAMS");
    TRY(program_open(b, &p));
    for (int i = 0; i < 5; i++) p->step_ns[i] = 0;
    p->run.step_ns = p->step_ns;
    p->run.first = 1;
    p->run.count = 3;
    const sol_status status = program_run(p, &why);
    WANT(!status, "success", "%s", why.text);
    int64_t total = 0;
    for (int i = 1; i < 4; i++) total += p->step_ns[i];
    WANT(p->step_ns[0] == 0 && p->step_ns[4] == 0, "times of steps that ran only", "%lld and %lld of steps 0 and 4",
         (long long)p->step_ns[0], (long long)p->step_ns[4]);
    WANT(total > 0, "the time of each step in step_ns", "0");
    program_close(b, p);
    return GOOD;
}

/* The third command of the stream's submit fails. */
static enum verdict failures_are_reported(struct bench *b)
{
    struct program *p;
    struct sol_failure why;
    unsigned char after[64], before[64];
    if (!has(b, SOL_DEVICE_PROGRAMS)) return skip(b, "no PROGRAMS: kernels report by memory");
    TRY(program_open(b, &p));
    const int64_t earlier = p->lane.ticket;
    p->x[77] = 999;
    const sol_status status = program_run(p, &why);
    WANT(status == SOL_ERR_RUN && says_why(&why), "SOL_ERR_RUN with a text", "status %d, '%s'", status, why.text);
    WANT(why.kernel == SOL_KERNEL_INDEX, "what the kernel reported, SOL_KERNEL_INDEX", "kernel %d", why.kernel);
    WANT(why.step == 4, "step 4, counted in the program", "%d", why.step);
    WANT(why.ticket == earlier + 3, "the ticket of the command that failed", "%lld instead of %lld",
         (long long)why.ticket, (long long)earlier + 3);
    for (int again = 0; again < 2 && !runs_in_order(b); again++) {
        const sol_status repeated = lane_wait(&p->lane, &why);
        WANT(repeated == SOL_ERR_RUN && why.ticket == earlier + 3, "poll reports the failure again",
             "status %d of ticket %lld", repeated, (long long)why.ticket);
    }
    memset(before, 1, sizeof before);
    struct lane other;
    sol_status good = lane_open(&other, b, &why);
    const struct sol_command c[] = {write_of(p->raw[TEST_T], before, sizeof before),
                                    read_of(p->raw[TEST_T], after, sizeof after)};
    if (!good) good = lane_do(&other, 2, c, &why);
    WANT(!good && !memcmp(before, after, sizeof after), "another stream that is not concerned", "status %d: %s", good,
         why.text);
    lane_close(&other);
    lane_close(&p->lane);
    good = lane_open(&p->lane, b, &why);
    p->x[77] = 1;
    if (!good) good = program_run(p, &why);
    WANT(!good, "a new stream that runs", "%s", why.text);
    TRY(compare(b, p, TEST_N - 1, true, true));
    program_close(b, p);
    return GOOD;
}

/* What stands behind a failure in its stream is not executed. */
static enum verdict later_commands_are_dropped(struct bench *b)
{
    struct program *p;
    struct sol_failure why;
    unsigned char ones[100], got[100];
    if (!has(b, SOL_DEVICE_PROGRAMS)) return skip(b, "no PROGRAMS: kernels report by memory");
    TRY(program_open(b, &p));
    memset(ones, 1, sizeof ones);
    memset(got, 7, sizeof got);
    p->x[5] = 999;
    const sol_ptr constant = p->raw[TEST_C];
    if (has(b, SOL_DEVICE_IN_PROCESS)) p->raw[TEST_C] = 0;
    const struct sol_command c[] = {write_of(p->raw[TEST_X], p->x, sizeof p->x),
                                    write_of(p->raw[TEST_Z], ones, sizeof ones),
                                    {.kind = SOL_COMMAND_RUN, .label = "test", .run = &p->run},
                                    fill_of(p->raw[TEST_X], 3, sizeof p->x),
                                    read_of(p->raw[TEST_X], got, sizeof got)};
    sol_status status = lane_do(&p->lane, COUNT_OF(c), c, &why);
    p->raw[TEST_C] = constant;
    WANT(status == SOL_ERR_RUN, "SOL_ERR_RUN", "status %d", status);
    for (int i = 0; i < (int)sizeof got; i++) WANT(got[i] == 7, "no READ behind the failure", "byte %d was read", i);
    lane_close(&p->lane);
    status = lane_open(&p->lane, b, &why);
    float x[TEST_N];
    const struct sol_command r = read_of(p->raw[TEST_X], x, sizeof x);
    if (!status) status = lane_do(&p->lane, 1, &r, &why);
    WANT(!status, "a new stream", "%s", why.text);
    WANT(!memcmp(x, p->x, sizeof x), "no FILL behind the failure", "memory that it filled");
    program_close(b, p);
    return GOOD;
}

const struct check code_checks[] = {
    {"compile", "a text that is not code is SOL_ERR_COMPILER with the compiler's log", nonsense_is_rejected},
    {"load", "damaged code is an error, and the device goes on", damaged_code_is_rejected},
    {"find", "kernels are found by their names, others are an error", unknown_kernels_are_not_found},
    {"submit", "LAUNCH runs a kernel on all groups, with pointers, values and memory of the group", launches_compute},
    {"submit", "RUN computes all steps with any number of threads, for the sizes of the call", programs_run},
    {"submit", "RUN computes the steps first .. first + count - 1 that `only` does not skip", parts_of_programs_run},
    {"submit", "RUN gives the time of each step", steps_are_timed},
    {"submit", "a kernel's error comes with ticket, step and kernel; other streams and new ones go on",
     failures_are_reported},
    {"submit", "what follows a failure in its stream is not executed", later_commands_are_dropped},
    {0},
};
