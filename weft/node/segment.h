// Segment: memory that several processes map. The kernel frees it when the last process unmaps it or ends, even after
// kill -9, because the memory has no name in any file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::node {

// Identifies a segment for other processes of the same machine and user.
struct SegmentHandle {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
  std::uint64_t bytes = 0;
};

class Segment {
 public:
  Segment() = default;
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Creates a segment filled with zeros. Pages use memory once they are written. Throws std::system_error.
  [[nodiscard]] static Segment create(std::size_t bytes);
  // Maps the segment of another process, which must not have called forget(). Throws std::system_error.
  [[nodiscard]] static Segment open(const SegmentHandle& handle);

  [[nodiscard]] SegmentHandle handle() const noexcept;
  // Closes the descriptor: no further process can open the segment. The memory stays mapped.
  void forget() noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void map(int descriptor, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace weft::node
