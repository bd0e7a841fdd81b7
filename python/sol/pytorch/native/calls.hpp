// A part of native.cpp: calls of operators that ran before. eager.py compiles a call and says how its network is run (`keep`);
// equal calls then run it from here, without Python. Calls are equal if they have the same operator, types, sizes, strides and
// arguments; values of tensors, and numbers that are operands of the network, may differ.
#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/DefaultDtype.h>

#include <shared_mutex>
#include <unordered_map>

namespace {

constexpr size_t MOST_CALLS = 1 << 13, MOST_NUMBERS = 1 << 12; // more than these are forgotten, all at once

using Words = c10::SmallVector<uint64_t, 48>;

struct HashOfWords {
    size_t operator()(const Words &words) const
    {
        uint64_t h = words.size();
        for (const auto w : words) h = (h ^ w) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
        return h;
    }
};

uint64_t word(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// -- numbers as scalars on a device, which stay there for later calls

at::Tensor number_on(const at::Scalar &value, at::ScalarType type, c10::Device on)
{
    static std::mutex lock;
    static auto &known = *new std::unordered_map<Words, at::Tensor, HashOfWords>; // devices may end before the process
    if (value.isComplex()) return at::scalar_tensor(value, type).to(on);
    const uint64_t bits = value.isFloatingPoint() ? word(value.toDouble()) : uint64_t(value.toLong());
    const Words key = {bits, uint64_t(value.type()), uint64_t(type), uint64_t(on.index())};
    {
        const std::lock_guard held(lock);
        const auto found = known.find(key);
        if (found != known.end()) return found->second;
    }
    auto made = at::scalar_tensor(value, type).to(on);
    const std::lock_guard held(lock);
    if (known.size() >= MOST_NUMBERS) known.clear();
    return known.emplace(key, std::move(made)).first->second;
}

// -- a call, as words that say all that its network depends on

std::unordered_map<const void *, size_t> launched; // by operator: the argument that is an operand where it is a float

const void *name_of(const c10::OperatorHandle &op)
{
    return &op.operator_name(); // it stays where it is
}

struct Call {
    Words words;
    c10::SmallVector<const at::Tensor *, 8> tensors; // among the arguments
    double number = 0;                               // the operand

    // False: it is left to Python.
    bool read(const c10::OperatorHandle &op, const torch::jit::Stack &stack)
    {
        const auto found = launched.find(name_of(op));
        const size_t n = op.schema().arguments().size(), operand = found == launched.end() ? n : found->second;
        put(place(name_of(op)), uint64_t(c10::get_default_dtype_as_scalartype()));
        for (size_t i = 0; i < n; i++) {
            const auto &value = torch::jit::peek(stack, i, n);
            if (i == operand && value.isDouble())
                put('#', 0), number = value.toDouble();
            else if (!add(value))
                return false;
        }
        return true;
    }

private:
    void put(uint64_t kind, uint64_t value)
    {
        words.push_back(kind);
        words.push_back(value);
    }
    bool add(const c10::IValue &value)
    {
        if (value.isTensor()) return add(value.toTensor());
        if (value.isNone()) {
            put('-', 0);
        } else if (value.isInt()) {
            put('i', uint64_t(value.toInt()));
        } else if (value.isDouble()) {
            put('d', word(value.toDouble()));
        } else if (value.isBool()) {
            put('b', value.toBool());
        } else if (value.isDevice()) {
            const auto d = value.toDevice();
            put('o', uint64_t(d.type()) << 8 | uint8_t(d.type() == SOL ? index_of(d) : d.index()));
        } else if (value.isString()) {
            put('s', value.toStringRef().size());
            for (const char c : value.toStringRef()) words.push_back(uint64_t(c));
        } else if (value.isList()) {
            put('[', value.toListRef().size());
            for (const auto &v : value.toListRef())
                if (!add(v)) return false;
        } else {
            return false;
        }
        return true;
    }
    bool add(const at::Tensor &t)
    {
        if (!t.defined()) return put('-', 0), true;
        const bool number_of_host = t.is_cpu() && !t.dim(); // its value is an operand
        if ((t.device().type() != SOL && !number_of_host) || t.is_conj() || t.is_neg()) return false;
        const bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
        put(number_of_host ? wrapped ? 'n' : 'h' : 't' | uint64_t(t.device().index()) << 8,
            uint64_t(t.scalar_type()) << 32 | uint64_t(t.dim()));
        for (const auto size : t.sizes()) words.push_back(uint64_t(size));
        for (const auto stride : t.strides()) words.push_back(uint64_t(stride));
        tensors.push_back(&t);
        return true;
    }
};

// -- what is known of a call

struct Known {
    enum { OPERAND = -1, NOTHING = -1 << 30, TRUE };
    struct Output {
        int64_t into; // the number of a tensor among the arguments; -1: a new one
        c10::SmallVector<int64_t, 6> size, stride;
        at::ScalarType type;

        at::Tensor resized(const at::Tensor &t) const { return t.sizes() == size ? t : t.resize_(size); } // of `out=`
        at::Tensor empty() const { return at::detail::empty_strided_generic(size, stride, &allocator, keys, type); }
    };
    void *net;
    c10::DeviceIndex device;
    std::vector<int64_t> inputs; // the numbers of tensors among the arguments, or OPERAND
    std::vector<at::ScalarType> types;
    std::vector<Output> outputs;
    std::vector<int64_t> results; // the numbers of arguments, -1 - the number of an output, NOTHING, or TRUE
    std::vector<int64_t> in_bytes, out_bytes, dims;

    void run(const Call &call, size_t arguments, torch::jit::Stack *stack) const
    {
        const c10::DeviceGuard on({SOL, device});
        c10::SmallVector<at::Tensor, 8> read, made;
        for (size_t i = 0; i < inputs.size(); i++) read.push_back(input(call, i));
        for (const auto &o : outputs)
            made.push_back(o.into >= 0 ? o.resized(*call.tensors[size_t(o.into)]) : o.empty());
        start(read, made);
        c10::SmallVector<c10::IValue, 4> all;
        for (const auto r : results) all.push_back(result(call, made, r));
        torch::jit::drop(*stack, arguments);
        for (auto &v : all) stack->push_back(std::move(v));
    }

private:
    at::Tensor input(const Call &call, size_t i) const
    {
        if (inputs[i] == OPERAND) return number_on(call.number, types[i], {SOL, device});
        const auto &t = *call.tensors[size_t(inputs[i])];
        return t.is_cpu() ? number_on(t.item(), types[i], {SOL, device}) : t;
    }
    static c10::IValue result(const Call &call, c10::ArrayRef<at::Tensor> made, int64_t r)
    {
        if (r == TRUE) return true;
        if (r == NOTHING) return at::Tensor();
        return r >= 0 ? *call.tensors[size_t(r)] : made[size_t(-1 - r)];
    }
    void start(c10::ArrayRef<at::Tensor> read, c10::ArrayRef<at::Tensor> made) const
    {
        c10::SmallVector<const void *, 8> in;
        c10::SmallVector<void *, 8> out;
        for (size_t i = 0; i < read.size(); i++) in.push_back(in_bytes[i] ? read[i].data_ptr() : net);
        for (size_t i = 0; i < made.size(); i++) out.push_back(out_bytes[i] ? made[i].data_ptr() : net);
        sol_native_run r{};
        r.net = net, r.device = device, r.threads = at::get_num_threads();
        r.nin = int(in.size()), r.nout = int(out.size()), r.in = in.data(), r.out = out.data();
        r.in_bytes = in_bytes.data(), r.out_bytes = out_bytes.data(), r.dims = dims.data();
        ::device([&] { return native->run(&r); });
    }
};

std::shared_mutex calls_lock;
auto &calls = *new std::unordered_map<Words, std::shared_ptr<const Known>, HashOfWords>; // for threads that go on at exit

std::shared_ptr<const Known> find(const Words &words)
{
    const std::shared_lock held(calls_lock);
    const auto found = calls.find(words);
    return found == calls.end() ? nullptr : found->second;
}

// The call that Python computes, which may call others meanwhile.
struct Asked {
    const Words *words; // nullptr: it cannot be kept
    Asked *before;
    static thread_local Asked *last;

    explicit Asked(const Words *w) : words(w), before(last) { last = this; }
    ~Asked() { last = before; }
};
thread_local Asked *Asked::last = nullptr;

// The kernel of the device for all operators.
void call_operator(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack)
{
    Call call;
    const bool plain = call.read(op, *stack);
    if (const auto known = plain ? find(call.words) : nullptr)
        return known->run(call, op.schema().arguments().size(), stack);
    const Asked here(plain ? &call.words : nullptr);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse3), stack);
}

