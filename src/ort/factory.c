/* What ONNX Runtime finds in the library: a factory, which makes a provider for each session. The options of a session
 * ("ep.sol.KEY", from add_provider_for_devices) are keys of SOL's configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ort/ort.h"

#define NAME "SOL"

struct factory {
    struct OrtEpFactory base; /* first */
    const union ort_api *api;
};

/* -- statuses and the log */

struct OrtStatus *provider_fail(const struct provider *p, sol_status status)
{
    const int code = status == SOL_ERR_INVALID       ? ORT_INVALID_ARGUMENT
                     : status == SOL_ERR_UNSUPPORTED ? ORT_NOT_IMPLEMENTED
                     : status == SOL_ERR_RUN         ? ORT_RUNTIME_EXCEPTION
                                                     : ORT_FAIL;
    char text[4096];
    snprintf(text, sizeof text, "SOL: %s", sol_error(p->ctx));
    return p->api->CreateStatus(code, text);
}

sol_status provider_check(const struct provider *p, struct OrtStatus *status)
{
    if (!status) return SOL_OK;
    ctx_fail(p->ctx, SOL_ERR_INVALID, "ONNX Runtime says: %s", p->api->GetErrorMessage(status));
    p->api->ReleaseStatus(status);
    return SOL_ERR_INVALID;
}

void provider_log(const struct provider *p, int severity, const char *text)
{
    struct OrtStatus *status = p->api->Logger_LogMessage(p->logger, severity, text, "sol", 0, NAME);
    if (status) p->api->ReleaseStatus(status);
}

static void log_line(void *user, int level, const char *line)
{
    const struct provider *p = user;
    provider_log(p,
                 level == LOG_ERROR  ? ORT_ERROR
                 : level == LOG_WARN ? ORT_WARNING
                 : level == LOG_INFO ? ORT_INFO
                                     : ORT_VERBOSE,
                 line);
}

static void no_progress(void *user, const char *what, int done, int total) /* the terminal is the application's */
{
    (void)user, (void)what, (void)done, (void)total;
}

/* -- the provider of a session */

static const char *ep_name(const struct OrtEp *ep)
{
    (void)ep;
    return NAME;
}

static sol_status take_options(struct provider *p, const struct OrtSessionOptions *options)
{
    static const char prefix[] = "ep." NAME ".";
    struct OrtKeyValuePairs *pairs;
    const char *const *keys, *const *values;
    size_t n;
    TRY(provider_check(p, p->api->GetSessionOptionsConfigEntries(options, &pairs)));
    p->api->GetKeyValuePairs(pairs, &keys, &values, &n);
    sol_status status = SOL_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (!strncasecmp(keys[i], prefix, sizeof prefix - 1)) /* ONNX Runtime writes the name in lower case */
            status = sol_config_set(p->ctx, keys[i] + sizeof prefix - 1, values[i]);
    p->api->ReleaseKeyValuePairs(pairs);
    p->threads = atoi(ctx_config(p->ctx, "threads"));
    return status;
}

static void release_ep(struct OrtEpFactory *self, struct OrtEp *ep)
{
    struct provider *p = (struct provider *)ep;
    (void)self;
    sol_ctx_destroy(p->ctx);
    free(p);
}

static struct OrtStatus *create_ep(struct OrtEpFactory *self, const struct OrtHardwareDevice *const *devices,
                                   const struct OrtKeyValuePairs *const *metadata, size_t n,
                                   const struct OrtSessionOptions *options, const struct OrtLogger *logger,
                                   struct OrtEp **out)
{
    const union ort_api *api = ((const struct factory *)self)->api;
    struct provider *p = calloc(1, sizeof *p);
    (void)devices, (void)metadata, (void)n;
    *out = NULL;
    if (!p) return api->CreateStatus(ORT_FAIL, "SOL: no memory for a provider");
    *p = (struct provider){.ep = {.version = ORT_VERSION,
                                  .GetName = ep_name,
                                  .GetCapability = provider_capability,
                                  .Compile = provider_compile,
                                  .ReleaseNodeComputeInfos = provider_release},
                           .api = api,
                           .logger = logger};
    const struct sol_ctx_options made = {.size = sizeof made, .log = log_line, .progress = no_progress, .user = p};
    if (sol_ctx_create(&made, &p->ctx)) {
        free(p);
        return api->CreateStatus(ORT_FAIL, "SOL: no memory for a context");
    }
    const sol_status status = take_options(p, options);
    if (status) {
        struct OrtStatus *failed = provider_fail(p, status);
        release_ep(self, &p->ep);
        return failed;
    }
    *out = &p->ep;
    return NULL;
}

