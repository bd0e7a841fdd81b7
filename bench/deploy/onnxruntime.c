/* ONNX Runtime by its C interface: program THREADS SECONDS MODEL ELEMENTS DIMS.. Its wheel has the library and no
 * header: the interface is a table of functions whose order never changes, of which these are the places that are
 * needed. */
#include <stdint.h>

#include "measure.h"

struct base {
    const void *const *(*get)(uint32_t version);
    const char *(*version)(void);
};
extern const struct base *OrtGetApiBase(void);

enum {
    ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_OPTIONS = 10,
    SET_THREADS = 24,
    CREATE_TENSOR = 49,
    TENSOR_DATA = 51,
    CREATE_MEMORY_INFO = 69,
    RELEASE_VALUE = 96,
    FLOAT = 1
};
static const void *const *api;
static void *session, *value, *result;

static void check(void *status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))api[ERROR_MESSAGE])(status));
    exit(1);
}

static const float *call(void *user)
{
    static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
    float *data = NULL;
    (void)user;
    if (result) ((void (*)(void *))api[RELEASE_VALUE])(result);
    result = NULL;
    check(((void *(*)(void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t,
                      void **))api[RUN])(session, NULL, inputs, &value, 1, outputs, 1, &result));
    check(((void *(*)(void *, float **))api[TENSOR_DATA])(result, &data));
    return data;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    void *env, *options, *memory;
    int64_t shape[8];
    const size_t n = strtoul(argv[4], NULL, 10), dims = (size_t)argc - 5;
    for (size_t i = 0; i < dims; i++) shape[i] = atoll(argv[5 + i]);
    float *x = input_data(n);
    const double begin = now_ms();
    api = OrtGetApiBase()->get(17);
    check(((void *(*)(int, const char *, void **))api[CREATE_ENV])(3, "bench", &env));
    check(((void *(*)(void **))api[CREATE_OPTIONS])(&options));
    check(((void *(*)(void *, int))api[SET_THREADS])(options, atoi(argv[1])));
    check(((void *(*)(void *, const char *, void *, void **))api[CREATE_SESSION])(env, argv[3], options, &session));
    check(((void *(*)(int, int, void **))api[CREATE_MEMORY_INFO])(0, 0, &memory));
    check(((void *(*)(void *, void *, size_t, const int64_t *, size_t, int, void **))api[CREATE_TENSOR])(
        memory, x, n * sizeof *x, shape, dims, FLOAT, &value));
    return measure(begin, atof(argv[2]), call, NULL);
}
