#include "weft/multigrid/failure.h"

#include <sstream>
#include <string>
#include <vector>

namespace weft::multigrid {
namespace {

std::string write(const std::optional<Fault>& fault) {
  if (!fault) return "";
  return std::to_string(fault->level) + ' ' + std::to_string(fault->index) + ' ' + fault->activity + '\n' + fault->text;
}

Fault read(int rank, const std::string& text) {
  Fault fault;
  fault.rank = rank;
  std::istringstream in(text);
  in >> fault.level >> fault.index >> fault.activity;
  fault.text = text.substr(text.find('\n') + 1);
  return fault;
}

[[noreturn]] void throw_with_cause(const Fault& fault, const std::string& also, const std::exception_ptr& cause) {
  if (cause == nullptr) throw SolveError(fault, also);
  try {
    std::rethrow_exception(cause);
  } catch (...) {
    throw SolveError(fault, also);  // nests the exception being handled
  }
}

}  // namespace

void throw_failure(Transport& transport, const ProblemEvaluator& evaluator) {
  transport.finish();
  const std::vector<std::string> texts = transport.gather(write(evaluator.fault()));
  std::optional<Fault> first;
  std::string also;
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    if (text.empty()) continue;
    if (!first) {
      first = read(rank, text);
    } else {
      also += (also.empty() ? " (also failed: rank " : ", rank ") + std::to_string(rank);
    }
  }
  throw_with_cause(first.value(), also.empty() ? also : also + ")", evaluator.cause());
}

}  // namespace weft::multigrid
