/* The processors as device types, one for each row of target.c. That of this machine is there; for the others code can
 * be made, if their cross compilers are installed. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build/build.h"
#include "device/inside.h"
#include "print/kernel.h"
#include "rt/rt.h"

struct processor {
    struct sol_device_type type;
    const struct device *row;
};

static const struct device *row_of(const struct sol_device_type *type)
{
    return ((const struct processor *)type)->row;
}

static sol_status processor_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                                  struct sol_failure *out_why)
{
    struct target here;
    const struct toolchain *t = &row_of(type)->hosted;
    (void)host;
    target_host(&here);
    *out_n = here.device == row_of(type);
    if (!*out_n)
        failure_set(out_why, SOL_OK,
                    "this machine is %s; networks can be deployed for it with %s (Debian, Ubuntu: apt install %s %s)",
                    here.device->name, t->compiler, t->package, t->headers);
    return SOL_OK;
}

/* The model as Linux names it; otherwise the kind of processor. */
static void name_model(const char *kind, char *out, size_t room)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, room, "%s", kind);
    for (bool found = false; f && !found && fgets(line, sizeof line, f);) {
        const char *colon = strchr(line, ':');
        found = colon && !strncmp(line, "model name", 10);
        if (found)
            snprintf(out, room, "%.*s", (int)strcspn(colon + 1 + (colon[1] == ' '), "\n"),
                     colon + 1 + (colon[1] == ' '));
    }
    if (f) fclose(f);
}

static void name_compiler(const struct sol_host *host, const char *const *names, struct sol_device_info *out_info)
{
    struct arena *a = arena_create(host_ctx(host));
    const char *cc = a ? compiler_about(host_ctx(host), a, names) : NULL;
    if (cc) snprintf(out_info->compiler, sizeof out_info->compiler, "%s", cc);
    arena_destroy(a);
}

sol_status processor_facts(const struct sol_host *host, struct sol_device_info *out_info, struct sol_failure *out_why)
{
    struct target t;
    (void)out_why;
    target_host(&t);
    name_compiler(host, NULL, out_info);
    name_model(t.device->name, out_info->name, sizeof out_info->name);
    snprintf(out_info->arch, sizeof out_info->arch, "%s", ctx_config(host_ctx(host), "target"));
    out_info->f64 = 1;
    out_info->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    out_info->cores = t.cores;
    out_info->lanes = t.vector_bytes / (int)sizeof(float);
    return SOL_OK;
}

static sol_status processor_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                                 struct sol_device_info *out_info, struct sol_failure *out_why)
{
    const char *const cross[] = {row_of(type)->hosted.compiler, NULL};
    if (index >= 0) return processor_facts(host, out_info, out_why);
    name_compiler(host, cross, out_info);
    snprintf(out_info->name, sizeof out_info->name, "%s", type->name);
    out_info->f64 = 1;
    return SOL_OK;
}

int processor_types_count(void)
{
    int n = 0;
    while (device_at(n)) n++;
    return n;
}

const struct sol_device_type *processor_type(struct arena *a, int i)
{
    struct processor *p = NEW(a, struct processor);
    p->row = device_at(i);
    p->type = here_type;
    p->type.name = p->row->name;
    p->type.count = processor_count;
    p->type.info = processor_info;
    return &p->type;
}

const char *processor_here(void)
{
    struct target t;
    target_host(&t);
    return t.device->name;
}
