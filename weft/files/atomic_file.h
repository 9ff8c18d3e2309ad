// Atomic replacement of a file: readers see either the old content or all of the new content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "weft/files/file_descriptor.h"

namespace weft::files {

class AtomicFile {
 public:
  // Opens a temporary file in the folder of `path` and creates the folder if necessary. Throws FileError.
  explicit AtomicFile(std::filesystem::path path);
  // Removes the temporary file unless commit() has renamed it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends to the temporary file. Throws FileError, for example if the disk is full.
  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  // Overwrites bytes at `offset`, for example a header whose content is known last. Throws FileError.
  void write_at(std::int64_t offset, const void* data, std::int64_t bytes);
  // Flushes the temporary file to the disk, renames it to `path` and flushes the folder. Throws FileError; `path` then
  // keeps its old content.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileDescriptor descriptor_;  // closed by commit()
};

// Replaces the content of `path`. Throws FileError.
void write_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace weft::files
