#include "weft/collective/tape.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <set>

#include "weft/collective/node.h"

namespace weft::collective {
namespace {

std::vector<std::shared_ptr<Tape>>& stack() {
  thread_local std::vector<std::shared_ptr<Tape>> tapes{std::make_shared<Tape>()};
  return tapes;
}

constexpr std::int64_t kSuspiciousLength = 20'000;

}  // namespace

std::string Record::describe() const {
  std::string text = std::string(name) + " on communicator '" + (team ? team->name() : "?") + "'";
  return site.empty() ? text : text + " called from " + site;
}

Tape& Tape::current() { return *stack().back(); }

torch::autograd::Edge Tape::ground() {
  // One leaf per thread for all tapes: it never gets a gradient, so sharing it costs nothing.
  thread_local const at::Tensor leaf = at::zeros({0}).set_requires_grad(true);
  auto edge = torch::autograd::impl::gradient_edge(leaf);
  if (first_ != nullptr) first_->set_token(edge);
  return edge;
}

void Tape::append(OperationNode& node, torch::autograd::Edge token) {
  if (last_record_) last_record_->next = node.record();
  if (length_ == 0) first_ = &node;
  last_ = std::move(token);
  last_record_ = node.record();
  if (++length_ == kSuspiciousLength) {
    TORCH_WARN("weft: ", length_, " operations were recorded since the last backward pass, and their graphs are kept. ",
               "Use torch.no_grad() where no gradient is wanted, or weft.reset_tape().");
  }
}

void Tape::reset() {
  last_ = {};
  last_record_.reset();
  first_ = nullptr;
  length_ = 0;
}

void Tape::reset_after(const Record& record) {
  if (last_record_.get() == &record) reset();
}

void Tape::raise_alarm(const std::string& cause) noexcept {
  std::set<mpi::Team*> told;
  for (auto record = first_ != nullptr ? first_->record() : nullptr; record; record = record->next.lock()) {
    if (record->team && told.insert(record->team.get()).second) record->team->raise_alarm(cause);
  }
}

TapeScope::TapeScope(bool on) {
  auto tape = std::make_shared<Tape>();
  tape->on_ = on;
  stack().push_back(std::move(tape));
}

TapeScope::TapeScope(std::shared_ptr<Tape> tape) { stack().push_back(std::move(tape)); }

TapeScope::~TapeScope() { stack().pop_back(); }

}  // namespace weft::collective
