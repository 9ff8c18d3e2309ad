// Writes metrics.jsonl: the measurements of a run, one JSON object per line, readable while the run is active.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "weft/files/file_descriptor.h"

namespace weft::trace {

struct Metric {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // batches since the start of the run
  std::string name;       // "train/loss"
  double value = 0;       // may be NaN or infinite; see json_number()
};

class MetricsFile {
 public:
  // Opens the file for appending and creates its folder. Removes an incomplete last line, which a killed run leaves
  // behind. Throws files::FileError.
  explicit MetricsFile(std::filesystem::path path);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Appends one line with a single write(), so that a killed process leaves at most this line incomplete. Adds the
  // seconds since 1970 as "time". Throws files::FileError.
  void add(const Metric& metric);
  // Removes the lines of steps after `step`; a resumed run measures them again. Throws files::FileError.
  void remove_after(std::int64_t step);

 private:
  void open();

  std::filesystem::path path_;
  files::FileDescriptor descriptor_;
};

}  // namespace weft::trace
