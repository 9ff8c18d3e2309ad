// The recorded spans of all ranks as one file that Perfetto (ui.perfetto.dev) and Chrome's trace viewer open.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/mpi/team.h"
#include "weft/trace/clock_offset.h"
#include "weft/trace/recording.h"

namespace weft::trace {

// One rank's events, separated by commas: process = rank, thread = thread, microseconds of rank 0's clock.
[[nodiscard]] std::string chrome_events(const std::vector<ThreadEvents>& threads, int rank, const ClockOffset& clock);

// Collective: gathers what every rank recorded, and rank 0 writes it, whole or not at all. Where it cannot be written
// all ranks throw files::FileError; where a rank is gone, the others throw TimeoutError or PeerLost.
void write_chrome_trace(const std::filesystem::path& path, mpi::Team& team);

}  // namespace weft::trace
