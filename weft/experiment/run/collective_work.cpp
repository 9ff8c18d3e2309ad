#include "weft/experiment/run/collective_work.h"

#include <c10/util/Exception.h>

#include <exception>
#include <optional>
#include <string_view>

#include "weft/collective/autograd/call.h"
#include "weft/experiment/file/problems.h"
#include "weft/mpi/agreement.h"

namespace weft::experiment {
namespace {

// The message of several ranks names the rank in front of each text.
std::string without_prefix(std::string text) {
  constexpr std::string_view kPrefix = "weft: ";
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  return text;
}

std::optional<mpi::Failure> failure_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const ExperimentError& error) {
    return mpi::Failure{error.what(), mpi::Failure::Kind::kUserError};
  } catch (const c10::Error& error) {
    return mpi::Failure{without_prefix(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return mpi::Failure{without_prefix(error.what())};
  }
}

}  // namespace

void run_on_all_ranks(const CommunicatorPtr& communicator, const char* subject, const std::function<void()>& work) {
  if (communicator->size() == 1) return work();
  const std::optional<mpi::Failure> mine = failure_of(work);
  const auto failure = collective::interruptible([&] { return mpi::share_failure(*communicator, subject, mine); });
  if (!failure) return;
  if (failure->kind == mpi::Failure::Kind::kUserError) throw ExperimentError(failure->text);
  throw mpi::SharedFailure("weft: " + failure->text);
}

}  // namespace weft::experiment
