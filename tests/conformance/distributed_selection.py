"""The representative part of PyTorch's distributed tests, which `make test` runs.

It has at least one test per feature that works without a GPU, and per variant (default group, group of all ranks,
subgroup, asynchronous, complex numbers, profiled). Tests that need 4 or 8 ranks skip themselves on fewer.
"""

BY_FEATURE: dict[str, tuple[str, ...]] = {
    "groups": (
        "test_Backend_enum_class",
        "test_destroy_group",
        "test_get_backend",
        "test_get_rank_size_group",
        "test_new_subgroups_with_group_param",
    ),
    "point to point": (
        "test_batch_isend_irecv_gloo_tags",
        "test_irecv",
        "test_isend_autograd_profiler",
        "test_send_recv",
        "test_send_recv_any_source",
        "test_send_recv_with_tag_torch_profiler",
    ),
    "broadcast and reduce": (
        "test_broadcast",
        "test_broadcast_group",
        "test_reduce_full_group_product",
        "test_reduce_sum",
        "test_reduce_sum_twice",
    ),
    "allreduce": (
        "test_all_reduce_coalesced_full_group_max",
        "test_all_reduce_coalesced_sum",
        "test_all_reduce_complex_unsupported_ops",
        "test_all_reduce_full_group_min",
        "test_all_reduce_group_sum",
        "test_all_reduce_sum_async",
        "test_all_reduce_sum_complex",
        "test_sparse_all_reduce_sum",
    ),
    "gather and scatter": (
        "test_all_gather",
        "test_all_gather_coalesced_with_empty",
        "test_all_gather_complex",
        "test_gather_checks",
        "test_gather_full_group",
        "test_scatter",
        "test_scatter_complex",
    ),
    "all to all": (
        "test_all_to_all_complex",
        "test_all_to_all_full_group",
        "test_all_to_all_single_equal_split_full_group",
        "test_all_to_all_single_unequal_split",
    ),
    "objects": (
        "test_all_gather_object_subgroup",
        "test_gather_object",
        "test_scatter_object_list",
    ),
    "barriers and timeouts": (
        "test_barrier",
        "test_barrier_timeout_full_group",
        "test_barrier_timeout_global",
        "test_monitored_barrier_gloo",
        "test_monitored_barrier_gloo_rank_0_timeout",
    ),
    "DDP": (
        "test_DistributedDataParallelCPU_grad_is_view",
        "test_DistributedDataParallel_requires_grad",
        "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
        "test_ddp_create_graph",
        "test_ddp_logging_data_cpu",
        "test_get_future",
        "test_grads_same_across_ranks_with_no_sync",
        "test_static_graph_api_cpu",
    ),
}

REPRESENTATIVE = frozenset(test for tests in BY_FEATURE.values() for test in tests)
