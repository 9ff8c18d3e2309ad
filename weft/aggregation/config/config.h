// Configuration of a worker: SwitchML's configuration file and weft's additions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::aggregation {

// Thrown for an invalid file, key or value. The message names it and the allowed values.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Section [general], with SwitchML's names and defaults. torch.distributed overrides rank and num_workers.
struct GeneralConfig {
  std::int64_t rank = 0;
  std::int64_t num_workers = 1;
  std::int64_t num_worker_threads = 4;
  std::int64_t max_outstanding_packets = 256;  // per worker, over all its threads
  std::int64_t packet_numel = 0;               // 0: chosen by the route; classic: 64 or 256, as in SwitchML's switch
  std::string backend = "udp";                 // dummy | dpdk | udp; SwitchML's default is dummy
  std::string scheduler = "fifo";
  std::string prepostprocessor = "cpu_exponent_quantizer";  // or bypass: int32 only
  bool instant_job_completion = false;
  std::string controller_ip = "127.0.0.1";
  std::int64_t controller_port = 50099;
  double timeout = 10;  // ms until the first retransmission
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
  std::int64_t pool_size = 0;  // 0: as many as the window requires
  std::int64_t pool_cache_size = 512;
  std::int64_t burst_rx = 64;
  std::int64_t burst_tx = 64;
  std::int64_t bulk_drain_tx_us = 100;
};

// weft's own backend: UDP sockets, which need no special hardware or privileges.
struct UdpConfig {
  std::string worker_ip;         // empty: the local address of the route to the switch
  std::int64_t worker_port = 0;  // 0: any free port; ranks of a host cannot share a port
  bool segmentation_offload = true;
  bool shared_memory = true;  // with a switch on the same machine
};

// Section [weft]: settings that SwitchML's file does not have.
struct WeftConfig {
  std::string job = "default";        // name of the key, and of the job in the switch's metrics
  std::string keys;                   // YAML file with the job's key; empty: no key
  std::string mode = "extended";      // or classic: SwitchML's packet format, for its hardware
  std::string fallback = "auto";      // backend for other operations: mpi, gloo, or auto: chosen by the launcher
  bool exact = false;                 // sum floats with the fallback, because the switch rounds differently
  std::int64_t setup_timeout_s = 30;  // how long workers try to reach the switch, at the start and after it disappears
};

struct Config {
  GeneralConfig general;
  DummyConfig dummy;
  DpdkConfig dpdk;
  UdpConfig udp;
  WeftConfig weft;
  std::string source;  // path of the file; empty: environment only
};

// SwitchML's search order: /etc/switchml.cfg, ./switchml.cfg, ./switchml-<hostname>.cfg.
[[nodiscard]] std::vector<std::string> config_search_order();

// Parses the text of a configuration file; `file` is for messages. Throws ConfigError.
[[nodiscard]] Config parse_config(const std::string& text, const std::string& file);

// Reads the file that WEFT_SML_CONFIG names, or the first of `places` that exists; variables WEFT_SML_<KEY> override
// it. Throws ConfigError, also if there is neither a file nor a variable.
[[nodiscard]] Config load_config(const std::vector<std::string>& places, const std::vector<std::string>& environment);
// Uses this process's environment and config_search_order().
[[nodiscard]] Config load_config();

}  // namespace weft::aggregation
