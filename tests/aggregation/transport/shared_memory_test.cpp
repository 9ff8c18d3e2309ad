#include "weft/aggregation/transport/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace weft::aggregation {
namespace {

constexpr int kSlots = 3;
constexpr int kElements = 128;

Head head_of(Kind kind, std::uint32_t slot, std::uint8_t set) { return {.kind = kind, .slot = slot, .set = set}; }

TEST(SharedSlots, EveryPacketHasItsOwnPlace) {
  std::vector<std::byte> memory(SharedSlots::bytes(kSlots, kElements));
  const SharedSlots slots(memory, kElements);
  EXPECT_TRUE(slots.covers(kSlots, kElements));
  EXPECT_FALSE(slots.covers(kSlots + 1, kElements));
  EXPECT_FALSE(slots.covers(kSlots, kElements + 1));
  std::vector<bool> used(memory.size());
  for (const Kind kind : {Kind::kContribution, Kind::kResult}) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      for (const std::uint8_t set : {0, 1}) {
        const auto place = slots.elements_of(head_of(kind, slot, set), kElements);
        ASSERT_EQ(place.size(), 4U * kElements);
        for (std::size_t i = 0; i < place.size(); ++i) {
          const auto at = static_cast<std::size_t>(place.data() - memory.data()) + i;
          ASSERT_FALSE(used[at]);
          used[at] = true;
        }
      }
    }
  }
  EXPECT_TRUE(slots.elements_of(head_of(Kind::kResult, kSlots, 0), 1).empty());
  EXPECT_TRUE(slots.elements_of(head_of(Kind::kContribution, 0, 0), kElements + 1).empty());
  EXPECT_TRUE(slots.elements_of(head_of(Kind::kResult, 0xffff, 1), kElements).empty());
  EXPECT_TRUE(SharedSlots().elements_of(head_of(Kind::kContribution, 0, 0), 1).empty());
}

TEST(SharedMemory, BothSidesSeeTheSameBytes) {
  const auto worker = SharedMemory::create(kSlots, kElements);
  ASSERT_NE(worker, nullptr);
  const auto target = SharedMemory::open(worker->name(), kSlots, kElements);
  ASSERT_NE(target, nullptr);
  const Head head = head_of(Kind::kContribution, 2, 1);
  worker->slots().elements_of(head, 1)[0] = std::byte{42};
  EXPECT_EQ(target->slots().elements_of(head, 1)[0], std::byte{42});
  EXPECT_NE(SharedMemory::open(worker->name(), kSlots - 1, kElements), nullptr) << "fewer slots after a restart";
}

// A client chooses the name, so nothing but a worker's memory may be opened.
TEST(SharedMemory, OpensNothingElse) {
  const auto worker = SharedMemory::create(kSlots, kElements);
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(SharedMemory::open(worker->name(), kSlots + 1, kElements), nullptr) << "too small";
  SharedMemoryName other = worker->name();
  other.cookie[0] ^= 1U;
  EXPECT_EQ(SharedMemory::open(other, kSlots, kElements), nullptr) << "another worker's";
  const auto open_descriptor = [](int descriptor) {
    return SharedMemory::open({::getpid(), descriptor, {}}, kSlots, kElements);
  };
  EXPECT_EQ(open_descriptor(-1), nullptr);
  EXPECT_EQ(open_descriptor(9999), nullptr);
  const files::FileDescriptor device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(open_descriptor(device.get()), nullptr);
  const files::FileDescriptor shrinkable(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(shrinkable.get(), 1 << 20), 0);
  EXPECT_EQ(open_descriptor(shrinkable.get()), nullptr) << "its owner could shrink it and crash the switch";
  const files::FileDescriptor file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() >= 0 && ::ftruncate(file.get(), 1 << 20) == 0) {
    EXPECT_EQ(open_descriptor(file.get()), nullptr) << "a file on disk";
  }
}

}  // namespace
}  // namespace weft::aggregation
