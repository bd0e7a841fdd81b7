// PyTorch's side of the device "sol", which PyTorch calls PrivateUse1: memory, the current device, hooks, and the
// operators that everything rests on. It is compiled on the user's machine, because it fits one version of PyTorch only.
// All work is done behind the table of native.h. Operators that have no kernel for this device run on the processor.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <cstring>
#include <numeric>

#include "memory.hpp"
#include "calls.hpp"
#ifdef SOL_DISTRIBUTED
#include "collectives.hpp"
#endif

namespace {

// -- the current device. Each has one stream, in which all its work happens in order.

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return SOL; }
    c10::Device exchangeDevice(c10::Device d) const override
    {
        const c10::Device before(SOL, current);
        current = index_of(d);
        return before;
    }
    c10::Device getDevice() const override { return {SOL, current}; }
    void setDevice(c10::Device d) const override { current = index_of(d); }
    void uncheckedSetDevice(c10::Device d) const noexcept override
    {
        if (d.index() >= 0) current = d.index();
    }
    c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(native->devices); }
    c10::DeviceCapability getDeviceCapability(c10::Device) const override
    {
        c10::DeviceCapability all;
        auto &type = all.capability_data.supported_scalar_types;
        type.has_QInt8 = type.has_QUInt8 = type.has_QInt32 = type.has_QUInt4x2 = type.has_QUInt2x4 = 0;
        return all;
    }
    void synchronizeDevice(c10::DeviceIndex i) const override
    {
        device([&] { return native->wait(index_of({SOL, i})); });
    }
    c10::Stream stream(c10::Device d) const { return c10::Stream(c10::Stream::DEFAULT, {SOL, index_of(d)}); }
    c10::Stream getStream(c10::Device d) const override { return stream(d); }
    c10::Stream getDefaultStream(c10::Device d) const override { return stream(d); }
    c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return stream(d); }
    c10::Stream getNewStream(c10::Device d, int) const override { return stream(d); }
    c10::Stream exchangeStream(c10::Stream s) const override { return s; }
    bool queryStream(const c10::Stream &s) const override { return native->idle(s.device_index()); }
    void synchronizeStream(const c10::Stream &s) const override { synchronizeDevice(s.device_index()); }
    void record(void **event, const c10::Stream &s, const c10::DeviceIndex, const c10::EventFlag) const override
    {
        device([&] { return native->record(s.device_index(), event); });
    }
    void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override { native->event_free(event); }
    void synchronizeEvent(void *event) const override
    {
        if (event) device([&] { return native->event_wait(event); });
    }
    void block(void *event, const c10::Stream &s) const override
    {
        if (event) device([&] { return native->after(s.device_index(), event); });
    }
    bool queryEvent(void *event) const override { return !event || native->event_happened(event); }
    double elapsedTime(void *from, void *to, const c10::DeviceIndex) const override
    {
        TORCH_CHECK(from && to && queryEvent(from) && queryEvent(to),
                    "elapsed_time: expected two events that have happened: call event.synchronize() first");
        return double(native->event_between(from, to)) / 1e6; // ms
    }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// -- random numbers: those of a generator of the processor, so equal seeds give equal numbers on every device

struct Generator final : c10::GeneratorImpl {
    at::Generator numbers;
    Generator(c10::DeviceIndex i, at::Generator of)
        : GeneratorImpl({SOL, i}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), numbers(std::move(of))
    {
    }
    void set_current_seed(uint64_t seed) override { numbers.set_current_seed(seed); }
    void set_offset(uint64_t offset) override { numbers.set_offset(offset); }
    uint64_t get_offset() const override { return numbers.get_offset(); }
    uint64_t current_seed() const override { return numbers.current_seed(); }
    uint64_t seed() override { return const_cast<at::Generator &>(numbers).seed(); }
    void set_state(const c10::TensorImpl &state) override { numbers.unsafeGetGeneratorImpl()->set_state(state); }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        return numbers.unsafeGetGeneratorImpl()->get_state();
    }
    Generator *clone_impl() const override { return new Generator(device_.index(), numbers.clone()); }
};

