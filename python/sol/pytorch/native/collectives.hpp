// A part of native.cpp: collectives of torch.distributed. The backend of the process group, such as gloo, computes them on
// copies on the host. Results come back to the device when a collective is done, behind what the device was asked for.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <algorithm>
#include <mutex>

namespace {

// The value with f of each tensor in it: a tensor, or a list of tensors or of such lists.
template <class Of> c10::IValue each(const c10::IValue &v, const Of &f)
{
    if (v.isTensor()) return f(v.toTensor());
    if (v.isTensorList()) {
        c10::List<at::Tensor> made;
        for (const auto &t : v.toTensorVector()) made.push_back(f(t));
        return made;
    }
    if (!v.isList() || !v.toList().elementType()->isSubtypeOf(*c10::ListType::ofTensors())) return v;
    c10::impl::GenericList made(c10::ListType::ofTensors());
    for (const c10::IValue &part : v.toListRef()) made.push_back(each(part, f));
    return made;
}

// Tensors of the device and their copies on the host.
class Copies {
public:
    std::vector<c10::Device> devices;

    // `read`: with the values that it has now. `written`: its copy is to come back.
    at::Tensor to_host(const at::Tensor &t, bool read, bool written)
    {
        if (!t.defined() || t.device().type() != SOL) return t;
        for (const auto &p : pairs)
            if (p.there.is_same(t)) return p.here;
        if (std::find(devices.begin(), devices.end(), t.device()) == devices.end()) devices.push_back(t.device());
        const auto made = read ? t.cpu() : at::empty_like(t, t.options().device(at::kCPU));
        pairs.push_back({t, made, written});
        return made;
    }
    at::Tensor to_device(const at::Tensor &t) const
    {
        for (const auto &p : pairs)
            if (p.here.is_same(t)) return p.there;
        return t;
    }
    void bring_back()
    {
        const WithoutGil without; // a copy may need it while another thread waits for this one
        std::call_once(once, [&] {
            const at::AutoDispatchBelowADInplaceOrView plain; // as on the host, collectives are no operators of autograd
            for (const auto &p : pairs)
                if (p.written) p.there.copy_(p.here);
        });
    }

private:
    struct Pair {
        at::Tensor there, here;
        bool written;
    };
    std::vector<Pair> pairs;
    std::once_flag once;
};

// A collective on copies, which is done when the results are on the device.
class Collective final : public c10d::Work {
public:
    Collective(c10::intrusive_ptr<c10d::Work> of, std::shared_ptr<Copies> with)
        : Work(-1, of->retrieveOpType()), host(std::move(of)), copies(std::move(with))
    {
    }
    bool wait(std::chrono::milliseconds timeout) override
    {
        const bool done = host->wait(timeout);
        copies->bring_back();
        return done;
    }
    bool isCompleted() override
    {
        if (!host->isCompleted()) return false;
        if (host->isSuccess()) copies->bring_back();
        return true;
    }
    void synchronize() override
    {
        host->synchronize();
        copies->bring_back();
    }
    bool isSuccess() const override { return host->isSuccess(); }
    std::exception_ptr exception() const override { return host->exception(); }
    int sourceRank() const override { return host->sourceRank(); }
    uint64_t getSequencenumber() const override { return host->getSequencenumber(); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override { host->abort(); }
    std::vector<at::Tensor> result() override
    {
        auto all = host->result();
        for (auto &t : all) t = copies->to_device(t);
        return all;
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        const auto of = host->getFuture();
        auto made = c10::make_intrusive<c10::ivalue::Future>(of->elementType(), copies->devices);
        of->addCallback([made, with = copies](c10::ivalue::Future &done) {
            try {
                if (done.hasError()) return made->setError(done.exception_ptr());
                with->bring_back();
                made->markCompleted(each(done.value(), [&](const at::Tensor &t) { return with->to_device(t); }));
            } catch (...) {
                made->setError(std::current_exception());
            }
        });
        return made;
    }

private:
    c10::intrusive_ptr<c10d::Work> host;
    std::shared_ptr<Copies> copies;
};

enum First { READ, WRITTEN, BOTH }; // what a collective does with its first argument; it only reads the others

template <First first> void collective(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    const auto copies = std::make_shared<Copies>();
    const auto n = op.schema().arguments().size();
    for (size_t i = 0; i < n; i++) {
        auto &value = (*stack)[stack->size() - n + i];
        if (value.isCustomClass() && value.type()->str().find("ProcessGroup") != std::string::npos) {
            const auto group = value.toCustomClass<c10d::ProcessGroup>();
            if (!group->hasBackendForDeviceType(at::kCPU))
                group->setBackend(at::kCPU, group->getBackendType(), group->getBackend(SOL));
        } else {
            const bool mine = i == 0;
            value = each(value, [&](const at::Tensor &t) {
                return copies->to_host(t, !mine || first != WRITTEN, mine && first != READ);
            });
        }
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
        auto &value = (*stack)[i];
        if (value.isCustomClass())
            value = c10::IValue(c10::static_intrusive_pointer_cast<c10d::Work>(
                c10::make_intrusive<Collective>(value.toCustomClass<c10d::Work>(), copies)));
        else
            value = each(value, [&](const at::Tensor &t) { return copies->to_device(t); });
    }
}

// Times of DistributedDataParallel's log, in ns of the host.
struct Timer final : c10d::Timer {
    std::optional<int64_t> measureDifference(Event from, Event to) override
    {
        const auto t0 = getTimeRef(from), t1 = getTimeRef(to);
        return t0 < 0 || t1 < t0 ? std::nullopt : std::optional<int64_t>(t1 - t0);
    }
};

struct Quiet final : c10::WarningHandler { // PyTorch has kernels for such devices, which would need a backend of their own
    void process(const c10::Warning &) override {}
};

void begin_collectives()
{
    Quiet quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    static torch::Library m(torch::Library::IMPL, "c10d", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    c10d::TimerRegistry()->Register(SOL, [](c10::Device) { return std::unique_ptr<c10d::Timer>(new Timer); });
    for (const auto *name : {"send", "barrier", "monitored_barrier_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&collective<READ>>());
    for (const auto *name : {"allreduce_", "allreduce_coalesced_", "reduce_", "broadcast_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&collective<BOTH>>());
    for (const auto *name :
         {"recv_", "recv_any_source_", "allgather_", "_allgather_base_", "allgather_coalesced_",
          "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
          "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&collective<WRITTEN>>());
}

} // namespace
