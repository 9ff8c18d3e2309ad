// Transport over UDP sockets. With segmentation offload (GSO, GRO), one system call moves up to 64 packets.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/spin_wait.h"
#include "weft/aggregation/transport/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

struct UdpOptions {
  Address local;             // port 0: any free port; address 0: all addresses of the host
  bool segmentation = true;  // use GSO and GRO if available; false: one packet per call
  // A switch drops and counts packets that it cannot send, because one receiver must not stop it; a worker waits
  // briefly or throws. A switch that listens on all addresses answers from the address that a packet was sent to.
  bool for_switch = false;
  int buffer_bytes = 8 << 20;  // per direction; without CAP_NET_ADMIN, the kernel may grant less
};

class UdpTransport final : public Transport {
 public:
  // Throws std::system_error with the address if it is not available.
  explicit UdpTransport(const UdpOptions& options);

  [[nodiscard]] Address local() const override;
  void send(Outbox& out) override;
  bool receive(Duration longest, const Receiver& receiver) override;
  void wake() override;
  [[nodiscard]] int descriptor() const override { return socket_.get(); }
  bool accept_only(std::span<const Address> sources) override;

  [[nodiscard]] bool segments_out() const { return gso_; }
  [[nodiscard]] bool segments_in() const { return gro_; }
  // Bytes that the kernel grants for unread packets; about half of them are payload.
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
  SpinWait spin_wait_;
  // A cache line: aligned memory makes the kernel's copy faster.
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> buffer_;
};

// Opens `ports` consecutive ports from options.local.port on, for a SwitchLoop. Throws std::system_error with the port
// that is not available, and std::invalid_argument if ports > 1 and options.local.port is 0.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> open_udp_ports(UdpOptions options, int ports);

}  // namespace weft::aggregation
