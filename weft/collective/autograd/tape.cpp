#include "weft/collective/autograd/tape.h"

#include <ATen/functorch/DynamicLayer.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

#include "weft/collective/autograd/node.h"

namespace weft::collective {
namespace {

std::vector<std::shared_ptr<Tape>>& stack() {
  thread_local std::vector<std::shared_ptr<Tape>> tapes{std::make_shared<Tape>()};
  return tapes;
}

std::int64_t current_level() {
  const auto& transforms = at::functorch::getDynamicLayerStack();
  return transforms.empty() ? 0 : transforms.back().layerId();
}

constexpr std::int64_t kWarningLength = 20'000;

}  // namespace

std::string Record::describe() const {
  std::string text = std::string(name) + " on communicator '" + (communicator ? communicator->name() : "?") + "'";
  return site.empty() ? text : text + " called from " + site;
}

Tape& Tape::current() {
  const std::int64_t level = current_level();
  const auto& tapes = stack();
  const auto found =
      std::find_if(tapes.rbegin(), tapes.rend(), [&](const auto& tape) { return !tape->on_ || tape->level_ == level; });
  if (found != tapes.rend()) return **found;
  // A transform that did not open a tape, such as torch.func.jvp, which records nothing.
  thread_local const auto off = [] {
    auto tape = std::make_shared<Tape>();
    tape->on_ = false;
    return tape;
  }();
  return *off;
}

std::int64_t Tape::new_region() noexcept {
  static std::atomic<std::int64_t> regions{0};
  return ++regions;
}

torch::autograd::Edge Tape::end_in_leaf() {
  // All tapes of a thread can share one leaf because it never gets a gradient.
  thread_local const at::Tensor leaf = at::zeros({0}).set_requires_grad(true);
  auto edge = torch::autograd::impl::gradient_edge(leaf);
  if (first_ != nullptr) first_->set_token(edge);
  return edge;
}

void Tape::append(OperationNode& node, torch::autograd::Edge token) {
  if (last_record_) {
    last_record_->next = node.record();
    node.record()->previous = last_record_;
  }
  node.record()->region = region_;
  if (length_ == 0) first_ = &node;
  last_ = std::move(token);
  last_record_ = node.record();
  if (++length_ == kWarningLength) {
    TORCH_WARN("weft: ", length_,
               " operations were recorded since the last backward pass, and their graphs use memory. ",
               "Use torch.no_grad() if no gradient is needed, or call weft.reset_tape().");
  }
}

void Tape::reset() {
  last_ = {};
  last_record_.reset();
  first_ = nullptr;
  length_ = 0;
  region_ = new_region();
}

void Tape::reset_after(const Record& record) {
  if (last_record_.get() == &record) reset();
}

void Tape::raise_alarm(const std::string& cause, std::int64_t informed) noexcept {
  for (auto record = first_ != nullptr ? first_->record() : nullptr; record; record = record->next.lock()) {
    const auto& communicator = record->communicator;
    if (communicator && communicator->id() != informed) communicator->raise_alarm(cause, informed);
  }
}

TapeScope::TapeScope(bool on) {
  auto tape = std::make_shared<Tape>();
  tape->on_ = on;
  tape->level_ = current_level();
  stack().push_back(std::move(tape));
}

TapeScope::TapeScope(at::ArrayRef<at::Tensor> inputs) : TapeScope(stack().back()->on()) {
  const auto input = std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& x) { return x.requires_grad(); });
  if (input != inputs.end()) stack().back()->start_ = torch::autograd::impl::gradient_edge(*input);
}

TapeScope::TapeScope(std::shared_ptr<Tape> tape) { stack().push_back(std::move(tape)); }

TapeScope::~TapeScope() { stack().pop_back(); }

namespace {

// Python's scopes, which enter and leave by separate calls.
std::vector<std::unique_ptr<TapeScope>>& scopes() {
  thread_local std::vector<std::unique_ptr<TapeScope>> stack;
  return stack;
}

void leave_tape() {
  TORCH_CHECK(!scopes().empty(), "weft: leave_tape without a matching enter_tape");
  scopes().pop_back();
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("enter_tape(bool on) -> ()", [](bool on) { scopes().push_back(std::make_unique<TapeScope>(on)); });
  m.def("enter_transform(Tensor[] inputs) -> ()",
        [](const std::vector<at::Tensor>& inputs) { scopes().push_back(std::make_unique<TapeScope>(inputs)); });
  m.def("leave_tape() -> ()", &leave_tape);
  m.def("reset_tape() -> ()", [] { Tape::current().reset(); });
  m.def("tape_length() -> int", [] { return Tape::current().length(); });
}

}  // namespace
}  // namespace weft::collective
