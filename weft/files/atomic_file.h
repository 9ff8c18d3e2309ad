// A file that is written beside its place and then moved there: readers see the old one or all of the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "weft/files/file_descriptor.h"

namespace weft::files {

class AtomicFile {
 public:
  // Opens a file of its own beside `path`, and makes the folder where there is none. Throws FileError.
  explicit AtomicFile(std::filesystem::path path);
  // Removes what was written, unless commit() moved it into place.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both throw FileError: no room, for example.
  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  // Overwrites from the beginning: for a header that is known last.
  void write_at(std::int64_t offset, const void* data, std::int64_t bytes);
  // Brings the bytes to the disk, moves the file into its place and the folder's entry to the disk too. Throws
  // FileError; then the place holds what it held before.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path beside_;
  FileDescriptor descriptor_;  // none after commit()
};

// All of it at once.
void write_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace weft::files
