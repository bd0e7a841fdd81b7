// A part of native.cpp: calls of the table of native.h, and the memory of tensors.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "native.h"

// Of Python, whose headers need not be installed.
extern "C" int PyGILState_Check(void);
extern "C" void *PyEval_SaveThread(void);
extern "C" void PyEval_RestoreThread(void *state);

namespace {

constexpr auto SOL = c10::DeviceType::PrivateUse1;
const sol_native *native;
thread_local c10::DeviceIndex current = 0; // of this thread

// Other threads of Python go on while this one waits.
struct WithoutGil {
    void *state = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    ~WithoutGil()
    {
        if (state) PyEval_RestoreThread(state);
    }
};

template <class Call> void device(Call call)
{
    const char *error;
    {
        WithoutGil without;
        error = call();
    }
    TORCH_CHECK(!error, error);
}

c10::DeviceIndex index_of(c10::Device d)
{
    const auto index = d.index() < 0 ? current : d.index();
    TORCH_CHECK(index < native->devices, "device sol:", int(index), ": there are ", native->devices,
                " of this type (sol.devices() lists them)");
    return index;
}

// -- tensors

constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

bool is_sol(const at::Tensor &t)
{
    return t.device().type() == SOL;
}

// Bytes from a tensor's first element to its last.
int64_t span(const at::Tensor &t)
{
    return int64_t(at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size()));
}

// -- memory

struct Allocator;

struct Memory { // of a tensor
    Allocator *owner;
    int device;
    uint64_t p;
    size_t bytes;
};

uint64_t place(const void *p)
{
    return reinterpret_cast<uint64_t>(p);
}

// What happened to the tensors of a device.
struct Stats {
    std::mutex lock;
    c10::CachingAllocator::Stat number, bytes;
};

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

struct Allocator final : c10::DeviceAllocator {
    std::deque<Stats> stats; // by device

    c10::DataPtr allocate(size_t bytes) override
    {
        const c10::Device d(SOL, current);
        uint64_t p = 0;
        if (!bytes) return {nullptr, d};
        const char *error;
        int full = 0;
        {
            WithoutGil without;
            error = native->alloc(current, int64_t(bytes), &p, &full);
        }
        TORCH_CHECK_WITH(OutOfMemoryError, !full, error);
        TORCH_CHECK(!error, error);
        auto &of = stats[size_t(current)];
        const std::lock_guard held(of.lock);
        of.number.increase(1);
        of.bytes.increase(bytes);
        return {reinterpret_cast<void *>(p), new Memory{this, current, p, bytes}, &free_memory, d};
    }
    static void free_memory(void *context)
    {
        const std::unique_ptr<Memory> m(static_cast<Memory *>(context));
        {
            auto &of = m->owner->stats[size_t(m->device)];
            const std::lock_guard held(of.lock);
            of.number.decrease(1);
            of.bytes.decrease(m->bytes);
        }
        const WithoutGil without;
        native->free(m->device, m->p);
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return nullptr; // the address alone does not say which device it is on
    }
    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        device([&] { return native->copy(current, place(to), place(from), int64_t(bytes)); });
    }

    bool initialized() override { return native; }
    void emptyCache(c10::MempoolId_t) override
    {
        for (int i = 0; i < native->devices; i++) device([&] { return native->trim(i); });
    }
    void recordStream(const c10::DataPtr &, c10::Stream) override {} // a device has one
    DeviceStats getDeviceStats(c10::DeviceIndex i) override
    {
        const auto d = index_of({SOL, i});
        const auto has = extent(d, false);
        auto &of = stats[size_t(d)];
        const std::lock_guard held(of.lock);
        DeviceStats all;
        all.allocation[0] = all.active[0] = of.number;
        all.allocated_bytes[0] = all.active_bytes[0] = all.requested_bytes[0] = of.bytes;
        all.reserved_bytes[0].current = has.reserved;
        all.reserved_bytes[0].peak = has.most;
        return all;
    }
    void resetAccumulatedStats(c10::DeviceIndex i) override
    {
        auto &of = stats[size_t(index_of({SOL, i}))];
        const std::lock_guard held(of.lock);
        of.number.reset_accumulated();
        of.bytes.reset_accumulated();
    }
    void resetPeakStats(c10::DeviceIndex i) override
    {
        const auto d = index_of({SOL, i});
        extent(d, true);
        auto &of = stats[size_t(d)];
        const std::lock_guard held(of.lock);
        of.number.reset_peak();
        of.bytes.reset_peak();
    }
    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex i) override
    {
        const auto has = extent(index_of({SOL, i}), false);
        TORCH_CHECK(has.total, "get_memory_info: device sol:", int(i), " does not say how much memory it has");
        return {size_t(has.total - has.reserved), size_t(has.total)};
    }

private:
    struct Extent {
        int64_t reserved = 0, most = 0, total = 0;
    };
    static Extent extent(int d, bool reset)
    {
        Extent e;
        device([&] { return native->memory(d, reset, &e.reserved, &e.most, &e.total); });
        return e;
    }
};
Allocator allocator;
REGISTER_ALLOCATOR(SOL, &allocator);

// Memory of the host that tensors ask for as pinned. Copies from it are as from other memory.
struct Pinned final : at::HostAllocator {
    std::mutex lock;
    std::map<uint64_t, size_t> blocks; // bytes by address

    c10::DataPtr allocate(size_t bytes) override
    {
        auto p = c10::GetAllocator(c10::DeviceType::CPU)->allocate(bytes);
        const std::lock_guard held(lock);
        if (bytes) blocks[place(p.get())] = bytes;
        auto *kept = new c10::DataPtr(std::move(p));
        return {kept->get(), kept, &free_block, c10::DeviceType::CPU};
    }
    static void free_block(void *context);
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    bool record_event(void *, void *, c10::Stream) override { return true; } // a copy reads it before it returns
    void empty_cache() override {}                                           // nothing is kept
    at::HostStats get_stats() override { return {}; }
    void reset_accumulated_stats() override {}
    void reset_peak_stats() override {}
    void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }
    bool has(const void *p)
    {
        const std::lock_guard held(lock);
        const auto behind = blocks.upper_bound(place(p));
        if (behind == blocks.begin()) return false;
        const auto &[start, bytes] = *std::prev(behind);
        return place(p) < start + bytes;
    }
};
Pinned pinned;
at::HostAllocatorRegistry<SOL> pinned_is_registered(&pinned);

void Pinned::free_block(void *context)
{
    const std::unique_ptr<c10::DataPtr> kept(static_cast<c10::DataPtr *>(context));
    const std::lock_guard held(pinned.lock);
    pinned.blocks.erase(place(kept->get()));
}

} // namespace
