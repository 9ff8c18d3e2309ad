#include "weft/experiment/together.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/collective/all_gather.h"
#include "weft/collective/call.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {
namespace {

// In front of what went wrong, as it travels: whether the user's input was the reason (an ExperimentError).
constexpr char kOfTheUser = 'u';
constexpr char kOther = 'o';

// Empty: nothing.
std::string problem_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const ExperimentError& error) {
    return kOfTheUser + std::string(error.what());
  } catch (const c10::Error& error) {
    return kOther + std::string(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return kOther + std::string(error.what());
  }
}

// Collective: every rank's text, on all of them.
std::vector<std::string> gathered(const std::string& mine, const std::shared_ptr<mpi::Team>& team) {
  const at::NoGradGuard no_grad;
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(mine.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  const at::Tensor lengths =
      collective::all_gather(at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong), team, 0);
  const at::Tensor all = collective::all_gather(bytes, team, 0);
  std::vector<std::string> texts;
  const auto* next = static_cast<const char*>(all.const_data_ptr());
  for (std::int64_t i = 0; i < lengths.numel(); ++i) {
    const auto length = lengths[i].item<std::int64_t>();
    texts.emplace_back(next, static_cast<std::size_t>(length));
    next += length;
  }
  return texts;
}

// What went wrong where; of what is the same on all ranks only what.
std::string joined(const std::vector<std::string>& problems) {
  std::map<std::string, std::string> ranks_by_text;
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    std::string& ranks = ranks_by_text[problems[rank].substr(1)];
    ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(rank);
  }
  if (ranks_by_text.size() == 1 && !problems.front().empty()) return ranks_by_text.begin()->first;
  std::string text;
  for (const auto& [problem, ranks] : ranks_by_text) text += (text.empty() ? "" : "\n") + ranks + ": " + problem;
  return text;
}

}  // namespace

void together(const std::shared_ptr<mpi::Team>& team, const char* what, const std::function<void()>& work) {
  if (team->size() == 1) return work();
  const std::string problem = problem_of(work);
  const std::uint64_t signature = std::hash<std::string_view>{}(what);
  const mpi::Outcome outcome = collective::interruptible([&] {
    team->enter();
    return team->agree(mpi::Direction::kForward, {.signature = signature, .failed = !problem.empty()});
  });
  if (outcome.signature_min != outcome.signature_max) team->disagree(what);
  if (!outcome.any_failed) return;
  const auto problems = gathered(problem, team);
  const bool only_of_the_user =
      std::none_of(problems.begin(), problems.end(), [](const auto& one) { return one.starts_with(kOther); });
  if (only_of_the_user) throw ExperimentError(joined(problems));
  throw mpi::SharedFailure(joined(problems));
}

}  // namespace weft::experiment
