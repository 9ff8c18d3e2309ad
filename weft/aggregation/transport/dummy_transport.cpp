#include "weft/aggregation/transport/dummy_transport.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/packet_mac.h"
#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/timespec.h"

namespace weft::aggregation {
namespace {

// Multiplies each element; overflow wraps, as in a sum of `factor` terms.
void multiply(std::span<std::byte> elements, std::uint32_t factor) {
  for (std::size_t at = 0; at < elements.size(); at += 4) {
    std::byte* element = elements.data() + at;
    store_big_endian(element, load_big_endian<std::uint32_t>(element) * factor);
  }
}

}  // namespace

DummyTransport::DummyTransport(const DummyOptions& options)
    : options_(options), wakes_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

// Makes a result from a packet. The exponents stay the same, because all workers are assumed to send equal ones.
std::vector<std::byte> DummyTransport::answer_to(std::span<const std::byte> packet) const {
  std::vector<std::byte> answer(packet.begin(), packet.end());
  const std::optional<Packet> sent = decode(packet);
  if (!sent) return answer;
  Head head = sent->head;
  head.kind = Kind::kResult;
  head.rank = 0;
  const Body body = write_head(answer, head, {sent->exponents.size(), sent->element_count()});
  if (options_.process_packets) multiply(body.elements, static_cast<std::uint32_t>(options_.workers));
  if (head.mode == Mode::kExtended) PacketMac().seal(answer);
  return answer;
}

Duration DummyTransport::time_of(std::size_t bytes) const {
  const double nanoseconds = static_cast<double>(8 * bytes) * 1000 / options_.megabits_per_second;
  return Duration(static_cast<Duration::rep>(nanoseconds));
}

void DummyTransport::send(Outbox& out) {
  constexpr auto kAny = std::numeric_limits<std::size_t>::max();
  link_free_ = std::max(link_free_, steady_now());
  out.for_each_run(kAny, kAny, [&](std::span<const Route> receivers, std::span<const Outbox::Packet> packets) {
    for (const Outbox::Packet packet : packets) {
      link_free_ += time_of(packet.size());
      answers_.push_back({link_free_, receivers.front().peer, answer_to(packet)});
    }
  });
  out.clear();
}

bool DummyTransport::receive(Duration longest, const Receiver& receiver) {
  const Time now = steady_now();
  const Duration wait =
      std::max(Duration(0), answers_.empty() ? longest : std::min(longest, answers_.front().due - now));
  const timespec timeout = to_timespec(wait);
  pollfd woken{.fd = wakes_.get(), .events = POLLIN, .revents = 0};
  if (::ppoll(&woken, 1, &timeout, nullptr) > 0) {
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(wakes_.get(), &count));
  }
  bool any = false;
  for (const Time here = steady_now(); !answers_.empty() && answers_.front().due <= here; any = true) {
    const Answer answer = std::move(answers_.front());
    answers_.pop_front();
    receiver({answer.bytes, answer.bytes.size(), answer.from});
  }
  return any;
}

void DummyTransport::wake() { static_cast<void>(::eventfd_write(wakes_.get(), 1)); }

}  // namespace weft::aggregation
