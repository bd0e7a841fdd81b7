/* A module for checks of RUN, as SOL would make one: this file is part of sol-device-test, and a text for devices that
 * compile (behind that of sol/module.h). Forward: 0 t = 3 * x, 1 y = t + constant, 2 z = the sum of y by a team, in
 * two stages, 3 y = y + a seed, by way of scratch memory, 4 reports an error where x is 999. */
enum { TEST_N = 1000, TEST_PARTS = 64 };
enum { TEST_X, TEST_Y, TEST_Z, TEST_T, TEST_C, TEST_BUFFERS };

static void test_scale(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)f, (void)worker;
    for (int64_t i = task0; i < task1; i++) ((float *)p[1])[i] = ((const float *)p[0])[i] * 3;
}

static void test_add(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)f, (void)worker;
    for (int64_t i = task0; i < task1; i++) ((float *)p[2])[i] = ((const float *)p[0])[i] + ((const float *)p[1])[i];
}

static void test_part(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)worker;
    for (int64_t k = task0; k < task1; k++) {
        float *sum = (float *)p[1] + k;
        *sum = 0;
        for (int64_t i = k; i < f->sizes[0]; i += TEST_PARTS) *sum += ((const float *)p[0])[i];
    }
}

static void test_parts(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    float *part = (float *)p[1]; /* TEST_PARTS of them, then the sum */
    (void)f, (void)task0, (void)task1, (void)worker;
    part[TEST_PARTS] = 0;
    for (int i = 0; i < TEST_PARTS; i++) part[TEST_PARTS] += part[i];
}

static void test_sum(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)task0, (void)task1;
    f->team->run(f->team->user, test_part, p, f, TEST_PARTS, worker);
    f->team->run(f->team->user, test_parts, p, f, 1, worker);
}

static void test_seed(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    float *mine = (float *)((char *)f->scratch + worker * f->scratch_bytes);
    for (int64_t i = task0; i < task1; i++) {
        *mine = ((const float *)p[0])[i];
        ((float *)p[0])[i] = *mine + (float)f->seeds[1];
    }
}

static void test_report(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)worker;
    for (int64_t i = task0; i < task1; i++)
        if (((const float *)p[0])[i] == 999 && !*f->error) {
            *f->error_step = f->step;
            *f->error = SOL_KERNEL_INDEX;
        }
}

static const float test_constant[TEST_N] __attribute__((aligned(64))) = {5, 6, 7, [500] = -8, [TEST_N - 1] = 9};
static const struct sol_buffer test_buffers[] = {
    [TEST_X] = {.kind = SOL_BUFFER_INPUT, .bytes = TEST_N * 4, .given = SOL_GIVEN_FORWARD},
    [TEST_Y] = {.kind = SOL_BUFFER_OUTPUT, .bytes = TEST_N * 4, .given = SOL_GIVEN_FORWARD},
    [TEST_Z] = {.kind = SOL_BUFFER_OUTPUT, .index = 1, .bytes = (TEST_PARTS + 1) * 4, .given = SOL_GIVEN_FORWARD},
    [TEST_T] = {.kind = SOL_BUFFER_WORKSPACE, .bytes = TEST_N * 4},
    [TEST_C] = {.kind = SOL_BUFFER_CONST, .bytes = TEST_N * 4, .data = test_constant},
};
/* x begins at element 1 of its buffer; places of step 0, 1, 2, 3, 4 */
static const struct sol_operand test_places[] = {{TEST_X, 4}, {TEST_T, 0}, {TEST_T, 0}, {TEST_C, 0}, {TEST_Y, 0},
                                                 {TEST_Y, 0}, {TEST_Z, 0}, {TEST_Y, 0}, {TEST_X, 4}};
static const struct sol_step test_steps[] = {
    {.run = test_scale, .tasks = SOL_SIZE, .place0 = 0, .places = 2, .label = "scale"},
    {.run = test_add, .tasks = SOL_SIZE, .place0 = 2, .places = 3, .label = "add"},
    {.run = test_sum, .tasks = SOL_SIZE, .place0 = 5, .places = 2, .label = "sum", .kind = SOL_STEP_TEAM},
    {.run = test_seed, .tasks = SOL_SIZE, .place0 = 7, .places = 1, .label = "seed"},
    {.run = test_report, .tasks = SOL_SIZE, .place0 = 8, .places = 1, .label = "report"},
};
static const struct sol_module_dim test_dims[] = {{.name = "n", .hint = TEST_N - 1, .max = TEST_N - 1, .multiple = 1}};

static int32_t test_sizes(int64_t *size)
{
    (void)size;
    return 1;
}

const struct sol_module sol_module __attribute__((visibility("default"))) = {
    .size = sizeof(struct sol_module),
    .version = SOL_MODULE_VERSION,
    .ninput = 1,
    .noutput = 2,
    .nbuffer = TEST_BUFFERS,
    .buffer = test_buffers,
    .forward = {.nstep = 5, .nplace = 9, .step = test_steps, .place = test_places, .scratch_bytes = 64},
    .nsize = 1,
    .ndim = 1,
    .dim = test_dims,
    .sizes = test_sizes,
};