// -- hooks

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return native->devices > 0; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return c10::DeviceIndex(native->devices); }
    c10::DeviceIndex getCurrentDevice() const override { return current; }
    void setCurrentDevice(c10::DeviceIndex i) const override { current = index_of({SOL, i}); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override
    {
        const auto before = current;
        setCurrentDevice(i);
        return before;
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override { return exchangeDevice(i); }
    at::Device getDeviceFromPtr(void *) const override { return {SOL, current}; }
    bool isPinnedPtr(const void *p) const override { return pinned.has(p); }
    at::Allocator *getPinnedMemoryAllocator() const override { return &pinned; }
    const at::Generator &getDefaultGenerator(c10::DeviceIndex i) const override
    {
        static std::vector<at::Generator> all = [] {
            std::vector<at::Generator> made;
            for (int k = 0; k < native->devices; k++)
                made.push_back(at::make_generator<Generator>(k, at::detail::getDefaultCPUGenerator()));
            return made;
        }();
        return all[size_t(index_of({SOL, i}))];
    }
    at::Generator getNewGenerator(c10::DeviceIndex i) const override
    {
        return at::make_generator<Generator>(index_of({SOL, i}), at::detail::createCPUGenerator());
    }
    void resizePrivateUse1Bytes(const c10::Storage &s, size_t bytes) const override
    {
        const c10::DeviceGuard on(s.device());
        auto p = allocator.allocate(bytes);
        if (const auto kept = std::min(bytes, s.nbytes())) allocator.copy_data(p.get(), s.data(), kept);
        s.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(p));
        s.unsafeGetStorageImpl()->set_nbytes(bytes);
    }
};
Hooks hooks;

// -- tensors

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> on, std::optional<bool>, std::optional<at::MemoryFormat> format)
{
    const c10::OptionalDeviceGuard guard(on);
    return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> on, std::optional<bool>)
{
    const c10::OptionalDeviceGuard guard(on);
    return at::detail::empty_strided_generic(size, stride, &allocator, keys, c10::dtype_or_default(type));
}

// Gives a tensor sizes and strides (none: row-major), and its storage the bytes that these need.
void reshape_to(const at::Tensor &t, c10::IntArrayRef size, at::OptionalIntArrayRef stride)
{
    auto *impl = t.unsafeGetTensorImpl();
    if (impl->sizes() == size && (!stride || impl->strides() == *stride)) return;
    if (stride)
        impl->set_sizes_and_strides(size, *stride);
    else
        impl->set_sizes_contiguous(size);
    const auto bytes =
        at::detail::computeStorageNbytes(size, impl->strides(), t.element_size(), size_t(impl->storage_offset()));
    if (impl->numel() && t.storage().nbytes() < bytes) hooks.resizePrivateUse1Bytes(t.storage(), bytes);
}

const at::Tensor &resize_(const at::Tensor &t, c10::IntArrayRef size, std::optional<at::MemoryFormat> format)
{
    reshape_to(t, size, std::nullopt);
    TORCH_CHECK(!format || *format != at::MemoryFormat::Preserve, "resize_: unsupported memory format ", *format);
    if (format) t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    return t;
}

at::Tensor &set_storage(at::Tensor &t, at::Storage storage, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride)
{
    at::native::checkSetStorage(t, std::move(storage), offset, size, stride);
    t.unsafeGetTensorImpl()->set_storage_offset(offset);
    reshape_to(t, size, stride.data() ? at::OptionalIntArrayRef(stride) : std::nullopt);
    return t;
}

// -- copies. The bytes from a tensor's first element to its last (`span`) are copied as they lie.

bool dense(const at::Tensor &t)
{
    return t.is_non_overlapping_and_dense();
}

void read(const at::Tensor &from, const at::Tensor &to)
{
    device([&] { return native->read(from.device().index(), to.data_ptr(), place(from.data_ptr()), span(from)); });
}

void write(const at::Tensor &from, const at::Tensor &to)
{
    device([&] { return native->write(to.device().index(), place(to.data_ptr()), from.data_ptr(), span(to)); });
}

// On the host, with the same layout, and conjugated or negated as it is.
at::Tensor like(const at::Tensor &t)
{
    auto h = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
    h.unsafeGetTensorImpl()->_set_conj(t.is_conj());
    h.unsafeGetTensorImpl()->_set_neg(t.is_neg());
    return h;
}

at::Tensor on_host(const at::Tensor &t)
{
    TORCH_CHECK_NOT_IMPLEMENTED(!t.is_meta(), "Cannot copy out of meta tensor; no data!");
    if (!is_sol(t)) return t.cpu();
    const auto h = like(t);
    read(t, h);
    return h;
}

