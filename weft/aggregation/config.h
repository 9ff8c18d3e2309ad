// What a worker needs to know to use a switch: SwitchML's configuration file with its names, and weft's additions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::aggregation {

// A file, key or value that cannot be used; the text names it and says what is allowed.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Section [general], with SwitchML's names and defaults. Under torch.distributed rank and num_workers are the group's.
struct GeneralConfig {
  std::int64_t rank = 0;
  std::int64_t num_workers = 1;
  std::int64_t num_worker_threads = 4;
  std::int64_t max_outstanding_packets = 256;  // of a worker, over all its threads
  std::int64_t packet_numel = 256;             // classic: 64 or 256, what SwitchML's switch can add
  std::string backend = "udp";                 // dummy | dpdk | udp; SwitchML has dpdk here
  std::string scheduler = "fifo";
  std::string prepostprocessor = "cpu_exponent_quantizer";  // or bypass: int32 only
  bool instant_job_completion = false;
  std::string controller_ip = "127.0.0.1";
  std::int64_t controller_port = 50099;
  double timeout = 10;  // ms, of the first retransmission
  std::int64_t timeout_threshold = 100;
  std::int64_t timeout_threshold_increment = 100;
};

struct DummyConfig {
  double bandwidth = 1000;  // Mbit/s
  bool process_packets = true;
};

struct DpdkConfig {
  std::int64_t worker_port = 4000;
  std::string worker_ip;
  std::string cores = "0-3";
  std::string extra_eal_options;
  std::int64_t port_id = 0;
  std::int64_t pool_size = 0;  // 0: as many as the window needs
  std::int64_t pool_cache_size = 512;
  std::int64_t burst_rx = 64;
  std::int64_t burst_tx = 64;
  std::int64_t bulk_drain_tx_us = 100;
};

// weft's own: sockets, no special hardware or rights.
struct UdpConfig {
  std::string worker_ip;         // empty: the address from which the switch is reached
  std::int64_t worker_port = 0;  // 0: a free one; ranks of one host cannot share one
  bool segmentation_offload = true;
};

// Section [weft]: what SwitchML's file has no words for.
struct WeftConfig {
  std::string job = "default";        // whose key is used, and what the switch counts under
  std::string keys;                   // YAML file with the job's key; empty: the switch must admit without
  std::string mode = "extended";      // or classic: byte for byte SwitchML's packets, for its hardware
  std::string fallback = "auto";      // what the switch cannot do: mpi, gloo, or whichever the job was started for
  bool exact = false;                 // floats take the fallback, which rounds as MPI or gloo do
  std::int64_t setup_timeout_s = 30;  // how long workers look for the switch, at the start and after it went away
};

struct Config {
  GeneralConfig general;
  DummyConfig dummy;
  DpdkConfig dpdk;
  UdpConfig udp;
  WeftConfig weft;
  std::string source;  // the file it came from; empty: the environment only
};

// SwitchML's search order: /etc/switchml.cfg, ./switchml.cfg, ./switchml-<hostname>.cfg.
[[nodiscard]] std::vector<std::string> config_search_order();

// Text of a configuration file; `file` is for messages.
[[nodiscard]] Config parse_config(const std::string& text, const std::string& file);

// The file that WEFT_SML_CONFIG names, or the first found of `places`, with the variables WEFT_SML_<KEY> over it.
// Throws ConfigError if there is neither a file nor a variable: nobody then has said where the switch is.
[[nodiscard]] Config load_config(const std::vector<std::string>& places, const std::vector<std::string>& environment);
// The same with this process's environment and SwitchML's places.
[[nodiscard]] Config load_config();

}  // namespace weft::aggregation
