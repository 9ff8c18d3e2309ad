#include "weft/trace/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "weft/files/atomic_file.h"
#include "weft/files/error.h"
#include "weft/trace/json.h"
#include "weft/trace/wall_time.h"

namespace weft::trace {
namespace {

std::string line_of(const Metric& metric) {
  return dump_json({{"epoch", metric.epoch},
                    {"step", metric.step},
                    {"name", metric.name},
                    {"value", json_number(metric.value)},
                    {"time", seconds_since_1970()}}) +
         "\n";
}

// Returns false for lines without a step, which are kept.
bool is_later(const std::string& line, std::int64_t step) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number()) return false;
  return object["step"].get<double>() > static_cast<double>(step);
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path) : path_(std::move(path)) { open(); }

void MetricsFile::open() {
  std::error_code ignored;  // open() reports the error
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), ignored);
  descriptor_ = files::FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (descriptor_.get() < 0) files::throw_errno("open", path_);
  off_t end = lseek(descriptor_.get(), 0, SEEK_END);
  char last = '\n';
  while (end > 0 && pread(descriptor_.get(), &last, 1, end - 1) == 1 && last != '\n') --end;
  if (ftruncate(descriptor_.get(), end) != 0) files::throw_errno("truncate", path_);
}

void MetricsFile::add(const Metric& metric) {
  const std::string line = line_of(metric);
  const ssize_t written = write(descriptor_.get(), line.data(), line.size());
  if (written < 0) files::throw_errno("write", path_);
  if (written != std::ssize(line)) {
    open();  // removes the incomplete line
    throw files::FileError("weft: could not write '" + path_.string() + "': incomplete write, the disk may be full");
  }
}

void MetricsFile::remove_after(std::int64_t step) {
  std::ifstream lines(path_);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!is_later(line, step)) kept.append(line).append("\n");
  }
  files::write_atomically(path_, kept);
  open();
}

}  // namespace weft::trace
