// Exports the recorded spans of all ranks to one file for Perfetto (ui.perfetto.dev) and Chrome's trace viewer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/trace/clock_offset.h"
#include "weft/trace/recording.h"

namespace weft::trace {

// Returns the events of one rank as JSON objects, separated by commas. The process id is the rank; times are in
// microseconds of rank 0's clock.
[[nodiscard]] std::string chrome_events(const std::vector<ThreadEvents>& threads, int rank, const ClockOffset& clock);

// Gathers the recorded events of all ranks; rank 0 writes the file atomically. Collective. Throws files::FileError on
// all ranks if the file cannot be written, TimeoutError or PeerLost if a rank does not participate.
void write_chrome_trace(const std::filesystem::path& path, Communicator& communicator);

}  // namespace weft::trace
