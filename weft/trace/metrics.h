// metrics.jsonl: what a run measured, one JSON object a line, readable while the run goes on and after it was killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "weft/files/file_descriptor.h"

namespace weft::trace {

struct Metric {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // batches since the beginning of the run
  std::string name;       // "train/loss"
  double value = 0;       // may be NaN or infinite: see json_number()
};

class MetricsFile {
 public:
  // Goes on behind what is there; a last line that a killed run left unfinished is removed. Makes the folder. Throws
  // files::FileError.
  explicit MetricsFile(std::filesystem::path path);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // One line in one write, with the seconds since 1970 as "time". A process that is killed meanwhile leaves at most
  // this line unfinished. Throws files::FileError.
  void add(const Metric& metric);
  // Removes the lines of later steps than `step`: a run that goes on from a checkpoint measures them again.
  void forget_after(std::int64_t step);

 private:
  void open();

  std::filesystem::path path_;
  files::FileDescriptor descriptor_;
};

}  // namespace weft::trace