bool same_layout(const at::Tensor &a, const at::Tensor &b)
{
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() && dense(a) &&
           a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void count(const char *op)
{
    const char *forbidden = native->fallback(op);
    TORCH_CHECK(!forbidden, forbidden);
}

void copy(const at::Tensor &from, int64_t from_at, const at::Tensor &to, int64_t to_at, int64_t bytes)
{
    device([&] {
        return native->copy(to.device().index(), place(to.data_ptr()) + uint64_t(to_at),
                            place(from.data_ptr()) + uint64_t(from_at), bytes);
    });
}

// Copies the runs of bytes that lie together in both tensors, if there are only a few.
bool copy_runs(const at::Tensor &from, const at::Tensor &to)
{
    constexpr int64_t MOST = 64;
    const auto size = int64_t(to.element_size());
    int64_t run = 1, n = 1;
    std::vector<int64_t> dims(size_t(to.dim()));
    std::iota(dims.begin(), dims.end(), 0);
    std::stable_sort(dims.begin(), dims.end(), [&](auto a, auto b) { return to.stride(a) > to.stride(b); });
    dims.erase(std::remove_if(dims.begin(), dims.end(), [&](auto d) { return to.size(d) == 1; }), dims.end());
    while (!dims.empty() && from.stride(dims.back()) == run && to.stride(dims.back()) == run) {
        run *= to.size(dims.back());
        dims.pop_back();
    }
    for (const auto d : dims)
        if ((n *= to.size(d)) > MOST) return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from_at = 0, to_at = 0;
        for (auto d = dims.rbegin(); d != dims.rend(); d++) {
            from_at += rest % to.size(*d) * from.stride(*d);
            to_at += rest % to.size(*d) * to.stride(*d);
            rest /= to.size(*d);
        }
        copy(from, from_at * size, to, to_at * size, run * size);
    }
    return true;
}

bool overlap(const at::Tensor &a, const at::Tensor &b)
{
    const auto p = place(a.data_ptr()), q = place(b.data_ptr());
    return p < q + uint64_t(span(b)) && q < p + uint64_t(span(a));
}

// Between tensors of one device. False: only the processor can.
bool copy_there(const at::Tensor &from, const at::Tensor &to)
{
    // Of Python (eager.py): a network
    static const auto network = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("sol_native::copy", "")
                                    .typed<bool(const at::Tensor &, const at::Tensor &)>();
    at::assert_no_internal_overlap(to);
    at::assert_no_partial_overlap(from, to);
    if (same_layout(from, to)) {
        if (from.data_ptr() != to.data_ptr()) copy(from, 0, to, 0, span(to));
        return true;
    }
    if (overlap(from, to)) {
        auto apart = at::empty(from.sizes(), from.options());
        apart.unsafeGetTensorImpl()->_set_conj(from.is_conj());
        apart.unsafeGetTensorImpl()->_set_neg(from.is_neg());
        return copy_there(from, apart) && copy_there(apart, to);
    }
    const bool plain = from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
    if (plain && from.scalar_type() == to.scalar_type() && copy_runs(from, to)) return true;
    return !from.is_conj() && !to.is_conj() && !from.is_neg() && !to.is_neg() && network.call(to, from);
}

at::Tensor copy_from(const at::Tensor &given, const at::Tensor &to, bool)
{
    if (!to.numel() || to.is_meta()) return to;
    const auto from = given.expand_as(to);
    if (from.device() == to.device()) {
        if (copy_there(from, to)) return to;
        count("aten::_copy_from");
    }
    const bool same = same_layout(from, to);
    if (same && to.is_cpu()) {
        read(from, to);
        return to;
    }
    const auto source = on_host(from);
    if (!is_sol(to)) {
        to.copy_(source);
    } else if (same) {
        write(source, to);
    } else if (dense(to)) {
        const auto all = like(to);
        all.copy_(source);
        write(all, to);
    } else if (from.device() != to.device()) {
        to.copy_(source.to(to.device(), to.scalar_type()));
    } else {
        const auto all = on_host(to);
        all.copy_(source);
        write(all, to);
    }
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to)
{
    to.resize_(from.sizes());
    return copy_from(from, to, false);
}

// Makes a tensor of one device one of another, in place, as PyTorch does between its own devices (`t.data = data`).
void become(const at::Tensor &t, const at::Tensor &data)
{
    if (auto *meta = torch::autograd::impl::get_autograd_meta(t)) {
        const std::lock_guard held(meta->mutex_);
        meta->grad_accumulator_.reset(); // it is for the device of before
    }
    t.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

at::Scalar scalar(const at::Tensor &t)
{
    const auto h = at::empty({}, t.options().device(at::kCPU));
    device([&] {
        return native->read(t.device().index(), h.data_ptr(), place(t.data_ptr()), int64_t(t.element_size()));
    });
    h.unsafeGetTensorImpl()->_set_conj(t.is_conj());
    h.unsafeGetTensorImpl()->_set_neg(t.is_neg());
    return h.item();
}

at::Tensor &zero_(at::Tensor &t)
{
    if (!t.numel()) return t;
    if (!dense(t)) return t.copy_(at::zeros({}, t.options()));
    device([&] { return native->fill(t.device().index(), place(t.data_ptr()), 0, span(t)); });
    return t;
}

// -- operators that the device lacks

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    for (auto &value : *stack)
        if (value.isGenerator() && value.toGenerator().device().type() == SOL)
            value = static_cast<Generator *>(value.toGenerator().unsafeGetGeneratorImpl())->numbers;
    at::native::cpu_fallback(op, stack);
}

