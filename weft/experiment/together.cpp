#include "weft/experiment/together.h"

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>

#include "weft/collective/call.h"

namespace weft::experiment {
namespace {

// What `work` throws; empty if nothing.
std::string problem_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
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
  if (outcome.same_call()) return;
  team->disagree(problem.empty() ? what : std::string(what) + " failed: " + problem);
}

}  // namespace weft::experiment
