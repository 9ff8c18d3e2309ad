#include "weft/aggregation/source_filter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

namespace weft::aggregation {
namespace {

// Of a UDP socket's packet, offset 0 is the UDP header; the IPv4 header is reached from the network offset.
constexpr std::uint32_t kSourceAddress = static_cast<std::uint32_t>(SKF_NET_OFF) + 12;
constexpr std::uint32_t kSourcePort = 0;
constexpr std::uint32_t kWholePacket = 0xffffffff;
constexpr std::uint32_t kNothing = 0;

// Returns the packet if it is from there, else goes on behind.
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

// Whether the kernel took it; else what was there before stays.
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
  // An old filter must not lock out who is new. The kernel counts both until the new one is in (net.core.optmem_max).
  detach(socket);
  return attach(socket, sources) || attach(socket, hosts_of(sources));
}

}  // namespace weft::aggregation
