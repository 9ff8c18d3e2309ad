#include "weft/multigrid/options.h"

#include <stdexcept>
#include <string>

#include "weft/mpi/fingerprint.h"

namespace weft::multigrid {
namespace {

void require(bool holds, const char* name, const char* expected, double value) {
  if (holds) return;
  throw std::invalid_argument(std::string("multigrid: ") + name + " must be " + expected + ", got " +
                              std::to_string(value));
}

template <class T, class Holds>
void require_all(const PerLevel<T>& setting, const char* name, const char* expected, Holds&& holds) {
  require(holds(setting.everywhere()), name, expected, static_cast<double>(setting.everywhere()));
  for (const auto& [level, value] : setting.exceptions()) {
    const std::string where = std::string(name) + " of level " + std::to_string(level);
    require(holds(value), where.c_str(), expected, static_cast<double>(value));
  }
}

template <class T>
void add(mpi::Fingerprint& signature, const PerLevel<T>& setting) {
  signature.add(setting.everywhere()).add(setting.exceptions().size());
  for (const auto& [level, value] : setting.exceptions()) signature.add(level).add(value);
}

}  // namespace

void validate(const Options& options) {
  require(options.max_iterations >= 0, "max_iterations", "at least 0", options.max_iterations);
  require(options.absolute_tolerance >= 0, "absolute_tolerance", "at least 0", options.absolute_tolerance);
  require(options.relative_tolerance >= 0, "relative_tolerance", "at least 0", options.relative_tolerance);
  require_all(options.relaxations, "relaxations", "at least 0", [](int n) { return n >= 0; });
  require_all(options.c_weight, "c_weight", "above 0 and below 2", [](double w) { return w > 0 && w < 2; });
}

std::uint64_t signature(const Options& options) {
  mpi::Fingerprint signature;
  signature.add(options.max_iterations).add(options.absolute_tolerance).add(options.relative_tolerance);
  signature.add(options.temporal_norm).add(options.compute_residual);
  add(signature, options.relaxations);
  add(signature, options.c_weight);
  signature.add(options.cycle).add(options.skip_downcycle).add(options.relax_coarsest_only);
  // Storage and check_finite do not affect messages, so they may differ.
  signature.add(options.initial_guess).add(options.final_sweep).add(options.measure_last_change);
  return signature.value();
}

}  // namespace weft::multigrid
