/* TensorFlow's interface for devices from outside (PluggableDevice: tensorflow/c/experimental/stream_executor), as a
 * plug-in sees it. The layouts are those of version 0.0.1, which TensorFlow has had since 2.5; only members at the end
 * may be added, and `size` says which there are. Nothing of TensorFlow is needed to build. */
#ifndef SOL_PYTHON_TF_DEVICE_H
#define SOL_PYTHON_TF_DEVICE_H

#include "_tf.h"

struct SP_Stream_st { /* TensorFlow has four for each device; all are the queue of the device's heap */
    int device;
};
struct SP_Event_st {
    struct sol_event *event;
};
struct SP_Timer_st {
    struct sol_event *from, *to;
};
typedef struct SP_Event_st *SP_Event;
typedef struct SP_Timer_st *SP_Timer;

struct sp_memory {
    size_t size;
    void *ext, *opaque;
    uint64_t bytes, payload;
};
struct sp_device {
    size_t size;
    void *ext;
    int32_t ordinal;
    void *handle;
    const char *hardware_name, *vendor, *pci_bus_id;
};
struct sp_device_params {
    size_t size;
    void *ext;
    int32_t ordinal;
    struct sp_device *device;
};
struct sp_device_fns {
    size_t size;
    void *ext;
    int32_t (*numa_node)(const struct sp_device *);
    int64_t (*bandwidth)(const struct sp_device *);
    double (*gflops)(const struct sp_device *);
};
struct sp_device_fns_params {
    size_t size;
    void *ext;
    struct sp_device_fns *fns;
};
typedef void sp_done(void *arg, TF_Status *);

struct sp_executor {
    size_t size;
    void *ext;
    void (*allocate)(const struct sp_device *, uint64_t bytes, int64_t space, struct sp_memory *);
    void (*deallocate)(const struct sp_device *, struct sp_memory *);
    void *(*host_allocate)(const struct sp_device *, uint64_t);
    void (*host_deallocate)(const struct sp_device *, void *);
    void *(*unified_allocate)(const struct sp_device *, uint64_t);
    void (*unified_deallocate)(const struct sp_device *, void *);
    unsigned char (*allocator_stats)(const struct sp_device *, void *);
    unsigned char (*memory_usage)(const struct sp_device *, int64_t *free, int64_t *total);
    void (*create_stream)(const struct sp_device *, SP_Stream *, TF_Status *);
    void (*destroy_stream)(const struct sp_device *, SP_Stream);
    void (*stream_dependency)(const struct sp_device *, SP_Stream, SP_Stream, TF_Status *);
    void (*stream_status)(const struct sp_device *, SP_Stream, TF_Status *);
    void (*create_event)(const struct sp_device *, SP_Event *, TF_Status *);
    void (*destroy_event)(const struct sp_device *, SP_Event);
    int (*event_status)(const struct sp_device *, SP_Event);
    void (*record_event)(const struct sp_device *, SP_Stream, SP_Event, TF_Status *);
    void (*wait_for_event)(const struct sp_device *, SP_Stream, SP_Event, TF_Status *);
    void (*create_timer)(const struct sp_device *, SP_Timer *, TF_Status *);
    void (*destroy_timer)(const struct sp_device *, SP_Timer);
    void (*start_timer)(const struct sp_device *, SP_Stream, SP_Timer, TF_Status *);
    void (*stop_timer)(const struct sp_device *, SP_Stream, SP_Timer, TF_Status *);
    void (*read)(const struct sp_device *, SP_Stream, void *, const struct sp_memory *, uint64_t, TF_Status *);
    void (*write)(const struct sp_device *, SP_Stream, struct sp_memory *, const void *, uint64_t, TF_Status *);
    void (*copy)(const struct sp_device *, SP_Stream, struct sp_memory *, const struct sp_memory *, uint64_t,
                 TF_Status *);
    void (*sync_read)(const struct sp_device *, void *, const struct sp_memory *, uint64_t, TF_Status *);
    void (*sync_write)(const struct sp_device *, struct sp_memory *, const void *, uint64_t, TF_Status *);
    void (*sync_copy)(const struct sp_device *, struct sp_memory *, const struct sp_memory *, uint64_t, TF_Status *);
    void (*event_wait)(const struct sp_device *, SP_Event, TF_Status *);
    void (*stream_wait)(const struct sp_device *, SP_Stream, TF_Status *);
    void (*wait)(const struct sp_device *, TF_Status *);
    void (*zero)(const struct sp_device *, SP_Stream, struct sp_memory *, uint64_t, TF_Status *);
    void (*fill)(const struct sp_device *, SP_Stream, struct sp_memory *, uint8_t, uint64_t, TF_Status *);
    void (*fill32)(const struct sp_device *, SP_Stream, struct sp_memory *, uint32_t, uint64_t, TF_Status *);
    unsigned char (*callback)(const struct sp_device *, SP_Stream, sp_done *, void *);
};
struct sp_executor_params {
    size_t size;
    void *ext;
    struct sp_executor *executor;
};
struct sp_platform {
    size_t size;
    void *ext;
    const char *name, *type;
    unsigned char unified_memory, bfc_allocator, memory_growth;
};
struct sp_timer_fns {
    size_t size;
    void *ext;
    uint64_t (*nanoseconds)(SP_Timer);
};
struct sp_platform_fns {
    size_t size;
    void *ext;
    void (*device_count)(const struct sp_platform *, int *, TF_Status *);
    void (*create_device)(const struct sp_platform *, struct sp_device_params *, TF_Status *);
    void (*destroy_device)(const struct sp_platform *, struct sp_device *);
    void (*create_device_fns)(const struct sp_platform *, struct sp_device_fns_params *, TF_Status *);
    void (*destroy_device_fns)(const struct sp_platform *, struct sp_device_fns *);
    void (*create_executor)(const struct sp_platform *, struct sp_executor_params *, TF_Status *);
    void (*destroy_executor)(const struct sp_platform *, struct sp_executor *);
    void (*create_timer_fns)(const struct sp_platform *, struct sp_timer_fns *, TF_Status *);
    void (*destroy_timer_fns)(const struct sp_platform *, struct sp_timer_fns *);
};
struct sp_registration {
    size_t size;
    void *ext;
    int32_t major, minor, patch;
    struct sp_platform *platform;
    struct sp_platform_fns *fns;
    void (*destroy_platform)(struct sp_platform *);
    void (*destroy_platform_fns)(struct sp_platform_fns *);
};
/* Where TensorFlow begins, once, in what `load_pluggable_device_library` opens: the extension itself. */
__attribute__((visibility("default"))) void SE_InitPlugin(struct sp_registration *, TF_Status *);

/* _tf_device.c: the heap of a device; reports in the status what failed earlier where nobody could be told. NULL: the
 * status says why. */
struct sol_heap *tf_heap(int device, TF_Status *);
uint64_t tf_place(const void *p);       /* in the heap, of a tensor's data */
const char *tf_device_name(int device); /* "far:0" */
int tf_device_add(PyObject *module);
/* _tf_kernel.c */
int tf_kernel_add(PyObject *module);

#endif
