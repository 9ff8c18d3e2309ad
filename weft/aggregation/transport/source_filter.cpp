#include "weft/aggregation/transport/source_filter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

namespace weft::aggregation {
namespace {

// In filters of UDP sockets, offset 0 is the UDP header; SKF_NET_OFF addresses the IPv4 header.
constexpr std::uint32_t kSourceAddress = static_cast<std::uint32_t>(SKF_NET_OFF) + 12;
constexpr std::uint32_t kSourcePort = 0;
constexpr std::uint32_t kWholePacket = 0xffffffff;
constexpr std::uint32_t kNothing = 0;

// Accepts packets from `source`; otherwise continues with the next instruction after this block.
void append_source(std::vector<sock_filter>& program, const Address& source) {
  const auto behind = static_cast<std::uint8_t>(source.port != 0 ? 3 : 1);
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSourceAddress));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, source.ipv4, 0, behind));
  if (source.port != 0) {
    program.push_back(BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kSourcePort));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, source.port, 0, 1));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kWholePacket));
}

// Returns whether the kernel accepted the filter. On failure, the previous filter stays.
bool attach(int socket, std::span<const Address> sources) {
  std::vector<sock_filter> program;
  for (const Address& source : sources) append_source(program, source);
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kNothing));
  if (program.size() > BPF_MAXINSNS) return false;
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

void detach(int socket) {
  const int unused = 0;
  setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
}

std::vector<Address> hosts_of(std::span<const Address> sources) {
  std::vector<Address> hosts(sources.begin(), sources.end());
  for (Address& host : hosts) host.port = 0;
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

}  // namespace

bool filter_sources(int socket, std::span<const Address> sources) {
  if (attach(socket, sources)) return true;
  // The old filter must not lock out new workers. The kernel counts both filters towards net.core.optmem_max until the
  // new one is attached, so the old one is detached first.
  detach(socket);
  return attach(socket, sources) || attach(socket, hosts_of(sources));
}

}  // namespace weft::aggregation