/* -- the factory */

static const char *factory_name(const struct OrtEpFactory *self)
{
    (void)self;
    return NAME;
}

static const char *factory_version(const struct OrtEpFactory *self)
{
    (void)self;
    return SOL_VERSION;
}

static uint32_t vendor_id(const struct OrtEpFactory *self) /* none of a PCI vendor */
{
    (void)self;
    return 0;
}

static struct OrtStatus *supported_devices(struct OrtEpFactory *self, const struct OrtHardwareDevice *const *devices,
                                           size_t n, struct OrtEpDevice **out, size_t room, size_t *out_n)
{
    const union ort_api *api = ((const struct factory *)self)->api;
    struct OrtStatus *status = NULL;
    *out_n = 0;
    for (size_t i = 0; i < n && *out_n < room && !status; i++) {
        if (api->HardwareDevice_Type(devices[i]) != ORT_DEVICE_CPU) continue;
        status = api->GetEpApi()->CreateEpDevice(self, devices[i], NULL, NULL, &out[*out_n]);
        *out_n += !status;
    }
    return status;
}

/* Arrays lie in the processor's memory, which ONNX Runtime allocates, and a run is finished when it returns. */
static struct OrtStatus *no_allocator(struct OrtEpFactory *self, const struct OrtMemoryInfo *memory,
                                      const struct OrtKeyValuePairs *options, struct OrtAllocator **out)
{
    (void)self, (void)memory, (void)options;
    *out = NULL;
    return NULL;
}

static void release_allocator(struct OrtEpFactory *self, struct OrtAllocator *allocator)
{
    (void)self, (void)allocator;
}

static struct OrtStatus *no_transfer(struct OrtEpFactory *self, struct OrtDataTransferImpl **out)
{
    (void)self;
    *out = NULL;
    return NULL;
}

static bool no_streams(const struct OrtEpFactory *self)
{
    (void)self;
    return false;
}

__attribute__((visibility("default"))) struct OrtStatus *
CreateEpFactories(const char *registered_name, const struct OrtApiBase *base, const struct OrtLogger *logger,
                  struct OrtEpFactory **out, size_t room, size_t *out_n)
{
    const union ort_api *api = base->GetApi(ORT_VERSION);
    (void)registered_name, (void)logger;
    *out_n = 0;
    if (!api) {
        char text[200];
        snprintf(text, sizeof text, "SOL needs ONNX Runtime 1.%d or later, this is %s", ORT_VERSION,
                 base->GetVersionString());
        return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, text);
    }
    struct factory *f = room ? calloc(1, sizeof *f) : NULL;
    if (!f) return api->CreateStatus(ORT_FAIL, "SOL: no memory for a factory");
    *f = (struct factory){.base = {.version = ORT_VERSION,
                                   .GetName = factory_name,
                                   .GetVendor = factory_name,
                                   .GetSupportedDevices = supported_devices,
                                   .CreateEp = create_ep,
                                   .ReleaseEp = release_ep,
                                   .GetVendorId = vendor_id,
                                   .GetVersion = factory_version,
                                   .CreateAllocator = no_allocator,
                                   .ReleaseAllocator = release_allocator,
                                   .CreateDataTransfer = no_transfer,
                                   .IsStreamAware = no_streams},
                          .api = api};
    out[(*out_n)++] = &f->base;
    return NULL;
}

__attribute__((visibility("default"))) struct OrtStatus *ReleaseEpFactory(struct OrtEpFactory *factory)
{
    free(factory);
    return NULL;
}
