// UDP sockets, with the kernel's segmentation both ways (GSO, GRO): one system call moves up to 64 packets.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "weft/aggregation/lookout.h"
#include "weft/aggregation/outbox.h"
#include "weft/aggregation/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

struct UdpOptions {
  Address local;             // port 0: any free one; address 0: all of the host's
  bool segmentation = true;  // GSO and GRO where the kernel has them; false: one packet a call
  // A switch's socket serves many, and no single receiver may stop it: what cannot leave is lost and counted, be it
  // that the send buffer is full or that such a packet can never leave. A worker's waits a little, or throws. And where
  // it listens on all addresses, runs tell which of them they came to, and answers leave from there.
  bool for_switch = false;
  int buffer_bytes = 8 << 20;  // for each direction; without CAP_NET_ADMIN the kernel's limit may cut it
};

class UdpTransport final : public Transport {
 public:
  // Throws std::system_error naming the address that could not be had.
  explicit UdpTransport(const UdpOptions& options);

  [[nodiscard]] Address local() const override;
  void send(Outbox& out) override;
  bool receive(Duration longest, const Receiver& receiver) override;
  void wake() override;
  [[nodiscard]] int descriptor() const override { return socket_.get(); }
  bool accept_only(std::span<const Address> sources) override;

  [[nodiscard]] bool segments_out() const { return gso_; }
  [[nodiscard]] bool segments_in() const { return gro_; }
  // Bytes that the kernel grants for packets not yet read; about half of them are payload.
  [[nodiscard]] int receive_buffer() const;
  [[nodiscard]] std::uint64_t lost_on_sending() const override { return lost_; }

 private:
  void send_run(const Route& to, std::span<const Outbox::Packet> packets);
  [[nodiscard]] bool try_send(const Route& to, std::span<const Outbox::Packet> packets);
  [[nodiscard]] bool wait_for_room() const;
  [[nodiscard]] bool wait(Duration longest) const;
  bool read_after_waiting(Duration longest, const Receiver& receiver);
  bool read_run(const Receiver& receiver);
  void drain_wakes() const;

  UdpOptions options_;
  files::FileDescriptor socket_;
  files::FileDescriptor wakes_;  // an eventfd
  bool gso_ = false;
  bool gro_ = false;
  std::uint64_t lost_ = 0;
  Lookout lookout_;
  // The kernel copies faster to where lines of the cache begin.
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> buffer_;
};

// So many consecutive ports from options.local's on, for a SwitchLoop. Throws std::system_error naming the one that
// cannot be had, std::invalid_argument for several ports from no particular one on.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> open_udp_ports(UdpOptions options, int ports);

}  // namespace weft::aggregation
