/* The interface of devices. A device type is a table of functions: built into SOL, or exported by a plug-in (a shared
 * object named in the key `device::plugins`). This header includes headers of include/sol and C standard headers only,
 * and a plug-in links with nothing of SOL.
 *
 * Contracts. Structs begin with their size, which their creator sets; who reads one uses no field behind that size, and
 * fields are only added at the end. Texts and arrays that a function receives are valid during the call. A function
 * that can fail returns a sol_status, and its struct sol_failure then says what failed, where, what was expected and
 * what to do. Unless said otherwise, several threads may call any function at the same time, and a stream or a device
 * is not used after it was closed. In a child process after fork(), SOL calls nothing with objects of the parent.
 *
 * SOL does once for all devices: virtual pointers, asynchronous allocation, a thread for devices that have no queue,
 * packing of small copies, copies of parameters, and steps of the host. So a device implements what its driver offers,
 * and all its pointers are those of its own `alloc`. */
#ifndef SOL_DEVICE_H
#define SOL_DEVICE_H

#include "sol/module.h"
#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_DEVICE_VERSION 1

/* An address on a device. In commands that SOL submits, it is what `alloc` returned, plus an offset, or with the
 * feature ADDRESSES that of a framework's memory; nobody but the device may dereference it. Elsewhere it is virtual:
 * reference << 40 | 2^39 + offset, where the offset may be negative (a flipped view), or SOL_PTR_FOREIGN + address of a
 * framework's memory. 0: none. */
typedef uint64_t sol_ptr;
#define SOL_PTR_OFFSET_BITS 40
#define SOL_PTR_FOREIGN (UINT64_C(1) << 63)

struct sol_device;      /* an open device; defined by its type */
struct sol_stream;      /* a queue of commands of an open device, executed in order; defined by its type */
struct sol_code;        /* code loaded onto an open device; defined by its type */
struct sol_device_type; /* below */

/* What a failed function reports. The caller sets `size`; the rest is 0. */
struct sol_failure {
    uint32_t size;
    sol_status status; /* set by SOL */
    int64_t ticket;    /* of the command that failed; 0: unknown */
    int32_t step;      /* RUN: the step that failed; -1: none */
    int32_t kernel;    /* RUN, LAUNCH: what a kernel reported, SOL_KERNEL_*; 0: the device failed */
    char text[1000];   /* ends with 0; without a newline at its end */
};
/* What SOL offers to a device. It lives as long as the context of SOL. */
struct sol_host {
    uint32_t size, version;                                 /* sizeof(struct sol_host), SOL_DEVICE_VERSION */
    void *user;                                             /* passed to all functions */
    void *(*reallocate)(void *user, void *p, size_t bytes); /* NULL: no memory. p NULL allocates, bytes 0 frees */
    const char *(*config)(void *user, const char *key);     /* NULL: unknown key. Valid as long as the host */
    /* The value of NAME in the key `device::options` ("memory=64MB,delay=100"); "" if it is not there. Copied into
     * `out`, cut to `room`. */
    void (*option)(void *user, const char *name, char *out, size_t room);
    void (*log)(void *user, int level, const char *module, const char *text); /* level: 0 error .. 4 trace */
};

/* -- code */

/* Source text to compile for a device. With PROGRAMS it is a network: kernels, and behind them the definition of
 * `const struct sol_module sol_module` (sol/module.h, whose text is in front), whose steps name them. Its constants
 * have no data: they are in memory of the device. */
struct sol_code_text {
    uint32_t size;
    const char *name; /* of the network, for messages and file names */
    const char *text; /* a translation unit in the device's flavour */
    const char *arch; /* struct sol_device_info.arch of the device that will run it */
    int32_t debug;    /* with debug symbols and checks (key compiler::debug) */
    /* Flavour c: the options of gcc and clang that its meaning needs, "-O3 -std=gnu11 ..", for a shared object; libm is
     * to be linked. NULL: none. */
    const char *flags;
};
/* Code for a device. SOL keeps `data` in its cache, so it must not contain addresses. */
struct sol_blob {
    uint32_t size;
    const void *data; /* NULL: there is only `module` */
    size_t bytes;
    /* A whole network: its tables, in memory of the host. Kernels of its steps can be called if the device has the
     * feature IN_PROCESS, otherwise they are in `data`, with the same tables. NULL: `data` contains single kernels for
     * LAUNCH. */
    const struct sol_module *module;
    const char *name; /* for messages */
};

