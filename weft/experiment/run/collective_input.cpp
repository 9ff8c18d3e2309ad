#include "weft/experiment/run/collective_input.h"

#include <exception>

#include "weft/collective/autograd/call.h"
#include "weft/mpi/agreement.h"
#include "weft/mpi/fingerprint.h"
#include "weft/mpi/message/text_collectives.h"

namespace weft::experiment {

ResolvedExperiment resolve_on_all_ranks(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                        const CommunicatorPtr& world) {
  ResolvedExperiment resolved;
  std::exception_ptr error;
  std::string outcome;
  try {
    resolved = resolve_experiment(file, overrides);
    outcome = resolved.config;
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    outcome = thrown.what();
  }
  mpi::require_agreement(*world, {.signature = mpi::Fingerprint(outcome).value()},
                         error ? outcome : "read " + file.string() + ", which has different contents on other ranks");
  if (error) std::rethrow_exception(error);
  return resolved;
}

std::string broadcast_text(const std::string& text, const CommunicatorPtr& world) {
  return collective::interruptible([&] { return mpi::broadcast_text(*world, text, 0, "run folder"); });
}

}  // namespace weft::experiment
