// Timing for programs whose ranks must do the same number of rounds: medians of repeats, alternatives interleaved.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::benchmarks {

struct Alternative {
  std::string name;
  std::function<void()> run;
};

// Microseconds per call of each alternative. All of them run in every repeat, so a busy moment of the machine hits
// them alike; the median over repeats of the slowest rank's mean is reported.
inline std::vector<double> compare(const std::vector<Alternative>& alternatives, int calls, int repeats,
                                   mpi::CommunicatorView comm) {
  std::vector<std::vector<double>> times(alternatives.size());
  for (int repeat = 0; repeat < repeats + 1; ++repeat) {
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) alternatives[i].run();
      double mine = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
      double slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, comm.handle());
      if (repeat > 0) times[i].push_back(slowest);  // the first repeat warms caches and pools
    }
  }
  std::vector<double> medians;
  for (auto& samples : times) {
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
    medians.push_back(samples[samples.size() / 2]);
  }
  return medians;
}

// One JSON line a figure, as benchmarks/results.jsonl wants it.
inline void report(const std::string& name, double value, const std::string& peer, double peer_value,
                   const char* unit = "us") {
  std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", \"peer\": \"%s %.3f %s\", \"ratio\": %.3f}\n",
              name.c_str(), value, unit, peer.c_str(), peer_value, unit, value / peer_value);
  std::fflush(stdout);
}

}  // namespace weft::benchmarks