/* -- commands */

enum sol_command_kind {
    SOL_COMMAND_ALLOC, /* only on virtual pointers: SOL calls `alloc` and `free` of the device itself */
    SOL_COMMAND_FREE,
    SOL_COMMAND_WRITE,  /* from the host to the device */
    SOL_COMMAND_READ,   /* from the device to the host */
    SOL_COMMAND_COPY,   /* within the device; the ranges do not overlap */
    SOL_COMMAND_FILL,   /* with one byte */
    SOL_COMMAND_LAUNCH, /* a kernel on a grid of groups of work items */
    SOL_COMMAND_RUN,    /* steps of a program; devices with the feature PROGRAMS */
    SOL_COMMAND_HOST,   /* SOL calls a function of the host in order; not submitted to the device */
    SOL_COMMAND_SIGNAL, /* SOL: an event happens when everything in front of it is done; not submitted to the device */
    SOL_COMMAND_WAIT,   /* SOL: what follows begins after the event, which may be of another queue of the device */
    SOL_COMMAND_KINDS
};
enum sol_arg_kind {
    SOL_ARG_POINTER, /* memory of the device; 0 is NULL */
    SOL_ARG_VALUE,   /* `bytes` of plain data */
    SOL_ARG_SHARED   /* `bytes` of memory that the work items of a group share */
};
struct sol_arg { /* an argument of a kernel, in the order of its parameters */
    int32_t kind, bytes;
    sol_ptr pointer;
    const void *value; /* copied by submit */
};
struct sol_launch {
    void *kernel;       /* from `find` */
    uint64_t groups[3]; /* how many; a 0 launches nothing */
    uint32_t items[3];  /* of a group */
    int32_t narg;
    const struct sol_arg *arg;
};
/* Steps of a program of a module. They run on all cores that `threads` allows, and any number gives the same bits. */
struct sol_run {
    struct sol_code *code;
    int32_t program;           /* 0 prepare, 1 forward, 2 backward */
    int32_t first, count;      /* the steps; none that the host computes */
    const unsigned char *only; /* by step of the program: 0 skips it; NULL: all run */
    int32_t nbase;
    /* By buffer of the module, where it begins, its offset included; 0 for what is not given, and with IN_PROCESS for
     * CONST, which the code has. Operand i of a step is base[place.buffer] + place.offset. */
    const sol_ptr *base;
    sol_ptr scratch;      /* threads * rounded scratch_bytes (to 64), 64-byte aligned */
    const int64_t *sizes; /* of the call: module->nsize; NULL: none */
    const uint64_t *seeds;
    int32_t nseed, threads;
    int64_t *step_ns; /* NULL, or by step of the program: receives the time of each step that ran */
    int32_t nsize;    /* of sizes */
    /* For messages, until the command is done: the network's name, and the steps of the program. NULL: unknown. */
    const char *network;
    const struct sol_step *step;
};
struct sol_command {
    int32_t kind;      /* enum sol_command_kind */
    const char *label; /* of the step or tensor, for messages; lives until the command is done; may be NULL */
    sol_ptr to, from;  /* WRITE, FILL: to; READ: from; COPY: both; ALLOC, FREE: to */
    void *host;        /* READ: where to. Valid until the command is done */
    const void *data;  /* WRITE: what. Unchanged and valid until the command is done */
    int64_t bytes;     /* ALLOC, WRITE, READ, COPY, FILL */
    /* WRITE, READ: of the device's memory, at least `bytes`: what lies behind them may be overwritten. Neighbours that
     * meet by this become one copy. 0: the same as bytes. */
    int64_t room;
    uint8_t value; /* FILL */
    /* Copied by submit, with the arrays that they point to; kernel, code, sizes and step_ns live until the command is
     * done. SOL keeps them, and `ns`, as long as a device that hangs may use them. */
    const struct sol_launch *launch;
    const struct sol_run *run;
    void (*call)(void *user); /* HOST */
    void *user;
    void *event; /* SIGNAL, WAIT */
    int64_t *ns; /* NULL, or receives the device's time for the command when it is done */
};

