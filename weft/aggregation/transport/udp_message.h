// Message for sendmsg() and recvmsg(): memory, peer address and control fields.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::aggregation {

class UdpMessage {
 public:
  explicit UdpMessage(std::span<iovec> memory) {
    header.msg_name = &peer;
    header.msg_namelen = sizeof peer;
    header.msg_iov = memory.data();
    header.msg_iovlen = memory.size();
  }

  void ask_for_segments_of(std::uint16_t size) { append(SOL_UDP, UDP_SEGMENT, size); }
  void leave_from(std::uint32_t ipv4) {
    in_pktinfo info{};
    info.ipi_spec_dst.s_addr = htonl(ipv4);
    append(IPPROTO_IP, IP_PKTINFO, info);
  }

  // Makes room for control fields. Call it before receiving.
  void make_room_for_fields() {
    header.msg_control = control_.data();
    header.msg_controllen = control_.size();
  }
  // Size of the packets that GRO merged; `all` if it merged none.
  [[nodiscard]] std::size_t segment_size(std::size_t all) {
    const int size = field<int>(SOL_UDP, UDP_GRO);
    return size > 0 ? static_cast<std::size_t>(size) : all;
  }
  // Local address that the message was sent to; 0 if the socket does not request it.
  [[nodiscard]] std::uint32_t came_to() { return ntohl(field<in_pktinfo>(IPPROTO_IP, IP_PKTINFO).ipi_spec_dst.s_addr); }

  sockaddr_in peer{};
  msghdr header{};

 private:
  template <class Value>
  void append(int level, int type, const Value& value) {
    auto* field = reinterpret_cast<cmsghdr*>(control_.data() + used_);
    field->cmsg_level = level;
    field->cmsg_type = type;
    field->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(field), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
    header.msg_control = control_.data();
    header.msg_controllen = used_;
  }
  // Returns a control field, or zero if the kernel did not add it.
  template <class Value>
  [[nodiscard]] Value field(int level, int type) {
    Value value{};
    for (cmsghdr* field = CMSG_FIRSTHDR(&header); field != nullptr; field = CMSG_NXTHDR(&header, field)) {
      if (field->cmsg_level != level || field->cmsg_type != type) continue;
      std::memcpy(&value, CMSG_DATA(field), sizeof value);
      break;
    }
    return value;
  }

  std::size_t used_ = 0;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in_pktinfo))> control_{};
};

}  // namespace weft::aggregation