// Whatever an operator does with a sparse tensor, there is no kernel for it.
void reject_sparse(const c10::OperatorHandle &op, torch::jit::Stack *)
{
    TORCH_CHECK_NOT_IMPLEMENTED(false, "SOL: ", op.operator_name(),
                                ": sparse tensors: not supported on this device; use dense ones (nn.Embedding(.., "
                                "sparse=False), to_dense()), or keep the layer and its optimizer on the processor");
}

at::Tensor convolution(const at::Tensor &x, const at::Tensor &w, const std::optional<at::Tensor> &bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups)
{
    return at::convolution(x.cpu(), w.cpu(), bias ? std::optional<at::Tensor>(bias->cpu()) : bias, stride, padding,
                           dilation, transposed, output_padding, groups)
        .to(x.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor>
convolution_backward(const at::Tensor &dy, const at::Tensor &x, const at::Tensor &w, at::OptionalIntArrayRef channels,
                     c10::IntArrayRef stride,
                     c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                     c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted)
{
    auto [dx, dw, db] = at::convolution_backward(dy.cpu(), x.cpu(), w.cpu(), channels, stride,
                                                 padding, dilation, transposed, output_padding, groups, wanted);
    const auto there = [&](const at::Tensor &t) { return t.defined() ? t.to(x.device()) : t; };
    return {there(dx), there(dw), there(db)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("resize_", resize_);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", scalar);
    m.impl("zero_", zero_);
    m.impl("view", static_cast<at::Tensor (*)(const at::Tensor &, c10::IntArrayRef)>(at::native::view));
    m.impl("as_strided", at::native::as_strided_tensorimpl);
    m.impl("_reshape_alias", at::native::_reshape_alias);
    m.impl("unfold", at::native::unfold);
    m.impl("view_as_real", at::native::view_as_real);
    m.impl("view_as_complex", at::native::view_as_complex);
    m.impl("set_.source_Storage", static_cast<at::Tensor &(*)(at::Tensor &, at::Storage)>(at::native::set_));
    m.impl("set_.source_Storage_storage_offset", set_storage);
    m.impl("set_.source_Tensor", at::native::set_tensor_);
    for (const auto name : {"convolution_overrideable", "convolution_backward_overrideable"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_operator>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&call_operator>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&reject_sparse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&reject_sparse>());
}

TORCH_LIBRARY(sol_native, m)
{
    // Between tensors of one device that lie differently, or have different types (eager.py). False: it cannot.
    m.def("copy(Tensor target, Tensor source) -> bool");
    m.def("keep(int net, Tensor[] used, int[] inputs, Tensor[] made, int[] into, int[] results, int[] dims) -> ()", keep);
    m.def("become(Tensor t, Tensor data) -> ()", become);
    m.def("launch(str name, str overload, int argument) -> ()", launch);
    m.def("number(Scalar value, ScalarType type, Device device) -> Tensor", number_on); // a scalar
    m.def("within(Tensor base, Tensor source, int[] steps) -> Tensor"); // the base, with the source in its first places
}

TORCH_LIBRARY_IMPL(sol_native, PrivateUse1, m)
{
    m.impl("copy", torch::CppFunction::makeFromBoxedFunction<&call_operator>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m)
{
    m.impl("convolution_overrideable", convolution);
    m.impl("convolution_backward", convolution_backward);
}

// copy_from sees to it itself that a tensor is conjugated or negated.
TORCH_LIBRARY_IMPL(aten, Conjugate, m)
{
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m)
{
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

// No tensor has this key: Python's kernels for all operators of the device call those of the processor by it.
TORCH_LIBRARY_IMPL(_, PrivateUse2, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

} // namespace

// Called once, with the table, before anything else.
extern "C" __attribute__((visibility("default"))) void sol_native_begin(const sol_native *table)
{
    native = table;
    allocator.stats.resize(size_t(table->devices));
    at::RegisterPrivateUse1HooksInterface(&hooks);
#ifdef SOL_DISTRIBUTED
    begin_collectives();
#endif
}

extern "C" __attribute__((visibility("default"))) int sol_native_current(void)
{
    return current;
}

extern "C" __attribute__((visibility("default"))) void sol_native_set(int device)
{
    current = c10::DeviceIndex(device);
}
