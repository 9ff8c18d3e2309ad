// Checks the sums of a simulated job against directly computed sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/aggregation/simulated_job.h"
#include "weft/partition/scramble.h"

namespace weft::aggregation {

// Input of a worker as a function of its position in the run, so that any sum can be computed directly.
inline std::int32_t input(std::uint64_t seed, int rank, std::size_t operation, std::size_t i) {
  return static_cast<std::int32_t>(
      partition::scramble(seed * 1'000'003 + operation * 7919 + i * 64 + static_cast<std::size_t>(rank)));
}
inline float float_input(std::uint64_t seed, int rank, std::size_t operation, std::size_t i) {
  const std::int32_t bits = input(seed, rank, operation, i);
  return std::ldexp(static_cast<float>(bits % 4096), bits >> 29);
}

// Runs integer sums of the given lengths and counts wrong elements on every worker.
inline std::size_t wrong_integers(SimulatedJob& job, const SimulationOptions& options,
                                  const std::vector<std::size_t>& lengths) {
  std::vector<std::vector<std::vector<std::int32_t>>> results(lengths.size());
  for (auto& result : results) result.resize(static_cast<std::size_t>(options.workers));
  job.run(lengths.size(), [&](int rank, std::size_t number, const SumLayout& layout) {
    auto& data = results[number][static_cast<std::size_t>(rank)];
    data.resize(lengths[number]);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = input(options.seed, rank, number, i);
    return make_sum(layout, std::span<const std::int32_t>(data), std::span(data));
  });
  std::size_t wrong = 0;
  for (std::size_t number = 0; number < lengths.size(); ++number) {
    for (std::size_t i = 0; i < lengths[number]; ++i) {
      std::uint32_t expected = 0;
      for (int rank = 0; rank < options.workers; ++rank)
        expected += static_cast<std::uint32_t>(input(options.seed, rank, number, i));
      for (const auto& result : results[number]) wrong += result[i] != static_cast<std::int32_t>(expected) ? 1U : 0U;
    }
  }
  return wrong;
}

// Like wrong_integers(), with floats: results must be within the bound and identical on all workers.
inline std::size_t wrong_floats(SimulatedJob& job, const SimulationOptions& options,
                                const std::vector<std::size_t>& lengths) {
  std::vector<std::vector<std::vector<float>>> results(lengths.size());
  for (auto& result : results) result.resize(static_cast<std::size_t>(options.workers));
  job.run(lengths.size(), [&](int rank, std::size_t number, const SumLayout& layout) {
    auto& data = results[number][static_cast<std::size_t>(rank)];
    data.resize(lengths[number]);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = float_input(options.seed, rank, number, i);
    return make_sum(layout, std::span<const float>(data), std::span(data));
  });
  std::size_t wrong = 0;
  for (std::size_t number = 0; number < lengths.size(); ++number) {
    for (std::size_t i = 0; i < lengths[number]; ++i) {
      double expected = 0;
      for (int rank = 0; rank < options.workers; ++rank) expected += float_input(options.seed, rank, number, i);
      // Inputs are below 2^15: a quantum is at most 2^(15 + 6 - 31) for up to 33 workers.
      const double bound = options.workers / 2.0 * 0x1p-10 + std::abs(expected) * 0x1p-24;
      const float first = results[number][0][i];
      if (std::abs(first - expected) > bound) ++wrong;
      for (const auto& result : results[number]) wrong += result[i] != first ? 1U : 0U;
    }
  }
  return wrong;
}

}  // namespace weft::aggregation