/* -- calls of a library in place of kernels */

/* A device whose info names a library for linear algebra (blas), or one for neural networks (dnn), computes steps by
 * it. Its code has, beside function NAME_<step>, the numbers NAME_call_<step>: an array of int64_t with the members of
 * one of these structs, of which the first says which. `find` of that function gives the call, and LAUNCH executes it,
 * with the step's operands as its first arguments. The function does nothing if it is a product; if it is a
 * convolution, it computes the same, slowly, for libraries that do not take that one. */
#define SOL_CALL_GEMM 1
#define SOL_CALL_CONV 2
struct sol_call_matrix {
    int64_t operand; /* its number */
    /* elements between rows, and a row is in one piece; across: between columns, and a column is */
    int64_t stride, across;
    int64_t step; /* elements between neighbours of a batch */
};
struct sol_gemm { /* c[m n] = a[m k] b[k n], for a batch of matrices, `ncall` times */
    int64_t kind; /* SOL_CALL_GEMM */
    int64_t dtype;
    int64_t m, n, k, batch;
    struct sol_call_matrix a, b, c;
    int64_t ncall;
    int64_t offset[][3]; /* by call: elements from the beginnings of the operands to the first matrices of a, b, c */
};
enum sol_conv_result { SOL_CONV_Y, SOL_CONV_X, SOL_CONV_W };
#define SOL_CONV_PIXELS 3 /* dimensions, at most */
struct sol_conv_tensor {
    int64_t operand, offset; /* its number; elements from its beginning */
    int64_t size[2 + SOL_CONV_PIXELS], stride[2 + SOL_CONV_PIXELS];
};
/* y[n o p..] = sum over c and k of x[n c stride*p+dilation*k-pad..] w[o c k..], where x is 0 outside of its sizes; or
 * the gradient of its sum with y: with respect to x, or to w. The channels of x and y consist of as many groups. */
struct sol_conv {
    int64_t kind;   /* SOL_CALL_CONV */
    int64_t result; /* enum sol_conv_result: the tensor that is computed from both others */
    int64_t dtype, npixel, groups;
    int64_t tf32;                   /* factors of float32 may be rounded to TF32 */
    int64_t channels_last;          /* of w, which lies in one piece: [o k.. c] instead of [o c k..] */
    struct sol_conv_tensor x, w, y; /* x: [n c pixels..]; w: [o c window..], with channels of one group */
    int64_t pad[SOL_CONV_PIXELS], stride[SOL_CONV_PIXELS], dilation[SOL_CONV_PIXELS];
};

/* -- a device type */

enum sol_device_feature {
    SOL_DEVICE_SHARED = 1,     /* its memory is the host's: addresses of the host are addresses of the device */
    SOL_DEVICE_IN_PROCESS = 2, /* it runs code of this process: C compiled for this machine, as the processor does */
    SOL_DEVICE_PROGRAMS = 4,   /* it executes RUN: its main thread is on the device. Without IN_PROCESS: of its code */
    SOL_DEVICE_LAUNCHES = 8,   /* it executes LAUNCH: SOL goes through the steps */
    SOL_DEVICE_SYNCHRONOUS = 16, /* `submit` returns when the commands are done: SOL gives each stream a thread */
    /* Its code is for the driver that made it: a deployed library has the text, and `compile` is called where it runs.
     */
    SOL_DEVICE_DRIVER_CODE = 32,
    SOL_DEVICE_ADDRESSES = 64 /* what `alloc` returns is an address for all users of the driver in the process */
};
struct sol_device_type {
    uint32_t size, version; /* sizeof(struct sol_device_type), SOL_DEVICE_VERSION */
    const char *name;       /* "opencl": letters, digits, '_'; unique */
    const char *flavour;    /* the words of its kernels: a row of flavour.def, "c" */
    uint32_t features;      /* of all its devices */