// Keeps how the call that Python just computed is run. used, inputs, into, results: see Known; made: the outputs.
void keep(int64_t net, at::TensorList used, c10::IntArrayRef inputs, at::TensorList made, c10::IntArrayRef into,
          c10::IntArrayRef results, c10::IntArrayRef dims)
{
    if (!Asked::last || !Asked::last->words) return;
    auto known = std::make_shared<Known>();
    known->net = reinterpret_cast<void *>(net);
    known->device = made[0].device().index();
    known->inputs = inputs.vec(), known->results = results.vec(), known->dims = dims.vec();
    for (const auto &t : used) {
        known->types.push_back(t.scalar_type());
        known->in_bytes.push_back(t.numel() ? span(t) : 0);
    }
    for (size_t i = 0; i < made.size(); i++) {
        known->outputs.push_back({into[i], {}, {}, made[i].scalar_type()});
        known->outputs.back().size.append(made[i].sizes().begin(), made[i].sizes().end());
        known->outputs.back().stride.append(made[i].strides().begin(), made[i].strides().end());
        known->out_bytes.push_back(made[i].numel() ? span(made[i]) : 0);
    }
    const std::unique_lock held(calls_lock);
    if (calls.size() >= MOST_CALLS) calls.clear();
    calls[*Asked::last->words] = std::move(known);
}

void launch(c10::string_view name, c10::string_view overload, int64_t argument)
{
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(std::string(name).c_str(), std::string(overload).c_str());
    launched[name_of(op)] = size_t(argument);
}

} // namespace
