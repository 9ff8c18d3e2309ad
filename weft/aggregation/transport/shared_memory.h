// Shared memory between a worker and a switch on the same machine: an anonymous file that the worker creates and the
// switch maps.
#pragma once

#include <memory>
#include <span>

#include "weft/aggregation/packet/shared_slots.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

class SharedMemory {
 public:
  // Creates memory for these slots. Returns null if the system does not provide it.
  [[nodiscard]] static std::shared_ptr<const SharedMemory> create(int slots, int packet_elements);
  // Maps memory that another process has created. Returns null if this process may not access it (another user or
  // container), or if the name does not refer to memory that create() made for at least this many slots.
  [[nodiscard]] static std::shared_ptr<const SharedMemory> open(const SharedMemoryName& name, int slots,
                                                                int packet_elements);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Valid while this object exists.
  [[nodiscard]] const SharedMemoryName& name() const { return name_; }
  [[nodiscard]] const SharedSlots& slots() const { return slots_; }

 private:
  SharedMemory(files::FileDescriptor file, const SharedMemoryName& name, std::span<std::byte> memory,
               int packet_elements);
  static std::shared_ptr<const SharedMemory> map(files::FileDescriptor file, const SharedMemoryName& name,
                                                 std::size_t bytes, int packet_elements);

  files::FileDescriptor file_;
  SharedMemoryName name_;
  std::span<std::byte> memory_;
  SharedSlots slots_;
};

}  // namespace weft::aggregation