    /* How many devices there are. If none, or if this one cannot run here, SOL_OK with *out_n 0, and out_why->text says
     * why, and what can be done without one ("libcuda.so.1: not found; code for sm_90 can be compiled"). */
    sol_status (*count)(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                        struct sol_failure *out_why);
    /* Facts about a device, without opening it. index -1: about the type, if there is no device: what can be compiled
     * for it. Fields that are unknown stay 0. Code in the cache is for `arch` and `compiler`. With PROGRAMS and without
     * IN_PROCESS, `arch` is a processor as the key `target` names it ("neon"), for which SOL chooses kernels. */
    sol_status (*info)(const struct sol_device_type *type, const struct sol_host *host, int index,
                       struct sol_device_info *out_info, struct sol_failure *out_why);
    /* Opens device `index` for this process. */
    sol_status (*open)(const struct sol_device_type *type, const struct sol_host *host, int index,
                       struct sol_device **out_device, struct sol_failure *out_why);
    void (*close)(struct sol_device *device); /* after all its streams, code and memory */

    /* Memory of at least `bytes` > 0, aligned to 256. Errors: NOMEM, with the bytes that are there. `raw` is not 0, and
     * ranges [raw, raw + bytes) are disjoint. SOL frees memory only when no command uses it any more. */
    sol_status (*alloc)(struct sol_device *device, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why);
    void (*free)(struct sol_device *device, sol_ptr raw);

    /* Compiles a source, if possible without the hardware. *out_blob is freed with `blob_free`. NULL: SOL compiles for
     * the device with a C compiler (IN_PROCESS). Errors: COMPILER, with the first error of the compiler's log; if
     * out_blob->data is set then, it is all of the log, and freed, too. */
    sol_status (*compile)(const struct sol_device_type *type, const struct sol_host *host,
                          const struct sol_code_text *text, struct sol_blob *out_blob, struct sol_failure *out_why);
    void (*blob_free)(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob);
    /* Loads code. blob->module lives until `unload`; blob->data is copied. */
    sol_status (*load)(struct sol_device *device, const struct sol_blob *blob, struct sol_code **out_code,
                       struct sol_failure *out_why);
    void (*unload)(struct sol_code *code);
    /* The kernel of a function of the source; it lives as long as the code. NULL if there is no LAUNCH. */
    sol_status (*find)(struct sol_code *code, const char *function, void **out_kernel, struct sol_failure *out_why);

    /* A stream. `foreign` is a stream of a framework, used instead of a new one; NULL: a new one. One thread at a time
     * uses a stream. */
    sol_status (*queue)(struct sol_device *device, void *foreign, struct sol_stream **out_stream,
                        struct sol_failure *out_why);
    void (*unqueue)(struct sol_stream *stream); /* all its commands are done, or the device has failed */
    /* Appends commands. *out_ticket is the ticket of the last: tickets of a stream count its commands from 1. Copies
     * what commands point to, except memory of the host that they read or write. An error means that none of them from
     * the failed one on was appended; out_why->ticket is its ticket. */
    sol_status (*submit)(struct sol_stream *stream, int n, const struct sol_command *command, int64_t *out_ticket,
                         struct sol_failure *out_why);
    /* Is everything up to the ticket done? `wait` waits for it. After a failure of a command, what follows it in the
     * stream is not executed, and poll reports that failure again and again. SYNCHRONOUS: may be NULL. */
    sol_status (*poll)(struct sol_stream *stream, int64_t ticket, int wait, int *out_done, struct sol_failure *out_why);
    /* The stream goes on in a stream of a framework (NULL: in its own), behind what was submitted before, and the host
     * does not wait. Called in front of each part of the commands that belong to the framework's stream, so it is cheap
     * if that has not changed. Errors: UNSUPPORTED (commands cannot be appended to that stream now). NULL: SOL waits,
     * and opens another stream. */
    sol_status (*follow)(struct sol_stream *stream, void *foreign, struct sol_failure *out_why);
};

/* A plug-in exports this function. It returns its i-th type, which lives as long as the process; NULL: i is past the
 * last. */
const struct sol_device_type *sol_device_plugin(int i);

#ifdef __cplusplus
}
#endif
#endif
