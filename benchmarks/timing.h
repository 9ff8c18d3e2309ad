// Timing of alternatives whose ranks must run the same number of rounds: interleaved repeats and their medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "weft/mpi/comm.h"

namespace weft::benchmarks {

struct Alternative {
  std::string name;
  std::function<void()> run;
};

// Returns the microseconds per call of each alternative. Every repeat runs all of them, so background load affects them
// equally. The result is the median over repeats of the slowest rank's mean.
inline std::vector<double> compare(const std::vector<Alternative>& alternatives, int calls, int repeats,
                                   mpi::CommView comm) {
  std::vector<std::vector<double>> times(alternatives.size());
  for (int repeat = 0; repeat < repeats + 1; ++repeat) {
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) alternatives[i].run();
      double mine = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
      double slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, comm.handle());
      if (repeat > 0) times[i].push_back(slowest);  // the first repeat warms up caches and pools
    }
  }
  std::vector<double> medians;
  for (auto& samples : times) {
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
    medians.push_back(samples[samples.size() / 2]);
  }
  return medians;
}

// Prints one JSON line per result, in the format of benchmarks/results.jsonl.
inline void report(const std::string& name, double value, const std::string& peer, double peer_value,
                   const char* unit = "us") {
  std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", \"peer\": \"%s %.3f %s\", \"ratio\": %.3f}\n",
              name.c_str(), value, unit, peer.c_str(), peer_value, unit, value / peer_value);
  std::fflush(stdout);
}

}  // namespace weft::benchmarks
